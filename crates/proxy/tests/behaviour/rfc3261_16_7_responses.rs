//! RFC 3261 §16.7: tests which responses are forwarded, and when.

use std::time::Duration;

use crate::script::{
    BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, Sent, invite, request, starts,
};

const THREE: [(&str, u16); 3] = [(BACKEND_A, 1000), (BACKEND_B, 1000), (BACKEND_C, 1000)];

/// Starts a call that forks to all back ends. Returns the INVITE of each.
fn forked(s: &mut Script) -> [Sent; 3] {
    let mut sent = s.send(CALLER, &invite("c1"));
    assert_eq!(starts(&sent)[0], (CALLER, "SIP/2.0 100 Trying"));
    sent.remove(0);
    sent.try_into().expect("three branches")
}

fn ack_to_rejection(s: &mut Script) {
    let ack = request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n");
    assert_eq!(starts(&s.send(CALLER, &ack)), []);
}

/// §16.7 item 5: "Until a final response has been sent on the server transaction, the following
/// responses MUST be forwarded immediately: [...] Any provisional response other than 100 (Trying)
/// [...] Any 2xx response".
///
/// RFC 3261 §16.7: "As client transactions pass responses to the proxy layer, the following
/// processing MUST take place:" "The following processing MUST be performed on each response that
/// is forwarded." "In particular, a stateful proxy MUST NOT forward any 100 (Trying) response."
/// "Any response chosen for immediate forwarding MUST be processed as described in steps "Aggregate
/// Authorization Header Field Values" through "Record-Route"."
///
/// RFC 6026 §8.9: "If there is a match, the response MUST be passed to that transaction."
///
/// RFC 3261 §18.1.2: "If there is a match, the response MUST be passed to that transaction."
#[test]
fn provisional_responses_and_every_2xx_go_up_at_once() {
    let mut s = Script::forking(&THREE);
    let [a, b, c] = forked(&mut s);
    assert_eq!(starts(&s.send(BACKEND_A, &a.answer("100 Trying"))), []);
    let ringing = s.one(BACKEND_B, &b.answer("180 Ringing"));
    assert_eq!(ringing.all("Via").len(), 1, "ours is taken off");
    assert_eq!(s.one(BACKEND_C, &c.answer("183 Session Progress")).to.to_string(), CALLER);

    let sent = s.send(BACKEND_B, &b.answer("200 OK"));
    assert_eq!(
        starts(&sent),
        [
            (CALLER, "SIP/2.0 200 OK"),
            // §16.7 item 10: "the proxy MUST generate a CANCEL request for all pending client
            // transactions associated with this response context."
            (BACKEND_A, "CANCEL sip:bob@192.0.2.1 SIP/2.0"),
            (BACKEND_C, "CANCEL sip:bob@192.0.2.1 SIP/2.0"),
        ]
    );
    // The other back end answered at the same moment, so the caller has both calls now.
    assert_eq!(starts(&s.send(BACKEND_C, &c.answer("200 OK"))), [(CALLER, "SIP/2.0 200 OK")]);
    // The response of the losing branch is acknowledged, but not forwarded.
    let sent = s.send(BACKEND_A, &a.answer("487 Request Terminated"));
    assert_eq!(starts(&sent), [(BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0")]);
    assert_eq!(starts(&s.send(BACKEND_A, &a.answer("180 Ringing"))), []);
}

/// §16.7 item 5: "After a final response has been sent on the server transaction, the following
/// responses MUST be forwarded immediately: [...] Any 2xx response to an INVITE request".
///
/// RFC 3261 §16.7: "If the server transaction is no longer available to handle the transmission,
/// the element MUST forward the response statelessly by sending it to the server transport." "The
/// proxy MUST maintain the response context until all of its associated transactions have been
/// terminated, even after forwarding a final response."
///
/// RFC 6026 §8.3: "If the server transaction is no longer available to handle the transmission, the
/// element MUST forward the response statelessly by sending it to the server transport."
#[test]
fn a_2xx_goes_up_even_after_another_final_response() {
    let mut s = Script::stateful();
    let a = s.send(CALLER, &invite("c1")).remove(1);
    s.pass(Duration::from_secs(4));
    let b = s.sent().pop().unwrap();
    assert_eq!(b.to.to_string(), BACKEND_B);
    let sent = s.send(BACKEND_B, &b.answer("486 Busy Here"));
    assert_eq!(starts(&sent)[1], (CALLER, "SIP/2.0 486 Busy Here"));
    ack_to_rejection(&mut s);
    assert_eq!(starts(&s.send(BACKEND_A, &a.answer("200 OK"))), [(CALLER, "SIP/2.0 200 OK")]);
    // Timer I has ended the server transaction.
    s.pass(Duration::from_secs(6));
    assert_eq!(s.live().0, 0);
    assert_eq!(starts(&s.send(BACKEND_A, &a.answer("200 OK"))), [(CALLER, "SIP/2.0 200 OK")]);
}

/// §17.1.1.3: the ACK to a response other than a 2xx is made from the INVITE that was sent and from
/// the response.
///
/// RFC 3261 §17.1.1.3: "The ACK request constructed by the client transaction MUST contain values
/// for the Call-ID, From, and Request-URI that are equal to the values of those header fields in
/// the request passed to the transport by the client transaction (call this the "original
/// request")." "The To header field in the ACK MUST equal the To header field in the response being
/// acknowledged, and therefore will usually differ from the To header field in the original request
/// by the addition of the tag parameter." "The ACK MUST contain a single Via header field, and this
/// MUST be equal to the top Via header field of the original request." "The CSeq header field in
/// the ACK MUST contain the same value for the sequence number as was present in the original
/// request, but the method parameter MUST be equal to "ACK"." "If the INVITE request whose response
/// is being acknowledged had Route header fields, those header fields MUST appear in the ACK."
/// "Therefore, placement of bodies in ACK for non-2xx is NOT RECOMMENDED, but if done, the body
/// types are restricted to any that appeared in the INVITE, assuming that the response to the
/// INVITE was not 415."
///
/// RFC 3261 §17.1.1.2: "The ACK MUST be sent to the same address, port, and transport to which the
/// original request was sent."
///
/// RFC 6026 §8.4: "The ACK MUST be sent to the same address, port, and transport to which the
/// original request was sent."
///
/// RFC 3263 §4.4: "When a server is contacted successfully, all retransmissions of the request for
/// the transaction, as well as ACK for a non-2xx final response, and CANCEL requests for that
/// transaction, MUST go to the same server."
#[test]
fn our_ack_matches_the_invite_and_its_response() {
    let mut s = Script::with(tidegate_balance::Policy::Rr, |settings| {
        settings.pools[0].mode = tidegate_proxy::Mode::Transaction;
        settings.listeners[0].trust = vec!["198.51.100.0/24".parse().unwrap()];
    });
    let routes = "Route: <sip:203.0.113.5;lr>\r\nRoute: <sip:far.example.com;lr>\r\n";
    let text = request("INVITE", "sip:bob@example.net;method=x", "c1", 7, routes);
    let text = text.replace("Content-Length: 0\r\n\r\n", "Content-Length: 4\r\n\r\nbody");
    let out = s.send(CALLER, &text).remove(1);
    let ack = s.send("203.0.113.5:5060", &out.answer("404 Not Found")).remove(0);
    assert_eq!((ack.from, ack.to), (out.from, out.to));
    assert_eq!(ack.start(), "ACK sip:bob@example.net SIP/2.0");
    assert_eq!(ack.all("Via"), [out.header("Via")]);
    assert_eq!(ack.all("Route"), ["<sip:203.0.113.5;lr>", "<sip:far.example.com;lr>"]);
    for name in ["From", "Call-ID"] {
        assert_eq!(ack.all(name), out.all(name), "{name}");
    }
    assert_eq!(ack.all("To"), ["<sip:bob@example.com>;tag=callee"]);
    assert_eq!(ack.all("CSeq"), ["7 ACK"]);
    assert!(ack.text.ends_with("Content-Length: 0\r\n\r\n"));
}

/// RFC 3261 §16.9: "The proxy SHOULD NOT cancel any outstanding client transactions associated with
/// this response context due to this notification." RFC 6026 §7.1: "A server transaction MUST NOT
/// discard transaction state based only on encountering a non-recoverable transport error when
/// sending a response. Instead, the associated INVITE server transaction state machine MUST remain
/// in its current state."
#[test]
fn a_response_that_cannot_be_delivered_ends_nothing() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    let ringing = s.one(BACKEND_A, &out.answer("180 Ringing"));
    s.rejected_quoting(CALLER, ringing.text.as_bytes());
    s.pass(Duration::from_secs(1));
    assert_eq!((s.sent().len(), s.live()), (0, (1, 1)));
    assert_eq!(s.one(CALLER, &invite("c1")), ringing);
    let busy = s.send(BACKEND_A, &out.answer("486 Busy Here")).remove(1);
    s.rejected_quoting(CALLER, busy.text.as_bytes());
    s.pass(Duration::from_millis(500));
    assert_eq!(s.sent(), [busy], "until the ACK comes");
}

/// RFC 6026 §8.8: "the server transaction SHOULD inform the TU that a failure has occurred, and
/// MUST remain in the current state."
#[test]
fn an_undeliverable_response_to_another_request_ends_nothing() {
    let mut s = Script::stateful();
    let message = request("MESSAGE", "sip:bob@192.0.2.1", "m1", 1, "");
    let out = s.one(CALLER, &message);
    let ok = s.one(BACKEND_A, &out.answer("200 OK"));
    s.rejected_quoting(CALLER, ok.text.as_bytes());
    s.pass(Duration::from_secs(1));
    assert_eq!(s.one(CALLER, &message), ok);
}

/// §16.7 item 6: "A stateful proxy MUST send a final response to a response context's server
/// transaction if no final responses have been immediately forwarded by the above rules and all
/// client transactions in this response context have been terminated."
///
/// RFC 3261 §16.7: "A stateful proxy MUST NOT immediately forward any other responses." "The
/// stateful proxy MUST choose the "best" final response among those received and stored in the
/// response context." "Otherwise, the proxy MUST forward a response from the responses stored in
/// the response context." "An element SHOULD preserve the To tag when simply forwarding a 3-6xx
/// response to a request that did not contain a To tag."
#[test]
fn the_best_response_is_sent_once_all_have_answered() {
    let mut s = Script::forking(&THREE);
    let [a, b, c] = forked(&mut s);
    let acknowledged =
        |sent: &[Sent]| starts(sent).len() == 1 && sent[0].start().starts_with("ACK");
    assert!(acknowledged(&s.send(BACKEND_A, &a.answer("486 Busy Here"))));
    assert!(acknowledged(&s.send(BACKEND_B, &b.answer("503 Service Unavailable"))));
    let sent = s.send(BACKEND_C, &c.answer("404 Not Found"));
    assert_eq!(
        starts(&sent)[1],
        (CALLER, "SIP/2.0 486 Busy Here"),
        "the first response of the class"
    );
    assert!(sent[1].header("To").contains("tag=callee"), "the response is unchanged");
    ack_to_rejection(&mut s);
    s.pass(Duration::from_secs(40));
    assert_eq!((s.sent().len(), s.live()), (0, (0, 0)));
}

/// Item 5: "If a 6xx response is received, it is not immediately forwarded, but the stateful
/// proxy SHOULD cancel all client pending transactions".
///
/// RFC 3261 §16.7: "If a 6xx response is received, it is not immediately forwarded, but the
/// stateful proxy SHOULD cancel all client pending transactions as described in Section 10, and it
/// MUST NOT create any new branches in this context."
///
/// RFC 3261 §16.7: "A proxy SHOULD also generate a CANCEL request for all pending client
/// transactions associated with this response context when it receives a 6xx response."
#[test]
fn a_6xx_ends_the_search() {
    let mut s = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 1000), (BACKEND_C, 500)]);
    let sent = s.send(CALLER, &invite("c1"));
    assert_eq!(sent.len(), 3, "the third has to wait for its turn");
    assert_eq!(starts(&s.send(BACKEND_B, &sent[2].answer("180 Ringing"))).len(), 1);
    let declined = s.send(BACKEND_A, &sent[1].answer("603 Decline"));
    assert_eq!(
        starts(&declined),
        [
            (BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0"),
            (BACKEND_B, "CANCEL sip:bob@192.0.2.1 SIP/2.0"),
        ]
    );
    let sent = s.send(BACKEND_B, &sent[2].answer("487 Request Terminated"));
    assert_eq!(starts(&sent)[1], (CALLER, "SIP/2.0 603 Decline"));
}

