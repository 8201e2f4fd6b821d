//! RFC 3261 §16: tests of the changes to requests and responses, and that all else is unchanged.

use std::sync::Arc;
use std::time::Duration;

use crate::script::*;
use tidegate_balance::Policy;
use tidegate_proxy::{DropReason, Listener, Mode, RejectionRecord};
use tidegate_sip::FIELDS_MAX;

// §16.6 item 8: "The proxy MUST insert a Via header field value into the copy before
// the existing Via header field values." §8.1.1.7: the branch "MUST always begin with
// the characters "z9hG4bK"".
// RFC 3261 §16.6: "The copy MUST initially contain all of the header fields from the received
// request." "Fields not detailed in the processing described below MUST NOT be removed." "The copy
// SHOULD maintain the ordering of the header fields as in the received request." "The proxy MUST
// NOT reorder field values with a common field name (See Section 7.3.1)." "The proxy MUST NOT add
// to, modify, or remove the message body." "The first part MUST satisfy the constraints of Section
// 8.1.1.7 as described above."
// RFC 3261 §18.1.1: "Before a request is sent, the client transport MUST insert a value of the
// "sent-by" field into the Via header field." "For unreliable unicast transports, the client
// transport MUST be prepared to receive responses on the source IP address from which the request
// is sent (as responses are sent back to the source address) and the port number in the "sent-by"
// field."
// RFC 3581 §3: "This parameter MUST have no value; it serves as a flag to indicate to the server
// that this extension is supported and requested for the transaction." "When the client sends the
// request, if the request is sent using UDP, the client MUST be prepared to receive the response on
// the same IP address and port it used to populate the source IP address and source port of the
// request." "For backwards compatibility, the client MUST still be prepared to receive a response
// on the port indicated in the sent-by field of the topmost Via header field value, as specified in
// Section 18.1.1 of SIP [1]."
// RFC 5393 §4.2.1: "The proxy MUST insert a Via header field value into the copy before the
// existing Via header field values." "The first part of the branch value MUST satisfy the
// constraints of Section 8.1.1.7."
// RFC 3261 §16.11: "A stateless proxy MUST follow the request processing steps described in Section
// 16.6 with the following exceptions:"
#[test]
fn a_via_of_ours_is_on_top_and_all_else_stays_in_place() {
    let mut script = Script::new();
    let text = request("INVITE", "sip:bob@192.0.2.1", "c1", 1, "X-Odd:  kept ;as=it is\r\n");
    let text = text.replace("Content-Length: 0\r\n\r\n", "Content-Length: 4\r\n\r\nbody");
    let sent = script.one(CALLER, &text);
    assert_eq!((sent.from, sent.to), (address(PROXY), address(BACKEND_A)));
    let vias = sent.all("Via");
    assert_eq!(vias.len(), 2);
    assert!(vias[0].starts_with("SIP/2.0/UDP 192.0.2.1:5060;rport;branch=z9hG4bK"), "{}", vias[0]);

    let ours = |line: &&str| {
        line.starts_with("Via: SIP/2.0/UDP 192.0.2.1")
            || line.starts_with("Record-Route")
            || line.starts_with("Max-Breadth")
    };
    let rest: Vec<_> = sent.text.split("\r\n").filter(|line| !ours(line)).collect();
    let expected = text.replace("Max-Forwards: 70", "Max-Forwards: 69");
    assert_eq!(rest.join("\r\n"), expected);
}

/// A regression: such a request got 400.
///
/// RFC 3261 §16.3: "Any other components, well-formed or not, SHOULD be ignored and remain
/// unchanged when the message is forwarded."
#[test]
fn repeated_headers_that_the_proxy_does_not_use_stay_in_order() {
    let mut script = Script::new();
    let more = "User-Agent: FPBX\r\nSubject: a\r\nuser-agent: gw-7\r\nSubject: b\r\n";
    let sent = script.one(CALLER, &request("INVITE", "sip:bob@192.0.2.1", "c1", 1, more));
    assert!(sent.text.contains(&format!("\r\n{more}From: ")), "{}", sent.text);
}

