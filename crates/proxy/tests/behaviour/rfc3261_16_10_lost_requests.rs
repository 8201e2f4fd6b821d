//! RFC 3261 §16.10, §16.11: CANCEL and ACK of requests that a previous process has sent.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::script::{
    BACKEND_A, BACKEND_B, BACKEND_C, CALLER, PROXY, Script, Sent, address, invite, request,
};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{
    Choice, DropReason, Health, Mode, PoolSettings, Rule, RuleTarget, Senders, Settings,
};
use tidegate_world::Seed;

fn cancel(call: &str) -> String {
    request("CANCEL", "sip:bob@192.0.2.1", call, 1, "")
}

/// Makes a process and its successor, both with these settings.
fn restarted(adjust: impl Fn(&mut Settings)) -> [Script; 2] {
    [(Seed(0), None), (Seed(1), Some(Seed(0)))].map(|(seed, before)| {
        Script::with(Policy::Rr, |settings| {
            (settings.seed, settings.before) = (seed, before);
            adjust(settings);
        })
    })
}

fn pool(backends: &[&str], policy: Policy, mode: Mode) -> PoolSettings {
    let named: Vec<_> = backends.iter().map(|at| (*at, address(at), 1)).collect();
    PoolSettings { mode, ..PoolSettings::new(balance::Pool::new("app", &named), policy) }
}

fn with_pool(backends: &[&str], policy: Policy, mode: Mode) -> [Script; 2] {
    restarted(|settings| settings.pools = vec![pool(backends, policy, mode)])
}

/// Sends an INVITE and lets its target ring.
fn ringing(s: &mut Script, call: &str) -> Sent {
    let sent = s.send(CALLER, &invite(call)).pop().unwrap();
    s.send(&sent.to.to_string(), &sent.answer("180 Ringing"));
    sent
}

fn is_of(cancel: &Sent, invite: &Sent) -> bool {
    cancel.to == invite.to
        && cancel.start() == invite.start().replace("INVITE", "CANCEL")
        && cancel.all("Via")[0] == invite.all("Via")[0]
}

const MODES: [Mode; 3] = [Mode::Transaction, Mode::Stateless, Mode::Adaptive];

