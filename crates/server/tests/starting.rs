//! Tests of errors that keep a process from starting. Some errors may pass, so a service manager
//! should start the process again. Others last until somebody corrects something.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tidegate_server::config::Config;
use tidegate_server::key;
use tidegate_server::recording::{RecordingTarget, SIZE_MIN};
use tidegate_server::signal::Signals;
use tidegate_server::{RunError, StartError, run};

/// Starts a process that listens at `address`, and returns the error.
fn rejected(state_dir: &Path, address: SocketAddr) -> StartError {
    rejected_with(state_dir, address, "off", None)
}

/// Starts a process that listens at `address`, with this `[admin] address`, and records it at the
/// path `record`. Returns the error.
fn rejected_with(
    state_dir: &Path,
    address: SocketAddr,
    admin: &str,
    record: Option<&Path>,
) -> StartError {
    let text = format!(
        "[[listen]]\ntransport = \"udp\"\naddress = \"{address}\"\n[admin]\naddress = \"{admin}\"\n\
         [[pool]]\nname = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n"
    );
    let file = state_dir.join("tidegate.toml");
    fs::write(&file, text).unwrap();
    let (config, tls, _) = Config::load(&file).unwrap_or_else(|wrong| panic!("{wrong}"));
    let signals = Signals::catch().unwrap();
    let record = record.map(|path| RecordingTarget {
        path: path.to_owned(),
        size: SIZE_MIN,
        configuration: fs::read_to_string(&file).unwrap(),
    });
    match run(&config, tls, state_dir, record.as_ref(), &signals, |_| true) {
        Err(RunError::Start(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_may_come_late_but_a_key_that_others_can_read_stays_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = rejected(dir.path(), taken.local_addr().unwrap());
    // This address is reserved for documentation, so no machine has it. A router may take over an
    // address later, for example by VRRP.
    let late = rejected(dir.path(), "192.0.2.1:5060".parse().unwrap());
    for (error, what, remedy) in [
        (taken, "Address already in use", "stop the program"),
        (late, "Cannot assign requested address", "add this address to the machine"),
    ] {
        assert!(!error.is_lasting && error.place.starts_with("listener "), "{error}");
        assert!(error.what.contains(what) && error.remedy.starts_with(remedy), "{error}");
    }
    let key = dir.path().join(key::FILE_NAME);
    fs::set_permissions(key, Permissions::from_mode(0o644)).unwrap();
    let error = rejected(dir.path(), "127.0.0.1:0".parse().unwrap());
    assert!(error.is_lasting && error.place.ends_with(key::FILE_NAME), "{error}");
}

/// A regression: a process whose start had failed counted as the predecessor of the next process.
#[test]
fn a_start_that_fails_at_the_admin_address_leaves_the_state_directory_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let process = dir.path().join("process");
    fs::write(&process, "7\n").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap().to_string();
    let error = rejected_with(dir.path(), "127.0.0.1:0".parse().unwrap(), &admin, None);
    assert!(error.place.starts_with("admin interface at "), "{error}");
    assert_eq!(fs::read_to_string(process).unwrap(), "7\n");
    assert!(!dir.path().join("backends").exists());
}

/// A regression: a process whose start had failed counted as the predecessor of the next process.
/// In this test, the recording cannot be created at its path.
#[test]
fn a_start_that_fails_at_its_recording_leaves_the_number_of_the_process_before() {
    let dir = tempfile::tempdir().unwrap();
    let process = dir.path().join("process");
    fs::write(&process, "7\n").unwrap();
    let record = dir.path().join("absent/recording");
    let error = rejected_with(dir.path(), "127.0.0.1:0".parse().unwrap(), "off", Some(&record));
    assert_eq!(error.place, record.display().to_string(), "{error}");
    assert_eq!(fs::read_to_string(process).unwrap(), "7\n");
}

/// A regression: systemd started the process again and again. Each attempt opened the listeners
/// first, so at a shared address it took messages away from the other processes.
#[test]
fn a_recording_that_would_replace_another_file_opens_no_listener_and_stays_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let [text, recording, absent] =
        ["text", "recording", "absent/recording"].map(|name| dir.path().join(name));
    fs::write(&text, "listen = 5060").unwrap();
    // The beginning of a recording. The earlier recording is in the way.
    fs::write(&recording, "Tidegate record\n").unwrap();
    fs::write(dir.path().join("recording.old"), "listen = 5060").unwrap();
    for (record, is_lasting) in [(text, true), (recording, true), (absent, false)] {
        let error = rejected_with(dir.path(), address, "off", Some(&record));
        assert_eq!(error.place, record.display().to_string(), "{error}");
        assert_eq!(error.is_lasting, is_lasting, "{error}");
    }
}

/// A regression: each attempt opened the listeners first. At a shared address, the kernel then gave
/// messages to a process that did not start.
#[test]
fn a_start_with_an_unusable_state_directory_opens_no_listener() {
    let dir = tempfile::tempdir().unwrap();
    let backends = dir.path().join("backends");
    fs::write(&backends, [0xff]).unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = rejected(dir.path(), taken.local_addr().unwrap());
    assert_eq!(error.place, backends.display().to_string(), "{error}");
}