// §16.6 item 3: "If the copy contains a Max-Forwards header field, the proxy MUST
// decrement its value by one (1). If the copy does not contain a Max-Forwards header
// field, the proxy MUST add one with a field value, which SHOULD be 70."
#[test]
fn max_forwards_is_decremented_or_added() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("c1").replace(": 70", ": 5"));
    assert_eq!(sent.all("Max-Forwards"), ["4"]);
    let sent = script.one(CALLER, &invite("c2").replace("Max-Forwards: 70\r\n", ""));
    assert_eq!(sent.all("Max-Forwards"), ["70"]);
}

// §8.1.1.7: "The protocol name and protocol version in the header field MUST be SIP and 2.0,
// respectively." §16.3 item 1. A server that cannot parse a Via below ours drops the request
// silently, as if the server were down.
#[test]
fn a_via_below_the_first_that_is_broken_is_answered_400() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let whole = "Via: SIP/2.0/UDP 198.51.100.7:5060;branch=z9hG4bK-c1-1-INVITE\r\n";
        for lines in [
            "Via: nonsense\r\n",
            "Via: SIP/3.0/UDP 192.0.2.7;branch=z9hG4bKx\r\n",
            "Via: SIP/2.0/UDP 192.0.2.7, , SIP/2.0/UDP 192.0.2.8\r\n",
            "Via: SIP/2.0/UDP 192.0.2.7\r\nX: y\r\nVia:\r\n",
        ] {
            let text = invite("c1").replacen(whole, &format!("{whole}{lines}"), 1);
            assert_eq!(script.status(CALLER, &text), 400, "{lines:?}");
        }
        let lines = format!("{whole}Via: SIP/2.0/UDP 192.0.2.7, SIP/2.0/TLS [::1]:5061\r\n");
        let sent = script.send(CALLER, &invite("c1").replacen(whole, &lines, 1));
        assert!(sent.iter().any(|sent| sent.to == address(BACKEND_A)), "{sent:#?}");
    }
}

// §21.5.7: "The server was unable to process the request since the message length exceeded its
// capabilities." Every request that can be answered is answered.
#[test]
fn a_request_of_many_header_lines_is_forwarded_and_one_of_too_many_answered_513() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let with = |call: &str, n: usize| {
            invite(call).replacen("From:", &format!("{}From:", "Odd: y\r\n".repeat(n)), 1)
        };
        let own = invite("c1").lines().count() - 2;
        let sent = script.send(CALLER, &with("c1", FIELDS_MAX - own));
        let sent = sent.iter().find(|sent| sent.to == address(BACKEND_A)).expect("it goes on");
        assert_eq!(sent.all("Odd").len(), FIELDS_MAX - own);
        if mode == Mode::Transaction {
            // §17.1.1.2: "the client transaction MUST generate an ACK request". The INVITE that was
            // sent has more lines than one that is received may have.
            let answered = script.send(BACKEND_A, &sent.answer("486 Busy Here"));
            assert_eq!(starts(&answered)[0], (BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0"));
        }
        let reply = script.one(CALLER, &with("c2", FIELDS_MAX - own + 1));
        assert_eq!(reply.start(), "SIP/2.0 513 Message Too Large");
        assert_eq!((reply.all("Odd").len(), reply.all("Via").len()), (0, 1));
        let kept = script.counters.rejections.list();
        let is_explained = |kept: &RejectionRecord| kept.cause.contains("too many header fields");
        assert!(kept.iter().any(is_explained), "{kept:?}");
        // The next request has as many header fields as a datagram holds. The one after it is an
        // ACK, which gets no response.
        assert_eq!(script.status(CALLER, &with("c3", 8000)), 513);
        assert!(script.send(CALLER, &with("c4", 2000).replace("INVITE", "ACK")).is_empty());
    }
}

