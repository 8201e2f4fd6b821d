//! The stateful proxy over the transactions of RFC 3261 §17: flows of whole calls.

use std::time::Duration;

use crate::script::{
    BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, Sent, address, invite, request, starts,
};
use tidegate_balance::{Policy, Pool};
use tidegate_proxy::{Mode, PoolSettings};

/// Returns a proxy with transactions that needs many failures before it probes a back end.
fn patient() -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.pools[0].health.error_limit = 100;
    })
}

/// RFC 3261 §16.2: "The proxy core MUST behave as a UAS with respect to sending an immediate
/// provisional on that server transaction (such as 100 Trying) as described in Section 8.2.6."
///
/// RFC 3261 §17.2.1: "The 100 (Trying) response is constructed according to the procedures in
/// Section 8.2.6, except that the insertion of tags in the To header field of the response (when
/// none was present in the request) is downgraded from MAY to SHOULD NOT." "The request MUST be
/// passed to the TU."
///
/// RFC 3261 §16.6: "A stateful proxy MUST create a new client transaction for this request as
/// described in Section 17.1 and instructs the transaction to send the request using the address,
/// port and transport determined in step 7."
///
/// RFC 3261 §16.7: "The proxy MUST pass the response to the server transaction associated with the
/// response context."
///
/// RFC 3261 §17.1.2.2: "The request MUST be passed to the transport layer for transmission."
#[test]
fn a_call_through_leaves_nothing_behind() {
    let mut s = Script::stateful();
    let sent = s.send(CALLER, &invite("c1"));
    assert_eq!(sent.len(), 2, "{sent:#?}");
    assert_eq!(sent[0].start(), "SIP/2.0 100 Trying");
    assert!(!sent[0].header("To").contains("tag="));
    let out = sent[1].clone();
    assert_eq!(out.to.to_string(), BACKEND_A);
    assert_eq!(s.send(BACKEND_A, &out.answer("100 Trying")).len(), 0);
    s.one(BACKEND_A, &out.answer("183 Session Progress"));
    let ringing = s.one(BACKEND_A, &out.answer("180 Ringing"));
    assert_eq!((ringing.to.to_string().as_str(), ringing.start()), (CALLER, "SIP/2.0 180 Ringing"));
    // A repeated INVITE gets the last provisional response again, and is not forwarded.
    let again = s.one(CALLER, &invite("c1"));
    assert_eq!(again, ringing);
    let ok = s.one(BACKEND_A, &out.answer("200 OK"));
    assert_eq!(ok.start(), "SIP/2.0 200 OK");
    let again = s.one(BACKEND_A, &out.answer("200 OK"));
    assert_eq!(again, ok);
    assert_eq!(s.live(), (1, 1));
    let ack = s.one(CALLER, &request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n"));
    assert_eq!(ack.to.to_string(), BACKEND_A);
    let bye = request("BYE", "sip:bob@192.0.2.1", "c1", 2, "Totag\r\n");
    let out = s.one(CALLER, &bye);
    let ok = s.one(BACKEND_A, &out.answer("200 OK"));
    assert_eq!(s.one(CALLER, &bye), ok, "a repeated BYE gets the response again");
    s.pass(Duration::from_secs(33));
    assert_eq!(s.live(), (0, 0));
}

/// RFC 3261 §17.1.1.2: "The client transaction MUST pass the request to the transport layer for
/// transmission (see Section 18)."
///
/// RFC 3263 §4: "That is, once a SIP server has successfully been contacted (success is defined
/// below), all retransmissions of the SIP request and the ACK for non-2xx SIP responses to INVITE
/// MUST be sent to the same host."
#[test]
fn a_busy_callee_is_acknowledged_here() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    let sent = s.send(BACKEND_A, &out.answer("486 Busy Here"));
    assert_eq!(
        starts(&sent),
        [(BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0"), (CALLER, "SIP/2.0 486 Busy Here")]
    );
    assert_eq!(sent[0].branch(), out.branch());
    assert!(sent[0].header("To").contains("tag=callee"));
    // A repeated rejection is acknowledged again, and not forwarded.
    assert_eq!(starts(&s.send(BACKEND_A, &out.answer("486 Busy Here"))).len(), 1);
    s.pass(Duration::from_millis(500));
    let again = s.sent();
    assert_eq!(starts(&again), [(CALLER, "SIP/2.0 486 Busy Here")]);
    let ack = request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n");
    assert_eq!(s.send(CALLER, &ack).len(), 0);
    s.pass(Duration::from_secs(40));
    assert_eq!(s.sent().len(), 0);
    assert_eq!(s.live(), (0, 0));
}

#[test]
fn a_cancelled_call_ends_with_487() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    let cancel = request("CANCEL", "sip:bob@192.0.2.1", "c1", 1, "");
    // RFC 3261 §9.1: no response has come yet, so the CANCEL waits.
    assert_eq!(s.one(CALLER, &cancel).start(), "SIP/2.0 200 OK");
    let sent = s.send(BACKEND_A, &out.answer("180 Ringing"));
    assert_eq!(
        starts(&sent),
        [(BACKEND_A, "CANCEL sip:bob@192.0.2.1 SIP/2.0"), (CALLER, "SIP/2.0 180 Ringing"),]
    );
    assert_eq!(sent[0].branch(), out.branch());
    assert_eq!(s.send(BACKEND_A, &sent[0].answer("200 OK")).len(), 0);
    s.pass(Duration::from_secs(4));
    assert_eq!(s.sent().len(), 0, "an answered CANCEL is not sent again");
    let sent = s.send(BACKEND_A, &out.answer("487 Request Terminated"));
    assert_eq!(starts(&sent)[1].1, "SIP/2.0 487 Request Terminated");
    s.pass(Duration::from_secs(100));
    assert_eq!(s.live(), (0, 0));
}

/// RFC 3261 §16.6: "For each tuple attempted, the proxy MUST format the message as appropriate for
/// the tuple and send the request using a new client transaction as detailed in steps 8 through
/// 10." "Thus, the branch parameter provided with the Via header field inserted in step 8 MUST be
/// different for each attempt."
#[test]
fn a_rejecting_back_end_leads_to_the_next() {
    let mut s = Script::stateful();
    let first = s.send(CALLER, &invite("c1")).remove(1);
    let sent = s.send(BACKEND_A, &first.answer("503 Service Unavailable"));
    assert_eq!(sent.len(), 2, "{sent:#?}");
    assert_eq!(sent[0].start(), "ACK sip:bob@192.0.2.1 SIP/2.0");
    let second = sent[1].clone();
    assert_eq!(second.to.to_string(), BACKEND_B);
    assert_ne!(second.branch(), first.branch());
    // The second back end is saturated too, so no back end is left.
    let sent = s.send(BACKEND_B, &second.answer("503 Service Unavailable"));
    assert_eq!(starts(&sent)[1], (CALLER, "SIP/2.0 500 Server Internal Error"));
}

#[test]
fn a_silent_back_end_leads_to_the_next() {
    let mut s = Script::stateful();
    let first = s.send(CALLER, &invite("c1")).remove(1);
    s.pass(Duration::from_millis(3999));
    let again = s.sent();
    assert_eq!(again.len(), 3, "after 500, 1500 and 3500 ms");
    assert!(again.iter().all(|sent| *sent == first));
    s.pass(Duration::from_millis(1));
    let second = s.sent().remove(0);
    assert_eq!(second.to.to_string(), BACKEND_B);
    assert_eq!(s.one(BACKEND_B, &second.answer("200 OK")).to.to_string(), CALLER);
    // A late response of the first back end belongs to an abandoned branch.
    let late = s.send(BACKEND_A, &first.answer("180 Ringing"));
    assert_eq!(starts(&late), [(BACKEND_A, "CANCEL sip:bob@192.0.2.1 SIP/2.0")]);
}

/// A request that rings at a back end stays there, and only a 503 leads to another one.
#[test]
fn other_rejections_lead_to_no_other_back_end() {
    for (provisional, rejection, up) in [
        ("180 Ringing", "503 Service Unavailable", "SIP/2.0 500 Server Internal Error"),
        ("100 Trying", "504 Server Time-out", "SIP/2.0 504 Server Time-out"),
    ] {
        let mut s = Script::stateful();
        let out = s.send(CALLER, &invite("c1")).remove(1);
        s.send(BACKEND_A, &out.answer(provisional));
        let sent = s.send(BACKEND_A, &out.answer(rejection));
        assert_eq!(starts(&sent), [(BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0"), (CALLER, up)]);
    }
}

/// A transport error from before a provisional response no longer counts.
#[test]
fn a_request_that_a_back_end_has_taken_stays_there_after_an_earlier_error() {
    let mut s = Script::stateful();
    let out = s.one(CALLER, &request("MESSAGE", "sip:bob@192.0.2.1", "c1", 1, ""));
    s.rejected(BACKEND_A);
    s.pass(Duration::from_millis(100));
    s.send(BACKEND_A, &out.answer("100 Trying"));
    assert_eq!(s.pass_and_take(Duration::from_millis(400)), out);
}

/// [`PoolSettings::tries_max`] counts the first back end too.
#[test]
fn a_request_goes_to_tries_max_back_ends() {
    for tries_max in 1..=3 {
        let mut s = Script::with(Policy::Rr, |settings| {
            let all = [BACKEND_A, BACKEND_B, BACKEND_C, "10.0.0.4:5070"];
            let pool = Pool::new("app", &all.map(|at| (at, address(at), 1)));
            settings.pools =
                vec![PoolSettings { tries_max, ..PoolSettings::new(pool, Policy::Rr) }];
        });
        let mut out = s.send(CALLER, &invite("c1")).remove(1);
        let mut next = || {
            out = s.send(&out.to.to_string(), &out.answer("503 Service Unavailable")).remove(1);
            out.start().to_owned()
        };
        for _ in 1..tries_max {
            assert_eq!(next(), "INVITE sip:bob@192.0.2.1 SIP/2.0", "{tries_max}");
        }
        assert_eq!(next(), "SIP/2.0 500 Server Internal Error", "{tries_max}");
    }
}

/// A back end gets no failover of a rejected request in the second after its own last 503.
#[test]
fn a_back_end_that_has_sent_a_503_gets_no_failover_for_a_second() {
    let rejection = "503 Service Unavailable";
    let mut s = Script::stateful();
    let first = s.send(CALLER, &invite("c1")).remove(1);
    let second = s.send(BACKEND_A, &first.answer(rejection)).remove(1);
    s.send(BACKEND_B, &second.answer(rejection));
    for (call, wait, last) in [("c2", 999, "SIP/2.0 500"), ("c3", 1000, "INVITE sip")] {
        s.pass(Duration::from_millis(wait));
        s.sent();
        let out = s.send(CALLER, &invite(call)).remove(1);
        let sent = s.send(&out.to.to_string(), &out.answer(rejection));
        assert!(sent[1].start().starts_with(last), "{call}: {sent:#?}");
    }
}

/// The cause of a single 503 may be the callee of the rejected request. So it does not keep its back
/// end from a request that another back end has not answered.
#[test]
fn a_back_end_that_has_sent_a_503_gets_a_failover_after_silence() {
    let mut s = Script::stateful();
    let silent = s.send(CALLER, &invite("c1")).remove(1);
    assert_eq!(silent.to.to_string(), BACKEND_A);
    s.rest(Duration::from_millis(3500));
    let rejected = s.send(CALLER, &invite("c2")).remove(1);
    assert_eq!(rejected.to.to_string(), BACKEND_B);
    s.send(BACKEND_B, &rejected.answer("503 Service Unavailable"));
    // Four seconds have passed since the first INVITE, and half a second since the 503.
    s.pass(Duration::from_millis(500));
    let sent = s.sent();
    let to_b = sent.iter().filter(|sent| sent.to == rejected.to);
    let calls: Vec<_> = to_b.map(|sent| sent.header("Call-ID")).collect();
    assert_eq!(calls, ["c1"], "{sent:#?}");
}

/// RFC 3263 §4.3: "Failure also occurs if the transaction layer times out without ever having
/// received any response, provisional or final".
///
/// A back end may be slow because a phone sleeps. Another back end gets the request only if the
/// request may arrive twice.
#[test]
fn a_slow_request_goes_to_one_back_end_unless_it_may_arrive_twice() {
    for method in ["MESSAGE", "SUBSCRIBE", "PUBLISH", "INFO", "X-NEW"] {
        let mut s = patient();
        let out = s.one(CALLER, &request(method, "sip:bob@192.0.2.1", "c1", 1, ""));
        s.pass(Duration::from_secs(9));
        let sent = s.sent();
        assert_eq!(sent.iter().filter(|again| **again == out).count(), 4, "{method}: {sent:#?}");
        assert!(starts(&sent).iter().all(|(to, _)| *to != BACKEND_B), "{method}: {sent:#?}");
        assert_eq!(s.backends.backends()[0].failures(), 1, "{method}: its silence counts once");
        let late = s.one(BACKEND_A, &out.answer("200 OK"));
        assert_eq!(starts(&[late]), [(CALLER, "SIP/2.0 200 OK")], "{method}");
        s.pass(Duration::from_secs(60));
        assert_eq!((s.sent(), s.live()), (vec![], (0, 0)), "{method}");
    }
    for method in ["REGISTER", "OPTIONS"] {
        let mut s = Script::stateful();
        s.one(CALLER, &request(method, "sip:bob@192.0.2.1", "c1", 1, ""));
        s.pass(Duration::from_secs(4));
        assert_eq!(starts(&s.sent()).pop().unwrap().0, BACKEND_B, "{method}");
    }
}

/// A back end that does not answer its probes is not only slow, but down.
#[test]
fn a_message_to_a_back_end_that_fails_its_probes_goes_to_the_next() {
    let mut s = patient();
    s.one(CALLER, &request("MESSAGE", "sip:bob@192.0.2.1", "c1", 1, ""));
    s.pass(Duration::from_secs(5));
    s.gone(0);
    s.pass(Duration::from_millis(2_999));
    assert!(starts(&s.sent()).iter().all(|(to, _)| *to != BACKEND_B));
    s.pass(Duration::from_millis(1));
    let sent = s.sent();
    assert_eq!(starts(&sent), [(BACKEND_B, "MESSAGE sip:bob@192.0.2.1 SIP/2.0")]);
    assert_eq!(
        starts(&[s.one(BACKEND_B, &sent[0].answer("200 OK"))]),
        [(CALLER, "SIP/2.0 200 OK")]
    );
}

/// A request that may not arrive twice still goes to another back end after a 503, after an error of
/// the transport, and when its transaction times out.
#[test]
fn a_message_that_a_back_end_has_not_taken_goes_to_the_next() {
    let message = request("MESSAGE", "sip:bob@192.0.2.1", "c1", 1, "");
    let mut s = Script::stateful();
    let out = s.one(CALLER, &message);
    let next = s.one(BACKEND_A, &out.answer("503 Service Unavailable"));
    assert_eq!(next.to.to_string(), BACKEND_B);

    let mut s = Script::stateful();
    s.one(CALLER, &message);
    s.rejected(BACKEND_A);
    assert_eq!(s.pass_and_take(Duration::from_millis(500)).to.to_string(), BACKEND_B);

    let mut s = patient();
    s.one(CALLER, &message);
    s.pass(Duration::from_millis(31_999));
    assert!(s.sent().iter().all(|sent| sent.to.to_string() != BACKEND_B));
    s.pass(Duration::from_millis(1));
    assert_eq!(s.sent().pop().unwrap().to.to_string(), BACKEND_B);
    assert_eq!(s.backends.backends()[0].failures(), 1, "its silence counts once");
}

/// RFC 3263 §4.3: a target fails if the transaction "times out without ever having received any
/// response, provisional or final".
#[test]
fn a_message_that_a_back_end_has_taken_goes_nowhere_else() {
    let mut s = patient();
    let out = s.one(CALLER, &request("MESSAGE", "sip:bob@192.0.2.1", "c1", 1, ""));
    assert!(s.send(BACKEND_A, &out.answer("100 Trying")).is_empty());
    s.pass(Duration::from_secs(64));
    assert!(s.sent().iter().all(|sent| sent.to.to_string() != BACKEND_B));
    assert_eq!(s.backends.backends()[0].failures(), 0);
}

/// RFC 3261 §17.1.1.2: "The client transaction MUST be destroyed the instant it enters the
/// "Terminated" state."
///
/// RFC 3261 §17.1.2.2: "Once the transaction is in the terminated state, it MUST be destroyed
/// immediately."
///
/// RFC 3261 §17.2.1: "Once the transaction is in the "Terminated" state, it MUST be destroyed
/// immediately."
///
/// RFC 3261 §17.2.2: "The server transaction MUST be destroyed the instant it enters the
/// "Terminated" state."
///
/// RFC 6026 §7.1: "Once the transaction is in the "Terminated" state, it MUST be destroyed
/// immediately."
///
/// RFC 6026 §7.2: "Once the transaction is in the "Terminated" state, it MUST be destroyed
/// immediately."
///
/// RFC 6026 §8.4: "The client transaction MUST be destroyed the instant it enters the "Terminated"
/// state."
///
/// RFC 6026 §8.7: "Once the transaction is in the "Terminated" state, it MUST be destroyed
/// immediately."
#[test]
fn an_ended_transaction_leaves_its_place_to_the_next_at_once() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.transactions_max = 1;
    });
    let uri = "sip:bob@192.0.2.1";
    // Each of these responses keeps its transaction for 64*T1.
    for (i, (method, status)) in
        [("INVITE", "200 OK"), ("INVITE", "486 Busy Here"), ("MESSAGE", "200 OK")]
            .iter()
            .enumerate()
    {
        let of = |method: &str| request(method, uri, &format!("c{i}"), 1, "");
        let sent = s.send(CALLER, &of(method));
        let out = sent.iter().find(|sent| sent.start().starts_with(method)).expect("there is room");
        let to = out.to.to_string();
        s.send(&to, &out.answer(status));
        s.send(CALLER, &of("ACK").replace("bob@example.com>", "bob@example.com>;tag=callee"));
        s.pass(Duration::from_millis(31_999));
        assert_eq!(s.status(CALLER, &request("OPTIONS", uri, &format!("o{i}"), 1, "")), 503);
        s.pass(Duration::from_millis(1));
        assert_eq!(s.live(), (0, 0));
        s.sent();
    }
    let sent: Vec<Sent> = s.send(CALLER, &invite("last"));
    assert_eq!(sent.len(), 2);
}
