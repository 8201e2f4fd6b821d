//! Tests of the gate's treatment of sources.

use super::*;
use crate::{Decision, Headroom, Limit, Per, PriorityCap, Sender, SourceSettings};

fn from(source: u128) -> Sender {
    Sender { source: Some(source), ..Sender::default() }
}

fn fair_gate(given: &[(&str, f64)]) -> Gate {
    let sources = SourceSettings { fair: true, sources_max: 100, ..SourceSettings::default() };
    Gate::new(Settings { sources, ..settings(given) }, Seed(1), 0)
}

/// Returns the verdict on a piece of work that arrives while `waiting` pieces wait.
fn asks(gate: &mut Gate, now: Timestamp, sender: &Sender, waiting: usize) -> Verdict {
    gate.on_arrival(now, waiting);
    gate.on_new_from(now, sender, Bucket::Session, 0, None, true)
}

/// Offers 2,000 pieces/s of source 1 and 50 of source 2 for 4 s under the control that `control`
/// sets. Each admitted piece leaves the queue at once. Returns the number of pieces of each source
/// that were admitted in the last 3 s, and the reasons for rejecting the others.
fn flood(gate: &mut Gate, control: impl Fn(&mut Control)) -> ([u32; 2], Vec<Reason>) {
    let (mut admitted, mut reasons) = ([0; 2], Vec::new());
    for tick in 0..8000u64 {
        let now = Timestamp::from_nanos(tick * 500_000);
        let mut ask = |source: usize| {
            gate.on_arrival(now, 0);
            control(&mut gate.control);
            let fingerprint = Some(tick.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ source as u64);
            let sender = from(source as u128);
            match gate.on_new_from(now, &sender, Bucket::Session, 0, fingerprint, true) {
                Verdict::Admit(ticket) => {
                    let rejected = gate.on_taken(now, ticket);
                    admitted[source - 1] += u32::from(tick >= 2000 && rejected.is_none());
                    reasons.extend(rejected.filter(|_| tick >= 2000));
                }
                Verdict::Reject(reason) if tick < 2000 => assert!(reason != Reason::QueueFull),
                Verdict::Reject(reason) => reasons.push(reason),
                Verdict::Absorb => panic!("all are new"),
            }
        };
        ask(1);
        if tick % 40 == 0 {
            ask(2);
        }
    }
    reasons.sort_by_key(|reason| *reason as u8);
    reasons.dedup();
    (admitted, reasons)
}

fn assert_within(count: u32, wanted: std::ops::RangeInclusive<u32>, what: &str) {
    assert!(wanted.contains(&count), "{what}: {count}, not {wanted:?}");
}

#[test]
fn without_fairness_a_flood_takes_a_proportional_share() {
    let (admitted, reasons) = flood(&mut gate(&[]), |control| {
        control.admit_of_all(Allowance::Fraction(0.1));
    });
    assert_within(admitted[1], 10..=20, "of 150");
    assert_eq!(reasons, [Reason::Law]);
}

#[test]
fn a_flood_leaves_the_others_what_they_ask_for() {
    for allowance in [Allowance::Fraction(0.1), Allowance::Rate(205.0)] {
        let (admitted, reasons) =
            flood(&mut fair_gate(&[]), |control| control.admit_of_all(allowance));
        assert_within(admitted[1], 148..=150, "of 150");
        assert_within(admitted[0], 440..=480, "the rest of 615");
        assert_eq!(reasons, [Reason::SourceShare], "{allowance:?}");
    }
}

#[test]
fn decisions_at_service_are_shared_fairly_too() {
    let sources = SourceSettings { fair: true, ..SourceSettings::default() };
    let settings = Settings { sources, decide: Decide::Service, ..settings(&[]) };
    let (admitted, _) = flood(&mut Gate::new(settings, Seed(1), 0), |control| {
        control.admit_of_all(Allowance::Fraction(0.1));
    });
    assert_within(admitted[1], 148..=150, "of 150");
}

