//! Attacks by unauthenticated sources: relaying through us, evading the limits on new work, locking
//! others out, crashing the proxy.

use std::sync::Arc;

use crate::script::*;
use tidegate_balance::{Policy, Pool};
use tidegate_proxy::{Class, DropReason, Listener, Rule, RuleTarget, Senders};
use tidegate_world::{Cause, Core, Failure, Flow};

const CALLEE: &str = "203.0.113.9:5060";

/// A callee outside has seen our branch, and puts a Via of its own choice below our Via.
#[test]
fn a_branch_that_was_seen_sends_responses_to_nobody_else() {
    let mut script = Script::new();
    let invite = request("INVITE", "sip:carol@203.0.113.9", "out", 1, "");
    let sent = script.one(BACKEND_B, &invite);
    let honest = sent.answer("180 Ringing");
    let elsewhere =
        honest.replace(sent.all("Via")[1], "SIP/2.0/UDP 198.51.100.200:53;branch=z9hG4bKx");
    assert!(script.send(CALLEE, &elsewhere).is_empty());
    assert_eq!(script.counters.dropped(DropReason::ForeignResponse).get(), 1);
    assert_eq!(script.send(CALLEE, &honest).len(), 1);
}

fn rule(methods: &[&str], to: usize) -> Rule {
    Rule {
        from: Senders::Any,
        methods: methods.iter().map(|m| m.to_string()).collect(),
        domains: Vec::new(),
        to: RuleTarget::Pool(to),
    }
}

/// A request has the token of one call and matches the table entry of another call with the same
/// Call-ID. Their pools have different sizes.
#[test]
fn a_token_and_an_entry_that_disagree_do_no_harm() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let of = |name: &str, ports: std::ops::Range<u16>| {
            let named: Vec<_> = ports.map(|p| (format!("{p}"), format!("10.0.0.1:{p}"))).collect();
            let list: Vec<_> = named.iter().map(|(n, a)| (n.as_str(), address(a), 1)).collect();
            Pool::new(name, &list)
        };
        settings.pools = vec![stateless(of("app", 5070..5071)), stateless(of("msg", 5080..5083))];
        settings.rules = vec![rule(&["MESSAGE"], 1), rule(&[], 0)];
    });
    let invite = script.one(CALLER, &invite("X"));
    let route = format!("Totag\r\nRoute: {}\r\n", invite.header("Record-Route"));
    script.one("10.0.0.1:5070", &invite.answer("486 Busy Here"));
    script.pass(std::time::Duration::from_secs(40));
    for call in ["a", "b", "X"] {
        script.one(CALLER, &request("MESSAGE", "sip:bob@192.0.2.1", call, 1, ""));
    }
    let info = script.one(CALLER, &request("INFO", "sip:bob@10.0.0.1:5070", "X", 9, &route));
    assert_eq!(info.to, address("10.0.0.1:5070"), "the token decides");
}

/// A request is answered. Then INVITEs with the same Call-ID claim to belong to its call.
#[test]
fn invites_with_the_call_id_of_an_answered_request_are_new_work() {
    let mut script = Script::with(Policy::Rr, |settings| settings.queue_max = 1);
    let counters = Arc::clone(&script.counters);
    let huge = request("MESSAGE", "sip:bob@192.0.2.1", "X", 2_147_483_647, "");
    let sent = script.one(CALLER, &huge);
    script.one(&sent.to.to_string(), &sent.answer("200 OK"));
    let known_before = counters.received(Class::InDialog).get();
    for cseq in 1..4 {
        script.offer(CALLER, request("INVITE", "sip:bob@192.0.2.1", "X", cseq, "").as_bytes());
        // A To-tag with the Call-ID of a request outside any dialog.
        let tagged = request("INVITE", "sip:bob@192.0.2.1", "X", cseq + 10, "Totag\r\n");
        script.offer(CALLER, tagged.as_bytes());
    }
    assert_eq!(counters.received(Class::InDialog).get(), known_before);
    assert_eq!(counters.replied(503).get(), 5, "one place in the queue of new INVITEs");
}

/// Requests repeat the CSeq of a known call with new branches. Each starts a transaction at the
/// back end, so the proxy counts each as new work.
#[test]
fn another_branch_is_another_transaction() {
    let mut script = Script::new();
    script.one(CALLER, &invite("a"));
    for i in 0..3 {
        let other = invite("a").replace("z9hG4bK-a-1-INVITE", &format!("z9hG4bK-other-{i}"));
        script.one(CALLER, &other);
    }
    assert_eq!(script.counters.received(Class::Invite).get(), 4);
    assert_eq!(script.counters.retransmissions.get(), 0);
}

#[test]
fn a_flood_of_messages_that_are_served_first_does_not_keep_new_calls_out() {
    let mut script = Script::new();
    for i in 0..200 {
        let bye = request("BYE", "sip:bob@192.0.2.1", &format!("b{i}"), 1, "Totag\r\n");
        script.offer(CALLER, bye.as_bytes());
        script.offer(CALLER, format!("SIP/2.0 200 {i}\r\nv: SIP/2.0/UDP a\r\n\r\n").as_bytes());
    }
    script.offer(CALLER, invite("good").as_bytes());
    for _ in 0..20 {
        script.proxy.serve(script.now);
    }
    assert!(script.sent().iter().any(|sent| sent.start().starts_with("INVITE")));
}

/// RFC 3261 §16.4, §19.1.1: an element behind us that obeys an maddr would relay for the sender.
#[test]
fn an_maddr_that_leads_elsewhere_is_rejected() {
    let mut script = Script::new();
    let to =
        |maddr: &str| request("INVITE", &format!("sip:bob@192.0.2.1;maddr={maddr}"), maddr, 1, "");
    assert_eq!(script.status(CALLER, &to("203.0.113.9")), 403);
    assert_eq!(script.one(CALLER, &to("192.0.2.1")).to, address(BACKEND_A));
}

/// Forged ICMP errors and local errors of this machine do not take a back end down.
///
/// RFC 3261 §18.4: "Source quench and TTL exceeded ICMP errors SHOULD be ignored."
#[test]
fn only_a_report_of_the_back_end_itself_takes_it_down() {
    let mut script = Script::new();
    for cause in [Cause::Unreachable, Cause::Other, Cause::TooLarge] {
        for backend in [BACKEND_A, BACKEND_B] {
            let flow = Flow::udp(address(PROXY), address(backend));
            script.proxy.on_failed(script.now, Failure::new(flow, cause, b""));
        }
    }
    assert!(script.backends.backends().iter().all(|b| b.is_up(script.now)));
}

/// A listener bound to a loopback address cannot send to another machine.
#[test]
fn a_request_leaves_from_a_listener_that_reaches_its_target() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.listeners.insert(0, Listener::new(address("127.0.0.1:5060")));
    });
    let text = request("INVITE", "sip:bob@127.0.0.1", "a", 1, "");
    script.offer_at("127.0.0.1:5060", "127.0.0.1:40000", text.as_bytes(), 0);
    let sent = script.serve().remove(0);
    assert_eq!((sent.from, sent.to), (address(PROXY), address(BACKEND_A)));
    let back = script.one(BACKEND_A, &sent.answer("200 OK"));
    assert_eq!(back.from, address("127.0.0.1:5060"));
}
