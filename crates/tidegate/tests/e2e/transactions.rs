//! Tests of transactions (RFC 3261 §16 and §17), as the peers on both sides see them.

use crate::stage::{Configuration, Impair, Load, Sipp, Stage, Tidegate};

const CALLS: u32 = 100;

/// Runs SIPp with the scenario `caller` against SIPp with the scenarios `callees`, through
/// Tidegate.
fn together(caller: &str, callees: &[&str]) -> (Tidegate, Vec<Sipp>, Stage) {
    let stage = Stage::new();
    let callees: Vec<Sipp> = callees.iter().map(|name| Sipp::callee(&stage, name)).collect();
    let backends: Vec<_> = callees.iter().map(Sipp::address).collect();
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &backends));
    let load = Load { scenario: caller, calls: CALLS, rate_cps: 200, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(CALLS);
    (tidegate, callees, stage)
}

/// RFC 3261 §17.2.1: "The server transaction MUST generate a 100 (Trying) response unless it
/// knows that the TU will generate a provisional or final response within 200 ms".
#[test]
fn a_caller_gets_a_100_before_anything_else() {
    let (tidegate, callees, _stage) = together("uac-trying", &["uas-record-route"]);
    for callee in callees {
        callee.finish().assert_all_well(CALLS);
    }
    let metrics = tidegate.metrics();
    metrics.assert_nothing_held();
    assert!(metrics.sum("replies_total", &[("status", "100")]) >= CALLS.into());
}

#[test]
fn a_busy_callee_is_acknowledged_on_each_hop() {
    let (tidegate, callees, _stage) = together("uac-busy", &["uas-busy"]);
    for callee in callees {
        callee.finish().assert_all_well(CALLS);
    }
    tidegate.metrics().assert_nothing_held();
}

#[test]
fn a_request_that_the_network_duplicates_reaches_the_back_end_once() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[callee.address()]));
    let doubles = Impair::start(&stage, tidegate.address(), &["--duplicate", "100%,0%"]);
    let load = Load { scenario: "uac-rport", calls: CALLS, rate_cps: 200, ..Load::default() };
    Sipp::caller(&stage, doubles.address(), &load).wait().assert_all_well(CALLS);
    callee.finish().assert_all_well(CALLS);
    let metrics = tidegate.metrics();
    let received = |class| metrics.sum("messages_received_total", &[("class", class)]);
    assert!(received("bye") >= u64::from(2 * CALLS));
    // An ACK belongs to no transaction here, so each one is forwarded.
    let forwarded = metrics.sum("messages_forwarded_total", &[("kind", "request")]);
    assert_eq!(forwarded - received("ack"), u64::from(2 * CALLS), "INVITE and BYE, once");
    metrics.assert_nothing_held();
}

/// RFC 3261 §21.5.4: "A client (proxy or UAC) receiving a 503 (Service Unavailable) SHOULD attempt
/// to forward the request to an alternate server."
#[test]
fn calls_skip_a_back_end_that_is_out_of_service() {
    let (tidegate, callees, _stage) =
        together("uac-routes", &["uas-unavailable", "uas-record-route"]);
    let [rejects, serves] = <[Sipp; 2]>::try_from(callees).ok().expect("two callees");
    let rejecting = rejects.address();
    serves.finish().assert_all_well(CALLS);
    let metrics = tidegate.metrics();
    let rejected = metrics.backend("backend_rejections_total", rejecting);
    assert!(rejected > 0);
    rejects.finish().assert_all_well(u32::try_from(rejected).unwrap());
    assert_eq!(metrics.sum("timeouts_total", &[]), 0);
    metrics.assert_nothing_held();
}

/// The caller has got a 100, so it does not retransmit. Tidegate itself tries the other back end.
#[test]
fn calls_skip_an_absent_back_end() {
    let stage = Stage::new();
    let serves = Sipp::callee(&stage, "uas-record-route");
    let backends = [stage.free_address(), serves.address()];
    let configuration =
        Configuration { backend_pause_seconds: 1, ..Configuration::new(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    // The load lasts longer than the pause, so the absent back end is tried again.
    let load = Load { scenario: "uac-trying", calls: 200, rate_cps: 100, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(200);
    serves.finish().assert_all_well(200);
    let metrics = tidegate.metrics();
    assert!(metrics.backend("backend_failures_total", backends[0]) > 0);
    metrics.assert_nothing_held();
}