#[test]
fn a_rank_floor_is_a_share_like_any_other() {
    let (admitted, reasons) = flood(&mut fair_gate(&[]), |control| control.rank_floor = 0.9);
    assert_within(admitted[1], 145..=150, "of 150");
    assert_within(admitted[0] + admitted[1], 540..=690, "a tenth of 6150");
    assert_eq!(reasons, [Reason::SourceShare]);
}

#[test]
fn nothing_passes_a_closed_gate() {
    for fairness in [true, false] {
        let mut gate = if fairness { fair_gate(&[]) } else { gate(&[]) };
        let (admitted, reasons) =
            flood(&mut gate, |control| control.admit_of_all(Allowance::Closed));
        assert_eq!((admitted, reasons), ([0, 0], vec![Reason::Law]));
    }
}

#[test]
fn single_requests_are_shared_apart_from_sessions() {
    let mut gate = fair_gate(&[]);
    asks(&mut gate, at(0), &from(1), 0);
    gate.on_new_from(at(0), &from(2), Bucket::Single, 0, None, true);
    let sources = [Bucket::Session, Bucket::Single].map(|bucket| gate.fairness(bucket).unwrap());
    assert_eq!(sources.map(Fairness::sources), [1, 1]);
    assert!(gate.fairness(Bucket::Priority).is_none());
}

#[test]
fn a_flood_does_not_fill_the_queue() {
    let mut gate = fair_gate(&[]).with_room(90);
    let mut tickets = Vec::new();
    let mut last = Verdict::Absorb;
    asks(&mut gate, at(0), &from(2), 0);
    for waiting in 0..90 {
        last = asks(&mut gate, at(0), &from(1), waiting);
        match last {
            Verdict::Admit(ticket) => tickets.push(ticket),
            _ => break,
        }
        last = Verdict::Absorb;
    }
    assert_eq!((tickets.len(), &last), (80, &Verdict::Reject(Reason::SourceShare)));
    assert!(matches!(asks(&mut gate, at(0), &from(2), 80), Verdict::Admit(_)));
    // If the law sets a lower limit for the queue, this limit applies.
    gate.control.queue.waiting_max = 81;
    assert_eq!(asks(&mut gate, at(0), &from(1), 80), Verdict::Reject(Reason::SourceShare));
    gate.control.queue.waiting_max = 1000;
    for ticket in tickets.drain(..20) {
        gate.on_taken(at(1), ticket);
    }
    assert!(
        matches!(asks(&mut gate, at(1), &from(1), 80), Verdict::Admit(_)),
        "its places are free"
    );
}

#[test]
fn a_window_is_room_that_is_shared() {
    // A fraction of a place admits nothing, so it is not the place that is left for others.
    for size in [4.0, 4.5] {
        let mut gate = fair_gate(&[]);
        let mut ask = |source| {
            gate.on_arrival(at(0), 0);
            gate.control.admit_of_all(Allowance::Window(size));
            gate.on_new_from(at(0), &from(source), Bucket::Session, 0, None, true)
        };
        assert!(matches!(ask(2), Verdict::Admit(_)));
        assert!(matches!([ask(1), ask(1)], [Verdict::Admit(_), Verdict::Admit(_)]));
        assert_eq!(ask(1), Verdict::Reject(Reason::SourceShare), "{size}");
        assert!(matches!(ask(3), Verdict::Admit(_)), "{size}");
        assert_eq!(ask(4), Verdict::Reject(Reason::Law), "{size}");
    }
}

