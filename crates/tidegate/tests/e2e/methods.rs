//! Tests of SIP methods besides those of a simple call, within calls and outside them.

use crate::stage::{Configuration, Load, Metrics, Peer, Sipp, Stage, Tidegate};

const CALLS: u32 = 100;

/// Runs SIPp with the scenario `caller` against SIPp with the scenario `callee`, through Tidegate.
fn together(caller: &str, callee: &str) -> Metrics {
    let stage = Stage::new();
    let callees = [callee; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let backends = callees.each_ref().map(Sipp::address);
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &backends));
    let load =
        Load { scenario: caller, calls: CALLS, rate_cps: 200, hold_ms: 100, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(CALLS);
    for calls in callees.map(Sipp::finish) {
        calls.assert_all_well(CALLS / 2);
    }
    tidegate.assert_all_done()
}

#[test]
fn a_cancel_follows_its_invite() {
    let metrics = together("uac-cancel", "uas-cancel");
    assert!(metrics.sum("messages_received_total", &[("class", "cancel")]) >= CALLS.into());
    assert_eq!(metrics.sum("cancels_total", &[]), u64::from(CALLS));
}

#[test]
fn a_reinvite_follows_its_call() {
    together("uac-reinvite", "uas-reinvite");
}

#[test]
fn a_message_is_answered() {
    together("uac-message", "uas-message");
}

#[test]
fn a_registration_is_answered() {
    together("uac-register", "uas-register");
}

#[test]
fn options_to_ourselves_are_answered_here() {
    let stage = Stage::new();
    let backend = Peer::new(stage.ip());
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[backend.address()]));
    let load = Load { scenario: "uac-options", calls: CALLS, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(CALLS);
    let metrics = tidegate.metrics();
    assert!(metrics.sum("replies_total", &[("status", "200")]) >= CALLS.into());
    assert_eq!(metrics.sum("messages_forwarded_total", &[]), 0);
}