// §7.1: "applications sending SIP messages MUST include a SIP-Version of "SIP/2.0"".
#[test]
fn a_response_of_another_version_is_dropped() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let sent = script.send(CALLER, &invite("c1"));
        let sent = sent.iter().find(|sent| sent.to == address(BACKEND_A)).expect("it goes on");
        let ok = sent.answer("200 OK");
        assert!(script.send(BACKEND_A, &ok.replacen("SIP/2.0", "SIP/3.0", 1)).is_empty());
        assert_eq!(script.counters.dropped(DropReason::Malformed).get(), 1);
        assert_eq!(script.one(BACKEND_A, &ok).start(), "SIP/2.0 200 OK");
    }
}

// §16.3: the checks, in their order.
// RFC 3261 §16.3: "Before an element can proxy a request, it MUST verify the message's validity."
// "If any of these checks fail, the element MUST behave as a user agent server (see Section 8.2)
// and respond with an error code." "The request MUST be well-formed enough to be handled with a
// server transaction." "Any components involved in the remainder of these Request Validation steps
// or the Request Forwarding section MUST be well-formed." "If the Request-URI has a URI whose
// scheme is not understood by the proxy, the proxy SHOULD reject the request with a 416
// (Unsupported URI Scheme) response." "Otherwise, the element MUST return a 483 (Too many hops)
// response." "If the request contains a Proxy-Require header field (Section 20.29) with one or more
// option-tags this element does not understand, the element MUST return a 420 (Bad Extension)
// response."
// RFC 3261 §18.3: "If the message is a request, the element SHOULD generate a 400 (Bad Request)
// response."
// RFC 3261 §16.11: "A stateless proxy MUST validate a request as described in Section 16.3"
// RFC 3261 §16.3: "If the request contains a Max-Forwards header field with a field value of zero
// (0), the element MUST NOT forward the request." "The response MUST include an Unsupported
// (Section 20.40) header field listing those option-tags the element did not understand."
#[test]
fn a_request_that_must_not_be_forwarded_is_answered() {
    let mut script = Script::new();
    // Item 1, reasonable syntax.
    assert_eq!(script.status(CALLER, &invite("c1").replace("CSeq: 1 INVITE", "CSeq: 1 BYE")), 400);
    assert_eq!(
        script.status(CALLER, &invite("c2").replace("CSeq: 1 INVITE", "CSeq: one INVITE")),
        400
    );
    assert_eq!(script.status(CALLER, &invite("c3").replace(": 70", ": many")), 400);
    assert_eq!(
        script.status(CALLER, &invite("c4").replace("SIP/2.0\r\nVia", "SIP/3.0\r\nVia")),
        505
    );
    // Item 2, the scheme.
    assert_eq!(
        script.status(CALLER, &invite("c5").replace("INVITE sip:", "INVITE nobody-knows:")),
        416
    );
    // §19.1.1: no headers in a Request-URI.
    let headers = request("INVITE", "sip:bob@192.0.2.1?Route=%3Csip:evil%3E", "c8", 1, "");
    assert_eq!(script.status(CALLER, &headers), 400);
    // A body shorter than announced (§18.3).
    let short = invite("c9").replace("Content-Length: 0", "Content-Length: 9");
    assert_eq!(script.status(CALLER, &short), 400);
    // Item 3: "If the request contains a Max-Forwards header field with a field value
    // of zero (0), the element MUST NOT forward the request."
    assert_eq!(script.status(CALLER, &invite("c6").replace(": 70", ": 0")), 483);
    // Item 5: "the element MUST return a 420 (Bad Extension) response. The response MUST
    // include an Unsupported (Section 20.40) header field listing those option-tags the element did
    // not understand".
    let asked = request("INVITE", "sip:bob@192.0.2.1", "c7", 1, "Proxy-Require: privacy, foo\r\n");
    let reply = script.one(CALLER, &asked);
    assert_eq!(reply.start(), "SIP/2.0 420 Bad Extension");
    assert_eq!(reply.header("Unsupported"), "privacy, foo");
    // None of these requests has a call entry, or counts as assigned to a back end.
    assert_eq!(script.counters.calls.get(), 0);
    assert!(script.backends.backends().iter().all(|b| b.assigned() == 0));
}

