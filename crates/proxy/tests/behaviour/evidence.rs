//! Tests that responses which a stranger or a single number can cause do not change the health of a
//! back end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::limited::{forwarded, limited_with, ms};
use crate::script::{BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, Sent, address, request};
use tidegate_balance::{AdminState, Backend, Learning, Limits, Policy, Pool, RateLearning, State};
use tidegate_control::Reason;
use tidegate_proxy::{Mode, PoolSettings};

const STRANGER: &str = "203.0.113.66:5060";

/// Makes an INVITE to the number `number`.
fn invite_to(number: &str, call: &str) -> String {
    request("INVITE", &format!("sip:{number}@192.0.2.1"), call, 1, "")
}

fn rejection(there: &Sent) -> String {
    there.answer("503 Busy").replace("CSeq", "Retry-After: 3600\r\nCSeq")
}

/// Makes a call from `from` to this number. Each back end that gets the call sends the response of
/// `answers`. Returns the number of these back ends.
fn call(s: &mut Script, from: &str, number: &str, answers: impl Fn(&Sent) -> String) -> usize {
    let name = format!("{number}-{}", s.now.as_nanos());
    let sent = s.send(from, &invite_to(number, &name));
    let is_invite = |sent: &Sent| sent.start().starts_with("INVITE");
    let mut waiting: VecDeque<_> = sent.into_iter().filter(is_invite).collect();
    let mut tries = 0;
    while let Some(there) = waiting.pop_front() {
        tries += 1;
        let sent = s.send(&there.to.to_string(), &answers(&there));
        waiting.extend(sent.into_iter().filter(is_invite));
    }
    tries
}

fn served(there: &Sent) -> String {
    there.answer("486 Busy Here")
}

fn states(s: &Script) -> Vec<State> {
    s.backends.backends().iter().map(|backend| backend.state(s.now).0).collect()
}

/// Makes ten calls per second from ten other sources to ten numbers. All these calls are answered.
/// A stranger makes as many calls, which are all rejected.
fn beside_others(s: &mut Script, seconds: u64, number: impl Fn(u64) -> String) {
    for step in 0..seconds * 10 {
        call(s, STRANGER, &number(step), rejection);
        s.rest(ms(50));
        let (other, to) = (step % 10, step * 7 % 10);
        let tries = call(s, &format!("198.51.100.{other}:5060"), &format!("user-{to}"), served);
        assert_eq!(tries, 1, "served at once in step {step}");
        s.rest(ms(50));
    }
}

// RFC 3261 §21.5.4: "It SHOULD NOT forward any other requests to that server for the duration
// specified in the Retry-After header field, if present." Here the server is the phone of one
// number.
#[test]
fn one_number_that_asks_for_a_pause_pauses_no_back_end() {
    let mut s = Script::stateful();
    assert_eq!(call(&mut s, STRANGER, "own", rejection), 2, "it is tried once more");
    assert_eq!(states(&s), [State::Up; 2]);
    beside_others(&mut s, 20, |_| "own".to_owned());
    assert_eq!(states(&s), [State::Up; 2]);
    assert_eq!(s.counters.rejected(Reason::PoolDown).get(), 0);
    // Further calls of the same stranger to its number change nothing.
    for _ in 0..100 {
        call(&mut s, STRANGER, "own", rejection);
        s.rest(ms(100));
    }
    assert_eq!(states(&s), [State::Up; 2]);
}

#[test]
fn many_numbers_of_one_stranger_beside_others_pause_no_back_end() {
    let mut s = Script::stateful();
    beside_others(&mut s, 20, |step| format!("own-{step}"));
    assert_eq!(states(&s), [State::Up; 2]);
}

/// A lone stranger can cause the exclusion of at most half of the back ends.
#[test]
fn many_numbers_of_a_lone_stranger_exclude_no_more_than_the_cap() {
    let mut s = Script::stateful();
    for step in 0..100 {
        call(&mut s, STRANGER, &format!("own-{step}"), rejection);
        s.rest(ms(50));
    }
    assert!(s.backends.backends().iter().any(|backend| backend.is_up(s.now)));
    assert_eq!(call(&mut s, CALLER, "user", served), 1);
}

