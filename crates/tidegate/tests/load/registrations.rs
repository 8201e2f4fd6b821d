//! Tests of `load register`, with our echo as the registrar, and of what an echo answers.

use std::process::{Command, Output};

use serde_json::Value;

use crate::stage::{Running, TIDEGATE, answerer, complete, json, sipp_start};

/// Registers users. Returns the output and the figures.
fn register(target: &str, args: &[&str]) -> (Output, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("register.json");
    let mut command = Command::new(TIDEGATE);
    command.args(["load", "register", target]).args(args).arg("--json").arg(&file);
    (command.output().unwrap(), json(&file))
}

#[test]
fn users_register_over_every_transport() {
    for (transport, connections, opened) in [
        ("udp", "1", 0),
        ("tcp", "1", 1),
        ("tcp", "20", 20),
        ("tcp", "each", 100),
        ("tls", "each", 100),
        ("ws", "1", 1),
        ("wss", "20", 20),
        ("wss", "each", 100),
    ] {
        let (uas, address) = answerer(&["--echo", "--transport", transport]);
        let load = ["--rate", "200", "--count", "100", "--users", "100", "--transport", transport];
        let more = ["--connections", connections, "--tls-insecure"];
        let (done, figures) = register(&address, &[&load[..], &more].concat());
        let table = String::from_utf8(done.stdout).unwrap();
        let what = format!("{transport} {connections}: {table}");
        assert_eq!(done.status.code(), Some(0), "{what}");
        for row in ["registered      100, ", "failed          0 (none)", "response time   mean "] {
            assert!(table.contains(row), "{what}");
        }
        assert_eq!(figures["stats"]["registered"], 100, "{what}");
        assert_eq!(figures["stats"]["delay"]["count"], 100, "{what}");
        let streams = &figures["usage"]["streams"];
        assert_eq!(streams["opened"].as_u64().unwrap_or(0), opened, "{what}");
        uas.terminate();
        let (_, text) = uas.end();
        assert!(text.contains("other messages  answered 100, "), "{text}");
    }
}

#[test]
fn an_echo_answers_our_caller_and_sipp() {
    let (uas, address) = answerer(&["--echo"]);
    complete(&address, &["--rate", "200", "--calls", "100"]);
    let (uac, _) = sipp_start(&[&address, "-sn", "uac", "-r", "200", "-m", "100", "-d", "0"]);
    uac.assert_all_well();
    uas.terminate();
    let (_, text) = uas.end();
    assert!(text.contains("other messages  answered 400, "), "INVITE and BYE: {text}");
}

#[test]
fn a_registrar_that_is_silent_fails_the_registrations() {
    let (_uas, address) = answerer(&["--silent"]);
    let load = ["--rate", "100", "--count", "3", "--users", "3", "--t1", "10"];
    let (done, figures) = register(&address, &load);
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(figures["stats"]["failed"]["timeout"], 3);
}

/// A run with keep-alives ends by a signal. It succeeds only if the signal comes after the last
/// registration.
#[test]
fn a_signal_before_the_last_registration_gives_status_1() {
    let (_uas, address) = answerer(&["--echo", "--transport", "tcp"]);
    for (count, expected) in [("2", 0), ("1000", 1)] {
        let mut command = Command::new(TIDEGATE);
        command.args(["load", "register", &address, "--transport", "tcp", "--connections", "2"]);
        command.args(["--users", "1000", "--rate", "20", "--arrivals", "uniform"]);
        command.args(["--count", count, "--keep-alive", "25", "--progress"]);
        let mut register = Running::start(&mut command);
        let few = ["registered 0,", "registered 1,"];
        register.wait_for_progress(|line| !few.iter().any(|few| line.contains(few)));
        register.terminate();
        let (status, text) = register.end();
        assert!(text.contains("failed          0 (none)"), "{text}");
        assert_eq!(status, Some(expected), "{count}: {text}");
    }
}
