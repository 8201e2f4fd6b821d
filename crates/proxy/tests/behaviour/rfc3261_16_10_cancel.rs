//! RFC 3261 §9, §16.10: CANCEL.

use std::time::Duration;

use crate::script::{BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, invite, request, starts};

fn cancel(call: &str) -> String {
    request("CANCEL", "sip:bob@192.0.2.1", call, 1, "")
}

/// §9.1: "The Request-URI, Call-ID, To, the numeric part of CSeq, and From header fields in the
/// CANCEL request MUST be identical to those in the request being cancelled, including tags. A
/// CANCEL constructed by a client MUST have only a single Via header field value matching the top
/// Via value in the request being cancelled."
///
/// RFC 3263 §4: "Furthermore, a CANCEL for a particular SIP request MUST be sent to the same SIP
/// server that the SIP request was delivered to."
#[test]
fn our_cancel_matches_the_invite_that_we_sent() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("180 Ringing"));
    let sent = s.send(CALLER, &cancel("c1"));
    let ours = sent.iter().find(|sent| sent.start().starts_with("CANCEL")).unwrap();
    assert_eq!(ours.start(), out.start().replace("INVITE", "CANCEL"));
    assert_eq!(ours.all("Via"), [out.header("Via")]);
    for name in ["From", "To", "Call-ID"] {
        assert_eq!(ours.header(name), out.header(name));
    }
    assert_eq!(ours.header("CSeq"), "1 CANCEL");
    // The CANCEL is retransmitted at 500 ms, 1500 ms, … like any request, until it is answered.
    s.pass(Duration::from_millis(1500));
    assert_eq!(s.sent(), [ours.clone(), ours.clone()]);
    s.send(BACKEND_A, &ours.answer("200 OK"));
    s.pass(Duration::from_secs(5));
    assert_eq!(s.sent(), []);
}

/// §9.2: "as long as the CANCEL matched an existing transaction, the UAS answers the CANCEL
/// request itself with a 200 (OK) response"; "If it has [issued a final response for the original
/// request], the CANCEL request has no effect on the processing of the original request".
#[test]
fn a_cancel_too_late_is_answered_and_does_nothing() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("200 OK"));
    let first = s.one(CALLER, &cancel("c1"));
    assert_eq!(first.start(), "SIP/2.0 200 OK");
    assert_eq!(s.one(CALLER, &cancel("c1")), first, "and again the same");
}

/// §9.1: "If there is no final response for the original request in 64*T1 seconds [...], the
/// client SHOULD then consider the original transaction cancelled".
#[test]
fn a_callee_that_ignores_a_cancel_is_given_up() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    let ok = s.one(CALLER, &cancel("c1"));
    // The time counts from the CANCEL of the caller, although ours is sent later.
    s.rest(Duration::from_secs(10));
    s.send(BACKEND_A, &out.answer("180 Ringing"));
    s.pass(Duration::from_millis(21_999));
    assert!(s.sent().iter().all(|sent| sent.start().starts_with("CANCEL")));
    s.pass(Duration::from_millis(1));
    let sent = s.sent();
    let up = sent.iter().find(|sent| sent.to.to_string() == CALLER).unwrap();
    assert_eq!(up.start(), "SIP/2.0 487 Request Terminated");
    // §9.2: "the To tag of the response to the CANCEL and the To tag in the response to the
    // original request SHOULD be the same."
    assert_eq!(up.header("To"), ok.header("To"));
    assert_eq!(s.counters.timeouts.get(), 1);
}

#[test]
fn a_cancelled_request_does_not_fail_over() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.one(CALLER, &cancel("c1"));
    let sent = s.send(BACKEND_A, &out.answer("503 Service Unavailable"));
    assert_eq!(
        starts(&sent),
        [
            (BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0"),
            (CALLER, "SIP/2.0 500 Server Internal Error")
        ]
    );
}

/// The CANCEL has a transaction of its own.
#[test]
fn a_cancel_is_retransmitted_after_the_final_response_to_the_invite() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("180 Ringing"));
    let ours = s.send(CALLER, &cancel("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("487 Request Terminated"));
    s.send(CALLER, &request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n"));
    assert_eq!(s.pass_and_take(Duration::from_millis(500)), ours);
}

/// §16.10: after a CANCEL, the waiting groups of a fork are not tried.
///
/// RFC 3261 §16.10: "A proxy MUST cancel any pending client transactions associated with a response
/// context when it receives a matching CANCEL request." "If a matching response context is found,
/// the element MUST immediately return a 200 (OK) response to the CANCEL request." "Furthermore,
/// the element MUST generate CANCEL requests for all pending client transactions in the context as
/// described in Section 16.7 step 10."
#[test]
fn a_cancelled_fork_goes_no_further() {
    let mut s = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 1000), (BACKEND_C, 100)]);
    let sent = s.send(CALLER, &invite("c1"));
    s.send(BACKEND_A, &sent[1].answer("180 Ringing"));
    let now = s.send(CALLER, &cancel("c1"));
    assert_eq!(
        starts(&now),
        [(CALLER, "SIP/2.0 200 OK"), (BACKEND_A, "CANCEL sip:bob@192.0.2.1 SIP/2.0")]
    );
    // §9.1: "If no provisional response has been received, the CANCEL request MUST NOT be sent;
    // rather, the client MUST wait for the arrival of a provisional response".
    let later = s.send(BACKEND_B, &sent[2].answer("100 Trying"));
    assert_eq!(starts(&later), [(BACKEND_B, "CANCEL sip:bob@192.0.2.1 SIP/2.0")]);
    s.send(BACKEND_A, &sent[1].answer("487 Request Terminated"));
    let last = s.send(BACKEND_B, &sent[2].answer("487 Request Terminated"));
    assert_eq!(starts(&last)[1], (CALLER, "SIP/2.0 487 Request Terminated"));
}

/// §16.10: "If a response context is not found, the element does not have any knowledge of the
/// request to apply the CANCEL to. It MUST statelessly forward the CANCEL request". This proxy only
/// forwards CANCELs of known calls.
#[test]
fn a_cancel_of_nothing_is_answered_481() {
    let mut s = Script::stateful();
    assert_eq!(s.status(CALLER, &cancel("c1")), 481);
}

/// §9.2: "A CANCEL request has no impact on the processing of transactions with any other method
/// defined in this specification. Regardless of the method of the original request, as long as the
/// CANCEL matched an existing transaction, the UAS answers the CANCEL request itself with a 200".
#[test]
fn a_cancel_of_another_request_is_answered_and_has_no_effect() {
    let mut s = Script::stateful();
    let message = request("MESSAGE", "sip:bob@192.0.2.1", "c1", 1, "");
    let out = s.one(CALLER, &message);
    s.send(BACKEND_A, &out.answer("100 Trying"));
    let cancel = message.replace("1 MESSAGE", "1 CANCEL").replacen("MESSAGE", "CANCEL", 1);
    assert_eq!(s.one(CALLER, &cancel).start(), "SIP/2.0 200 OK");
    assert_eq!(s.one(BACKEND_A, &out.answer("202 Accepted")).start(), "SIP/2.0 202 Accepted");
}