/// §16.10: "It MUST statelessly forward the CANCEL request". By §9.1 it has the branch parameter of
/// the INVITE, because the back end matches the CANCEL by this parameter.
///
/// RFC 3261 §16.10: "It MUST statelessly forward the CANCEL request (it may have statelessly
/// forwarded the associated request previously)."
#[test]
fn a_cancel_finds_the_only_back_end_after_a_restart() {
    for mode in MODES {
        let [mut before, mut after] = with_pool(&[BACKEND_A], Policy::Rr, mode);
        let out = ringing(&mut before, "c1");
        let sent = after.send(CALLER, &cancel("c1"));
        let ours: Vec<_> = sent.iter().filter(|sent| is_of(sent, &out)).collect();
        assert_eq!(ours.len(), 1, "{mode:?} {sent:#?}");
        // The CANCEL has both Vias, so that the response goes back the same way.
        assert_eq!(ours[0].all("Via").len(), 2);
        let ok = after.one(BACKEND_A, &ours[0].answer("200 OK"));
        assert_eq!((ok.to, ok.start()), (address(CALLER), "SIP/2.0 200 OK"));
        // §16.11: if the CANCEL goes to only one back end, each response is forwarded.
        if mode != Mode::Adaptive {
            assert_eq!(after.one(BACKEND_A, &ours[0].answer("200 OK")), ok);
        }
        let ended = after.one(BACKEND_A, &out.answer("487 Request Terminated"));
        assert_eq!(ended.to, address(CALLER));
        let ack = after.one(CALLER, &request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n"));
        assert_eq!((ack.to, ack.branch()), (address(BACKEND_A), out.branch()), "{mode:?}");
        // The CANCEL leaves no state.
        assert_eq!((after.live(), after.counters.calls.get()), ((0, 0), 0));
    }
}

/// If the selection depends on the request alone, only one back end of many may have the request.
#[test]
fn a_cancel_goes_where_the_hash_says() {
    let backends: Vec<_> = (1..=20).map(|i| format!("10.0.9.{i}:5070")).collect();
    let backends: Vec<_> = backends.iter().map(String::as_str).collect();
    for policy in [Policy::Hash, Policy::HashTo] {
        for mode in [Mode::Transaction, Mode::Stateless] {
            let [mut before, mut after] = with_pool(&backends, policy, mode);
            for call in ["c1", "c2", "c3"] {
                let out = ringing(&mut before, call);
                assert!(is_of(&after.one(CALLER, &cancel(call)), &out), "{policy:?} {mode:?}");
            }
        }
    }
}

/// A back end that has just come back gets few new calls, but it may have a call from before the
/// restart of the proxy.
#[test]
fn a_cancel_goes_to_two_back_ends_if_slow_start_changes_the_choice() {
    let slow_start = Duration::from_secs(3600);
    for mode in [Mode::Transaction, Mode::Stateless] {
        let [mut before, mut after] = restarted(|settings| {
            let mut pool = pool(&[BACKEND_A, BACKEND_B], Policy::Hash, mode);
            pool.health = Health { slow_start, ..Health::default() };
            settings.pools = vec![pool];
        });
        after.gone(0);
        after.pass(Duration::from_millis(5001));
        let mut asked = [0; 3];
        for call in (0..24).map(|i| format!("c{i}")) {
            let out = ringing(&mut before, &call);
            let sent = after.send(CALLER, &cancel(&call));
            assert!(sent.iter().any(|sent| is_of(sent, &out)), "{mode:?} {call} {sent:#?}");
            asked[sent.len()] += 1;
        }
        assert!(asked[1] > 0 && asked[2] > 0, "{mode:?} {asked:?}");
    }
}

/// §16.10: if it is unknown which back end has the INVITE, all get the CANCEL, and the caller gets
/// the best response.
#[test]
fn a_cancel_goes_to_all_back_ends_that_may_have_its_invite() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let [mut before, mut after] =
            with_pool(&[BACKEND_A, BACKEND_B, BACKEND_C], Policy::Rr, mode);
        let out = ringing(&mut before, "c1");
        let sent = after.send(CALLER, &cancel("c1"));
        assert_eq!(sent.len(), 3);
        assert!(is_of(&sent[0], &out));
        // A back end that does not know the INVITE says so. That response is not forwarded.
        assert!(after.send(BACKEND_B, &sent[1].answer("481 No Such Call")).is_empty());
        assert!(after.send(BACKEND_B, &sent[1].answer("481 No Such Call")).is_empty());
        let ok = after.one(BACKEND_A, &sent[0].answer("200 OK"));
        assert_eq!(ok.start(), "SIP/2.0 200 OK");
        assert!(after.send(BACKEND_C, &sent[2].answer("481 No Such Call")).is_empty());
    }
}

#[test]
fn a_cancel_that_nobody_knows_is_denied_once() {
    let backends = [BACKEND_A, BACKEND_B, BACKEND_C];
    for status in ["481 No Such Call", "300 Multiple Choices"] {
        let [_, mut after] = with_pool(&backends, Policy::Rr, Mode::Transaction);
        let sent = after.send(CALLER, &cancel("c1"));
        for sent in &sent[..2] {
            assert!(after.send(&sent.to.to_string(), &sent.answer(status)).is_empty());
        }
        let denied = after.one(BACKEND_C, &sent[2].answer("481 No Such Call"));
        assert_eq!((denied.to, denied.start()), (address(CALLER), "SIP/2.0 481 No Such Call"));
    }
}