#[test]
fn a_back_end_that_rejects_all_calls_has_its_pause() {
    let fork = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 1000)]);
    for mut s in [Script::stateful(), fork] {
        for step in 0..60 {
            let answers = |there: &Sent| match there.to == address(BACKEND_A) {
                true => rejection(there),
                false => served(there),
            };
            call(&mut s, CALLER, &format!("user-{step}"), answers);
            s.rest(ms(50));
        }
        assert_eq!(states(&s), [State::Busy, State::Up]);
    }
}

/// A back end that rejects refreshes of sessions, but serves all new calls, gets new calls. The
/// number of requests within calls is not known, so a share of rejections would mean nothing.
#[test]
fn rejected_requests_within_calls_pause_no_back_end() {
    let stateless = || Script::with(Policy::Rr, |_| {});
    for mut s in [Script::stateful(), stateless()] {
        reject_within_calls(&mut s);
        assert_eq!(states(&s), [State::Up; 2]);
        let backends = s.backends.backends();
        let has_rejected =
            |backend: &Arc<Backend>| backend.has_rejected(s.now, Duration::from_secs(9));
        assert!(!backends.iter().any(has_rejected));
    }
}

/// Makes 60 calls. The back ends accept them, and reject three requests within each of them.
fn reject_within_calls(s: &mut Script) {
    for step in 0..60 {
        let name = format!("within-{step}");
        let there = forwarded(s.send(CALLER, &invite_to(&format!("user-{step}"), &name))).unwrap();
        s.send(&there.to.to_string(), &there.answer("200 OK"));
        for (method, number) in [("ACK", 1), ("INFO", 2), ("INFO", 3), ("INFO", 4)] {
            let uri = format!("sip:user-{step}@192.0.2.1");
            let text = request(method, &uri, &name, number, "Totag\r\n");
            let within = forwarded(s.send(CALLER, &text)).expect("it follows its call");
            if method == "INFO" {
                s.send(&within.to.to_string(), &rejection(&within));
            }
        }
        s.rest(ms(50));
    }
}

// RFC 3261 §16.7 item 6: a proxy cannot tell by one 503 of one callee "that any subsequent requests
// it might proxy will also generate a 503".
#[test]
fn answers_of_a_phone_do_not_change_the_health_of_the_back_end() {
    let mut s = Script::stateful();
    let there = forwarded(s.send(CALLER, &invite_to("own", "1"))).unwrap();
    assert_eq!(there.to, address(BACKEND_A));
    let again = s.send(STRANGER, &rejection(&there));
    assert!(again.iter().any(|sent| sent.to == address(BACKEND_B)), "it counts for the request");
    assert_eq!(s.backends.backends()[0].rejections(), 0);
    assert!(!s.backends.backends()[0].has_rejected(s.now, Duration::from_secs(1)));
}

#[test]
fn only_the_back_end_that_was_asked_is_alive_by_its_answer() {
    let mut s = Script::stateful();
    let there = forwarded(s.send(CALLER, &invite_to("own", "1"))).unwrap();
    assert_eq!(there.to, address(BACKEND_A));
    let backends = s.backends.clone();
    let answered = |i: usize| backends.backends()[i].has_answered(script_start());
    s.send(BACKEND_B, &there.answer("180 Ringing"));
    assert!(!answered(0) && !answered(1), "nobody asked it");
    s.send(BACKEND_A, &there.answer("180 Ringing"));
    assert!(answered(0) && !answered(1));
}

fn script_start() -> tidegate_world::Timestamp {
    tidegate_world::Timestamp::from_nanos(999_999_999)
}

fn learning(mode: Mode) -> Script {
    let learning = Learning { rate: Some(RateLearning::default()), window: None };
    let limits = Limits { learning, ..Limits::default() };
    limited_with(mode, [limits, limits], |_| {})
}

