//! Tests of former faults of the stateful proxy. A comment in the past tense describes the fault.

use std::time::Duration;

use crate::rfc7339_client::{telling, value};
use crate::script::{
    BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, Sent, address, invite, request, starts,
};
use tidegate_balance::{Policy, Pool};
use tidegate_proxy::{Choice, Disposal, Mode, Obedience, PoolSettings, Rule, RuleTarget, Senders};
use tidegate_world::Core;

const T1_64: Duration = Duration::from_secs(32);

fn last(sent: Vec<Sent>) -> Sent {
    sent.into_iter().last().expect("something is sent")
}

/// RFC 3261 §9.1: "A CANCEL request SHOULD NOT be sent to cancel a request other than INVITE."
#[test]
fn a_request_other_than_invite_is_not_cancelled() {
    let options = request("OPTIONS", "sip:bob@192.0.2.1", "c1", 1, "");
    let mut s = Script::stateful();
    let first = s.one(CALLER, &options);
    s.pass(Duration::from_secs(4));
    assert_eq!(starts(&s.sent()).last().unwrap().0, BACKEND_B);
    let late = s.send(BACKEND_A, &first.answer("100 Trying"));
    assert_eq!(starts(&late), [], "the branch was given up, and gets no CANCEL");

    let mut s = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 1000)]);
    let [a, b] = s.send(CALLER, &options).try_into().unwrap();
    assert_eq!(starts(&s.send(BACKEND_B, &b.answer("100 Trying"))), []);
    assert_eq!(starts(&s.send(BACKEND_A, &a.answer("603 Decline"))), []);
    s.pass(T1_64 * 4);
    assert!(s.sent().iter().all(|sent| !sent.start().starts_with("CANCEL")));
    assert_eq!(s.live(), (0, 0));
}

/// A reply has a Server header, and the forwarded request has none. If this header was long, a long
/// request could be forwarded but not answered, and its context was never removed.
#[test]
fn a_request_that_is_too_long_to_be_answered_is_forgotten() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.listeners[0].trust = vec!["198.51.100.0/24".parse().unwrap()];
        settings.name = "x".repeat(300);
    });
    let text = request("INVITE", "sip:bob@203.0.113.1", "c1", 1, "Max-Breadth: 9\r\n");
    let name = "x".repeat(65_438 - text.len());
    let text = text.replacen("To: <", &format!("To: {name} <"), 1);
    s.offer(CALLER, text.as_bytes());
    assert_eq!(s.serve().last().unwrap().to, address("203.0.113.1:5060"));
    assert_eq!(s.live(), (1, 1));
    s.pass(T1_64 * 3);
    assert!(s.sent().iter().all(|sent| sent.to != address(CALLER)), "its replies are too long");
    assert_eq!(s.live(), (0, 0));
    assert!(s.proxy.is_drained());
}

/// RFC 3261 §21.5.7. First, the request got a 100 and no further response. Later it got a 100 and
/// a 513, and the 513 was not sent again if it was lost.
#[test]
fn a_sender_of_too_long_messages_is_told_so() {
    let mut s = Script::stateful();
    let head = invite("c1").replace("Content-Length: 0\r\n\r\n", "");
    let room = 65_507 - head.len() - 32;
    let text = format!("{head}Content-Length: {room:>5}\r\n\r\n{}", "x".repeat(room));
    let sent = s.send(CALLER, &text);
    assert_eq!(starts(&sent), [(CALLER, "SIP/2.0 513 Message Too Large")]);
    assert_eq!((s.live(), s.counters.replied(100).get()), ((0, 0), 0));
}

