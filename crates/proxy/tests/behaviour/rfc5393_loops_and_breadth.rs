//! Tests of the detection of loops and the limits of forks (RFC 5393), and of the order of a fork
//! (RFC 3261 §16.6).

use crate::script::{
    BACKEND_A, BACKEND_B, BACKEND_C, CALLER, PROXY, Script, Sent, address, invite, request, starts,
};
use tidegate_balance::Policy;
use tidegate_proxy::{Listener, Mode, Rule, RuleTarget, Senders};
use tidegate_world::{ConnectionId, Core, Flow, Received, Transport};

const BY_Q: [(&str, u16); 3] = [(BACKEND_A, 200), (BACKEND_B, 1000), (BACKEND_C, 1000)];

/// Returns a caller's request with another header line.
fn with(text: &str, line: &str) -> String {
    text.replacen("From:", &format!("{line}\r\nFrom:"), 1)
}

/// RFC 3261 §16.6: "A common ordering mechanism is to use the qvalue parameter of targets obtained
/// from Contact header fields (see Section 20.10). Targets are processed from highest qvalue to
/// lowest. Targets with equal qvalues may be processed in parallel."
#[test]
fn a_fork_goes_by_q() {
    let mut s = Script::forking(&BY_Q);
    let sent = s.send(CALLER, &invite("c1"));
    let invited = "INVITE sip:bob@192.0.2.1 SIP/2.0";
    assert_eq!(starts(&sent)[1..], [(BACKEND_B, invited), (BACKEND_C, invited)]);
    assert_ne!(sent[1].branch(), sent[2].branch());
    assert_eq!(starts(&s.send(BACKEND_B, &sent[1].answer("486 Busy Here"))).len(), 1);
    let next = s.send(BACKEND_C, &sent[2].answer("480 Temporarily Unavailable"));
    assert_eq!(starts(&next)[1], (BACKEND_A, invited));
    assert_eq!(s.one(BACKEND_A, &next[1].answer("200 OK")).to.to_string(), CALLER);
    // The dialog and the call belong to the back end that has answered.
    assert!(next[1].header("Record-Route").contains("192.0.2.1:5060;lr"));
    assert_eq!(s.held(), [1, 0, 0]);
}

/// A group whose back ends have all gone down is left out when its turn comes. After the last group,
/// the caller gets the best response at once.
///
/// RFC 3261 §16.7: "A stateful proxy MUST send a final response to a response context's server
/// transaction if no final responses have been immediately forwarded by the above rules and all
/// client transactions in this response context have been terminated."
#[test]
fn a_fork_leaves_out_a_group_that_has_gone_down() {
    let all: [(&str, u16); 3] = [(BACKEND_A, 1000), (BACKEND_B, 500), (BACKEND_C, 200)];
    for (count, next) in [
        (3, (BACKEND_C, "INVITE sip:bob@192.0.2.1 SIP/2.0")),
        (2, (CALLER, "SIP/2.0 486 Busy Here")),
    ] {
        let mut s = Script::forking(&all[..count]);
        let first = s.send(CALLER, &invite("c1")).remove(1);
        assert_eq!(first.to.to_string(), BACKEND_A);
        s.gone(1);
        let sent = s.send(BACKEND_A, &first.answer("486 Busy Here"));
        assert_eq!(starts(&sent)[1..], [next], "{count} groups");
    }
}