/// A source is forgotten about 1.4 s after its last call. Its next call must find a place.
#[test]
fn a_source_that_is_alone_leaves_a_place_in_a_window() {
    for (size, places, is_left) in [(1.0, 1, false), (2.0, 1, true), (4.5, 3, true)] {
        let mut gate = fair_gate(&[]);
        let mut ask = |source| {
            gate.on_arrival(at(0), 0);
            gate.control.admit_of_all(Allowance::Window(size));
            gate.on_new_from(at(0), &from(source), Bucket::Session, 0, None, true)
        };
        for _ in 0..places {
            assert!(matches!(ask(1), Verdict::Admit(_)), "{size}");
        }
        assert_eq!(ask(1), Verdict::Reject(Reason::Law), "{size}: it has not used up a share");
        assert_eq!(matches!(ask(2), Verdict::Admit(_)), is_left, "{size}");
    }
}

#[test]
fn a_source_that_is_alone_leaves_a_place_in_the_queue() {
    let mut gate = fair_gate(&[]).with_room(10);
    for waiting in 0..9 {
        assert!(matches!(asks(&mut gate, at(0), &from(1), waiting), Verdict::Admit(_)));
    }
    assert_eq!(asks(&mut gate, at(0), &from(1), 9), Verdict::Reject(Reason::QueueFull));
    assert_eq!(flow(&gate).lost, 1);
    assert!(matches!(asks(&mut gate, at(0), &from(2), 9), Verdict::Admit(_)));
}

fn limited(remembered: Option<Decision>) -> Gate {
    let limit = Limit { rate: 10.0, burst: 2, per: Per::Source, remembered };
    let sources = SourceSettings { limits: vec![limit], ..SourceSettings::default() };
    Gate::new(Settings { sources, ..settings(&[]) }, Seed(1), 0)
}

#[test]
fn a_limit_holds_without_any_overload() {
    let mut gate = limited(Some(Decision::Rejected));
    let sender = Sender { limit: Some(0), ..from(1) };
    let mut ask = |ms, fingerprint, sender: &Sender| {
        gate.on_arrival(at(ms), 0);
        gate.on_new_from(at(ms), sender, Bucket::Session, 0, Some(fingerprint), true)
    };
    assert!(matches!(
        [1, 2].map(|call| ask(0, call, &sender)),
        [Verdict::Admit(_), Verdict::Admit(_)]
    ));
    assert_eq!(ask(0, 3, &sender), Verdict::Reject(Reason::SourceLimit));
    // A repetition does not use up the limit, whether the original was rejected or not.
    assert_eq!(ask(100, 3, &sender), Verdict::Reject(Reason::Again));
    assert_eq!(ask(100, 1, &sender), Verdict::Absorb);
    assert!(matches!(ask(100, 4, &sender), Verdict::Admit(_)));
    assert!(matches!(ask(100, 5, &from(1)), Verdict::Admit(_)), "under no limit");
    let flow = flow(&gate);
    assert_eq!((flow.offered, flow.admitted, flow.rejected, flow.repeated), (5, 4, 1, 2));
    assert_eq!(flow.limited, 1);
}

#[test]
fn dropped_work_is_decided_again_or_its_repetitions_are_dropped_too() {
    for remembered in [None, Some(Decision::Dropped)] {
        let mut gate = limited(remembered);
        let sender = Sender { limit: Some(0), ..from(1) };
        let mut ask = |ms, fingerprint| {
            gate.on_arrival(at(ms), 0);
            gate.on_new_from(at(ms), &sender, Bucket::Session, 0, Some(fingerprint), true)
        };
        ask(0, 1);
        ask(0, 2);
        assert_eq!(ask(0, 3), Verdict::Reject(Reason::SourceLimit));
        let again = ask(500, 3);
        match remembered {
            None => assert!(matches!(again, Verdict::Admit(_))),
            Some(_) => assert_eq!(again, Verdict::Absorb),
        }
        let flow = flow(&gate);
        assert_eq!((flow.offered, flow.rejected), (3 + u64::from(remembered.is_none()), 1));
    }
}

fn with_priority(cps: f64, given: &[(&str, f64)]) -> Gate {
    let sources = SourceSettings { fair: true, priority_cps: cps, ..SourceSettings::default() };
    Gate::new(Settings { sources, ..settings(given) }, Seed(1), 0)
}