// §17.1.1.3 and §8.2.6: an ACK is never answered, whatever is wrong with it.
#[test]
fn an_ack_is_never_answered() {
    let mut script = Script::new();
    let ack = request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n");
    assert!(script.send(CALLER, &ack).is_empty());
    assert!(script.send(CALLER, &ack.replace(": 70", ": 0")).is_empty());
    assert!(script.send(CALLER, &ack.replace("CSeq: 1 ACK", "CSeq: 1 INVITE")).is_empty());
    assert!(script.send(CALLER, &ack.replace("CSeq: 1 ACK", "CSeq: one ACK")).is_empty());
    assert!(script.send(CALLER, &ack.replace("Length: 0", "Length: 9")).is_empty());
    let dropped = |why| script.counters.dropped(why).get();
    let reasons = [DropReason::UnknownAck, DropReason::RejectedAck, DropReason::Malformed];
    assert_eq!(reasons.map(dropped), [1, 1, 3]);
}

// §8.2.6.2: a reply copies all Vias in their order, From, To, Call-ID and CSeq, and adds a To-tag.
// §18.2.1 and RFC 3581 §4: it has received and rport in the Via.
// RFC 3261 §16.1: "When responding directly to a request, the element is playing the role of a UAS
// and MUST behave as described in Section 8.2."
#[test]
fn a_reply_is_made_of_the_requests_own_lines() {
    let mut script = Script::new();
    let text = invite("c1").replace(": 70", ": 0").replace(
        "Via: SIP/2.0/UDP 198.51.100.7:5060;",
        "Via: SIP/2.0/UDP client.example:5099;rport;",
    );
    let text = text.replace("From:", "Via: SIP/2.0/TCP behind.example;branch=z9hG4bKb\r\nFrom:");
    let reply = script.one("198.51.100.7:40000", &text);
    assert_eq!(reply.to, address("198.51.100.7:40000"), "rport: back to the source port");
    let vias = reply.all("Via");
    assert!(
        vias[0].contains("client.example:5099;rport=40000;")
            && vias[0].contains(";received=198.51.100.7")
    );
    assert_eq!(vias[1], "SIP/2.0/TCP behind.example;branch=z9hG4bKb");
    assert_eq!(reply.header("From"), "<sip:alice@example.com>;tag=caller");
    let (to, tag) = reply.header("To").split_once(";tag=").unwrap();
    assert_eq!(to, "<sip:bob@example.com>");
    // §25.1: a tag is a token.
    assert!(tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{tag:?}");
    assert_eq!((reply.header("Call-ID"), reply.header("CSeq")), ("c1", "1 INVITE"));
    // §8.2.7: "in a manner that will generate the same tag for the same request".
    assert_eq!(script.one("198.51.100.7:40000", &text), reply);
}

// §18.2.2: without rport, a reply goes to the port of the Via, but never to another address.
#[test]
fn without_rport_a_reply_goes_to_the_vias_port_at_the_source_address() {
    let mut script = Script::new();
    let text = invite("c1").replace(": 70", ": 0").replace("198.51.100.7:5060", "203.0.113.9:5098");
    assert_eq!(script.one("198.51.100.7:40000", &text).to, address("198.51.100.7:5098"));
}

// §16.11: "the component of the branch parameter that makes it unique MUST be the same each time a
// retransmitted request is forwarded." It is computed from the received branch, so the CANCEL
// (§9.1) and the ACK to a non-2xx (§17.1.1.3) have the branch of their INVITE.
// RFC 3261 §16.6: "The request method MUST NOT be included in the calculation of the branch
// parameter." "In particular, CANCEL and ACK requests (for non-2xx responses) MUST have the same
// branch value as the corresponding request they cancel or acknowledge."
// RFC 5393 §4.2.1: "This second part MUST NOT vary with the request method." "CANCEL and non-200
// ACK requests MUST have the same branch parameter value as the corresponding request they cancel
// or acknowledge."
// RFC 3261 §16.11: "Furthermore, when handling a request statelessly, an element MUST NOT generate
// its own 100 (Trying) or any other provisional response." "A stateless proxy MUST choose one and
// only one target from the target set." "Thus for a stateless proxy, the branch parameter MUST be
// computed as a combinatoric function of message parameters which are invariant on retransmission."
// "All other message transformations specified in Section 16.6 MUST result in the same
// transformation of a retransmitted request."
#[test]
fn copies_of_a_request_get_one_branch() {
    let mut script = Script::new();
    let first = script.one(CALLER, &invite("c1"));
    assert_eq!(script.one(CALLER, &invite("c1")), first);
    let cancel = script.one(CALLER, &request("CANCEL", "sip:bob@192.0.2.1", "c1", 1, ""));
    assert_eq!((cancel.branch(), cancel.to), (first.branch(), first.to));
    let busy = script.one(BACKEND_A, &first.answer("486 Busy Here"));
    assert_eq!(busy.to, address(CALLER));
    let ack = script.one(CALLER, &request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n"));
    assert_eq!((ack.branch(), ack.to), (first.branch(), first.to));

    // A process with the same key and other calls, as after a restart: the caller's retransmission
    // must not look like another request (§8.2.2.2).
    let mut restarted = Script::new();
    let other = restarted.one(CALLER, &invite("c2"));
    assert_ne!(other.branch(), first.branch());
    assert_eq!(restarted.one(CALLER, &invite("c1")).branch(), first.branch());
    // §8.1.1.7: the branch is "unique across space and time", even within one call.
    let next = script.one(CALLER, &request("INVITE", "sip:bob@192.0.2.1", "c1", 2, ""));
    assert_ne!(next.branch(), first.branch());
}

// §16.11: "In particular, if the proxy inserts a Record-Route value or pushes URIs into the Route
// header field, it MUST place the same values in retransmissions of the request." Our Record-Route
// contains the minute in which the request arrived.
#[test]
fn a_retransmission_in_the_next_minute_gets_the_same_record_route() {
    let mut script = Script::new();
    script.pass(Duration::from_secs(50));
    let first = script.one(CALLER, &invite("c1"));
    for wait in [500, 1000, 2000, 4000, 8000, 16_000] {
        script.pass(Duration::from_millis(wait));
        assert_eq!(script.one(CALLER, &invite("c1")), first, "after {wait} ms more");
    }
    script.pass(Duration::from_secs(60));
    let next = script.one(CALLER, &invite("c2"));
    assert_ne!(next.header("Record-Route"), first.header("Record-Route"));
}

// §16.11: the branch of a client of RFC 2543 is not unique, so the whole request counts.
// RFC 3261 §16.11: "However, the following procedure is RECOMMENDED."
#[test]
fn a_branch_without_the_cookie_is_not_trusted_to_be_unique() {
    let mut script = Script::new();
    let old = |call: &str| invite(call).replace(&format!("z9hG4bK-{call}-1-INVITE"), "1");
    let first = script.one(CALLER, &old("c1"));
    assert_eq!(script.one(CALLER, &old("c1")).branch(), first.branch());
    assert_ne!(script.one(CALLER, &old("c2")).branch(), first.branch());
}

// §16.7 item 3: "The proxy removes the topmost Via header field value from the
// response." §18.2.2, RFC 3581 §4: then to received and rport of the next.
// RFC 3261 §16.7: "A proxy MUST NOT insert a tag into the To header field of a 1xx or 2xx response
// if the request did not contain one." "A proxy MUST NOT modify the tag in the To header field of a
// 1xx or 2xx response." "A proxy MUST NOT modify the To tag in any forwarded response to a request
// that contains a To tag." "Unless otherwise specified, the proxy MUST NOT remove any header field
// values other than the Via header field value discussed in Section 16.7 Item 3." "In particular,
// the proxy MUST NOT remove any "received" parameter it may have added to the next Via header field
// value while processing the request associated with this response."
// RFC 3261 §16.11: "Unless specified otherwise, the proxy MUST NOT remove any other header field
// values."
// RFC 3581 §4: "If the "sent-protocol" component indicates an unreliable unicast transport
// protocol, such as UDP, and there is no "maddr" parameter, but there is both a "received"
// parameter and an "rport" parameter, the response MUST be sent to the IP address listed in the
// "received" parameter, and the port in the "rport" parameter." "The response MUST be sent from the
// same address and port that the corresponding request was received on."
#[test]
fn a_response_goes_back_by_its_via() {
    let mut script = Script::new();
    let text = invite("c1").replace("198.51.100.7:5060;", "10.9.9.9:5060;rport;");
    let sent = script.one("198.51.100.7:40000", &text);
    assert!(sent.all("Via")[1].contains(";rport=40000;"));
    let ringing = script.one(BACKEND_A, &sent.answer("180 Ringing"));
    assert_eq!((ringing.from, ringing.to), (address(PROXY), address("198.51.100.7:40000")));
    assert_eq!(ringing.all("Via").len(), 1);
    assert_eq!(ringing.text, {
        let top = format!("Via: {}\r\n", sent.header("Via"));
        sent.answer("180 Ringing").replace(&top, "")
    });
}

// §16.7 item 1 and §18.1.2: a response to a request that we did not send is discarded.
// RFC 3261 §16.7: "If no Via header field values remain in the response, the response was meant for
// this element and MUST NOT be forwarded."
#[test]
fn a_response_that_is_not_ours_goes_nowhere() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("c1"));
    let forged = sent.answer("200 OK").replace(sent.branch(), "z9hG4bKAAAAAAAAAAAAAAAAAAAAAAAA");
    assert!(script.send(BACKEND_A, &forged).is_empty());
    let foreign = sent.answer("200 OK").replace(sent.branch(), "z9hG4bK1");
    assert!(script.send(BACKEND_A, &foreign).is_empty());
    // A response with only our Via has no target.
    let lone: String =
        sent.answer("200 OK").replace(&format!("Via: {}\r\n", sent.all("Via")[1]), "");
    assert!(script.send(BACKEND_A, &lone).is_empty());
    let counters = Arc::clone(&script.counters);
    assert_eq!(counters.dropped(DropReason::ForeignResponse).get(), 2);
    assert_eq!(counters.dropped(DropReason::LostResponse).get(), 1);
    assert_eq!(script.send(BACKEND_A, &sent.answer("200 OK")).len(), 1, "the true one passes");
}