/// §5.3.3: "If a SIP proxy receives a request with no Max-Breadth header field value, it MUST add
/// one, with a value that is RECOMMENDED to be 60." "SIP proxies MUST NOT allow the Outgoing
/// Max-Breadth to exceed the Incoming Max-Breadth in a given response context."
///
/// RFC 5393 §5.3.3: "Proxies MUST have a maximum allowable Incoming Max-Breadth value, which is
/// RECOMMENDED to be 60." "If this maximum is exceeded in a received request, the proxy MUST
/// overwrite it with a value that SHOULD be no greater than its allowable maximum." "SIP proxies
/// MUST NOT allow the Outgoing Max-Breadth to exceed the Incoming Max-Breadth in a given response
/// context." "A proxy SHOULD NOT use a smaller amount of Max-Breadth than was present in the
/// original request unless the Incoming Max-Breadth exceeded the proxy's maximum acceptable value."
#[test]
fn breadth_is_shared_out() {
    let breadths = |sent: &[Sent]| -> Vec<String> {
        sent[1..].iter().map(|sent| sent.header("Max-Breadth").to_owned()).collect()
    };
    let mut s = Script::forking(&BY_Q);
    assert_eq!(breadths(&s.send(CALLER, &invite("c1"))), ["30", "30"]);
    let two = with(&invite("c5"), "Max-Breadth: 2");
    assert_eq!(breadths(&s.send(CALLER, &two)), ["1", "1"]);
    let three = with(&invite("c2"), "Max-Breadth: 3");
    let sent = s.send(CALLER, &three);
    assert_eq!(breadths(&sent), ["2", "1"]);
    // §5.3.3.1: "Proxies SHOULD be prepared to reuse this Max-Breadth in cases where there may be
    // elements left in the target-set."
    s.send(BACKEND_B, &sent[1].answer("486 Busy Here"));
    assert_eq!(breadths(&s.send(BACKEND_C, &sent[2].answer("486 Busy Here"))), ["3"]);
    let mut one_down = Script::forking(&BY_Q);
    one_down.gone(1);
    assert_eq!(breadths(&one_down.send(CALLER, &invite("c6"))), ["60"]);
    // "If this maximum is exceeded in a received request, the proxy MUST overwrite it".
    let mut single = Script::stateful();
    let many = with(&invite("c3"), "Max-Breadth: 4000000000");
    assert_eq!(breadths(&single.send(CALLER, &many)), ["60"]);
    let one = with(&invite("c4"), "Max-Breadth: 1");
    assert_eq!(breadths(&single.send(CALLER, &one)), ["1"]);
}

/// §5.3.3: "If a SIP proxy receives a request with no Max-Breadth header field value, it MUST add
/// one, with a value that is RECOMMENDED to be 60." "A proxy MUST NOT decrement Max-Breadth for each
/// hop or otherwise use it to restrict the "depth" of a request's propagation." A proxy without
/// transactions is not exempt.
#[test]
fn a_request_to_one_target_keeps_its_breadth() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        for (i, (line, breadth)) in
            [("X: y", "60"), ("Max-Breadth: 7", "7"), ("max-breadth: 61", "60")]
                .into_iter()
                .enumerate()
        {
            let sent = s.send(CALLER, &with(&invite(&format!("c{i}")), line)).pop().unwrap();
            assert_eq!(sent.all("Max-Breadth"), [breadth], "{mode:?} {line}");
        }
        let twice = with(&invite("c9"), "Max-Breadth: 7\r\nMax-Breadth: 8");
        assert_eq!(s.status(CALLER, &twice), 400);
    }
}

/// §5.3.3: "that proxy MUST return a 440 (Max-Breadth Exceeded) response."
#[test]
fn too_little_breadth_is_a_440() {
    let mut s = Script::forking(&BY_Q);
    assert_eq!(s.status(CALLER, &with(&invite("c1"), "Max-Breadth: 1")), 440);
    assert_eq!(s.status(CALLER, &with(&invite("c2"), "Max-Breadth: 0")), 440);
    assert_eq!(s.status(CALLER, &with(&invite("c3"), "Max-Breadth: many")), 400);
    assert_eq!(s.live(), (0, 0));
}

/// Makes a proxy whose back ends may send calls back into the pool.
fn looping() -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.rules =
            [Senders::Any, Senders::Pool].map(|from| Rule::new(from, RuleTarget::Pool(0))).into();
    })
}

/// Returns `sent` as its receiver forwards it: with one more Via, and a lower Max-Forwards.
fn forwarded_request(sent: &Sent, by: &str) -> String {
    let branch = format!("z9hG4bK-{}", &sent.branch()[20..]);
    let via = format!("Via: SIP/2.0/UDP {by};branch={branch}\r\nVia: ");
    sent.text.replacen("Via: ", &via, 1)
}

