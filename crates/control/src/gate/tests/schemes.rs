//! Tests of the work that each class scheme sheds, and of the work that a law exempts.

use super::*;

fn schemed(scheme: Scheme, share: f64) -> Gate {
    let mut gate = Gate::new(Settings { scheme, ..settings(&[]) }, Seed(1), 0);
    gate.on_arrival(at(0), 0);
    gate.control.admit_of_all(Allowance::Fraction(share));
    gate
}

/// Returns the number of messages, of ten messages of a class, that are admitted.
fn of_ten(gate: &mut Gate, bucket: Option<Bucket>, class: u8) -> usize {
    let mut admitted = || match bucket {
        None => gate.on_ongoing(at(0), class),
        Some(bucket) => {
            let verdict = gate.on_new(at(0), bucket, class, None, true);
            matches!(verdict, Verdict::Admit(_))
        }
    };
    (0..10).filter(|_| admitted()).count()
}

const SESSION: Option<Bucket> = Some(Bucket::Session);

#[test]
fn by_default_only_new_work_is_shed() {
    let mut gate = schemed(Scheme::Simplified { scaled: false }, 0.0);
    assert_eq!((of_ten(&mut gate, None, BYE), of_ten(&mut gate, SESSION, INVITE)), (10, 0));
    assert_eq!(gate.signals().messages_rejected, 10);
    let shares = [(None, BYE), (SESSION, INVITE)].map(|(b, c)| gate.share_of_class(b, c));
    assert_eq!(shares, [1.0, 0.0]);
}

#[test]
fn scaled_new_work_sheds_as_much_as_all_messages_would() {
    let mut gate = schemed(Scheme::Simplified { scaled: true }, 1.0);
    of_ten(&mut gate, SESSION, INVITE);
    for _ in 0..3 {
        of_ten(&mut gate, None, BYE);
    }
    // One message in four is new: a tenth of all messages is four tenths of the new ones.
    gate.control.admit_of_all(Allowance::Fraction(0.9));
    assert!((gate.share_of_class(SESSION, INVITE) - 0.6).abs() < 1e-9);
    assert_eq!(gate.share_of_class(None, BYE), 1.0);
}

// 000 §6.6: "Single class overload controls treat all incoming packets equally".
#[test]
fn in_a_single_class_all_messages_share_one_throttle() {
    let mut gate = schemed(Scheme::Single, 0.5);
    let pairs: Vec<_> = (0..3)
        .map(|_| {
            let new = gate.on_new(at(0), Bucket::Session, INVITE, None, true);
            (matches!(new, Verdict::Admit(_)), gate.on_ongoing(at(0), BYE))
        })
        .collect();
    // If each class had a throttle of its own, the first message of both classes would be rejected.
    assert_eq!(pairs, [(false, true); 3]);
    assert_eq!(gate.signals().messages_rejected, 3);
    assert_eq!(gate.share_of_class(None, BYE), 0.5);
}

#[test]
fn in_several_classes_each_is_shed_by_a_throttle_of_its_own() {
    let order = vec![BYE, INVITE];
    let scheme = Scheme::Multi(ShedOrder { order, weight: Weight::Count });
    let mut gate = schemed(scheme, 1.0);
    assert_eq!(of_ten(&mut gate, SESSION, INVITE), 10);
    assert_eq!(of_ten(&mut gate, None, BYE), 10);
    for (share, bye, invite) in [(0.75, 0.5, 1.0), (0.5, 0.0, 1.0), (0.25, 0.0, 0.5)] {
        gate.control.admit_of_all(Allowance::Fraction(share));
        let shares = [(None, BYE), (SESSION, INVITE)].map(|(b, c)| gate.share_of_class(b, c));
        assert_eq!(shares, [bye, invite], "{share}");
    }
    // With one throttle for both classes, some would pass.
    assert!((0..10).all(|_| !gate.on_ongoing(at(0), BYE)));
    assert!(gate.on_ongoing(at(0), 0), "never what is not in the order");
    gate.stop();
    assert!(gate.on_ongoing(at(0), BYE), "what was begun is finished");
}

