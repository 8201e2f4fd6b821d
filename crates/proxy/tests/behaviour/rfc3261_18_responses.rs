//! RFC 3261 §18: tests which responses belong to this proxy, and where they go.

use crate::script::{BACKEND_A, CALLER, PROXY, Script, address, invite, request};
use tidegate_balance::Policy;
use tidegate_proxy::{DropReason, Listener, Mode};
use tidegate_world::Seed;

fn foreign(s: &Script) -> u64 {
    s.counters.dropped(DropReason::ForeignResponse).get()
}

/// §18.1.2: "If the value of the "sent-by" parameter in that header field value does not correspond
/// to a value that the client transport is configured to insert into requests, the response MUST be
/// silently discarded."
///
/// RFC 3261 §16.11: "When a response arrives at a stateless proxy, the proxy MUST inspect the
/// sent-by value in the first (topmost) Via header field value." "If that address matches the
/// proxy, (it equals a value this proxy has inserted into previous requests) the proxy MUST remove
/// that header field value from the response and forward the result to the location indicated in
/// the next Via header field value." "If the address does not match the proxy, the message MUST be
/// silently discarded."
#[test]
fn a_response_with_the_sent_by_of_another_is_discarded() {
    for mut s in [Script::new(), Script::stateful()] {
        let sent = s.send(CALLER, &invite("c1")).pop().unwrap();
        let ringing = sent.answer("180 Ringing");
        for (i, other) in
            ["192.0.2.2:5060", "192.0.2.1:5061", "192.0.2.1.example:5060", "[2001:db8::1]:5060"]
                .into_iter()
                .enumerate()
        {
            let strange = ringing.replacen(PROXY, other, 1);
            assert!(s.send(BACKEND_A, &strange).is_empty(), "{other}");
            assert_eq!(foreign(&s), i as u64 + 1);
        }
        assert_eq!(s.one(BACKEND_A, &ringing).to, address(CALLER));
    }
}

/// Our sent-by is recognized in any spelling.
#[test]
fn our_sent_by_may_be_written_in_another_way() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.listeners[0].advertised = "Edge.example:5060".to_owned();
        settings.amplification_max = 0;
    });
    let sent = s.one(CALLER, &invite("c1"));
    let ringing = sent.answer("180 Ringing");
    for written in ["edge.EXAMPLE:5060", "edge.example", "edge.example : 5060"] {
        let text = ringing.replacen("Edge.example:5060", written, 1);
        assert_eq!(s.one(BACKEND_A, &text).to, address(CALLER), "{written}");
    }
    let bound = ringing.replacen("Edge.example:5060", PROXY, 1);
    assert!(s.send(BACKEND_A, &bound).is_empty(), "that is not what we insert");
}

/// Each listener has its own sent-by. A response may arrive at any listener.
#[test]
fn the_sent_by_of_any_listener_is_ours() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.listeners.push(Listener::new(address("192.0.2.2:5080")));
    });
    let sent = s.one(CALLER, &invite("c1"));
    let text = sent.answer("180 Ringing").replacen(PROXY, "192.0.2.2:5080", 1);
    assert_eq!(s.one(BACKEND_A, &text).to, address(CALLER));
}

/// §18.2.2: "if the Via header field value contains a "maddr" parameter, the response MUST be
/// forwarded to the address listed there". A `maddr` is for requests to a multicast group
/// (§18.1.1), where Tidegate does not listen. In a unicast request it would let strangers direct
/// our responses at others. So Tidegate ignores it for all sources.
#[test]
fn an_maddr_in_a_via_sends_no_response_elsewhere() {
    for mut s in [Script::new(), Script::stateful()] {
        for maddr in ["203.0.113.9", "224.0.1.75", "10.0.0.2"] {
            let via = format!("198.51.100.7:5060;maddr={maddr};ttl=16");
            let text = invite(maddr).replacen("198.51.100.7:5060", &via, 1);
            let mut all = s.send(CALLER, &text);
            let sent = all.pop().unwrap();
            all.extend(s.send(&sent.to.to_string(), &sent.answer("180 Ringing")));
            assert!(!all.is_empty());
            assert!(all.iter().all(|sent| sent.to == address(CALLER)), "{all:?}");
        }
    }
}

