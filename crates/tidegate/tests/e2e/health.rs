//! Tests of back ends that are probed, drained, and reconfigured during calls.

use std::fs;
use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::Value;

use crate::products::{ANSWERS, kamailio};
use crate::stage::{
    Configuration, Load, Metrics, Peer, Sipp, Stage, Tidegate, assert_exact, eventually, run_to_end,
};

const PROBED: &str = "[pool.health]\nprobe = \"options\"\ninterval_s = 0.2\ntimeout_ms = 150\n\
                      fall = 3\nrise = 2\n";

const LOAD: Load<'_> = Load {
    scenario: "uac-routes",
    calls: 300,
    rate_cps: 100,
    hold_ms: 1000,
    socket_each: false,
    is_tcp: false,
};

/// Returns the entry of the back end at `address` in the output of `ctl`, as JSON.
fn shown(stage: &Stage, tidegate: &Tidegate, arguments: &[&str], address: SocketAddr) -> Value {
    let (status, said) = tidegate.ctl(stage, &[&["--json"], arguments].concat());
    assert_eq!(status, Some(0), "{said}");
    let pools: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let backends = pools.as_array().unwrap().iter().flat_map(|pool| {
        pool["backends"].as_array().into_iter().flatten().cloned().collect::<Vec<_>>()
    });
    let found = backends.into_iter().find(|b| b["address"] == address.to_string());
    found.unwrap_or_else(|| panic!("no {address} in {said}"))
}

#[test]
fn kamailio_is_probed_stopped_and_found_again() {
    let stage = Stage::new();
    let address = stage.free_address();
    let mut server = kamailio(&stage, address, ANSWERS);
    let mut configuration = Configuration::new(&stage, &[address]);
    configuration.more = PROBED.to_owned();
    let tidegate = Tidegate::start(&stage, &configuration);
    let probes =
        |metrics: &Metrics, outcome| metrics.sum("backend_probes_total", &[("outcome", outcome)]);
    tidegate.wait_for("it answers probes", |metrics| probes(metrics, "answered") >= 5);
    assert_eq!(probes(&tidegate.metrics(), "failed"), 0);

    // Kamailio forwards SIGTERM to its children. SIGKILL would leave children that still answer.
    server.signal(Signal::TERM);
    server.exit();
    tidegate.wait_for("it is found dead", |metrics| {
        metrics.sum("backend_state", &[("state", "down")]) == 1
    });
    assert_eq!(shown(&stage, &tidegate, &["backends"], address)["state"], "down");
    // The back end is down as long as it does not answer, even if it answered shortly before.
    tidegate.wait_for("probes fail", |metrics| probes(metrics, "failed") >= 6);
    assert_eq!(tidegate.metrics().backend("backend_up", address), 0);

    let _server = kamailio(&stage, address, ANSWERS);
    tidegate.wait_for("it is found alive", |metrics| metrics.backend("backend_up", address) == 1);
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("backend_transitions_total", &[]), 2, "down once, and up once");
    metrics.assert_nothing_held();
}

/// A configuration with which Kamailio drops INVITEs silently, as it does with some messages that
/// it cannot parse.
const DROPS: &str = r#"
loadmodule "sl.so"
request_route {
	if (method == "INVITE") { exit; }
	sl_send_reply("200", "OK");
}
"#;