#[test]
fn priority_passes_a_closed_gate_up_to_its_cap() {
    let mut gate = with_priority(3.0, &[("share", 0.0), ("waiting_max", 0.0)]);
    let urgent = Sender { has_priority: true, ..from(1) };
    let mut ask = |ms| {
        gate.on_arrival(at(ms), 1000);
        gate.on_new_from(at(ms), &urgent, Bucket::Session, 0, None, false)
    };
    for _ in 0..3 {
        let Verdict::Admit(ticket) = ask(0) else { panic!("rejected") };
        assert_eq!(ticket.bucket(), Bucket::Priority);
    }
    assert_eq!(ask(0), Verdict::Reject(Reason::QueueFull), "beyond the cap it is ordinary");
    assert!(matches!(ask(334), Verdict::Admit(_)));
    let flows = Bucket::ALL.map(|bucket| *gate.signals().flow(bucket));
    assert_eq!(flows.map(|flow| flow.offered), [1, 0, 4]);
    assert_eq!(flows.map(|flow| flow.admitted), [0, 0, 4]);
    assert_eq!(gate.share(Bucket::Priority), 1.0);
}

/// A call whose request is challenged sends the request again. The law has decided on the first
/// request, and must not decide twice on one call.
#[test]
fn the_law_does_not_decide_about_the_answer_to_a_challenge() {
    let allowances = [Allowance::Fraction(0.0), Allowance::Window(0.0), Allowance::Closed];
    for (allowance, fair) in allowances.into_iter().zip([false, true, false]) {
        let mut gate = if fair { fair_gate(&[]) } else { gate(&[]) };
        gate.on_arrival(at(0), 0);
        gate.control.admit_of_all(allowance);
        let answer = Sender { is_admitted: true, is_late: true, ..from(1) };
        for bucket in [Bucket::Session, Bucket::Single] {
            let mut ask = |sender: &Sender| gate.on_new_from(at(0), sender, bucket, 0, None, true);
            assert_eq!(ask(&from(1)), Verdict::Reject(Reason::Law), "{allowance:?}");
            assert!(matches!(ask(&answer), Verdict::Admit(_)), "{allowance:?}");
        }
        // The request with credentials needs room in the queue like any other work.
        let verdict = gate.on_new_from(at(0), &answer, Bucket::Session, 0, None, false);
        assert_eq!(verdict, Verdict::Reject(Reason::QueueFull));
    }
}

/// Two shards have a gate each. The kernel may give all calls of a source to one shard, so its gate
/// must be able to use the whole cap.
#[test]
fn gates_share_the_whole_cap() {
    let cap = PriorityCap::default();
    let gate = || with_priority(3.0, &[("share", 0.0)]).sharing_priority(cap.clone());
    let mut gates = [gate(), gate()];
    let urgent = Sender { has_priority: true, ..from(1) };
    let mut admits =
        |gate: usize, ms| matches!(asks(&mut gates[gate], at(ms), &urgent, 0), Verdict::Admit(_));
    assert_eq!([0, 0, 1, 0, 1].map(|gate| admits(gate, 0)), [true, true, true, false, false]);
    assert_eq!([1, 0].map(|gate| admits(gate, 334)), [true, false]);
}

#[test]
fn a_repetition_takes_nothing_of_the_cap() {
    let mut gate = with_priority(1.0, &[("share", 0.0)]);
    let urgent = Sender { has_priority: true, ..from(1) };
    let mut ask = |call| {
        gate.on_arrival(at(0), 0);
        gate.on_new_from(at(0), &urgent, Bucket::Session, 0, Some(call), true)
    };
    let Verdict::Admit(ticket) = ask(1) else { panic!("rejected") };
    assert_eq!([ask(1), ask(1)], [Verdict::Absorb, Verdict::Absorb]);
    assert_eq!(gate.on_taken(at(0), ticket), None);
    assert_eq!(gate.signals().flow(Bucket::Priority).repeated, 2);
    assert_eq!(gate.signals().in_progress(Bucket::Priority), 0);
}