/// An INVITE that was dropped because of overload got a 100 before, so its caller waited endlessly.
///
/// RFC 3261 §17.1.1.2: "In the "Proceeding" state, the client transaction SHOULD NOT retransmit the
/// request any longer."
#[test]
fn a_call_that_no_branch_of_a_fork_may_take_gets_no_100() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.overload.disposal = Disposal::Drop;
        let pool = &mut settings.pools[0];
        pool.mode = Mode::Transaction;
        pool.obedience = Obedience::Always;
        pool.choice = Choice::All([1000, 1000].into());
    });
    let [_, a, b] = s.send(CALLER, &invite("c1")).try_into().unwrap();
    for branch in [a, b] {
        let told = telling(&branch, "486 Busy Here", &value("rate", 0, 1));
        s.send(&branch.to.to_string(), &told);
    }
    assert_eq!(starts(&s.send(CALLER, &invite("c2"))), []);
    assert_eq!(s.counters.replied(100).get(), 1);
}

/// If no back end of the first group of a fork could get a request, the request was rejected,
/// although the next group could take it.
///
/// RFC 3261 §16.6: "Targets are processed from highest qvalue to lowest."
#[test]
fn a_fork_goes_on_to_the_next_group_if_the_first_one_cannot_start() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let pool = &mut settings.pools[0];
        pool.mode = Mode::Transaction;
        pool.obedience = Obedience::Always;
        pool.choice = Choice::All([1000, 500].into());
    });
    let out = last(s.send(CALLER, &invite("c1")));
    assert_eq!(out.to, address(BACKEND_A));
    s.send(BACKEND_A, &telling(&out, "486 Busy Here", &value("rate", 0, 1)));
    assert!(s.backends.backends()[0].is_up(s.now), "it asks for fewer requests, but is not down");
    let sent = s.send(CALLER, &invite("c2"));
    let forwarded = (BACKEND_B, "INVITE sip:bob@192.0.2.1 SIP/2.0");
    assert_eq!(starts(&sent), [(CALLER, "SIP/2.0 100 Trying"), forwarded]);
    // No group is left.
    s.send(BACKEND_B, &telling(&sent[1], "486 Busy Here", &value("rate", 0, 1)));
    let rejected = (CALLER, "SIP/2.0 503 Service Unavailable");
    assert_eq!(starts(&s.send(CALLER, &invite("c3"))), [rejected]);
    assert_eq!(s.counters.replied(100).get(), 2);
}

/// A request with the Call-ID of a call moved the call to another back end.
#[test]
fn an_established_call_stays_where_it_is() {
    let bye = request("BYE", "sip:bob@192.0.2.1", "c1", 9, "Totag\r\n");
    let mut s = Script::stateful();
    let out = last(s.send(CALLER, &invite("c1")));
    s.one(BACKEND_A, &out.answer("200 OK"));
    let other = request("INVITE", "sip:bob@192.0.2.1", "c1", 2, "");
    let other = last(s.send(CALLER, &other));
    assert_eq!((other.to, s.held()), (address(BACKEND_B), vec![1, 1]), "it is another call");
    let next = last(s.send(BACKEND_B, &other.answer("503 Service Unavailable")));
    assert_eq!((next.to, s.held()), (address(BACKEND_A), vec![2, 0]));
    assert_eq!(s.one(CALLER, &bye).to, address(BACKEND_A));

    let mut s = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 500)]);
    let first = last(s.send(CALLER, &invite("c1")));
    let second = last(s.send(BACKEND_A, &first.answer("486 Busy Here")));
    s.one(BACKEND_B, &second.answer("200 OK"));
    assert_eq!(s.held(), [0, 1]);
    s.send(CALLER, &request("INVITE", "sip:bob@192.0.2.1", "c1", 2, ""));
    assert_eq!(s.held(), [1, 1]);
    assert_eq!(s.one(CALLER, &bye).to, address(BACKEND_B));
}

