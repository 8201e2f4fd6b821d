//! Tests of the two programs: their contents, and how one runs the other.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");
const LAB: &str = env!("CARGO_BIN_EXE_tidegate-lab");

fn output(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns whether the symbols of the program contain a name of this crate.
fn contains(program: &str, name: &str) -> bool {
    let bytes = fs::read(program).unwrap();
    bytes.windows(name.len()).any(|window| window == name.as_bytes())
}

#[test]
fn the_proxy_contains_no_simulator_and_no_charts() {
    // In symbols, a name follows its length. The name alone may also occur in a message of the
    // program.
    for name in ["12tidegate_sim", "12tidegate_lab", "8plotters"] {
        assert!(!contains(TIDEGATE, name), "{name}");
        assert!(contains(LAB, name), "{name} would be found");
    }
}

#[test]
fn commands_of_the_laboratory_run_from_either_program() {
    for (by_tidegate, by_lab) in [
        (&["lab", "list", "laws"][..], &["list", "laws"][..]),
        (&["lab", "run", "--help"], &["run", "--help"]),
        (&["demo", "--help"], &["demo", "--help"]),
        (&["load", "uac", "--help"], &["load", "uac", "--help"]),
    ] {
        let (one, other) = (output(TIDEGATE, by_tidegate), output(LAB, by_lab));
        assert!(one.status.success(), "{by_tidegate:?}");
        assert_eq!(stdout(&one), stdout(&other), "{by_tidegate:?}");
    }
}

#[test]
fn a_wrong_argument_is_reported_by_the_laboratory() {
    for args in [&["lab", "run"][..], &["load", "uac"], &["replay", "x", "--law", "no-such-law"]] {
        let done = output(TIDEGATE, args);
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8_lossy(&done.stderr).contains("tidegate-lab"), "{args:?}");
    }
}

/// Answers every request at the returned address with this body.
fn answering(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // A request without a body arrives as one segment.
            let read = stream.read(&mut [0; 4096]).unwrap();
            assert!(read > 0);
            let head = format!("Content-Length: {}\r\nConnection: close", body.len());
            write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").unwrap();
        }
    });
    address
}

#[test]
fn the_view_ends_with_the_documented_status() {
    let done = output(TIDEGATE, &["top", "--admin", "a b"]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    let address = answering("{}");
    let args = ["top", "--plain", "--interval", "0.1", "--admin", address.as_str()];
    let mut top = Command::new(TIDEGATE).args(args).stdout(Stdio::piped()).spawn().unwrap();
    drop(top.stdout.take());
    assert!(top.wait().unwrap().success(), "as `| head -1`");
}

#[test]
fn another_program_at_the_admin_address_is_reported() {
    for body in ["[]", "\"ok\"", "{}"] {
        let address = answering(body);
        for command in ["backends", "feedback"] {
            let done = output(TIDEGATE, &["ctl", command, "--admin", &address]);
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(1), "{body}: {said}");
            assert!(
                said.contains(" is not Tidegate; give the address of Tidegate's admin interface"),
                "{body}: {said}"
            );
        }
    }
}

/// The proxy works without the laboratory, and reports the missing program.
#[test]
fn the_proxy_works_alone() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let alone = folder.path().join("tidegate");
    // A copy cannot run while a child of another test has it open for writing. A hard link can.
    fs::hard_link(TIDEGATE, &alone).unwrap();
    let run = |args: &[&str]| {
        Command::new(&alone).args(args).env("PATH", folder.path()).output().unwrap()
    };
    let config = folder.path().join("tidegate.toml");
    let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/tidegate.toml");
    fs::copy(packaged, &config).unwrap();
    let checked = run(&["check", &config.to_string_lossy()]);
    assert!(checked.status.success(), "{checked:?}");

    for args in [&["demo"][..], &["load", "uas"], &["lab"], &["replay", "x", "--law=pi"]] {
        let done = run(args);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {said}");
        let missing = format!(
            "this command needs the program `tidegate-lab`, which is neither in {} nor in PATH",
            Path::display(folder.path())
        );
        assert!(said.contains(&missing), "{args:?}: {said}");
    }
}

/// `make install` and the packages take these files.
#[test]
fn each_program_writes_its_manual_and_completions() {
    for (program, name, command) in [(TIDEGATE, "tidegate", "top"), (LAB, "tidegate-lab", "demo")] {
        let folder = tempfile::tempdir().unwrap();
        let done = output(program, &["manual", &folder.path().to_string_lossy()]);
        assert!(done.status.success(), "{done:?}");
        let has = |file: String| {
            let text = fs::read_to_string(folder.path().join(&file)).unwrap_or_default();
            assert!(text.contains(command), "{file}");
        };
        has(format!("man1/{name}.1"));
        has(format!("man1/{name}-{command}.1"));
        for file in [format!("{name}.bash"), format!("_{name}"), format!("{name}.fish")] {
            has(format!("completions/{file}"));
        }
    }
}