/// Item 7: "the proxy MUST collect any WWW-Authenticate and Proxy-Authenticate header field
/// values from all other 401 (Unauthorized) and 407 (Proxy Authentication Required) responses
/// received so far in this response context and add them to this response".
///
/// RFC 3261 §16.7: "The forwarded response MUST be processed as described in steps "Aggregate
/// Authorization Header Field Values" through "Record-Route"." "If the selected response is a 401
/// (Unauthorized) or 407 (Proxy Authentication Required), the proxy MUST collect any
/// WWW-Authenticate and Proxy-Authenticate header field values from all other 401 (Unauthorized)
/// and 407 (Proxy Authentication Required) responses received so far in this response context and
/// add them to this response without modification before forwarding."
#[test]
fn all_challenges_go_up_together() {
    let mut s = Script::forking(&THREE[..2]);
    let sent = s.send(CALLER, &invite("c1"));
    let challenge = |status: &str, line: &str, to: &Sent| {
        to.answer(status).replacen("Content-Length", &format!("{line}\r\nContent-Length"), 1)
    };
    let a = challenge("401 Unauthorized", "WWW-Authenticate: Digest realm=\"a\"", &sent[1]);
    let b =
        challenge("407 Proxy Authentication Required", "Proxy-Authenticate: Digest b", &sent[2]);
    s.send(BACKEND_A, &a);
    let up = s.send(BACKEND_B, &b).remove(1);
    assert_eq!(up.start(), "SIP/2.0 401 Unauthorized");
    assert_eq!(up.all("WWW-Authenticate"), ["Digest realm=\"a\""]);
    assert_eq!(up.all("Proxy-Authenticate"), ["Digest b"]);
}