// §16.6 item 4: a request that starts a dialog gets a Record-Route above any other. Its URI has lr.
// RFC 3261 §16.6: "If this proxy wishes to remain on the path of future requests in a dialog
// created by this request (assuming the request creates a dialog), it MUST insert a Record-Route
// header field value into the copy before any existing Record-Route header field values, even if a
// Route header field is already present." "If this request is already part of a dialog, the proxy
// SHOULD insert a Record-Route header field value if it wishes to remain on the path of future
// requests in the dialog." "The URI placed in the Record-Route header field value MUST be a SIP or
// SIPS URI." "This URI MUST contain an lr parameter (see Section 19.1.1)." "The URI SHOULD NOT
// contain the transport parameter unless the proxy has knowledge (such as in a private network)
// that the next downstream element that will be in the path of subsequent requests supports that
// transport."
#[test]
fn record_route_is_inserted_where_a_dialog_begins() {
    let mut script = Script::new();
    let more = "Record-Route: <sip:p1.example;lr>\r\n";
    let sent = script.one(CALLER, &request("INVITE", "sip:bob@192.0.2.1", "c1", 1, more));
    let routes = sent.all("Record-Route");
    assert_eq!(routes.len(), 2);
    assert!(
        routes[0].starts_with("<sip:") && routes[0].ends_with("@192.0.2.1:5060;lr>"),
        "{routes:?}"
    );
    assert_eq!(routes[1], "<sip:p1.example;lr>");
    for (i, method) in ["MESSAGE", "OPTIONS", "REGISTER"].into_iter().enumerate() {
        let text = request(method, "sip:bob@192.0.2.1", &format!("x{i}"), 1, "");
        assert!(script.one(CALLER, &text).all("Record-Route").is_empty(), "{method}");
    }
    script.one(BACKEND_A, &sent.answer("200 OK"));
    let again = script.one(CALLER, &request("INVITE", "sip:bob@10.0.0.1", "c1", 2, "Totag\r\n"));
    assert_eq!(again.all("Record-Route").len(), 1, "within the dialog too");
}