// Kamailio drops the INVITE but answers the following probe, so it stays up. Only the end of
// Kamailio makes it down.
#[test]
fn dropped_requests_do_not_mark_kamailio_as_down_but_its_death_does() {
    let stage = Stage::new();
    let address = stage.free_address();
    let mut server = kamailio(&stage, address, DROPS);
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[address]));
    let peer = Peer::new(stage.ip());
    let asked = |metrics: &Metrics| metrics.sum("probes_out_of_turn_total", &[]);
    let uri = format!("sip:death@{}", tidegate.address());
    for call in 1..=2 {
        let before = asked(&tidegate.metrics());
        peer.send(tidegate.address(), &peer.request("INVITE", &uri, call, 1));
        tidegate.wait_for("it is asked", |metrics| asked(metrics) > before);
        tidegate.wait_for("it is not suspect any more", |_| {
            shown(&stage, &tidegate, &["backends"], address)["state"] == "up"
        });
    }
    assert_eq!(tidegate.metrics().sum("backend_transitions_total", &[]), 0);

    server.signal(Signal::TERM);
    server.exit();
    peer.send(tidegate.address(), &peer.request("INVITE", &uri, 3, 1));
    tidegate.wait_for("it is found dead", |metrics| {
        metrics.sum("backend_transitions_total", &[("to", "down")]) >= 1
    });
}

#[test]
fn a_back_end_drained_by_an_operator_loses_no_call_and_gets_none() {
    let stage = Stage::new();
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let [stays, drains] = [callees[0].address(), callees[1].address()];
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[stays, drains]));
    let caller = Sipp::caller(&stage, tidegate.address(), &LOAD);
    tidegate.wait_for("calls are up", |metrics| metrics.backend("backend_calls", drains) > 20);

    let name = drains.to_string();
    let after = shown(&stage, &tidegate, &["drain", &name], drains);
    assert_eq!((&after["state"], &after["up"]), (&"draining".into(), &false.into()));
    assert!(after["calls"].as_u64() > Some(0), "it keeps what it has: {after}");
    let assigned = after["assigned"].as_u64();
    let empty = tidegate.wait_for("it is empty", |m| m.backend("backend_calls", drains) == 0);
    assert_eq!(Some(empty.backend("backend_assigned_total", drains)), assigned, "and gets no more");

    let after = shown(&stage, &tidegate, &["enable", &name], drains);
    assert_eq!(after["state"], "up");
    tidegate.wait_for("it has calls again", |m| {
        Some(m.backend("backend_assigned_total", drains)) > assigned
    });
    assert_eq!(shown(&stage, &tidegate, &["disable", &name], drains)["state"], "maintenance");
    caller.wait().assert_all_well(300);
    tidegate.metrics().assert_nothing_held();
    let log = fs::read_to_string(stage.path("tidegate.log")).unwrap();
    for what in ["drain", "enable", "disable"] {
        let told = |line: &&str| {
            line.starts_with(&format!("tidegate: {what} {name}, by ")) && line.ends_with(": done")
        };
        assert_eq!(log.lines().filter(told).count(), 1, "{what}: {log}");
    }
    let (status, said) = tidegate.ctl(&stage, &["drain", "nobody"]);
    assert_eq!(status, Some(2));
    assert!(said.contains("no back end has this name") && said.contains(&name), "{said}");
    for callee in callees {
        callee.finish();
    }
}