#[test]
fn one_number_that_rejects_teaches_no_rate() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = learning(mode);
        for _ in 0..300 {
            call(&mut s, STRANGER, "own", |there| there.answer("503 Busy"));
            s.rest(ms(10));
        }
        assert!(
            s.backends.backends().iter().all(|b| b.rejections() > 0 && b.learned_cps().is_none())
        );
    }
}

#[test]
fn many_numbers_of_one_stranger_beside_others_teach_no_rate() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = learning(mode);
        beside_others(&mut s, 20, |step| format!("own-{step}"));
        assert!(s.backends.backends().iter().any(|backend| backend.rejections() > 100), "{mode:?}");
        assert!(s.backends.backends().iter().all(|b| b.learned_cps().is_none()), "{mode:?}");
    }
}

#[test]
fn a_number_that_is_silent_teaches_no_rate() {
    let mut s = learning(Mode::Transaction);
    for n in 0..100 {
        s.send(STRANGER, &invite_to("own", &n.to_string()));
        s.rest(ms(50));
    }
    s.pass(Duration::from_secs(40));
    assert!(s.backends.backends().iter().all(|b| b.learned_cps().is_none()));
}

/// The first failover of a request is free. Further ones use the budget of the pool: a fifth of the
/// requests, and 20 at the start.
#[test]
fn a_call_that_all_reject_is_tried_twice_and_further_within_a_budget() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let backends = [BACKEND_A, BACKEND_B, BACKEND_C].map(|at| (at, address(at), 1));
        settings.pools = vec![PoolSettings::new(Pool::new("app", &backends), Policy::Rr)];
    });
    let mut tries = 0;
    for _ in 0..500 {
        tries += call(&mut s, STRANGER, "own", rejection);
        // No back end has rejected a request recently.
        s.rest(ms(1000));
    }
    assert!((2 * 500 + 100..=2 * 500 + 100 + 20).contains(&tries), "{tries}");
    assert_eq!(s.counters.failovers_denied.get(), 3 * 500 - tries as u64);
}

/// A failover for which no back end is left uses no budget, and the budget does not deny it.
#[test]
fn a_failover_without_a_target_costs_nothing() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let backends = [BACKEND_A, BACKEND_B, BACKEND_C].map(|at| (at, address(at), 1));
        settings.pools = vec![PoolSettings::new(Pool::new("app", &backends), Policy::Rr)];
    });
    let last = Arc::clone(&s.backends.backends()[2]);
    let tries = |s: &mut Script, calls: usize| -> usize {
        let rejected = (0..calls).map(|_| {
            let tries = call(s, STRANGER, "own", rejection);
            // No back end has rejected a request recently.
            s.pass(ms(1000));
            s.sent();
            tries
        });
        rejected.sum()
    };
    last.set_admin_state(s.now, AdminState::Maintenance);
    assert_eq!(tries(&mut s, 500), 2 * 500);
    last.set_admin_state(s.now, AdminState::InService);
    assert_eq!(tries(&mut s, 20), 3 * 20, "the budget is full");
    assert_eq!(s.counters.failovers_denied.get(), 0);
}

/// The transport reports that nothing listens at any back end. One back end is tried nevertheless.
#[test]
fn failed_requests_alone_never_exclude_all_back_ends_of_a_pool() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        s.rejected(BACKEND_A);
        s.pass(ms(100));
        s.rejected(BACKEND_B);
        assert_eq!(states(&s), [State::Spared, State::Down], "{mode:?}");
        assert_eq!(call(&mut s, CALLER, "user", served), 1);
        assert_eq!(s.backends.backends()[0].spared(), 1);
        assert_eq!(s.counters.rejected(Reason::PoolDown).get(), 0);
    }
}

#[test]
fn the_only_back_end_is_tried_rather_than_rejected() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let pool = Pool::new("app", &[("a", address(BACKEND_A), 1)]);
        settings.pools = vec![PoolSettings::new(pool, Policy::Rr)];
    });
    s.rejected(BACKEND_A);
    assert_eq!(call(&mut s, CALLER, "user", served), 1);
    assert_eq!(states(&s), [State::Up], "it has answered");
}
