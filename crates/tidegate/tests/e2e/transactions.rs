//! Tests of transactions (RFC 3261 §16 and §17), as the peers on both sides see them.

use crate::stage::{Configuration, Impair, Load, Message, Peer, Sipp, Stage, Tidegate};

mod fork;

const CALLS: u32 = 100;

/// A caller and a back end driven by the test, with Tidegate between them.
struct Between {
    caller: Peer,
    backend: Peer,
    tidegate: Tidegate,
    /// The stage owns the address, so it must not be dropped.
    _stage: Stage,
}

impl Between {
    fn new() -> Self {
        let stage = Stage::new();
        let (caller, backend) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
        let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[backend.address()]));
        Self { caller, backend, tidegate, _stage: stage }
    }

    fn ask(&self, request: &Message) {
        self.caller.send(self.tidegate.address(), request);
    }

    fn answer(&self, request: &Message, status: &str) {
        self.backend.send(self.tidegate.address(), &self.backend.response(request, status));
    }

    fn request(&self, method: &str, number: u32) -> Message {
        let uri = format!("sip:bob@{}", self.tidegate.address());
        self.caller.request(method, &uri, number, 1)
    }

    /// Sends a request through Tidegate, and its response back, so that everything sent before has
    /// arrived. Returns the messages that have arrived at the caller and at the back end, without
    /// the INVITEs that Tidegate retransmits.
    fn came(&self, number: u32) -> (Vec<String>, Vec<String>) {
        let [mut up, mut down] = [Vec::new(), Vec::new()];
        let marker = self.request("MESSAGE", number);
        self.ask(&marker);
        let passed = loop {
            let next = self.backend.receive();
            if next.start() == marker.start() {
                break next;
            }
            if !next.start().starts_with("INVITE") {
                down.push(next.start().to_owned());
            }
        };
        self.answer(&passed, "202 Accepted");
        loop {
            let next = self.caller.receive();
            if next.status() == 202 {
                return (up, down);
            }
            up.push(next.start().to_owned());
        }
    }
}

fn nothing() -> (Vec<String>, Vec<String>) {
    Default::default()
}

/// Returns the ACK to a final response other than 2xx (RFC 3261 §17.1.1.3), or the CANCEL (§9.1).
/// Both belong to the transaction of `invite`.
fn of_transaction(method: &str, invite: &Message, to: &str) -> Message {
    Message(invite.0.replacen("INVITE", method, 1))
        .with("CSeq", &format!("1 {method}"))
        .with("To", to)
}

/// Returns the branch of the top Via.
fn branch(message: &Message) -> &str {
    message.field("Via").split_once("branch=").expect("a branch").1
}

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

/// RFC 3261 §17.1.1.3: the client transaction sends the ACK. §16.7 item 9 and §17.2.1: the caller's
/// own ACK ends at the server transaction.
#[test]
fn the_ack_of_a_486_is_made_here_and_the_callers_ends_here() {
    let s = Between::new();
    let invite = s.request("INVITE", 1);
    s.ask(&invite);
    let forwarded = s.backend.receive();
    s.answer(&forwarded, "486 Busy Here");
    let busy = s.caller.receive();
    assert_eq!(busy.status(), 486);
    let ack = s.backend.receive();
    assert_eq!(ack.start(), forwarded.start().replacen("INVITE", "ACK", 1));
    assert_eq!((branch(&ack), ack.fields("Via").count()), (branch(&forwarded), 1));
    assert_eq!((ack.field("CSeq"), ack.field("To")), ("1 ACK", busy.field("To")));

    s.ask(&of_transaction("ACK", &invite, busy.field("To")));
    assert_eq!(s.came(2), nothing());

    // A retransmitted 486 is acknowledged again and not forwarded.
    s.answer(&forwarded, "486 Busy Here");
    assert_eq!(s.came(3), (Vec::new(), vec![ack.start().to_owned()]));
}

#[test]
fn a_repeated_invite_is_answered_here() {
    let s = Between::new();
    let invite = s.request("INVITE", 1);
    s.ask(&invite);
    let forwarded = s.backend.receive();
    s.answer(&forwarded, "180 Ringing");
    let ringing = s.caller.receive();
    assert_eq!(ringing.status(), 180);
    s.ask(&invite);
    assert_eq!(s.caller.receive().0, ringing.0, "RFC 3261 §17.2.1: the last one again");
    s.answer(&forwarded, "486 Busy Here");
    let busy = s.caller.receive();
    s.ask(&invite);
    assert_eq!(s.caller.receive().0, busy.0);
    let ack = forwarded.start().replacen("INVITE", "ACK", 1);
    assert_eq!(s.came(2).1, [ack], "and the back end has seen one INVITE");
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

/// RFC 3261 §9.1: "If no provisional response has been received, the CANCEL request MUST NOT
/// be sent; rather, the client MUST wait for the arrival of a provisional response".
#[test]
fn a_cancel_waits_for_the_back_end_to_ring() {
    let s = Between::new();
    let invite = s.request("INVITE", 1);
    s.ask(&invite);
    let forwarded = s.backend.receive();
    s.ask(&of_transaction("CANCEL", &invite, invite.field("To")));
    let ok = s.caller.receive();
    assert_eq!((ok.status(), ok.field("CSeq")), (200, "1 CANCEL"));
    assert_eq!(s.came(2), nothing());

    s.answer(&forwarded, "180 Ringing");
    assert_eq!(s.caller.receive().status(), 180);
    let cancel = loop {
        let next = s.backend.receive();
        if !next.start().starts_with("INVITE") {
            break next;
        }
    };
    assert_eq!(cancel.start(), forwarded.start().replacen("INVITE", "CANCEL", 1));
    assert_eq!((branch(&cancel), cancel.fields("Via").count()), (branch(&forwarded), 1));
    s.answer(&cancel, "200 OK");
    s.answer(&forwarded, "487 Request Terminated");
    let terminated = s.caller.receive();
    assert_eq!((terminated.status(), terminated.field("CSeq")), (487, "1 INVITE"));
    s.ask(&of_transaction("ACK", &invite, terminated.field("To")));
    let ack = forwarded.start().replacen("INVITE", "ACK", 1);
    assert_eq!(s.came(3), (Vec::new(), vec![ack]));
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