#[test]
fn priority_is_neither_paced_nor_stale_nor_ranked() {
    let mut gate = with_priority(1.0, &[("rate", 1.0)]);
    let urgent = Sender { has_priority: true, ..from(1) };
    let Verdict::Admit(ticket) = asks(&mut gate, at(0), &urgent, 0) else { panic!("rejected") };
    gate.control.queue.wait_max = Some(MS);
    gate.control.rank_floor = 1.0;
    gate.on_service(at(1000), Some(&ticket), MS * 1000, 0);
    assert_eq!(gate.on_taken(at(1000), ticket), None);
    assert_eq!(gate.pacer.credit(), 0.0);
}

#[test]
fn without_a_cap_nothing_has_priority() {
    let mut gate = with_priority(0.0, &[("share", 0.0)]);
    let urgent = Sender { has_priority: true, ..from(1) };
    assert_eq!(asks(&mut gate, at(0), &urgent, 0), Verdict::Reject(Reason::Law));
}

#[test]
fn priority_is_under_its_sources_limit_and_ends_when_the_server_stops() {
    let limit =
        Limit { rate: 1.0, burst: 1, per: Per::Source, remembered: Some(Decision::Rejected) };
    let sources =
        SourceSettings { limits: vec![limit], priority_cps: 100.0, ..SourceSettings::default() };
    let mut gate = Gate::new(Settings { sources, ..settings(&[]) }, Seed(1), 0);
    let urgent = Sender { has_priority: true, limit: Some(0), ..from(1) };
    assert!(matches!(asks(&mut gate, at(0), &urgent, 0), Verdict::Admit(_)));
    assert_eq!(asks(&mut gate, at(0), &urgent, 0), Verdict::Reject(Reason::SourceLimit));
    gate.stop();
    assert_eq!(asks(&mut gate, at(5000), &urgent, 0), Verdict::Reject(Reason::Stopping));
}

#[test]
fn work_without_headroom_takes_no_admission() {
    let mut gate = with_priority(3.0, &[("rate", 1.0)]);
    let ask = |gate: &mut Gate, headroom, has_priority, call| {
        let sender = Sender { headroom, has_priority, ..from(1) };
        gate.on_arrival(at(0), 0);
        gate.on_new_from(at(0), &sender, Bucket::Session, 0, Some(call), true)
    };
    let full = Verdict::Reject(Reason::PoolFull);
    assert_eq!(ask(&mut gate, Headroom::None, false, 1), full);
    assert_eq!(ask(&mut gate, Headroom::None, true, 2), full);
    assert_eq!(ask(&mut gate, Headroom::Priority, false, 3), full);
    let admitted = ask(&mut gate, Headroom::Priority, true, 4);
    assert!(matches!(admitted, Verdict::Admit(ticket) if ticket.bucket() == Bucket::Priority));
    assert!(matches!(ask(&mut gate, Headroom::Any, false, 5), Verdict::Admit(_)), "not spent");
    assert_eq!(ask(&mut gate, Headroom::Any, false, 1), Verdict::Reject(Reason::Again));
    let flow = gate.signals().flow(Bucket::Session);
    assert_eq!((flow.offered, flow.rejected, flow.admitted), (3, 2, 1));
    assert_eq!(flow.limited, 2);
    // Each of these rejections, and each repetition, counts in `messages_rejected` and in
    // `messages_full`.
    gate.on_full(at(1), 5);
    assert_eq!(ask(&mut gate, Headroom::Any, false, 5), Verdict::Reject(Reason::Again));
    assert_eq!((gate.signals().messages_rejected, gate.signals().messages_full), (5, 5));
    gate.stop();
    ask(&mut gate, Headroom::Any, false, 6);
    assert_eq!((gate.signals().messages_rejected, gate.signals().messages_full), (6, 5));
}