// §16.6 item 4: if the two sides know us by different addresses, both addresses are in the route
// set, the one of the next hop on top. So the requests of each side come to its own address.
// RFC 3261 §16.4: "If the first value in the Route header field indicates this proxy, the proxy
// MUST remove that value from the request."
// RFC 3261 §16.6: "The URI placed in the Record-Route header field MUST resolve to the element
// inserting it (or a suitable stand-in) when the server location procedures of [4] are applied to
// it, so that subsequent requests reach the same SIP element."
// RFC 3581 §4: "The response MUST be sent from the same address and port that the corresponding
// request was received on."
#[test]
fn between_two_listeners_each_side_gets_its_own_address() {
    const INNER: &str = "[fd00::1]:5060";
    const INNER_BACKEND: &str = "[fd00::2]:5070";
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.listeners.push(Listener::new(address(INNER)));
        let backend = [("v6", address(INNER_BACKEND), 1)];
        settings.pools = vec![stateless(tidegate_balance::Pool::new("app", &backend))];
    });
    let sent = script.one(CALLER, &invite("c1"));
    assert_eq!((sent.from, sent.to), (address(INNER), address(INNER_BACKEND)));
    let routes = sent.all("Record-Route").iter().map(|r| r.to_string()).collect::<Vec<_>>();
    assert!(
        routes[0].ends_with("@[fd00::1]:5060;lr>") && routes[1].ends_with("@192.0.2.1:5060;lr>"),
        "{routes:?}"
    );
    script.offer_at(INNER, INNER_BACKEND, sent.answer("200 OK").as_bytes(), 0);
    let ok = script.serve().remove(0);
    assert_eq!((ok.from, ok.to), (address(PROXY), address(CALLER)));

    // §12.1.2: the route set of the caller has the reverse order. Both values are removed.
    let route = format!("Totag\r\nRoute: {}, {}\r\n", routes[1], routes[0]);
    let bye = script.one(CALLER, &request("BYE", "sip:bob@[fd00::2]:5070", "c1", 2, &route));
    assert_eq!(bye.to, address(INNER_BACKEND));
    assert!(bye.all("Route").is_empty());
}