/// Item 6: "If the only response that was received is a 503, the proxy SHOULD generate a 500
/// response and forward that upstream."
///
/// RFC 3261 §16.7: "A proxy which receives a 503 (Service Unavailable) response SHOULD NOT forward
/// it upstream unless it can determine that any subsequent requests it might proxy will also
/// generate a 503."
#[test]
fn a_503_goes_up_as_500() {
    let mut s = Script::forking(&THREE[..1]);
    // The request is so long that its responses are not limited as amplification.
    let long = format!("Subject: {}\r\n", "x".repeat(400));
    let sent = s.send(CALLER, &request("INVITE", "sip:bob@192.0.2.1", "c1", 1, &long));
    let up = s.send(BACKEND_A, &sent[1].answer("503 Service Unavailable")).remove(1);
    assert_eq!(up.start(), "SIP/2.0 500 Server Internal Error");
    assert!(!up.header("To").contains("tag=callee"), "it is ours");
    // RFC 3261 §17.2.1: the response is repeated until its ACK arrives.
    s.pass(Duration::from_millis(1600));
    assert_eq!(s.sent(), [up.clone(), up.clone()]);
    let tag = up.header("To").split_once(";tag=").unwrap().1;
    let ack = request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n").replace("callee", tag);
    assert_eq!(starts(&s.send(CALLER, &ack)), []);
    s.pass(Duration::from_secs(40));
    assert_eq!((s.sent().len(), s.live()), (0, (0, 0)));
}

