//! Tests of `load register`, with our echo as the registrar, and of what an echo answers.

use std::net::SocketAddr;

use crate::stage::{Ended, Generator, Load, Sipp, Stage};

/// Registers users.
fn register(stage: &Stage, target: SocketAddr, args: &[&str]) -> Ended {
    Generator::start(stage, &[&["register", &target.to_string()], args].concat()).end()
}

#[test]
fn users_register_over_every_transport() {
    let stage = Stage::new();
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
        let (uas, address) = Generator::answerer(&stage, &["--echo", "--transport", transport]);
        let load = ["--rate", "200", "--count", "100", "--users", "100", "--transport", transport];
        let more = ["--connections", connections, "--tls-insecure"];
        let Ended { status, text, figures } =
            register(&stage, address, &[&load[..], &more].concat());
        let what = format!("{transport} {connections}: {text}");
        assert_eq!(status, Some(0), "{what}");
        for row in ["registered      100, ", "failed          0 (none)", "response time   mean "] {
            assert!(text.contains(row), "{what}");
        }
        assert_eq!(figures["stats"]["registered"], 100, "{what}");
        assert_eq!(figures["stats"]["delay"]["count"], 100, "{what}");
        let streams = &figures["usage"]["streams"];
        assert_eq!(streams["opened"].as_u64().unwrap_or(0), opened, "{what}");
        let text = uas.stop().text;
        assert!(text.contains("other messages  answered 100, "), "{text}");
    }
}

#[test]
fn an_echo_answers_our_caller_and_sipp() {
    let stage = Stage::new();
    let (uas, address) = Generator::answerer(&stage, &["--echo"]);
    Generator::complete(&stage, address, &["--rate", "200", "--calls", "100"]);
    let load = Load { calls: 100, rate_cps: 200, ..Load::default() };
    Sipp::caller(&stage, address, &load).wait().assert_all_well(100);
    let text = uas.stop().text;
    assert!(text.contains("other messages  answered 400, "), "INVITE and BYE: {text}");
}

#[test]
fn a_registrar_that_is_silent_fails_the_registrations() {
    let stage = Stage::new();
    let (_uas, address) = Generator::answerer(&stage, &["--silent"]);
    let load = ["--rate", "100", "--count", "3", "--users", "3", "--t1", "10"];
    let ended = register(&stage, address, &load);
    assert_eq!(ended.status, Some(1));
    assert_eq!(ended.figures["stats"]["failed"]["timeout"], 3);
}

/// A run with keep-alives ends by a signal. It succeeds only if the signal comes after the last
/// registration.
#[test]
fn a_signal_before_the_last_registration_gives_status_1() {
    let stage = Stage::new();
    let (_uas, address) = Generator::answerer(&stage, &["--echo", "--transport", "tcp"]);
    let address = address.to_string();
    for (count, expected) in [("2", 0), ("1000", 1)] {
        let over = ["register", &address, "--transport", "tcp", "--connections", "2"];
        let load = ["--users", "1000", "--rate", "20", "--arrivals", "uniform"];
        let more = ["--count", count, "--keep-alive", "25", "--progress"];
        let mut register = Generator::start(&stage, &[&over[..], &load, &more].concat());
        let few = ["registered 0,", "registered 1,"];
        register.wait_for_progress(|line| !few.iter().any(|few| line.contains(few)));
        register.terminate();
        let Ended { status, text, .. } = register.end();
        assert!(text.contains("failed          0 (none)"), "{text}");
        assert_eq!(status, Some(expected), "{count}: {text}");
    }
}
