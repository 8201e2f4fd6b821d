//! Rates that are learned from rejected or unanswered requests.

use std::time::Duration;

use crate::limited::*;
use crate::script::{BACKEND_A, BACKEND_B, CALLER, Script, address, invite, request};
use tidegate_balance::{AdminState, Learning, Limits, Policy, Pool, RateLearning, WindowLearning};
use tidegate_proxy::{Mode, PoolSettings, Rule, RuleTarget, Senders};

fn learning() -> Limits {
    let learning = Learning { rate: Some(RateLearning::default()), window: None };
    Limits { learning, ..Limits::default() }
}

/// Makes an INVITE from one trunk to one of many numbers.
fn invite_to(number: u64, call: &str) -> String {
    request("INVITE", &format!("sip:{number}@192.0.2.1"), call, 1, "")
}

/// Sends 200 calls per second for this time. Each back end rejects its calls above 50 per second.
/// Returns three numbers for the last second: calls rejected by the proxy, calls rejected by the
/// back ends, and calls accepted.
fn overloaded(s: &mut Script, seconds: u64) -> [u64; 3] {
    let mut room = [0.0_f64; 2];
    let mut counts = [0; 3];
    for step in 0..seconds * 200 {
        if step % 200 == 0 {
            counts = [0; 3];
        }
        s.pass(ms(5));
        room.iter_mut().for_each(|room| *room = (*room + 0.25).min(5.0));
        let sent = s.send(CALLER, &invite_to(step, &format!("{}-{step}", s.now.as_nanos())));
        let Some(there) = forwarded(sent) else {
            counts[0] += 1;
            continue;
        };
        let mut next = Some(there);
        while let Some(there) = next {
            let at = usize::from(there.to == address(BACKEND_B));
            let status = if room[at] >= 1.0 { "486 Busy Here" } else { "503 Busy" };
            room[at] -= f64::from(u8::from(room[at] >= 1.0));
            counts[if status.starts_with('4') { 2 } else { 1 }] += 1;
            let sent = s.send(&there.to.to_string(), &there.answer(status));
            next = sent.into_iter().find(|sent| sent.start().starts_with("INVITE"));
        }
    }
    counts
}

#[test]
fn a_rate_is_learned_from_rejections() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = limited(mode, [learning(), learning()]);
        let [here, there, taken] = overloaded(&mut s, 12);
        assert!(there <= 10 && taken >= 85 && here >= 90, "{mode:?}: {here} {there} {taken}");
        for backend in s.backends.backends() {
            let learned = backend.learned_cps().unwrap();
            assert!((40.0..60.0).contains(&learned), "{learned}");
            assert!(backend.rejections() > 0);
        }
    }
}

/// A 503 is a response, even if the caller gets another one. So the request no longer counts in the
/// window, and does not count as lost.
#[test]
fn a_request_that_is_rejected_at_once_is_not_lost() {
    let learning = Learning { rate: None, window: Some(WindowLearning::default()) };
    let limits = || Limits { learning, ..Limits::default() };
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = limited(mode, [limits(), limits()]);
        for step in 0..800 {
            s.pass(ms(5));
            let sent = s.send(CALLER, &invite_to(step, &format!("{step}")));
            let mut next = forwarded(sent);
            assert!(next.is_some(), "{mode:?}: call {step} found no room");
            let status = if step % 5 < 2 { "503 Busy" } else { "486 Busy Here" };
            while let Some(there) = next {
                let sent = s.send(&there.to.to_string(), &there.answer(status));
                next = sent.into_iter().find(|sent| sent.start().starts_with("INVITE"));
            }
        }
        let backends = s.backends.backends();
        assert!(backends.iter().all(|backend| backend.unheard(s.now) == 0), "{mode:?}");
        assert!(backends.iter().all(|backend| backend.learned_window().is_none()), "{mode:?}");
    }
}

/// The first back end was silent, so the INVITE went to another one. Then the first back end
/// rejects it.
#[test]
fn a_late_rejection_is_no_response_of_the_next_back_end() {
    let learning = Learning { rate: None, window: Some(WindowLearning::default()) };
    let limits = || Limits { learning, ..Limits::default() };
    let mut s = limited(Mode::Transaction, [limits(), limits()]);
    let silent = forwarded(s.send(CALLER, &invite("a"))).unwrap();
    assert_eq!(silent.to, address(BACKEND_A));
    s.pass(ms(4100));
    assert!(s.sent().iter().any(|sent| sent.to == address(BACKEND_B)));
    let unheard = |s: &Script| s.backends.backends()[1].unheard(s.now);
    assert_eq!(unheard(&s), 1);
    s.send(BACKEND_A, &silent.answer("503 Busy"));
    assert_eq!(unheard(&s), 1);
}