/// A back end may pass a call on to another one, which sends its leg through us. The 2xx to that leg
/// moved the call, and its count, to the other back end.
#[test]
fn a_leg_from_another_back_end_does_not_move_the_call() {
    let mut s = Script::stateful();
    let out = last(s.send(CALLER, &invite("c1")));
    let leg = request("INVITE", "sip:carol@203.0.113.7:5060", "c1", 1, "");
    let leg = leg.replace(CALLER, BACKEND_B).replace("z9hG4bK-c1", "z9hG4bK-leg");
    let leg = last(s.send(BACKEND_B, &leg));
    assert_eq!(leg.to, address("203.0.113.7:5060"));
    s.one("203.0.113.7:5060", &leg.answer("200 OK"));
    assert_eq!(s.held(), [1, 0]);
    s.one(BACKEND_A, &out.answer("200 OK"));
    let bye = request("BYE", "sip:bob@192.0.2.1", "c1", 9, "Totag\r\n");
    assert_eq!((s.one(CALLER, &bye).to, s.held()), (address(BACKEND_A), vec![1, 0]));
}

#[test]
fn the_branches_of_a_fork_are_no_retransmissions() {
    let mut s = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 1000)]);
    s.send(CALLER, &invite("c1"));
    assert_eq!(s.counters.retransmissions.get(), 0);
    s.send(CALLER, &invite("c1"));
    assert_eq!(s.counters.retransmissions.get(), 1);
}

/// After a challenge the Call-ID is known already. The CANCEL was served before its INVITE, and the
/// callee continued to ring.
#[test]
fn a_cancel_does_not_overtake_its_invite() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let first = last(s.send(CALLER, &invite("c1")));
        s.send(BACKEND_A, &first.answer("407 Proxy Authentication Required"));
        let again = request("INVITE", "sip:bob@192.0.2.1", "c1", 2, "");
        s.offer(CALLER, again.as_bytes());
        s.offer(CALLER, request("CANCEL", "sip:bob@192.0.2.1", "c1", 2, "").as_bytes());
        let sent = s.serve();
        let starts = starts(&sent);
        let invited = starts.iter().position(|(_, start)| start.starts_with("INVITE"));
        let cancelled = starts
            .iter()
            .position(|(_, start)| start.starts_with("CANCEL") || *start == "SIP/2.0 200 OK");
        assert!(invited.is_some() && invited < cancelled, "{starts:?}");
    }
}

/// RFC 5393 §5.3.3. A request that is not forwarded takes no lease and does not advance the policy.
#[test]
fn a_request_without_breadth_chooses_no_back_end() {
    let mut s = Script::stateful();
    let none = invite("c1").replacen("From:", "Max-Breadth: 0\r\nFrom:", 1);
    assert_eq!(s.status(CALLER, &none), 440);
    assert_eq!(s.counters.calls.get(), 0);
    assert_eq!(last(s.send(CALLER, &invite("c2"))).to, address(BACKEND_A));
}

#[test]
fn a_full_transaction_table_does_not_affect_a_pool_without_transactions() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let pool = Pool::new("other", &[("c", address(BACKEND_C), 1)]);
        settings.pools[0].mode = Mode::Transaction;
        settings.pools.push(PoolSettings::new(pool, Policy::Rr).stateless());
        settings.transactions_max = 1;
        let rule = |method: &str, pool| Rule {
            from: Senders::Any,
            methods: vec![method.into()],
            domains: Vec::new(),
            to: RuleTarget::Pool(pool),
        };
        settings.rules = vec![rule("INVITE", 0), rule("MESSAGE", 1)];
    });
    s.send(CALLER, &invite("c1"));
    assert_eq!(s.status(CALLER, &invite("c2")), 503);
    assert_eq!(s.counters.calls.get(), 1, "no back end was chosen");
    let message = request("MESSAGE", "sip:bob@192.0.2.1", "c3", 1, "");
    assert_eq!(s.one(CALLER, &message).to, address(BACKEND_C));
}

/// The parts of a rejected INVITE that its ACK repeats are kept as long as the rejection may be
/// repeated.
#[test]
fn a_long_request_uri_takes_its_room_after_the_answer_too() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.transaction_bytes_max = 65_000;
    });
    let uri = format!("sip:{}@192.0.2.1", "x".repeat(30_000));
    for (call, backend) in [("c1", BACKEND_A), ("c2", BACKEND_B)] {
        let out = last(s.send(CALLER, &request("INVITE", &uri, call, 1, "")));
        s.send(backend, &out.answer("486 Busy Here"));
    }
    assert_eq!(s.status(CALLER, &invite("c3")), 503);
    s.pass(T1_64);
    assert_eq!(last(s.send(CALLER, &invite("c4"))).to, address(BACKEND_A));
}

