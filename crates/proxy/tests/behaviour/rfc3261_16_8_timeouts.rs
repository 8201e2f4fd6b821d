//! Tests of the end of an unanswered branch (RFC 3261 §16.6 item 11, §16.8, §16.9), and of the
//! responses to requests other than INVITE in that case (RFC 4320).

use std::time::Duration;

use crate::script::{BACKEND_A, BACKEND_B, CALLER, Script, invite, request, starts};
use tidegate_world::Core as _;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn only_one() -> Script {
    Script::forking(&[(BACKEND_A, 1000)])
}

/// §17.1.1.2: Timer A doubles, and Timer B ends the transaction after 64·T1. §16.7 item 6: if there
/// is no response at all, the proxy answers 408.
///
/// RFC 3261 §16.7: "If there are no final responses in the context, the proxy MUST send a 408
/// (Request Timeout) response to the server transaction."
///
/// RFC 7339 §5.9: "When a timeout error is received from the transaction layer, it MUST be treated as if a 408
/// (Request Timeout) status code has been received."
///
/// RFC 3261 §17.1.1.2: "This process MUST continue so that the request is retransmitted with
/// intervals that double after each transmission."
#[test]
fn a_callee_that_never_answers_is_a_408() {
    let mut s = only_one();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    for wait in [500, 1000, 2000, 4000, 8000, 16_000] {
        s.pass(MS(wait - 1));
        assert_eq!(s.sent(), []);
        s.pass(MS(1));
        assert_eq!(s.sent(), std::slice::from_ref(&out), "after {wait} ms more");
    }
    s.pass(MS(499));
    assert_eq!(s.sent(), []);
    s.pass(MS(1));
    assert_eq!(starts(&s.sent()), [(CALLER, "SIP/2.0 408 Request Timeout")]);
    assert_eq!(s.counters.timeouts.get(), 1);
}

/// RFC 3261 §17.2.1: "If timer H fires while in the "Completed" state, it implies that the ACK was
/// never received." The transaction has had its final response, so this is no timeout.
#[test]
fn a_rejected_call_without_an_ack_is_no_timeout() {
    let mut s = only_one();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("486 Busy Here"));
    s.rest(Duration::from_secs(33));
    assert_eq!((s.counters.timeouts.get(), s.live().0), (0, 0));
}

