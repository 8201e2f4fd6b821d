//! Tests that each rejection by Tidegate itself is recorded, with its cause, caller and callee.

use std::time::Duration;

use crate::script::{BACKEND_A, CALLER, Script, invite, request};
use tidegate_balance::Policy;
use tidegate_control::{Bucket, Reason};
use tidegate_proxy::{RejectionRecord, ReplyReason};

fn only(s: &Script) -> RejectionRecord {
    let kept = s.counters.rejections.list();
    assert_eq!(kept.len(), 1, "{kept:?}");
    kept.into_iter().next().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn each_status_is_kept_and_counted_with_its_reason() {
    let bob = "sip:bob@192.0.2.1";
    // A request of maximum length on arrival is too long when it is forwarded.
    let room = 65_507 - request("INVITE", bob, "c", 1, "X: \r\n").len();
    let cases = [
        (
            request("INVITE", bob, "c", 1, "Route: <sip:203.0.113.9;lr>\r\n"),
            403,
            ReplyReason::Relaying,
        ),
        (request("INVITE", "sips:b@192.0.2.1", "c", 1, ""), 416, ReplyReason::Scheme),
        (request("INVITE", "sip:b@192.0.2.1?x=y", "c", 1, ""), 400, ReplyReason::Malformed),
        (request("INVITE", bob, "c", 1, "Proxy-Require: x\r\n"), 420, ReplyReason::Extension),
        (request("INVITE", bob, "c", 1, "Max-Breadth: 0\r\n"), 440, ReplyReason::Breadth),
        (invite("c").replace("Max-Forwards: 70", "Max-Forwards: 0"), 483, ReplyReason::Hops),
        (request("BYE", bob, "c", 2, "Totag\r\n"), 481, ReplyReason::NoCall),
        (
            request("INVITE", bob, "c", 1, "X: y\r\n").replace("SIP/2.0\r\nVia", "SIP/3.0\r\nVia"),
            505,
            ReplyReason::Malformed,
        ),
        (
            request("INVITE", bob, "c", 1, &format!("X: {}\r\n", "y".repeat(room))),
            513,
            ReplyReason::TooLong,
        ),
    ];
    for (message, status, reason) in cases {
        let mut s = Script::new();
        let sent = s.send(CALLER, &message);
        assert!(
            sent[0].start().contains(&format!(" {status} ")),
            "{reason:?}: {}",
            sent[0].start()
        );
        let kept = only(&s);
        assert_eq!((kept.status, kept.reason), (Some(status), reason));
        assert!(!kept.cause.is_empty() && kept.load.is_none());
        assert_eq!((text(&kept.call_id), kept.source), ("c", crate::script::address(CALLER)));
        assert_eq!(text(&kept.method), message.split(' ').next().unwrap());
        assert_eq!(text(&kept.uri), message.split(' ').nth(1).unwrap());
        assert!(text(&kept.from).contains("tag=") && text(&kept.to).starts_with('<'));
        assert_eq!(s.counters.replied_for(status, reason).get(), 1);
        assert_eq!(s.counters.replied(status).get(), 1);
        // Every request that the gate admitted counts as rejected later.
        let flow = &s.counters.overload.flows[Bucket::Session as usize];
        assert_eq!(
            s.counters.rejected_after(Bucket::Session).get(),
            flow.admitted.get(),
            "{reason:?}"
        );
    }
}

/// Admitted and rejected calls add up to the offered ones, so this call must not count as rejected.
#[test]
fn a_call_rejected_after_it_was_admitted_is_counted_once() {
    let no_hops = invite("c").replace("Max-Forwards: 70", "Max-Forwards: 0");
    for (status, message) in [(483, no_hops), (503, invite("c"))] {
        let mut s = Script::new();
        s.gone(0);
        s.gone(1);
        for _ in 0..3 {
            assert_eq!(s.status(CALLER, &message), status);
        }
        let flow = &s.counters.overload.flows[Bucket::Session as usize];
        let counts = [&flow.offered, &flow.admitted, s.counters.rejected_after(Bucket::Session)];
        assert_eq!(counts.map(tidegate_world::Counter::get), [1; 3], "{status}");
        assert_eq!((flow.repeated.get(), flow.rejected.get()), (2, 0), "{status}");
    }
}

// RFC 3261 §17.1.1.2: the caller of an INVITE without a response sends it again after 500 ms. If the
// first copy still waits then, the proxy itself is slow.
#[test]
fn a_copy_of_a_request_that_waits_is_no_retransmission_of_a_served_one() {
    let mut s = Script::new();
    let repeated = |s: &Script| {
        let flow = &s.counters.overload.flows[Bucket::Session as usize];
        (flow.repeated.get(), s.counters.retransmissions.get())
    };
    s.offer(CALLER, invite("c").as_bytes());
    s.offer(CALLER, invite("c").as_bytes());
    s.serve();
    assert_eq!(repeated(&s), (1, 0));
    s.send(CALLER, &invite("c"));
    assert_eq!(repeated(&s), (1, 1));
}

#[test]
fn a_call_that_is_over_is_counted_apart_from_those_in_progress() {
    let mut s = Script::new();
    let sent = s.one(CALLER, &invite("c"));
    let to = sent.to.to_string();
    s.send(&to, &sent.answer("200 OK"));
    let own = |method, cseq| request(method, "sip:bob@192.0.2.1", "c", cseq, "Totag\r\n");
    s.send(CALLER, &own("ACK", 1));
    let counts = |s: &Script| (s.counters.calls.get(), s.counters.calls_over.get());
    assert_eq!(counts(&s), (1, 0));
    let bye = s.one(CALLER, &own("BYE", 2));
    s.send(&to, &bye.answer("200 OK"));
    assert_eq!(counts(&s), (1, 1));
}

#[test]
fn successful_answers_leave_no_trace() {
    let mut s = Script::new();
    assert_eq!(s.status(CALLER, &request("OPTIONS", "sip:192.0.2.1", "c", 1, "")), 200);
    assert!(s.counters.rejections.list().is_empty());
    assert_eq!(s.counters.replied_for(200, ReplyReason::None).get(), 1);
}

#[test]
fn a_call_without_a_back_end_says_which_pool_and_why() {
    let mut s = Script::new();
    s.gone(0);
    s.gone(1);
    assert_eq!(s.status(CALLER, &invite("c")), 503);
    let kept = only(&s);
    assert_eq!(kept.cause, "every back end is down");
    assert!(kept.pool.is_some());
    assert_eq!(kept.reason, Reason::PoolDown.into());
    assert_eq!(s.counters.replied_for(503, Reason::PoolDown.into()).get(), 1);
}

#[test]
fn a_full_call_table_is_distinguished_from_overload() {
    let mut s = Script::with(Policy::Rr, |settings| settings.calls_max = 1);
    s.send(CALLER, &invite("one"));
    assert_eq!(s.status(CALLER, &invite("two")), 503);
    let kept = only(&s);
    assert_eq!((kept.reason, kept.cause), (ReplyReason::CallTable, "call table is full"));
    assert_eq!(text(&kept.call_id), "two");
}

// RFC 3261 §21.5.4: "The server is temporarily unable to process the request due to a temporary
// overloading or maintenance of the server."
/// A regression: the ninth call with one Call-ID got 503 because the call table was full, after a
/// back end had been selected.
#[test]
fn the_ninth_call_with_one_call_id_is_not_overload() {
    let mut s = Script::new();
    let call = |number: usize| {
        let own = format!("branch=z9hG4bK-{number}-");
        let invite = invite("one").replace("branch=z9hG4bK-", &own);
        invite.replace("tag=caller", &format!("tag=caller{number}"))
    };
    for number in 0..8 {
        let sent = s.one(CALLER, &call(number));
        s.one(&sent.to.to_string(), &sent.answer("200 OK"));
    }
    assert_eq!(s.status(CALLER, &call(8)), 500);
    assert_eq!(only(&s).reason, ReplyReason::SameCallId);
    assert_eq!(s.counters.calls_rejected.get(), 0);
    let assigned: u64 = s.backends.backends().iter().map(|b| b.assigned()).sum();
    assert_eq!(assigned, 8, "no back end was selected for the ninth call");
    let bye = request("BYE", "sip:bob@10.0.0.1", "one", 2, "Totag\r\n");
    let bye = s.one(CALLER, &bye.replace("tag=caller", "tag=caller0"));
    s.one(&bye.to.to_string(), &bye.answer("200 OK"));
    // The caller has already got a final response.
    assert_eq!(s.status(CALLER, &call(8)), 503, "a copy finds no room either");
}

// RFC 3261 §16.7 item 6: "If the only response that was received is a 503, the proxy SHOULD
// generate a 500 response and forward that upstream."
#[test]
fn a_call_that_no_back_end_answers_leaves_a_trace_too() {
    let mut s = Script::stateful();
    s.send(CALLER, &invite("c"));
    s.pass(Duration::from_secs(80));
    let kept = only(&s);
    assert_eq!((kept.status, kept.reason), (Some(408), ReplyReason::Timeout));
    assert_eq!((text(&kept.call_id), kept.pool.is_some()), ("c", true));

    let mut s = Script::stateful();
    let mut sent = s.send(CALLER, &invite("c"));
    for _ in 0..2 {
        let Some(forwarded_request) = sent.iter().rfind(|sent| sent.start().starts_with("INVITE"))
        else {
            break;
        };
        let (to, answer) = (forwarded_request.to.to_string(), forwarded_request.answer("503 Busy"));
        sent = s.send(&to, &answer);
    }
    let kept = only(&s);
    assert_eq!((kept.status, kept.reason), (Some(500), ReplyReason::Failed));
}

/// A regression: the record of a call from a back end to the outside named the pool of its sender.
#[test]
fn a_call_from_a_back_end_has_the_pool_of_its_target_or_none() {
    for (target, pool) in [("203.0.113.9", None), ("10.0.0.2:5070", Some("app"))] {
        let mut s = Script::stateful();
        s.send(BACKEND_A, &request("INVITE", &format!("sip:carol@{target}"), "c", 1, ""));
        s.pass(Duration::from_secs(80));
        let kept = only(&s);
        assert_eq!((kept.status, kept.reason), (Some(408), ReplyReason::Timeout), "{target}");
        assert_eq!(kept.pool.as_deref(), pool, "{target}");
    }
}