/// Back ends respond to INVITEs of the previous process. Each back end gets one CANCEL, however
/// often it rings. Another back end may have the INVITE with the same branch.
#[test]
fn each_back_end_that_rings_is_cancelled_once() {
    let [mut before, mut after] = with_pool(&[BACKEND_A, BACKEND_B], Policy::Rr, Mode::Stateless);
    let out = before.one(CALLER, &invite("c1"));
    for (from, status) in
        [(BACKEND_A, "180 Ringing"), (BACKEND_A, "183 Progress"), (BACKEND_B, "180 Ringing")]
    {
        after.one(from, &out.answer(status));
    }
    let sent = after.send(CALLER, &cancel("c1"));
    let to: Vec<_> = sent.iter().map(|sent| sent.to).collect();
    assert_eq!(to, [address(BACKEND_A), address(BACKEND_B)]);
    assert!(sent.iter().all(|sent| sent.branch() == out.branch()));
}

/// A back end that never answers delays a denial until the third copy at most.
#[test]
fn a_silent_back_end_is_not_waited_for() {
    let [_, mut after] = with_pool(&[BACKEND_A, BACKEND_B], Policy::Rr, Mode::Transaction);
    for copy in 1..=3 {
        let sent = after.send(CALLER, &cancel("c1"));
        assert_eq!(sent.len(), 2);
        let passed = after.send(BACKEND_A, &sent[0].answer("481 No Such Call"));
        assert_eq!(passed.len(), usize::from(copy == 3));
    }
}

/// All branches of a fork are cancelled, each with its own branch parameter.
#[test]
fn a_fork_is_cancelled_after_a_restart() {
    let [mut before, mut after] = restarted(|settings| {
        settings.pools = vec![PoolSettings {
            choice: Choice::All(vec![1000; 3]),
            ..pool(&[BACKEND_A, BACKEND_B, BACKEND_C], Policy::Rr, Mode::Transaction)
        }];
    });
    let out = before.send(CALLER, &invite("c1")).split_off(1);
    // One of the back ends has responded meanwhile.
    after.one(BACKEND_B, &out[1].answer("180 Ringing"));
    let sent = after.send(CALLER, &cancel("c1"));
    assert_eq!(sent.len(), 3, "{sent:#?}");
    for out in &out {
        assert!(sent.iter().any(|sent| is_of(sent, out)));
    }
}

/// §16.10: "It MUST statelessly forward the CANCEL request". After five minutes, only the back ends
/// that have responded may still have the INVITE.
#[test]
fn a_fork_is_cancelled_at_the_back_ends_that_have_responded() {
    let [mut before, mut after] = restarted(|settings| {
        settings.pools = vec![PoolSettings {
            choice: Choice::All(vec![1000; 2]),
            ..pool(&[BACKEND_A, BACKEND_B], Policy::Rr, Mode::Transaction)
        }];
    });
    let out = before.send(CALLER, &invite("c1")).split_off(1);
    after.pass(Duration::from_secs(301));
    after.one(BACKEND_B, &out[1].answer("180 Ringing"));
    assert!(is_of(&after.one(CALLER, &cancel("c1")), &out[1]));
}

/// A response to an INVITE of the previous process is sufficient, even if nothing else is known.
/// For example, the address of the proxy may have moved to another machine.
#[test]
fn a_response_to_the_previous_process_shows_where_the_call_is() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let [mut before, _] = with_pool(&[BACKEND_A, BACKEND_B], Policy::Rr, mode);
        let mut after = Script::with(Policy::Rr, |settings| {
            settings.seed = Seed(9);
            settings.pools = vec![pool(&[BACKEND_A, BACKEND_B], Policy::Rr, mode)];
        });
        let out = before.send(CALLER, &invite("c1")).pop().unwrap();
        after.one(BACKEND_A, &out.answer("180 Ringing"));
        assert!(is_of(&after.one(CALLER, &cancel("c1")), &out));
    }
}

