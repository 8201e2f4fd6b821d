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

#[test]
fn options_to_a_user_go_to_a_back_end() {
    let stage = Stage::new();
    let (caller, backend) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[backend.address()]));
    let uri = format!("sip:bob@{}", tidegate.address());
    caller.send(tidegate.address(), &caller.request("OPTIONS", &uri, 1, 1));
    let request = backend.receive();
    assert_eq!(request.start(), format!("OPTIONS {uri} SIP/2.0"));
    // RFC 3261 §16.6 items 3 and 8.
    assert_eq!(request.field("Max-Forwards"), "69");
    let top = request.field("Via");
    assert!(top.starts_with(&format!("SIP/2.0/UDP {}", tidegate.address())), "{top}");

    backend.send(tidegate.address(), &backend.response(&request, "200 OK"));
    let response = caller.receive();
    assert_eq!((response.status(), response.fields("Via").count()), (200, 1));
}

#[test]
fn the_callee_may_end_the_call() {
    let stage = Stage::new();
    let (caller, backend) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[backend.address()]));
    let here = tidegate.address();
    let uri = format!("sip:bob@{here}");
    caller.send(here, &caller.request("INVITE", &uri, 1, 1));
    let invite = backend.receive();
    let ok = backend.accept(&invite, here, &caller);

    // RFC 3261 §12.1.1: the route set of the callee is the Record-Route of the request, in the same
    // order.
    let contact = invite.field("Contact").trim_matches(['<', '>']);
    let bye = backend
        .request("BYE", contact, 2, 7)
        .with("From", ok.field("To"))
        .with("To", invite.field("From"))
        .with("Call-ID", invite.field("Call-ID"))
        .and("Route", invite.field("Record-Route"));
    backend.send(here, &bye);
    let received = caller.receive();
    assert_eq!(received.start(), format!("BYE {contact} SIP/2.0"));
    assert_eq!(received.fields("Route").count(), 0, "RFC 3261 §16.4: our own Route is taken off");
    caller.send(here, &caller.response(&received, "200 OK"));
    assert_eq!(backend.receive().status(), 200);
    tidegate.metrics().assert_nothing_held();
}
