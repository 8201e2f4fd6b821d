//! Tests of a restart in the middle of calls: the state that Tidegate needs is in the Route of the
//! calls.

use std::path::PathBuf;

use rustix::process::Signal;

use crate::stage::{Configuration, Load, Message, Peer, Sipp, Stage, Tidegate};

const CALLS: u32 = 200;

/// Established calls, which last until the test ends them.
struct Held {
    stage: Stage,
    callees: [Sipp; 2],
    /// Each caller with the 200 to its INVITE.
    calls: Vec<(Peer, Message)>,
    tidegate: Tidegate,
}

impl Held {
    const CALLS: u32 = 40;

    fn set_up() -> Self {
        let stage = Stage::new();
        let callees = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
        let backends = callees.each_ref().map(Sipp::address);
        let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &backends));
        let here = tidegate.address();
        let call = |_| {
            let caller = Peer::new(stage.ip());
            let ok = caller.set_up(here);
            (caller, ok)
        };
        let calls = (0..Self::CALLS).map(call).collect();
        // When this OPTIONS is answered, Tidegate has forwarded every ACK.
        let last = Peer::new(stage.ip());
        last.ask(here, &last.request("OPTIONS", &format!("sip:{here}"), 1, 1));
        Self { stage, callees, calls, tidegate }
    }

    /// Ends all calls. The response to each BYE must have this status.
    #[track_caller]
    fn hang_up(&self, status: u16) {
        for (caller, ok) in &self.calls {
            assert_eq!(caller.hang_up(self.tidegate.address(), ok), status);
        }
    }

    /// Ends Tidegate, and starts it again on the same port with that `state_dir`.
    fn restart(&mut self, signal: Signal, state_dir: PathBuf) {
        self.tidegate.signal(signal);
        let status = self.tidegate.exit();
        assert_eq!(status.success(), signal == Signal::TERM, "{status}");
        let configuration = Configuration { state_dir, ..self.tidegate.configuration().clone() };
        self.tidegate = Tidegate::start(&self.stage, &configuration);
    }
}

fn every_bye_arrives_after(signal: Signal) {
    let mut held = Held::set_up();
    let same = held.tidegate.configuration().state_dir.clone();
    held.restart(signal, same);
    held.hang_up(200);
    let metrics = held.tidegate.metrics();
    assert!(metrics.sum("messages_received_total", &[("class", "bye")]) >= Held::CALLS.into());
    assert_eq!(metrics.sum("backend_assigned_total", &[]), 0, "no BYE counted as a new request");
    metrics.assert_nothing_held();
    // A BYE at the wrong back end fails there, and the right back end misses it.
    for calls in held.callees.map(Sipp::finish) {
        calls.assert_all_well(Held::CALLS / 2);
    }
}

#[test]
fn every_bye_finds_its_back_end_after_sigterm() {
    every_bye_arrives_after(Signal::TERM);
}

#[test]
fn every_bye_finds_its_back_end_after_sigkill() {
    every_bye_arrives_after(Signal::KILL);
}

#[test]
fn without_the_key_no_bye_finds_its_back_end() {
    let mut held = Held::set_up();
    let other = held.stage.path("other-state");
    held.restart(Signal::TERM, other);
    held.hang_up(481);
    let metrics = held.tidegate.metrics();
    assert!(metrics.sum("replies_total", &[("status", "481")]) >= Held::CALLS.into());
    assert_eq!(metrics.sum("messages_forwarded_total", &[]), 0);
}

/// A stateless policy sends a retransmitted INVITE to the same back end as the first one. So
/// retransmissions replace the messages that are lost with the process.
#[test]
fn a_kill_under_traffic_loses_no_call() {
    let stage = Stage::new();
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let backends = callees.each_ref().map(Sipp::address);
    let configuration = Configuration { policy: "hash", ..Configuration::new(&stage, &backends) };
    let mut tidegate = Tidegate::start(&stage, &configuration);
    let load = Load {
        scenario: "uac-routes",
        calls: 3 * CALLS,
        rate_cps: 200,
        // Both kills may lose an ACK. The caller then sends it again before the BYE, because the
        // 200 is retransmitted after 0.5, 1.5 and 3.5 s.
        hold_ms: 4000,
        ..Load::default()
    };
    let caller = Sipp::caller(&stage, tidegate.address(), &load);
    for _ in 0..2 {
        tidegate.wait_for("calls are being set up", |metrics| {
            metrics.sum("messages_received_total", &[("class", "ack")]) >= CALLS.into()
        });
        tidegate = tidegate.killed_and_restarted(&stage);
    }
    caller.wait().assert_all_well(3 * CALLS);
    let served = callees.map(Sipp::finish);
    for calls in &served {
        calls.assert_all_well(calls.created);
    }
    assert_eq!(served[0].created + served[1].created, 3 * CALLS);
}