/// RFC 3261 §8.2.2.3: "If a UAS does not understand an option-tag listed in a Require header field, it
/// MUST respond by generating a response with status code 420 (Bad Extension)." A proxy forwards the
/// Require of another request unread.
#[test]
fn an_options_for_ourselves_that_requires_an_extension_gets_420() {
    let mut script = Script::new();
    let more = "Require: 100rel, timer\r\n";
    let reply = script.one(CALLER, &request("OPTIONS", "sip:192.0.2.1", "o1", 1, more));
    assert_eq!(reply.start(), "SIP/2.0 420 Bad Extension");
    assert_eq!(reply.header("Unsupported"), "100rel, timer");
    let other = script.one(CALLER, &request("OPTIONS", "sip:bob@192.0.2.1", "o2", 1, more));
    assert_eq!(other.header("Require"), "100rel, timer");
}

// §11 and §16.3 item 3: an OPTIONS for ourselves is answered, even at Max-Forwards 0.
#[test]
fn options_to_ourselves_is_answered() {
    let mut script = Script::new();
    for uri in ["sip:192.0.2.1", "sip:192.0.2.1:5060"] {
        for max_forwards in [": 70", ": 0"] {
            let text = request("OPTIONS", uri, "o1", 1, "").replace(": 70", max_forwards);
            let reply = script.one(CALLER, &text);
            assert_eq!(reply.start(), "SIP/2.0 200 OK");
            assert!(!reply.all("Accept").is_empty() && !reply.all("Allow").is_empty());
        }
    }
    // An OPTIONS for a user goes to the pool.
    assert_eq!(
        script.one(CALLER, &request("OPTIONS", "sip:bob@192.0.2.1", "o2", 1, "")).to,
        address(BACKEND_A)
    );
}