/// A law may also limit the queue, the time in the queue and the rank of sessions.
#[test]
fn the_limits_of_a_law_apply_only_to_classes_that_are_shed() {
    let limits: [fn(&mut Control); 3] = [
        |control| control.rank_floor = 1.0,
        |control| control.queue.waiting_max = 0,
        |control| control.queue.wait_max = Some(Duration::ZERO),
    ];
    for (sheds, served_of_ten) in [(BYE, 10), (INVITE, 0)] {
        for decide in [Decide::Arrival, Decide::Service] {
            for limit in limits {
                let order = ShedOrder { order: vec![sheds], weight: Weight::Count };
                let scheme = Scheme::Multi(order);
                let mut gate = Gate::new(Settings { scheme, decide, ..settings(&[]) }, Seed(1), 0);
                gate.on_arrival(at(0), 0);
                limit(&mut gate.control);
                gate.signals.service.sojourn = MS;
                let mut is_served =
                    |call| match gate.on_new(at(0), Bucket::Session, INVITE, Some(call), true) {
                        Verdict::Admit(ticket) => gate.on_taken(at(0), ticket).is_none(),
                        _ => false,
                    };
                let served = (0..10).filter(|&call| is_served(call)).count();
                assert_eq!(served, served_of_ten, "{decide:?}");
            }
        }
    }
}

// For a throttle that measures time, a share refers to the rate at which the class itself arrives.
#[test]
fn the_throttle_of_a_class_measures_that_class() {
    let scheme = Scheme::Multi(ShedOrder { order: vec![BYE, INVITE], weight: Weight::Count });
    let throttle = ThrottleKind::LeakyBucket;
    let mut gate = Gate::new(Settings { scheme, throttle, ..settings(&[]) }, Seed(1), 0);
    gate.on_arrival(at(0), 0);
    let mut passed = 0;
    for ms in (0..20_000).step_by(10) {
        // BYEs are shed first, and one message in ten is a BYE. So admitting 0.95 of all messages
        // means admitting half of the BYEs.
        gate.control.admit_of_all(Allowance::Fraction(0.95));
        (0..9).for_each(|_| {
            gate.on_new(at(ms), Bucket::Session, INVITE, None, true);
        });
        passed += u32::from(gate.on_ongoing(at(ms), BYE));
    }
    assert!((900..1150).contains(&passed), "{passed} of 2000");
}

// A rate applies to new sessions: the same share of all messages is admitted.
#[test]
fn a_scheme_of_all_messages_converts_a_rate_to_a_share() {
    let mut gate = Gate::new(Settings { scheme: Scheme::Single, ..settings(&[]) }, Seed(1), 0);
    gate.on_arrival(at(0), 0);
    for ms in (0..1000).step_by(10) {
        gate.on_new(at(ms), Bucket::Session, INVITE, None, true);
        (0..5).for_each(|_| assert!(gate.on_ongoing(at(ms), BYE)));
    }
    gate.control.admit_of_all(Allowance::Rate(25.0));
    assert!((gate.share_of_class(None, BYE) - 0.25).abs() < 0.01);
    gate.control.admit_of_all(Allowance::Closed);
    assert!(!gate.on_ongoing(at(1000), BYE));
}

// 000 §6.3: the packet at which a measurement is taken is always accepted.
#[test]
fn the_message_that_a_law_exempts_passes_and_no_other() {
    for decide in [Decide::Arrival, Decide::Service] {
        let mut gate = Gate::new(Settings { decide, ..settings(&[]) }, Seed(1), 0);
        gate.on_arrival(at(0), 0);
        gate.control.admit_of_all(Allowance::Closed);
        let mut passes = |exempt| {
            gate.on_arrival(at(0), 0);
            gate.control.admit_next = exempt;
            match gate.on_new(at(0), Bucket::Session, 0, None, true) {
                Verdict::Admit(ticket) => gate.on_taken(at(0), ticket).is_none(),
                _ => false,
            }
        };
        assert_eq!([true, false, true].map(&mut passes), [true, false, true], "{decide:?}");
    }
}

// If an exemption outlived its message, a call would pass in place of a measured BYE.
#[test]
fn an_exemption_is_gone_with_its_message() {
    let mut gate = closed();
    gate.on_arrival(at(0), 0);
    gate.control.admit_next = true;
    assert!(gate.on_ongoing(at(0), BYE));
    assert!(matches!(gate.on_new(at(0), Bucket::Session, 0, None, true), Verdict::Reject(_)));
    gate.control.admit_next = true;
    assert!(matches!(arrives(&mut gate, at(1), None, 0), Verdict::Reject(_)));
    let mut single = schemed(Scheme::Single, 0.0);
    single.control.admit_next = true;
    assert_eq!([0; 2].map(|_| single.on_ongoing(at(0), BYE)), [true, false]);
}