// A 503 with a Retry-After (RFC 3261 §21.5.4) is a rejection, even if the Retry-After is ignored.
#[test]
fn a_retry_after_that_is_ignored_teaches_too() {
    let mut s = limited(Mode::Transaction, [learning(), learning()]);
    for step in 0..400 {
        s.pass(ms(5));
        if let Some(there) = forwarded(s.send(CALLER, &invite_to(step, &step.to_string()))) {
            let rejection = there.answer("503 Busy").replace("CSeq", "Retry-After: 30\r\nCSeq");
            s.send(&there.to.to_string(), &rejection);
        }
    }
    assert!(s.backends.backends().iter().all(|backend| backend.is_up(s.now)));
    assert!(s.backends.backends().iter().all(|backend| backend.learned_cps().is_some()));
}

/// RFC 5390 §5.3: "The mechanism is an all-or-nothing technique." A back end has one health in all
/// its pools. So a rate that is learned for it replaces the pauses of each of these pools.
#[test]
fn a_learned_rate_replaces_the_pauses_of_every_pool_of_a_back_end() {
    let all_up = |limits: [Limits; 2], retry_after_max| {
        let mut s = limited_with(Mode::Transaction, limits, |settings| {
            let shared = settings.pools[0].pool.backends().to_vec();
            let mut numbers = PoolSettings::new(Pool::of("numbers", shared), Policy::Rr);
            numbers.health.retry_after_max = retry_after_max;
            settings.pools.push(numbers);
            settings.rules = vec![Rule::new(Senders::Any, RuleTarget::Pool(1))];
        });
        for step in 0..100 {
            let mut next = forwarded(s.send(CALLER, &invite_to(step, &step.to_string())));
            while let Some(there) = next {
                let rejection = there.answer("503 Busy").replace("CSeq", "Retry-After: 30\r\nCSeq");
                let sent = s.send(&there.to.to_string(), &rejection);
                next = sent.into_iter().find(|sent| sent.start().starts_with("INVITE"));
            }
            s.rest(ms(50));
        }
        s.backends.backends().iter().all(|backend| backend.is_up(s.now))
    };
    let none = || [Limits::default(), Limits::default()];
    assert!(all_up([learning(), learning()], None));
    assert!(!all_up(none(), None), "no rate is learned");
    assert!(all_up(none(), Some(Duration::ZERO)));
    assert!(!all_up([learning(), learning()], Some(Duration::from_secs(60))), "it is configured");
}

/// Makes a proxy with transactions that learns the rate of its only back end `a`.
fn before_one() -> Script {
    let s = limited(Mode::Transaction, [learning(), learning()]);
    s.backends.backends()[1].set_admin_state(s.now, AdminState::Draining);
    s
}

/// The last `silent` of twenty calls to twenty numbers are never received.
#[test]
fn the_silence_of_many_calls_teaches_and_of_one_it_does_not() {
    let learned = |silent: u64| {
        let mut s = before_one();
        for name in 0..20 {
            let there = forwarded(s.send(CALLER, &invite_to(name, &name.to_string()))).unwrap();
            if name < 20 - silent {
                s.send(BACKEND_A, &there.answer("486 Busy Here"));
            }
            // The pauses add up to more than a second, after which silence counts.
            s.pass(ms(100));
        }
        // Waits for `failover_after_ms` and for the end of Timer B. Then the back end is up again.
        s.rest(ms(60_000));
        assert!(forwarded(s.send(CALLER, &invite("next"))).is_some());
        s.backends.backends()[0].learned_cps()
    };
    assert_eq!(learned(1), None);
    assert!(learned(19).is_some());
}

#[test]
fn only_requests_that_begin_work_teach() {
    let mut s = before_one();
    let there = call(&mut s, "1").unwrap();
    assert_eq!(there.to, address(BACKEND_A));
    assert!(
        forwarded(s.send(CALLER, &request("INFO", "sip:bob@10.0.0.1", "1", 2, "Totag\r\n")))
            .is_some()
    );
    s.pass(ms(60_000));
    for name in 2..15 {
        s.pass(ms(100));
        call(&mut s, &name.to_string());
    }
    assert_eq!(s.backends.backends()[0].failures(), 1, "it was silent");
    assert_eq!(s.backends.backends()[0].learned_cps(), None);
}