/// RFC 3261 §16.3: "Notice that a proxy is not required to detect merged requests and MUST NOT treat
/// merged requests as an error condition." §8.2.2.2: a merged request has the From tag, Call-ID and
/// CSeq of another, and another branch.
#[test]
fn a_merged_request_is_forwarded_too() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let merged = invite("c1").replace("z9hG4bK-c1", "z9hG4bK-other-way");
        for text in [invite("c1"), merged] {
            let sent = script.send(CALLER, &text).pop().unwrap();
            assert_eq!(sent.start(), "INVITE sip:bob@192.0.2.1 SIP/2.0", "{mode:?}");
        }
    }
}

/// RFC 3261 §16.5: "A proxy MUST NOT add additional targets to the target set if the Request-URI of
/// the original request does not indicate a resource this proxy is responsible for."
#[test]
fn a_request_to_elsewhere_has_one_target() {
    let mut script = Script::stateful();
    let text = request("INVITE", "sip:x@203.0.113.9:5062", "c1", 1, "");
    let out = script.send(BACKEND_A, &text.replace("198.51.100.7:5060", BACKEND_A)).remove(1);
    assert_eq!(out.to, address("203.0.113.9:5062"));
    let sent = script.send("203.0.113.9:5062", &out.answer("503 Service Unavailable"));
    let starts: Vec<_> = sent.iter().map(Sent::start).collect();
    assert_eq!(starts, ["ACK sip:x@203.0.113.9:5062 SIP/2.0", "SIP/2.0 500 Server Internal Error"]);
    script.pass(Duration::from_secs(40));
    assert!(script.sent().iter().all(|sent| sent.to == address(BACKEND_A)));
}

/// RFC 3261 §16.2: "For all new requests, including any with unknown methods, an element intending
/// to proxy the request MUST:"
///
/// RFC 3261 §16.3: "An element MUST NOT refuse to proxy a request because it contains a method or
/// header field it does not know about."
#[test]
fn every_method_goes_to_the_pool_and_comes_back() {
    let mut script = Script::new();
    let methods = ["INVITE", "OPTIONS", "MESSAGE", "REGISTER", "SUBSCRIBE", "PUBLISH", "X-NEW"];
    for (i, method) in methods.into_iter().enumerate() {
        let text = request(method, "sip:bob@192.0.2.1", &format!("m{i}"), 1, "");
        let sent = script.one(CALLER, &text);
        assert!(sent.start().starts_with(method));
        let ok = script.one(&sent.to.to_string(), &sent.answer("200 OK"));
        assert_eq!((ok.to, ok.start()), (address(CALLER), "SIP/2.0 200 OK"));
    }
}

// §7.3.3, §7.3.1: header fields may have compact names, comma-separated values and folded lines.
#[test]
fn other_spellings_are_understood() {
    let mut script = Script::new();
    let text = "INVITE sip:bob@192.0.2.1 SIP/2.0\r\n\
        v: SIP / 2.0 / UDP first.example:4000 ;branch = z9hG4bKaaaa ,\r\n SIP/2.0/UDP second.example;branch=z9hG4bKb\r\n\
        f: \"A, <b>\" <sip:alice@example.com>;tag=1\r\n\
        t: <sip:bob@example.com>\r\ni: c1\r\nCSEQ: 1\r\n INVITE\r\nmax-forwards:  9\r\nl: 0\r\n\r\n";
    let sent = script.one(CALLER, text);
    assert!(sent.text.contains("max-forwards:  8\r\n"), "{}", sent.text);
    assert!(sent.text.contains(";branch = z9hG4bKaaaa;received=198.51.100.7 ,"), "{}", sent.text);
    let back = script.one(BACKEND_A, &format!(
        "SIP/2.0 200 OK\r\nVia: {}\r\nv: SIP / 2.0 / UDP first.example:4000 ;branch = z9hG4bKaaaa;received=198.51.100.7 ,\r\n SIP/2.0/UDP second.example;branch=z9hG4bKb\r\n\
         f: <sip:alice@example.com>;tag=1\r\nt: <sip:bob@example.com>;tag=2\r\ni: c1\r\nCSeq: 1 INVITE\r\nl: 0\r\n\r\n",
        sent.header("Via")
    ));
    assert_eq!(back.to, address("198.51.100.7:4000"));
}