/// §17.1.1.3, §16.11: the ACK to a rejection has the branch of its INVITE. It goes only to a target
/// that sent a rejection, because a misrouted ACK would get no response.
#[test]
fn the_ack_to_a_rejection_goes_where_that_came_from() {
    let [mut before, mut after] = with_pool(&[BACKEND_A, BACKEND_B], Policy::Rr, Mode::Transaction);
    let out = ringing(&mut before, "c1");
    let ack = request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n");
    assert!(after.send(CALLER, &ack).is_empty());
    after.one(BACKEND_A, &out.answer("180 Ringing"));
    assert!(after.send(CALLER, &ack).is_empty(), "that is no rejection");
    assert_eq!(after.counters.dropped(DropReason::UnknownAck).get(), 2);
    after.one(BACKEND_A, &out.answer("486 Busy Here"));
    let sent = after.one(CALLER, &ack);
    assert_eq!((sent.to, sent.branch()), (address(BACKEND_A), out.branch()));
    assert_eq!(after.one(CALLER, &ack), sent, "and again the same");
}

/// §16.10: within a dialog, the route token names the back end.
#[test]
fn a_cancel_within_a_dialog_finds_its_invite() {
    for (mode, later) in [(Mode::Transaction, 0), (Mode::Transaction, 301), (Mode::Stateless, 0)] {
        let [mut before, mut after] = with_pool(&[BACKEND_A, BACKEND_B], Policy::Rr, mode);
        let first = before.send(CALLER, &invite("c1")).pop().unwrap();
        before.send(BACKEND_A, &first.answer("200 OK"));
        let route = format!("Totag\r\nRoute: {}\r\n", first.header("Record-Route"));
        let of = |method| request(method, "sip:bob@10.0.0.1:5070", "c1", 2, &route);
        let again = before.send(CALLER, &of("INVITE")).pop().unwrap();
        // A callee that rings for longer has responded meanwhile.
        after.pass(Duration::from_secs(later));
        if later > 0 {
            after.one(BACKEND_A, &again.answer("180 Ringing"));
        }
        assert!(is_of(&after.one(CALLER, &of("CANCEL")), &again), "{mode:?} {later}");
    }
}

/// A back end can cancel its own call in the same way.
#[test]
fn a_back_end_cancels_its_own_call() {
    let [mut before, mut after] = with_pool(&[BACKEND_A, BACKEND_B], Policy::Rr, Mode::Transaction);
    let of = |method| {
        let text = request(method, "sip:carol@203.0.113.9", "c1", 1, "");
        text.replace("198.51.100.7:5060", BACKEND_A)
    };
    let out = before.send(BACKEND_A, &of("INVITE")).pop().unwrap();
    assert!(is_of(&after.one(BACKEND_A, &of("CANCEL")), &out));
}

/// §16.11: "CANCEL and non-Routed ACK requests MUST generate the same choice as their associated
/// INVITE": rules that name INVITE apply to both, and no policy selects again.
#[test]
fn a_cancel_goes_by_the_rule_of_its_invite() {
    let to_second = |settings: &mut Settings| {
        settings.pools = vec![
            pool(&[BACKEND_B], Policy::Rr, Mode::Transaction),
            pool(&[BACKEND_A], Policy::Rr, Mode::Transaction),
        ];
        let rule = |methods: &[&str], to| Rule {
            from: Senders::Any,
            methods: methods.iter().map(|&method| method.to_owned()).collect(),
            domains: Vec::new(),
            to: RuleTarget::Pool(to),
        };
        settings.rules = vec![rule(&["INVITE"], 1), rule(&[], 0)];
    };
    let [mut before, mut after] = restarted(to_second);
    let out = ringing(&mut before, "c1");
    assert!(is_of(&after.one(CALLER, &cancel("c1")), &out));

    let [mut before, mut trusting] = restarted(|settings| {
        settings.listeners[0].trust = vec!["198.51.100.0/24".parse().unwrap()];
        to_second(settings);
    });
    let out = ringing(&mut before, "c1");
    assert!(is_of(&trusting.one(CALLER, &cancel("c1")), &out));
    assert!(trusting.backends.backends().iter().all(|backend| backend.assigned() == 0));
}