/// The new process does not know the call of a late response, and must not assign it to one of its
/// own calls.
#[test]
fn a_response_to_an_earlier_process_affects_no_new_call() {
    let stage = Stage::new();
    let [before, after, backend] = [0; 3].map(|_| Peer::new(stage.ip()));
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[backend.address()]));
    let here = tidegate.address();
    let ring = |caller: &Peer| {
        caller.send(here, &caller.request("INVITE", &format!("sip:bob@{here}"), 1, 1));
        let invite = backend.receive();
        backend.send(here, &backend.response(&invite, "180 Ringing"));
        assert_eq!(caller.receive().status(), 180);
        invite
    };
    let old = ring(&before);
    let tidegate = tidegate.killed_and_restarted(&stage);
    let new = ring(&after);

    backend.send(here, &backend.response(&old, "486 Busy Here"));
    assert_eq!(before.receive().status(), 486, "it still comes back");
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("transactions_open", &[]), 1);
    assert_eq!(metrics.backend("backend_calls", backend.address()), 1);

    backend.send(here, &backend.response(&new, "200 OK"));
    assert_eq!(after.receive().status(), 200);
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("transactions_open", &[]), 0);
    assert_eq!(metrics.backend("backend_calls", backend.address()), 1);
}

/// Calls ring when the process is killed, and then the callers hang up. Each CANCEL reaches the
/// back end that the hash has selected for its call. The ACK to each 487 reaches that back end too
/// (RFC 3261 §16.10, §16.11).
#[test]
fn ringing_calls_can_be_cancelled_after_sigkill() {
    let stage = Stage::new();
    let callees = ["uas-cancel"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let backends = callees.each_ref().map(Sipp::address);
    let configuration = Configuration { policy: "hash", ..Configuration::new(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let load = Load {
        scenario: "uac-cancel",
        calls: CALLS,
        rate_cps: 200,
        hold_ms: 4000,
        ..Load::default()
    };
    let caller = Sipp::caller(&stage, tidegate.address(), &load);
    tidegate.wait_for("all calls ring", |metrics| {
        metrics.sum("messages_received_total", &[("class", "provisional")]) >= CALLS.into()
    });
    let tidegate = tidegate.killed_and_restarted(&stage);
    caller.wait().assert_all_well(CALLS);
    let metrics = tidegate.metrics();
    assert!(metrics.sum("messages_received_total", &[("class", "cancel")]) >= CALLS.into());
    assert_eq!(metrics.sum("replies_total", &[("status", "481")]), 0);
    metrics.assert_nothing_held();
    let served = callees.map(Sipp::finish);
    for calls in &served {
        calls.assert_all_well(calls.created);
    }
    assert_eq!(served[0].created + served[1].created, CALLS);
}

/// The pool has two back ends with round robin. Both get the CANCEL, and one of them knows its
/// branch from the INVITE. The caller gets the response of that back end.
#[test]
fn a_cancel_after_a_restart_has_the_branch_of_its_invite() {
    let stage = Stage::new();
    let [caller, a, b] = [0; 3].map(|_| Peer::new(stage.ip()));
    let backends = [a.address(), b.address()];
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &backends));
    let here = tidegate.address();
    let invite = caller.request("INVITE", &format!("sip:bob@{here}"), 1, 1);
    caller.send(here, &invite);
    let out = a.receive();
    a.send(here, &a.response(&out, "180 Ringing"));
    while caller.receive().status() != 180 {}
    let tidegate = tidegate.killed_and_restarted(&stage);

    let cancel = caller.request("CANCEL", &format!("sip:bob@{here}"), 1, 1);
    caller.send(here, &cancel.with("Via", invite.field("Via")));
    let [to_a, to_b] = [a.receive(), b.receive()];
    assert_eq!(to_a.field("Via"), out.field("Via"), "RFC 3261 §9.1, §17.2.3");
    b.send(here, &b.response(&to_b, "481 Call/Transaction Does Not Exist"));
    a.send(here, &a.response(&to_a, "200 OK"));
    assert_eq!(caller.receive().status(), 200);
    a.send(here, &a.response(&out, "487 Request Terminated"));
    assert_eq!(caller.receive().status(), 487);
    let ack = caller.request("ACK", &format!("sip:bob@{here}"), 1, 1);
    caller.send(here, &ack.with("Via", invite.field("Via")));
    let ack = a.receive();
    assert!(ack.start().starts_with("ACK ") && ack.field("Via") == out.field("Via"));
    tidegate.metrics().assert_nothing_held();
}