/// Nothing can be sent to port 0. If the request were forwarded, the responses of the back end would be
/// lost, and the back end would seem silent.
#[test]
fn a_request_whose_responses_would_go_to_port_0_is_dropped() {
    let (via, port_0) = ("198.51.100.7:5060;", "198.51.100.7:0");
    for mut s in [Script::new(), Script::stateful()] {
        let zero = invite("c1").replace(via, "198.51.100.7:0;");
        let rport = invite("c2").replace(via, "198.51.100.7:5060;rport;");
        let malformed = invite("c3").replace(via, "198.51.100.7:0;").replace(": 70", ": x");
        let messages = [(CALLER, &zero), (port_0, &rport), (CALLER, &malformed)];
        for (dropped, (from, text)) in (1..).zip(messages) {
            assert!(s.send(from, text).is_empty(), "{text}");
            assert_eq!(s.counters.dropped(DropReason::Malformed).get(), dropped);
        }
        assert_eq!((s.live(), s.held()), ((0, 0), vec![0, 0]));
        // RFC 3261 §18.2.2: without rport, the responses go to the port in the Via.
        let sent = s.send(port_0, &invite("c4")).pop().unwrap();
        assert_eq!(s.one(BACKEND_A, &sent.answer("180 Ringing")).to, address(CALLER));
        // RFC 3581 §4: with rport, they go to the source port.
        let asked = invite("c5").replace(via, "198.51.100.7:0;rport;");
        let sent = s.send(CALLER, &asked).pop().unwrap();
        let ringing = s.one(&sent.to.to_string(), &sent.answer("180 Ringing"));
        assert_eq!(ringing.to, address(CALLER));
    }
}

/// RFC 4320 §4.1: "An SIP element MUST NOT send any provisional response with a Status-Code other
/// than 100 to a non-INVITE request."
#[test]
fn a_request_other_than_invite_gets_no_provisional_response_but_100() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let process = |seed| {
            Script::with(Policy::Rr, |settings| {
                settings.pools[0].mode = mode;
                settings.seed = seed;
            })
        };
        let mut s = process(Seed(0));
        for method in ["MESSAGE", "OPTIONS", "X-NEW"] {
            let sent = s.one(CALLER, &request(method, "sip:bob@192.0.2.1", method, 1, ""));
            let to = sent.to.to_string();
            // The response to a request of the previous process is forwarded too.
            for s in [&mut s, &mut process(Seed(1))] {
                for status in ["101 Dialog Establishment", "180 Ringing", "199 Terminated"] {
                    let passed = s.send(&to, &sent.answer(status));
                    assert!(passed.is_empty(), "{mode:?} {method}: {passed:#?}");
                }
                let ok = s.one(&to, &sent.answer("200 OK"));
                assert_eq!((ok.to, ok.start()), (address(CALLER), "SIP/2.0 200 OK"), "{mode:?}");
            }
        }
    }
}

/// A regression: with a listener at the wildcard address, responses to a caller at a link-local
/// address left on any link.
///
/// RFC 4007 §6: "Because the same non-global address may be in use in more than one zone of the same
/// scope [...], a node requires an internal means to identify to which zone a non-global address
/// belongs."
#[test]
fn the_responses_of_a_transaction_keep_the_scope_of_a_link_local_caller() {
    let caller = "[fe80::7%3]:5060";
    let mut s = Script::stateful();
    let mut sent = s.send(caller, &invite("c1"));
    let forwarded = sent.pop().unwrap();
    assert_eq!(sent[0].start(), "SIP/2.0 100 Trying");
    assert_eq!(sent[0].to, address(caller));
    let ok = s.one(&forwarded.to.to_string(), &forwarded.answer("200 OK"));
    assert_eq!(ok.to, address(caller));
}