/// §16.7 item 2: a provisional response resets Timer C; §16.8: "If the client transaction has
/// received a provisional response, the proxy MUST generate a CANCEL request matching that
/// transaction."
///
/// RFC 3261 §16.6: "Timer C MUST be set for each client transaction when an INVITE request is
/// proxied." "The timer MUST be larger than 3 minutes."
///
/// RFC 3261 §16.7: "For an INVITE transaction, if the response is a provisional response with
/// status codes 101 to 199 inclusive (i.e., anything but 100), the proxy MUST reset timer C for
/// that client transaction." "The timer MAY be reset to a different value, but this value MUST be
/// greater than 3 minutes."
///
/// RFC 3261 §16.8: "If timer C should fire, the proxy MUST either reset the timer with any value it
/// chooses, or terminate the client transaction."
#[test]
fn a_callee_that_rings_for_ever_is_cancelled_by_timer_c() {
    let mut s = only_one();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("180 Ringing"));
    s.pass(Duration::from_secs(189));
    s.send(BACKEND_A, &out.answer("183 Session Progress"));
    s.pass(MS(189_999));
    assert_eq!(s.sent(), []);
    s.pass(MS(1));
    let sent = s.sent();
    assert_eq!(
        starts(&sent),
        [(BACKEND_A, "CANCEL sip:bob@192.0.2.1 SIP/2.0"), (CALLER, "SIP/2.0 408 Request Timeout"),]
    );
    assert_eq!(s.counters.timeouts.get(), 1);
    // The proxy itself acknowledges the response to the cancelled INVITE.
    let sent = s.send(BACKEND_A, &out.answer("487 Request Terminated"));
    assert_eq!(starts(&sent), [(BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0")]);
}

/// §16.7 item 2: a 100 does not reset Timer C.
#[test]
fn a_100_does_not_reset_timer_c() {
    let mut s = only_one();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("100 Trying"));
    s.pass(Duration::from_secs(189));
    s.send(BACKEND_A, &out.answer("100 Trying"));
    s.pass(Duration::from_secs(1));
    assert_eq!(s.sent().len(), 2, "the CANCEL and the 408");
}

/// §16.9: "If the transport layer notifies a proxy of an error when it tries to forward a request
/// (see Section 18.4), the proxy MUST behave as if the forwarded request received a 503 (Service
/// Unavailable) response."
///
/// RFC 7339 §5.9: "If a fatal transport error is reported by the transport layer ..., the condition MUST be
/// treated as a 503 (Service Unavailable) status code."
#[test]
fn if_nothing_listens_the_next_target_is_tried_until_none_is_left() {
    let mut s = Script::stateful();
    s.send(CALLER, &invite("c1"));
    s.rejected(BACKEND_A);
    s.pass(MS(500));
    let sent = s.sent();
    assert_eq!(starts(&sent), [(BACKEND_B, "INVITE sip:bob@192.0.2.1 SIP/2.0")]);
    s.rejected(BACKEND_B);
    s.pass(MS(500));
    assert_eq!(starts(&s.sent()), [(CALLER, "SIP/2.0 500 Server Internal Error")]);
}

/// Silence is not a transport error, so the proxy waits for the last target until Timer B.
#[test]
fn a_slow_back_end_is_not_a_dead_one() {
    let mut s = Script::stateful();
    s.send(CALLER, &invite("c1"));
    s.pass(Duration::from_secs(4));
    let b = s.sent().pop().unwrap();
    s.pass(MS(31_999));
    let sent = s.sent();
    assert!(sent.iter().all(|again| *again == b), "{sent:#?}");
    let ok = s.one(BACKEND_B, &b.answer("200 OK"));
    assert_eq!(ok.to.to_string(), CALLER);
}

/// RFC 4320 §4.1: "an SIP element MUST respond to a non-INVITE request with a Status-Code of 100
/// if it has not otherwise responded after the amount of time it takes a client transaction's
/// Timer E to be reset to T2." §4.2: no 408.
///
/// RFC 4320 §4.1: "An SIP element MUST NOT respond to a non-INVITE request with a Status-Code of
/// 100 over any unreliable transport, such as UDP, before the amount of time it takes a client
/// transaction's Timer E to be reset to T2."
#[test]
fn a_request_other_than_invite_gets_a_100_and_no_408() {
    let mut s = only_one();
    let message = request("MESSAGE", "sip:bob@192.0.2.1", "m1", 1, "");
    let out = s.one(CALLER, &message);
    assert_eq!(starts(&s.send(CALLER, &message)), [], "absorbed");
    s.pass(MS(3499));
    assert_eq!(s.sent(), [out.clone(), out.clone()], "after 500 and 1500 ms");
    s.pass(MS(1));
    let sent = s.sent();
    assert_eq!(starts(&sent)[0], (CALLER, "SIP/2.0 100 Trying"));
    assert_eq!(sent[1], out);
    assert_eq!(s.one(CALLER, &message), sent[0], "and again when it is repeated");
    // RFC 4320 §4.1: no other provisional response.
    assert_eq!(starts(&s.send(BACKEND_A, &out.answer("180 Ringing"))), []);
    s.pass(Duration::from_secs(60));
    assert!(s.sent().iter().all(|sent| *sent == out));
    assert_eq!(s.live(), (0, 0));
    // §4.2: "A transaction-stateful SIP proxy MUST NOT send any response to a non-INVITE request
    // unless it has a matching server transaction that is not in the Terminated state."
    assert_eq!(starts(&s.send(BACKEND_A, &out.answer("200 OK"))), []);
}

/// A regression: a 408 of the target ended the transaction, and each later copy was forwarded as a new
/// request. RFC 4320 §4.2: "an element that cannot respond before the transaction expires will not
/// send a final response at all."
#[test]
fn a_408_of_the_target_does_not_end_the_transaction_of_a_request_other_than_invite() {
    let mut s = only_one();
    let message = request("MESSAGE", "sip:bob@192.0.2.1", "m1", 1, "");
    let out = s.one(CALLER, &message);
    assert_eq!(s.send(BACKEND_A, &out.answer("408 Request Timeout")), []);
    assert_eq!(starts(&s.send(CALLER, &message)), [], "absorbed");
    let trying = s.pass_and_take(MS(3500));
    assert_eq!(trying.start(), "SIP/2.0 100 Trying");
    s.pass(MS(28_000));
    assert_eq!(s.one(CALLER, &message), trying, "the last copy of the caller");
    s.pass(MS(500));
    assert_eq!((s.sent(), s.live()), (vec![], (0, 0)));
}

/// A regression: after a 408 of the target, a stopping process waited for the rest of the 32 s.
#[test]
fn a_request_that_gets_no_response_any_more_does_not_delay_the_drain() {
    let mut s = only_one();
    let out = s.one(CALLER, &request("MESSAGE", "sip:bob@192.0.2.1", "m1", 1, ""));
    assert!(!s.proxy.is_drained());
    assert_eq!(s.send(BACKEND_A, &out.answer("408 Request Timeout")), []);
    assert_eq!(s.live().0, 1, "copies are still absorbed");
    assert!(s.proxy.is_drained());
}

/// A regression: a target that was abandoned as unreachable kept its own time limit. At that limit,
/// the next target was abandoned too.
#[test]
fn the_next_target_has_all_its_time() {
    let mut s = Script::stateful();
    s.send(CALLER, &invite("c1"));
    s.pass(MS(2000));
    s.rejected(BACKEND_A);
    s.pass(MS(1500));
    let b = s.sent().pop().unwrap();
    assert_eq!(b.to.to_string(), BACKEND_B);
    s.pass(MS(3999));
    assert!(s.sent().iter().all(|again| *again == b));
}

/// A regression: a back end that sent a request that was never answered was marked as down.
#[test]
fn a_back_end_is_not_blamed_for_its_callees() {
    let mut s = Script::stateful();
    let outward = request("INVITE", "sip:x@203.0.113.9:5060", "out", 1, "");
    assert_eq!(s.send(BACKEND_A, &outward).len(), 2);
    s.pass(Duration::from_secs(33));
    let a = &s.backends.backends()[0];
    assert!(a.is_up(s.now) && a.failures() == 0);
}

/// A regression: an error report for an earlier message was applied to a later one.
#[test]
fn an_error_for_an_earlier_message_does_not_affect_later_ones() {
    let mut s = only_one();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.rejected(BACKEND_A);
    s.send(BACKEND_A, &out.answer("180 Ringing"));
    s.send(BACKEND_A, &out.answer("200 OK"));
    s.pass(MS(10));
    let info = s.one(CALLER, &request("INFO", "sip:bob@192.0.2.1", "c1", 2, "Totag\r\n"));
    s.pass(MS(500));
    assert_eq!(s.sent(), [info]);
}

/// A regression. RFC 3261 §9.1: "A CANCEL request SHOULD NOT be sent to cancel a request other than
/// INVITE."
#[test]
fn other_requests_than_invites_are_not_cancelled() {
    let mut s = Script::stateful();
    let out = s.one(CALLER, &request("OPTIONS", "sip:bob@192.0.2.1", "m1", 1, ""));
    s.pass(Duration::from_secs(4));
    assert_eq!(s.sent().pop().unwrap().to.to_string(), BACKEND_B);
    assert_eq!(s.send(BACKEND_A, &out.answer("100 Trying")), []);
}
