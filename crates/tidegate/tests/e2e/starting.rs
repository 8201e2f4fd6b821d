//! Tests of errors that keep `tidegate run` from starting: status and remedy. After status 1, which
//! means that the error may go away, systemd starts Tidegate again. After status 2 systemd does
//! not.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use crate::stage::{Configuration, Peer, Stage, Tidegate, run_to_end};

fn configuration(stage: &Stage) -> Configuration {
    Configuration::new(stage, &[SocketAddr::new(stage.ip(), 5070)])
}

/// Runs Tidegate to its end, checks that it refused to start with this status, and returns its
/// output.
#[track_caller]
fn rejected(stage: &Stage, configuration: &Configuration, expected: i32) -> String {
    let file = configuration.write(stage, "rejected.toml");
    let (status, said) = run_to_end(stage, &["run", "--config", file.to_str().unwrap()]);
    assert_eq!(status, Some(expected), "{said}");
    said
}

/// Sockets that several shards share must not be shared with another process.
#[test]
fn an_address_that_another_tidegate_has_is_rejected() {
    let stage = Stage::new();
    let two_shards = Configuration { shards: 2, ..configuration(&stage) };
    let first = Tidegate::start(&stage, &two_shards);
    let said = rejected(&stage, first.configuration(), 1);
    assert!(said.contains("help: stop the program that uses this address"), "{said}");

    let peer = Peer::new(stage.ip());
    let options = peer.request("OPTIONS", &format!("sip:{}", first.address()), 1, 1);
    assert_eq!(peer.ask(first.address(), &options).status(), 200, "the first one is untouched");
}

#[test]
fn a_key_that_others_can_read_is_rejected() {
    let stage = Stage::new();
    drop(Tidegate::start(&stage, &configuration(&stage)));
    let key = stage.path("state").join("route.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let said = rejected(&stage, &configuration(&stage), 2);
    assert!(said.contains("route.key") && said.contains("help: "), "{said}");
}