/// §4.2.2: "If these values are equal, the request has looped and the proxy MUST reject the
/// request with a 482 (Loop Detected) response. If the values differ, the request is spiraling and
/// processing continues to the next step."
///
/// RFC 3261 §16.6: "A proxy choosing to detect loops SHOULD create a branch parameter separable
/// into two parts by the implementation." "If a proxy wishes to detect loops, the "branch"
/// parameter it supplies MUST depend on all information affecting processing of a request,
/// including the incoming Request-URI and any header fields affecting the request's admission or
/// routing."
///
/// RFC 5393 §4.1: "It is RECOMMENDED that proxies meet this requirement by performing the
/// loop-detection steps defined in this document."
///
/// RFC 5393 §4.2.1: "Such proxies SHOULD create a branch value separable into two parts in any
/// implementation-dependent way." "This second part MUST vary with any field used by the location
/// service logic in determining where to retarget or forward this request."
///
/// RFC 5393 §4.2.2: "Proxies required to perform loop detection by RFC 5393 MUST perform the
/// following loop-detection test before forwarding a request." "Each Via header field value in the
/// request whose sent-by value matches a value placed into previous requests by this proxy MUST be
/// inspected for the "second part" defined in Section 4.2.1 of RFC 5393." "If the second field is
/// present, the proxy MUST perform the second-part calculation described in Section 4.2.1 of RFC
/// 5393 on this request and compare the result to the value from the Via header field."
///
/// RFC 5393 §4.2.4: "When forming the second part using a hash, implementations SHOULD include at
/// least one field in the input to the hash that varies between different transactions attempting
/// to reach the same destination to avoid repeated failure should the hash collide."
#[test]
fn a_loop_is_rejected_and_a_spiral_is_not() {
    let mut s = looping();
    let first = s.send(CALLER, &invite("c1")).remove(1);
    // A back end sends the request back. It is routed differently than the request of the stranger.
    let second = s.send(BACKEND_A, &forwarded_request(&first, BACKEND_A)).remove(1);
    assert_eq!((second.to.to_string().as_str(), second.all("Via").len()), (BACKEND_B, 4));
    // The other back end also sends the request back, and then the first one again. Nothing has
    // changed since the first time, so this is a loop.
    let third = s.send(BACKEND_B, &forwarded_request(&second, BACKEND_B)).remove(1);
    assert_eq!(third.to.to_string(), BACKEND_A);
    assert_eq!(s.status(BACKEND_A, &forwarded_request(&third, BACKEND_A)), 482);
    // With another Request-URI the request is not a loop.
    let moved = forwarded_request(&third, BACKEND_A).replacen("sip:bob@", "sip:carol@", 1);
    assert_eq!(starts(&s.send(BACKEND_A, &moved))[0], ("10.0.0.1:5070", "SIP/2.0 100 Trying"));
    // With another CSeq it is another request, so it is not a loop either. With the same branch it
    // would be a copy of the last request, and get a 100 without the test for loops. RFC 3261 §16.6
    // item 8: the second part of the branch may be a hash of fields such as "the sequence number
    // from the CSeq header field".
    let other = forwarded_request(&third, BACKEND_A).replace("CSeq: 1", "CSeq: 2");
    let sent = s.send(BACKEND_A, &other.replacen("z9hG4bK-", "z9hG4bK-2-", 1));
    assert_eq!(starts(&sent)[1..], [(BACKEND_B, "INVITE sip:bob@192.0.2.1 SIP/2.0")]);
}

/// §4.2.1: "Hence, the second part MUST depend at least on the received Request-URI and any Route
/// header field values used when processing the received request.", however many there are.
#[test]
fn a_request_with_another_route_is_no_loop() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.listeners[0].trust = vec!["0.0.0.0/0".parse().unwrap()];
    });
    let routes: Vec<_> = (0..20).map(|i| format!("Route: <sip:203.0.113.{i};lr>")).collect();
    let out = s.send(CALLER, &with(&invite("c1"), &routes.join("\r\n"))).remove(1);
    assert_eq!(out.all("Route").len(), 20);
    let back = forwarded_request(&out, "203.0.113.0:5060");
    assert_eq!(s.status("203.0.113.0:5060", &back), 482);
    for i in [1, 10, 11, 12, 19] {
        let spiral = back
            .replace(&format!("203.0.113.{i};lr"), "203.0.113.77;lr")
            .replace("z9hG4bK-", &format!("z9hG4bK-{i}-"));
        let sent = s.send("203.0.113.0:5060", &spiral);
        assert_eq!(sent[0].start(), "SIP/2.0 100 Trying", "{i}");
    }
}

