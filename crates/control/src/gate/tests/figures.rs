//! Tests of the estimates of calls, and of the bound.

use super::*;
use crate::bound;

#[test]
fn sessions_are_estimated_from_served_work() {
    let estimation = Estimation { end: Some(BYE), ..Estimation::default() };
    for check in [SessionCheck::Start, SessionCheck::Full] {
        let sessions = Estimation { check, ..estimation };
        let mut gate = Gate::new(Settings { sessions, ..settings(&[]) }, Seed(1), 0);
        gate.on_completion(at(0), 0, MS * 2);
        gate.on_completion(at(0), BYE, MS);
        for call in 0..1000 {
            let now = at(call * 20);
            gate.control.queue.waiting_max = 9;
            let ticket = enters(&mut gate, now, Some(call << 40));
            gate.on_taken(now, ticket);
            gate.on_new(now, Bucket::Single, 8, None, true);
            (0..3).for_each(|_| assert!(gate.on_ongoing(now, 1)));
            gate.on_ongoing(now, BYE);
        }
        let sessions = &gate.signals().sessions;
        assert!((sessions.rate_cps() - 50.0).abs() < 2.0, "{check:?} {}", sessions.rate_cps());
        assert!((sessions.length() - 5.0).abs() < 0.2, "{check:?} {}", sessions.length());
        // Three messages have not been measured.
        let cost = sessions.cost().unwrap();
        assert!(cost.abs_diff(MS * 3) < MS / 10, "{check:?} {cost:?}");
        gate.on_backlog(Backlog { sessions: 2, others: 8, unread: 0 });
        assert!((gate.signals().sessions_waiting() - 4.0).abs() < 0.1);
    }
}

/// Returns a gate to which 200 calls a second were offered for 2.5 s. A call costs 10 ms, and the
/// law admits the part `share` of the calls. `has_room` returns whether the queue has room for a
/// call.
fn offered(share: f64, has_room: impl Fn(u64) -> bool) -> Gate {
    let mut gate = gate(&[]);
    gate.on_completion(at(0), 0, MS * 10);
    for call in 0..500 {
        let now = at(call * 5);
        gate.control.queue.waiting_max = 9;
        gate.control.admit_of_all(Allowance::Fraction(share));
        gate.on_arrival(now, 0);
        let verdict = gate.on_new(now, Bucket::Session, 0, Some(call << 40), has_room(call));
        if let Verdict::Admit(ticket) = verdict {
            gate.on_taken(now, ticket);
        }
    }
    gate
}

#[test]
fn the_bound_follows_from_what_calls_and_rejections_cost() {
    let mut gate = offered(0.5, |_| true);
    assert_eq!((gate.rejection_cost(), gate.bound(at(2500))), (None, None));
    gate.on_looked(10, 0, MS);
    gate.on_looked(10, 10, MS * 9);
    // A rejection takes 0.9 ms, and reading its ACK 0.1 ms.
    let rejection = gate.rejection_cost().unwrap();
    assert!(rejection.abs_diff(MS) < MS / 100, "{rejection:?}");
    let bound = gate.bound(at(2500)).unwrap();
    assert!((bound - bound::goodput(2.0, 0.1)).abs() < 0.03, "{bound}");
    let later = gate.bound(at(5000)).unwrap();
    assert!(later < 0.03, "nothing is offered any more: {later}");
    // Each repetition is rejected as well.
    for call in (1..500).step_by(2) {
        arrives(&mut gate, at(3000), Some(call << 40), 0);
    }
    assert!(gate.rejection_cost().unwrap() > MS * 19 / 10);
}

/// The limit of the queue is checked before the law decides. So calls are rejected even under a law
/// that admits all of them.
#[test]
fn the_bound_counts_calls_that_found_the_queue_full() {
    let mut gate = offered(1.0, |call| call % 5 == 0);
    gate.on_looked(10, 0, MS);
    gate.on_looked(10, 10, MS * 9);
    let bound = gate.bound(at(2500)).unwrap();
    assert!((bound - bound::goodput(2.0, 0.1)).abs() < 0.03, "{bound}");
}

#[test]
fn a_rejection_is_early_within_a_tenth_of_a_second_of_idle_time() {
    let mut gate = closed();
    let mut busy = Duration::ZERO;
    let mut early_after = |idle_ms: u64, then_ms: u64| {
        let before = gate.signals().flow(Bucket::Session).early;
        let start = gate.signals().processor.at;
        let at = |ms| start + Duration::from_millis(ms);
        // A reading every 2 ms, first of an idle processor, then of a busy one.
        for ms in (2..=idle_ms + then_ms).step_by(2) {
            busy += Duration::from_millis(if ms <= idle_ms { 0 } else { 2 });
            gate.on_load(at(ms), &Load { busy, ..Load::default() });
        }
        let now = at(idle_ms + then_ms);
        gate.on_arrival(now, 0);
        let verdict = gate.on_new(now, Bucket::Session, 0, None, true);
        assert_eq!(verdict, Verdict::Reject(Reason::Law));
        gate.signals().flow(Bucket::Session).early - before
    };
    assert_eq!(early_after(0, 10), 0);
    assert_eq!(early_after(2, 0), 1);
    assert_eq!(early_after(4, 100), 1);
    assert_eq!(early_after(4, 102), 0);
}