/// A slot's generation has 16 bits. A response to the transaction of 65,536 generations ago matched
/// the current transaction of the slot.
#[test]
fn an_old_branch_does_not_answer_a_new_request() {
    let mut s = Script::stateful();
    let mut old = None;
    for i in 0..65_536 {
        let call = format!("c{i}");
        let sent = s.one(CALLER, &request("OPTIONS", "sip:bob@192.0.2.1", &call, 1, ""));
        let from = sent.to.to_string();
        s.one(&from, &sent.answer("200 OK"));
        s.pass(Duration::from_secs(33));
        old.get_or_insert(sent);
    }
    assert_eq!(s.live(), (0, 0));
    let old = old.unwrap();
    s.one(CALLER, &request("OPTIONS", "sip:bob@192.0.2.1", "new", 1, ""));
    assert_eq!(starts(&s.send(BACKEND_A, &old.answer("404 Not Found"))), []);
}

/// RFC 5393 §4.2.4: parsers object "to the contents of another element's Via header field values
/// when inspecting the Via stack for loops".
#[test]
fn a_via_that_cannot_be_read_hides_no_loop() {
    let mut s = Script::stateful();
    let out = last(s.send(CALLER, &invite("c1")));
    let looped = |between: &str| {
        let by = format!("Via: SIP/2.0/UDP {BACKEND_B};branch=z9hG4bK-b\r\n{between}Via: ");
        out.text.replacen("Via: ", &by, 1)
    };
    assert_eq!(s.status(CALLER, &looped("Via: SIP/2.0/X odd;branch=\"?,;\"\r\n")), 482);
    // A malformed Via that no server could parse is rejected.
    assert_eq!(s.status(CALLER, &looped("Via: ?\r\n")), 400);
}

/// With a full table a call can still continue and end: its requests are forwarded without state.
#[test]
fn a_full_table_rejects_nothing_within_a_call() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.transactions_max = 1;
    });
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("200 OK"));
    let bye = s.one(CALLER, &request("BYE", "sip:bob@192.0.2.1", "c1", 2, "Totag\r\n"));
    assert_eq!(bye.to.to_string(), BACKEND_A);
    assert_eq!(s.one(BACKEND_A, &bye.answer("200 OK")).to.to_string(), CALLER);
    assert_eq!(s.held(), [0, 0]);
}

/// RFC 4320 §4.2: a 408 is not forwarded, and must not prevent a better response from being sent.
#[test]
fn a_408_of_one_branch_does_not_silence_another() {
    let mut s = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 1000)]);
    let sent = s.send(CALLER, &request("MESSAGE", "sip:bob@192.0.2.1", "m1", 1, ""));
    assert_eq!(s.send(BACKEND_A, &sent[0].answer("408 Request Timeout")), []);
    let up = s.one(BACKEND_B, &sent[1].answer("501 Not Implemented"));
    assert_eq!(up.start(), "SIP/2.0 501 Not Implemented");
}

/// RFC 3261 §8.2.7: "A UAS cannot be stateless unless the request processing for that method would
/// always result in the same response if the requests are identical." A call without room got a
/// 503. If a back end came up before the retransmission, the retransmission was forwarded.
#[test]
fn retransmissions_of_work_rejected_without_room_are_rejected() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        s.gone(0);
        s.gone(1);
        let rejected = s.one(CALLER, &invite("c1"));
        assert!(rejected.start().contains(" 503 "), "{mode:?}");
        // Both back ends are assumed to be up again.
        s.pass(Duration::from_secs(6));
        let again = s.one(CALLER, &invite("c1"));
        assert_eq!((again.start(), again.header("To")), (rejected.start(), rejected.header("To")));
        assert_eq!(starts(&s.send(CALLER, &invite("c2"))).last().unwrap().0, BACKEND_A);
    }
}
