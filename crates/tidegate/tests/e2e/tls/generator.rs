//! Tests of the traffic generator over connections and WebSockets through Tidegate, with SIPp and
//! Kamailio as peers.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use super::{Authority, Scene, VALID, listener, secure_listener};
use crate::products::kamailio;
use crate::registered::REGISTRAR;
use crate::stage::{Configuration, Sipp, Stage, Tidegate};

/// Starts a Tidegate with a listener for each transport, in front of these back ends.
fn scene(backends: &[SocketAddr], stage: Stage) -> Scene {
    let authority = Authority::new(&stage, "authority");
    let identity = authority.sign("server", &[&stage.ip().to_string()], VALID);
    let more = [
        listener(&stage, &[&identity], ""),
        secure_listener(&stage, "wss", &[&identity], ""),
        format!("[[listen]]\ntransport = \"ws\"\naddress = \"{}:0\"\n", stage.ip()),
    ];
    let configuration =
        Configuration { more: more.concat(), ..Configuration::with_tcp(&stage, backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    Scene { stage, authority, identity, tidegate }
}

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

/// Returns, for each transport and use of connections, the listener, the options, and the number of
/// connections that a load of 100 needs.
fn ways(scene: &Scene) -> [(SocketAddr, [&'static str; 4], u64); 7] {
    let udp = scene.tidegate.address();
    let (tcp, tls) = (scene.tidegate.tcp_address(), scene.here());
    let [ws, wss] = ["ws", "wss"].map(|transport| scene.tidegate.address_of(transport));
    [
        (udp, ["--transport", "udp", "--connections", "1"], 0),
        (tcp, ["--transport", "tcp", "--connections", "1"], 1),
        (tcp, ["--transport", "tcp", "--connections", "each"], 100),
        (tls, ["--transport", "tls", "--connections", "each"], 100),
        (ws, ["--transport", "ws", "--connections", "1"], 1),
        (wss, ["--transport", "wss", "--connections", "1"], 1),
        (wss, ["--transport", "wss", "--connections", "each"], 100),
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
    let scene = scene(&[callee.address()], stage);
    for (target, way, opened) in ways(&scene) {
        let figures = load(&scene, "uac", target, &[&way[..], &["--calls", "100"]].concat());
        let what = format!("{way:?}");
        assert_eq!(figures["stats"]["completed"], 100, "{what}");
        assert_connections(&figures, opened, &what);
    }
    callee.finish().assert_all_well(700);
    let metrics = scene.tidegate.metrics();
    metrics.assert_nothing_held();
    assert_eq!(metrics.sum("stream_unsent_total", &[]), 0);
    assert_eq!(metrics.sum("tls_handshakes_total", &[("outcome", "completed")]), 201);
    assert_eq!(metrics.sum("websocket_handshakes_total", &[("outcome", "completed")]), 102);
}

/// RFC 7118 §8.2: the BYE of a callee comes back over the WebSocket that the caller has opened.
#[test]
fn callees_hang_up_on_our_calls_over_websockets() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-hangs-up");
    let scene = scene(&[callee.address()], stage);
    for (transport, connections) in [("ws", "1"), ("wss", "each")] {
        let target = scene.tidegate.address_of(transport);
        let args = ["--transport", transport, "--connections", connections, "--calls", "50"];
        let figures = load(&scene, "uac", target, &[&args[..], &["--hold", "30"]].concat());
        assert_eq!(figures["stats"]["hung_up"], 50, "{transport}");
        assert_eq!(figures["stats"]["unexpected"], 0, "{transport}");
    }
    callee.finish().assert_all_well(100);
    scene.tidegate.metrics().assert_nothing_lost();
}

/// A registrar behind Tidegate grants the time that was asked for.
#[test]
fn our_users_register_at_kamailio_over_every_transport() {
    let stage = Stage::new();
    let address = stage.free_address();
    let _kamailio = kamailio(&stage, address, REGISTRAR);
    let scene = scene(&[address], stage);
    for (target, way, opened) in ways(&scene) {
        let asked = ["--count", "100", "--users", "100", "--expires", "120"];
        let figures = load(&scene, "register", target, &[&way[..], &asked].concat());
        let (what, stats) = (format!("{way:?}"), &figures["stats"]);
        assert_eq!(stats["registered"], 100, "{what}: {stats}");
        assert_eq!((&stats["granted_s_min"], &stats["granted_s_max"]), (&120.into(), &120.into()));
        assert_connections(&figures, opened, &what);
    }
}
