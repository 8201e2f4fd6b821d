//! A test of a start with too few file descriptors. It lowers the limit of its process, so it has a
//! program of its own.

use std::fs::{self, File};
use std::iter;

use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use tidegate_server::config::Config;
use tidegate_server::signal::Signals;
use tidegate_server::{Event, RunError, run};

/// The number of file descriptors that `[connections]` of [`CONFIGURATION`] needs.
const DESCRIPTORS: u64 = 1_024;

const CONFIGURATION: &str = "
    [server]
    shards = 2
    [admin]
    address = \"off\"
    [connections]
    accepted_max = 256
    opened_max = 256
    [[listen]]
    transport = \"tcp\"
    address = \"127.0.0.1:0\"
    [[pool]]
    name = \"app\"
    transport = \"tcp\"
    [[pool.backend]]
    uri = \"sip:127.0.0.1:9\"
";

/// A regression: if the thread of a shard could not be started, or if a shard failed at once, the
/// process had already become the predecessor of the next one. The next process then forwarded the
/// CANCEL of an INVITE with the wrong branch.
///
/// Another regression: a start with exactly enough descriptors succeeded, but had no descriptor left
/// to store its seed.
#[test]
fn only_a_start_with_enough_descriptors_replaces_the_number_of_the_process_before() {
    let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (file, process) = (dir.path().join("tidegate.toml"), dir.path().join("process"));
    fs::write(&file, CONFIGURATION).unwrap();
    fs::write(&process, "7\n").unwrap();
    let signals = Signals::catch().unwrap();
    for spare in 0..200 {
        let (config, tls, _) = Config::load(&file).unwrap_or_else(|wrong| panic!("{wrong}"));
        // Opens all descriptors that the limit allows, except `spare`.
        let mut taken: Vec<_> = iter::from_fn(|| File::open("/dev/null").ok()).collect();
        taken.truncate(taken.len().saturating_sub(spare));
        let mut is_ready = false;
        let ended = run(&config, tls, dir.path(), None, &signals, |event| {
            if matches!(event, Event::Started(_)) {
                is_ready = true;
                kill_process(getpid(), Signal::TERM).unwrap();
            }
            true
        });
        drop(taken);
        match ended {
            Ok(_) => {
                assert!(is_ready && spare > 0);
                let stored = fs::read_to_string(&process).unwrap();
                assert_ne!(stored, "7\n", "{spare}: the next process knows this one");
                return;
            }
            Err(RunError::Start(_)) => {
                assert!(!is_ready, "{spare}");
                assert_eq!(fs::read_to_string(&process).unwrap(), "7\n", "{spare}");
            }
            Err(error @ RunError::Shard(_)) => panic!("{spare}: {error}"),
        }
    }
    panic!("200 descriptors do not suffice");
}
