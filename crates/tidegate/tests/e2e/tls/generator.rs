//! Tests of the traffic generator over connections through Tidegate, with SIPp and Kamailio as peers.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use super::Scene;
use crate::products::kamailio;
use crate::registered::REGISTRAR;
use crate::stage::{Sipp, Stage};

/// Runs a command of `tidegate load` at the address of the stage, and returns its figures.
fn load(scene: &Scene, side: &str, target: SocketAddr, args: &[&str]) -> Value {
    let (ip, file) = (scene.stage.ip().to_string(), scene.stage.path("load.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["load", side, &target.to_string(), "--bind", &ip, "--rate", "100"]);
    command.args(args).arg("--ca").arg(&scene.authority.path).arg("--json").arg(&file);
    let mut process = scene.stage.start("load", &mut command);
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{args:?}: {}", process.log());
    serde_json::from_slice(&fs::read(file).expect("a report")).expect("a report is JSON")
}

/// The transports, with the listener for each and the connections that a load of 100 needs.
fn ways(scene: &Scene) -> [(SocketAddr, [&'static str; 4], u64); 4] {
    let udp = scene.tidegate.address();
    let (tcp, tls) = (scene.tidegate.tcp_address(), scene.here());
    [
        (udp, ["--transport", "udp", "--connections", "1"], 0),
        (tcp, ["--transport", "tcp", "--connections", "1"], 1),
        (tcp, ["--transport", "tcp", "--connections", "each"], 100),
        (tls, ["--transport", "tls", "--connections", "each"], 100),
    ]
}

fn assert_connections(figures: &Value, opened: u64, what: &str) {
    let used = &figures["usage"]["streams"];
    if opened == 0 {
        return assert!(used.is_null(), "{what}: {used}");
    }
    assert_eq!(used["opened"], opened, "{what}: {used}");
    for nothing in ["failed", "excess", "unsent"] {
        assert_eq!(used[nothing], 0, "{what}: {nothing}");
    }
}

/// RFC 3261 §18: "All SIP elements MUST implement UDP and TCP."
#[test]
fn our_calls_reach_sipp_over_every_transport() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let scene = Scene::new(&[callee.address()], stage, "");
    for (target, way, opened) in ways(&scene) {
        let figures = load(&scene, "uac", target, &[&way[..], &["--calls", "100"]].concat());
        let what = format!("{way:?}");
        assert_eq!(figures["stats"]["completed"], 100, "{what}");
        assert_connections(&figures, opened, &what);
    }
    callee.finish().assert_all_well(400);
    let metrics = scene.tidegate.metrics();
    metrics.assert_nothing_held();
    assert_eq!(metrics.sum("stream_unsent_total", &[]), 0);
    assert_eq!(metrics.sum("tls_handshakes_total", &[("outcome", "completed")]), 100);
}

/// A registrar behind Tidegate grants the time that was asked for.
#[test]
fn our_users_register_at_kamailio_over_every_transport() {
    let stage = Stage::new();
    let address = stage.free_address();
    let _kamailio = kamailio(&stage, address, REGISTRAR);
    let scene = Scene::new(&[address], stage, "");
    for (target, way, opened) in ways(&scene) {
        let asked = ["--count", "100", "--users", "100", "--expires", "120"];
        let figures = load(&scene, "register", target, &[&way[..], &asked].concat());
        let (what, stats) = (format!("{way:?}"), &figures["stats"]);
        assert_eq!(stats["registered"], 100, "{what}: {stats}");
        assert_eq!((&stats["granted_s_min"], &stats["granted_s_max"]), (&120.into(), &120.into()));
        assert_connections(&figures, opened, &what);
    }
}