/// Item 6: "If the only response that was received is a 503, the proxy SHOULD generate a 500
/// response and forward that upstream." If there is another 5xx, it goes up, whichever comes first.
#[test]
fn a_503_hides_no_other_5xx() {
    let statuses = ["503 Service Unavailable", "501 Not Implemented"];
    for (a, b) in [(0, 1), (1, 0)] {
        let mut s = Script::forking(&THREE[..2]);
        let sent = s.send(CALLER, &invite("c1"));
        s.send(BACKEND_A, &sent[1].answer(statuses[a]));
        let sent = s.send(BACKEND_B, &sent[2].answer(statuses[b]));
        assert_eq!(starts(&sent)[1], (CALLER, "SIP/2.0 501 Not Implemented"), "{a}");
    }
}

/// RFC 3261 §17.1.3: the CSeq's method and the branch identify the transaction.
///
/// RFC 6026 §7.3: "When receiving any SIP response, a transaction-stateful proxy MUST compare the
/// transaction identifier in that response against its existing transaction state machines."
#[test]
fn a_response_that_matches_nothing_goes_nowhere() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    let other_method = out.answer("200 OK").replace("1 INVITE", "1 MESSAGE");
    assert_eq!(starts(&s.send(BACKEND_A, &other_method)), []);
    let forged =
        out.answer("200 OK").replace(out.branch(), "z9hG4bKAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(starts(&s.send(BACKEND_A, &forged)), []);
    // RFC 6026 §8.9: after the transaction has ended, no response is forwarded either.
    s.send(BACKEND_A, &out.answer("404 Not Found"));
    ack_to_rejection(&mut s);
    s.rest(Duration::from_secs(40));
    assert_eq!(starts(&s.send(BACKEND_A, &out.answer("200 OK"))), []);
    assert_eq!(s.counters.responses_forwarded.get(), 1, "the 404");
}

/// A regression: a 486 with a line that is not a header field was forwarded, but not acknowledged.
/// Later the same happened only if this line began with the first letter of From or To.
///
/// RFC 3261 §17.1.1.2: "The client transaction MUST pass the received response up to the TU, and the
/// client transaction MUST generate an ACK request, even if the transport is reliable (guidelines
/// for constructing the ACK from the response are given in Section 17.1.1.3) and then pass the ACK
/// to the transport layer for transmission."
#[test]
fn a_rejection_with_an_odd_line_is_acknowledged() {
    for odd in ["Server Asterisk", "Timestamp 54", "To"] {
        let mut s = Script::stateful();
        let out = s.send(CALLER, &invite("c1")).remove(1);
        let busy = out.answer("486 Busy Here");
        let sent = s.send(BACKEND_A, &busy.replacen("\r\nFrom", &format!("\r\n{odd}\r\nFrom"), 1));
        let ack = (BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0");
        assert_eq!(starts(&sent), [ack, (CALLER, "SIP/2.0 486 Busy Here")], "{odd}");
        for name in ["From", "To", "Call-ID"] {
            assert_eq!(sent[0].all(name), sent[1].all(name), "{odd}");
        }
        assert_eq!(sent[0].header("CSeq"), "1 ACK", "{odd}");
    }
}