#[test]
fn a_configuration_is_read_again_under_load_and_no_call_is_lost() {
    let stage = Stage::new();
    let callees = ["uas-record-route"; 3].map(|scenario| Sipp::callee(&stage, scenario));
    let [stays, goes, comes] = [0, 1, 2].map(|i| callees[i].address());
    let first = Configuration::new(&stage, &[stays, goes]);
    let recording = stage.path("recording");
    let recording = recording.to_str().expect("a path of ours");
    let mut tidegate = Tidegate::start_with(&stage, &first, &["--record", recording]);
    let caller = Sipp::caller(&stage, tidegate.address(), &LOAD);
    tidegate.wait_for("calls are up", |metrics| metrics.backend("backend_calls", goes) > 20);

    let second = Configuration { backends: vec![comes, stays], ..first.clone() };
    second.write(&stage, "tidegate.toml");
    let gone = shown(&stage, &tidegate, &["reload"], goes);
    assert_eq!(gone["state"], "removed");
    let assigned = gone["assigned"].as_u64();
    tidegate.wait_for("the new one has calls", |m| m.backend("backend_assigned_total", comes) > 20);
    let now = shown(&stage, &tidegate, &["backends"], goes);
    assert_eq!(now["assigned"].as_u64(), assigned, "it finishes what it has");

    // A signal causes the second reload, which loads the first configuration again. The removed
    // back end returns in its initial state.
    first.write(&stage, "tidegate.toml");
    tidegate.signal(Signal::HUP);
    eventually("it was read again", || {
        let log = fs::read_to_string(stage.path("tidegate.log")).unwrap();
        log.contains("\ntidegate: reload, by SIGHUP: done\n").then_some(())
    });
    // The count starts at 0 again if all calls of the removed back end have ended.
    tidegate.wait_for("it has new calls", |m| {
        let now = m.backend("backend_assigned_total", goes);
        now > 0 && Some(now) != assigned
    });
    let after = shown(&stage, &tidegate, &["drain", &stays.to_string()], stays);
    assert_eq!(after["state"], "draining");
    caller.wait().assert_all_well(300);
    tidegate.metrics().assert_nothing_held();
    for callee in callees {
        callee.finish();
    }
    // The recording contains all commands and probes of this test as inputs, and the replay
    // reproduces the packets.
    tidegate.stop();
    assert_exact(run_to_end(&stage, &["replay", recording]));
}

/// A configuration of 450 back ends exceeds 32 KiB, which was once too long for a reload.
#[test]
fn a_configuration_of_many_back_ends_is_read_again() {
    let stage = Stage::new();
    let first = Configuration::new(&stage, &[stage.free_address()]);
    let recording = stage.path("recording");
    let record = recording.to_str().unwrap();
    let mut tidegate = Tidegate::start_with(&stage, &first, &["--record", record]);
    let backends = (0..1000).map(|_| stage.free_address()).collect();
    let file = Configuration { backends, ..first.clone() }.write(&stage, "tidegate.toml");
    let mut text = fs::read_to_string(&file).unwrap();
    text += &format!("#{}\n", "x".repeat(600 * 1024));
    fs::write(&file, text).unwrap();
    let (status, said) = tidegate.ctl(&stage, &["reload"]);
    assert_eq!(status, Some(0), "{said}");
    let up = tidegate.metrics().0.lines().filter(|l| l.contains("backend_up{")).count();
    assert_eq!(up, 1000);
    tidegate.stop();
    assert_exact(run_to_end(&stage, &["replay", record]));
}

#[test]
fn unreadable_files_change_nothing() {
    let stage = Stage::new();
    let backends = [stage.free_address(), stage.free_address()];
    let first = Configuration::new(&stage, &backends[..1]);
    let tidegate = Tidegate::start(&stage, &first);
    let rejected = |configuration: &Configuration, why: &str| {
        configuration.write(&stage, "tidegate.toml");
        let (status, said) = tidegate.ctl(&stage, &["reload"]);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(why), "{said}");
        let backends = tidegate.metrics().0.lines().filter(|l| l.contains("backend_up{")).count();
        assert_eq!(backends, 1);
    };
    let both = Configuration { backends: backends.to_vec(), ..first.clone() };
    let wrong = Configuration { more: "[pool.helth]\n".to_owned(), ..both.clone() };
    rejected(&wrong, "did you mean `health`?");
    let shards = "`[server] shards` (from `1` to `2`) cannot be changed in a running process";
    rejected(&Configuration { shards: 2, ..both.clone() }, shards);
    let long = Configuration { more: format!("#{}\n", "x".repeat(16 << 20)), ..both };
    rejected(&long, "bytes, the limit is 16,777,216; restart to apply the configuration");
    tidegate.signal(Signal::HUP);
    eventually("it was rejected", || {
        let log = fs::read_to_string(stage.path("tidegate.log")).unwrap();
        log.contains("\ntidegate: reload, by SIGHUP: failed: ").then_some(())
    });
    assert!(tidegate.get("/readyz").is_some_and(|(status, _)| status == 200));
}