/// §4.1: "When a SIP proxy forks a particular request to more than one location, it MUST ensure that
/// request is not looping through this proxy."
#[test]
fn a_fork_that_comes_back_is_a_loop() {
    let mut s = Script::forking(&BY_Q);
    let sent = s.send(CALLER, &invite("c1"));
    for branch in &sent[1..] {
        assert_eq!(
            s.status("203.0.113.7:5060", &forwarded_request(branch, "203.0.113.7:5060")),
            482
        );
    }
}

/// §4.1: "A SIP proxy forwarding a request to only one location MAY perform loop detection but is
/// not required to." Without transactions a loop ends after eight passes, not only by Max-Forwards.
/// By RFC 3261 §16.11 the CANCEL and the ACK have the branch of their INVITE, so the branch has no
/// room for information from the lower Vias.
#[test]
fn a_loop_without_transactions_ends_too() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.rules =
            [Senders::Any, Senders::Pool].map(|from| Rule::new(from, RuleTarget::Pool(0))).into();
    });
    let mut sent = s.one(CALLER, &invite("c1"));
    for turn in 1.. {
        assert!(turn <= 8, "it goes on and on");
        let at = sent.to.to_string();
        // Each hop has another branch.
        let text =
            forwarded_request(&sent, &at).replacen("z9hG4bK-", &format!("z9hG4bK-{turn}-"), 1);
        sent = s.one(&at, &text);
        if sent.start().starts_with("SIP/2.0 482") {
            assert_eq!(turn, 8);
            break;
        }
    }
    // Vias of other elements, or with our forged address, do not count as passes.
    let more = "Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKforged\r\n".repeat(20);
    let text = invite("c2").replacen("From:", &format!("{more}From:"), 1);
    assert!(s.one(CALLER, &text).start().starts_with("INVITE"));
}

/// RFC 5393 §4.2.2: "If these values are equal, the request has looped and the proxy MUST reject the
/// request with a 482 (Loop Detected) response."
///
/// On a connection the `rport` of a Via is the source port, to which no connection can be opened. So
/// our branch covers the port in the sent-by.
#[test]
fn a_loop_over_connections_ends_too() {
    const PEER: &str = "203.0.113.9:5060;rport";
    for (mode, turns) in [(Mode::Transaction, 1), (Mode::Stateless, 8)] {
        let mut s = Script::with(Policy::Rr, |settings| {
            let trust = vec!["203.0.113.9/32".parse().unwrap()];
            let streams =
                Listener { transport: Transport::Tcp, trust, ..Listener::new(address(PROXY)) };
            settings.pools[0].mode = mode;
            settings.listeners.push(streams);
        });
        let (id, remote) = (ConnectionId::FIRST_ACCEPTED, address("203.0.113.9:40123"));
        let flow = Flow::connected(Transport::Tcp, address(PROXY), remote, id);
        let mut offer = |text: &str| {
            let text = text.replacen("SIP/2.0/UDP", "SIP/2.0/TCP", 1);
            let received = Received::new(s.now, flow, s.pool.copy(text.as_bytes()));
            s.proxy.offer(s.now, received);
            s.serve().pop().expect("the last one")
        };
        let text = request("INVITE", "sip:bob@203.0.113.77;transport=tcp", "c1", 1, "");
        let mut sent = offer(&text.replace("198.51.100.7:5060", PEER));
        for turn in 1..=turns {
            assert!(sent.start().starts_with("INVITE"), "{mode:?} {turn}: {}", sent.text);
            let text = forwarded_request(&sent, PEER);
            sent = offer(&text.replacen("z9hG4bK-", &format!("z9hG4bK-{turn}-"), 1));
        }
        assert!(sent.start().starts_with("SIP/2.0 482"), "{mode:?}: {}", sent.text);
    }
}