/// One CANCEL causes at most eight packets. §16.10: "It MUST statelessly forward the CANCEL
/// request": in a large pool, some back ends get it.
#[test]
fn a_cancel_goes_to_no_more_than_eight_back_ends() {
    let many: Vec<_> = (1..=9).map(|i| format!("10.0.9.{i}:5070")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    for mode in MODES {
        for count in [8, 9] {
            let [mut before, mut after] = with_pool(&many[..count], Policy::Rr, mode);
            let out = ringing(&mut before, "c1");
            let sent = after.send(CALLER, &cancel("c1"));
            let to: BTreeSet<_> = sent.iter().map(|sent| sent.to).collect();
            assert_eq!((sent.len(), to.len()), (8, 8), "{mode:?} of {count}");
            // In adaptive mode, the INVITE may have either kind of branch. While enough processor
            // time is left, it has a transaction.
            assert!(sent.iter().any(|sent| is_of(sent, &out)), "{mode:?} of {count}");
        }
    }
}

/// Checks the CANCELs that get a 481, because no back end could match them.
#[test]
fn unmatched_cancels_are_denied() {
    // No previous process is known.
    let mut first = Script::stateful();
    assert_eq!(first.status(CALLER, &cancel("c1")), 481);
    // The process started so long ago that a ringing callee has responded. A script starts at one
    // second.
    let [_, mut late] = with_pool(&[BACKEND_A], Policy::Rr, Mode::Transaction);
    late.pass(Duration::from_secs(299));
    assert_eq!(late.status(CALLER, &cancel("c1")), 481);
    // A Route or the Request-URI names another element.
    let [_, mut after] = with_pool(&[BACKEND_A], Policy::Rr, Mode::Transaction);
    let routed = cancel("c1").replacen("From:", "Route: <sip:203.0.113.9;lr>\r\nFrom:", 1);
    assert_eq!(after.status(CALLER, &routed), 481);
    let elsewhere = request("CANCEL", "sip:bob@203.0.113.9", "c1", 1, "");
    assert_eq!(after.status(CALLER, &elsewhere), 481);
}

/// A flood of CANCELs is not multiplied without limit. By §16.10 each CANCEL still goes to one back
/// end: "It MUST statelessly forward the CANCEL request".
#[test]
fn the_number_of_cancels_sent_to_several_back_ends_is_limited() {
    let [_, mut after] = with_pool(&[BACKEND_A, BACKEND_B], Policy::Rr, Mode::Transaction);
    for call in 0..4096 {
        assert_eq!(after.send(CALLER, &cancel(&format!("c{call}"))).len(), 2);
    }
    assert_eq!(after.counters.lost_overflowed.get(), 0);
    let more = after.one(CALLER, &cancel("more"));
    assert_eq!((more.to, after.counters.lost_overflowed.get()), (address(BACKEND_A), 1));
    let denied = after.one(BACKEND_A, &more.answer("481 No Such Call"));
    assert_eq!((denied.to, denied.start()), (address(CALLER), "SIP/2.0 481 No Such Call"));
    assert_eq!(after.send(CALLER, &cancel("c0")).len(), 2, "a copy of an earlier CANCEL");
    after.pass(Duration::from_secs(32));
    assert_eq!(after.send(CALLER, &cancel("more")).len(), 2);
}

/// Without transactions, the branch of an INVITE does not show which process has sent it. INVITEs of
/// this process must leave room for those of the previous one (§16.10: "It MUST statelessly forward
/// the CANCEL request").
#[test]
fn invites_of_this_process_leave_room_for_those_of_the_previous_one() {
    let [mut before, mut after] = restarted(|settings| {
        settings.pools = vec![pool(&[BACKEND_A, BACKEND_B], Policy::Rr, Mode::Stateless)];
        settings.rules =
            [Senders::Any, Senders::Pool].map(|from| Rule::new(from, RuleTarget::Pool(0))).to_vec();
    });
    // A server sends calls to another server. The call table does not have these calls.
    for call in 0..4100 {
        let text = invite(&format!("s{call}")).replace("198.51.100.7:5060", BACKEND_B);
        let out = after.one(BACKEND_B, &text);
        let ringing = after.one(BACKEND_A, &out.answer("180 Ringing"));
        assert_eq!((out.to, ringing.to), (address(BACKEND_A), address(BACKEND_B)));
    }
    let ring = |before: &mut Script, after: &mut Script, call: String| {
        let out = before.send(CALLER, &invite(&call)).pop().unwrap();
        after.one(&out.to.to_string(), &out.answer("180 Ringing"));
        out
    };
    let out = ring(&mut before, &mut after, "c0".to_owned());
    assert!(is_of(&after.one(CALLER, &cancel("c0")), &out));
    for call in 1..2048 {
        ring(&mut before, &mut after, format!("c{call}"));
    }
    assert_eq!(after.counters.lost_overflowed.get(), 0);
    // A call remembers four of the INVITEs with its Call-ID.
    let mut first = None;
    for cseq in 1..=6 {
        let out = after.one(CALLER, &request("INVITE", "sip:bob@192.0.2.1", "again", cseq, ""));
        after.one(&out.to.to_string(), &out.answer("486 Busy Here"));
        first.get_or_insert(out);
    }
    let first = first.unwrap();
    after.one(&first.to.to_string(), &first.answer("486 Busy Here"));
    assert_eq!(after.counters.lost_overflowed.get(), 0);
    ring(&mut before, &mut after, "one-more".to_owned());
    assert_eq!(after.counters.lost_overflowed.get(), 1);
}

/// If there are several shards, the CANCEL visits the others first. Then it returns to its first
/// shard, whose number is in the branch of the INVITE.
#[test]
fn a_cancel_comes_home_to_the_shard_where_its_invite_was() {
    let of = |shard: u16| {
        restarted(|settings| {
            (settings.shard, settings.shards) = (shard, 2);
            settings.pools = vec![pool(&[BACKEND_A], Policy::Rr, Mode::Transaction)];
        })
    };
    let ([mut before, mut home], [_, mut other]) = (of(1), of(0));
    let out = ringing(&mut before, "c1");
    let text = cancel("c1");
    home.offer_at(PROXY, CALLER, text.as_bytes(), 0);
    assert!(home.serve().is_empty());
    assert_eq!(home.handoff(), Some(0));
    other.offer_at(PROXY, CALLER, text.as_bytes(), 1);
    assert!(other.serve().is_empty());
    assert_eq!(other.handoff(), Some(1));
    home.offer_at(PROXY, CALLER, text.as_bytes(), 2);
    let sent = home.serve();
    assert_eq!((sent.len(), home.handoff()), (1, None));
    assert!(is_of(&sent[0], &out));
}

/// A CANCEL has the branch of its INVITE, if this process sent the INVITE.
#[test]
fn a_cancel_of_a_known_request_is_handled_as_usual() {
    let [_, mut after] = with_pool(&[BACKEND_A, BACKEND_B], Policy::Rr, Mode::Transaction);
    let out = ringing(&mut after, "c1");
    let sent = after.send(CALLER, &cancel("c1"));
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1].branch(), out.branch());
    let [_, mut plain] = with_pool(&[BACKEND_A, BACKEND_B], Policy::Rr, Mode::Stateless);
    let out = ringing(&mut plain, "c1");
    assert!(is_of(&plain.one(CALLER, &cancel("c1")), &out));
}
