//! Tests that the gate counts each piece of work once, with random sequences of events.

use proptest::prelude::*;

use super::*;

/// An event at a gate.
#[derive(Clone, Debug)]
enum Step {
    Arrives {
        call: Option<u64>,
        single: bool,
        room: bool,
        /// True if another gate has counted the piece.
        handed_off: bool,
    },
    /// A piece of work is taken from the queue after this wait, in milliseconds.
    Taken(u64),
    /// This time passes, in milliseconds.
    Passes(u64),
    Law(f64),
    WaitMax(Option<u64>),
    Floor(f64),
    Stops,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let call = prop_oneof![8 => (0u64..12).prop_map(|call| Some(call << 60)), 1 => Just(None)];
    let arrives =
        (call, any::<bool>(), prop::bool::weighted(0.9), prop::bool::weighted(0.3)).prop_map(
            |(call, single, room, handed_off)| Step::Arrives { call, single, room, handed_off },
        );
    let step = prop_oneof![
        12 => arrives,
        8 => (0u64..20_000).prop_map(Step::Taken),
        4 => (0u64..40_000).prop_map(Step::Passes),
        2 => (0.0..=1.0f64).prop_map(Step::Law),
        1 => prop::option::of(0u64..20_000).prop_map(Step::WaitMax),
        1 => (0.0..0.5f64).prop_map(Step::Floor),
        1 => Just(Step::Stops),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// With any events, each piece of work is counted once: as admitted, rejected or undecided.
    #[test]
    fn every_piece_of_work_is_accounted_for_once(
        steps in steps(), at_service in any::<bool>(), sticky in any::<bool>(),
        memory_max in 0usize..20, rate in 0.0..200.0f64,
    ) {
        let decide = if at_service { Decide::Service } else { Decide::Arrival };
        let law = [("tick", 10.0), ("rate", rate)];
        let settings = Settings { decide, sticky, memory_max, ..settings(&law) };
        let mut gate = Gate::new(settings, Seed(1), 0);
        let mut now = Timestamp::ZERO;
        let mut queue = Vec::new();
        let (mut messages, mut done, mut stale) = (0, 0, 0);
        let (mut rejected, mut rejected_late, mut rejected_again) = (0, 0, 0);
        for step in steps {
            match step {
                Step::Arrives { call, single, room, handed_off } => {
                    messages += 1;
                    let bucket = if single { Bucket::Single } else { Bucket::Session };
                    gate.on_arrival(now, queue.len());
                    let sender = Sender { is_handed_off: handed_off, ..Sender::default() };
                    match gate.on_new_from(now, &sender, bucket, 0, call, room) {
                        Verdict::Admit(ticket) => queue.push(ticket),
                        Verdict::Absorb => {}
                        Verdict::Reject(Reason::Again) => rejected_again += 1,
                        Verdict::Reject(_) => rejected += 1,
                    }
                }
                Step::Taken(waited_ms) if gate.may_release() => {
                    let Some(ticket) = queue.pop() else { continue };
                    let again = ticket.again;
                    gate.signals.service.sojourn = MS * waited_ms as u32;
                    match gate.on_taken(now, ticket) {
                        None => done += u64::from(!again),
                        Some(Reason::Stale) if !at_service => stale += 1,
                        Some(_) => (rejected, rejected_late) = (rejected + 1, rejected_late + 1),
                    }
                }
                Step::Taken(_) => {}
                Step::Passes(ms) => {
                    now = now + MS * ms as u32;
                    gate.handle_timeout(now, queue.len());
                }
                Step::Law(share) => gate.control.admit_of_all(Allowance::Fraction(share)),
                Step::WaitMax(ms) => {
                    gate.control.queue.wait_max = ms.map(Duration::from_millis);
                }
                Step::Floor(floor) => gate.control.rank_floor = floor,
                Step::Stops => gate.stop(),
            }
            let flows = Bucket::ALL.map(|bucket| *gate.signals().flow(bucket));
            let sum = |of: fn(&Flow) -> u64| flows.iter().map(of).sum::<u64>();
            let waiting = queue.iter().filter(|ticket| !ticket.again).count() as u64;
            let undecided = if at_service { waiting } else { 0 };
            prop_assert_eq!(sum(|f| f.arrived), messages);
            prop_assert_eq!(sum(|f| f.arrived), sum(|f| f.offered) + sum(|f| f.repeated));
            prop_assert_eq!(sum(|f| f.offered), sum(|f| f.admitted) + sum(|f| f.rejected) + undecided);
            prop_assert_eq!(sum(|f| f.rejected), rejected);
            prop_assert_eq!(sum(|f| f.taken), done);
            prop_assert_eq!(sum(|f| f.entered), sum(|f| f.taken) + waiting + rejected_late + stale);
            prop_assert_eq!(sum(|f| f.stale), stale);
            prop_assert_eq!(gate.signals().messages_rejected, rejected + stale + rejected_again);
            // The counts for the sum over all gates contain no piece that another gate has counted.
            let own = Bucket::ALL.map(|bucket| gate.own_flow(bucket));
            let own = |of: fn(&Flow) -> u64| own.iter().map(of).sum::<u64>();
            let is_own = |ticket: &&Ticket| !ticket.again && !ticket.is_handed_off;
            let undecided = if at_service { queue.iter().filter(is_own).count() as u64 } else { 0 };
            prop_assert_eq!(own(|f| f.arrived), own(|f| f.offered) + own(|f| f.repeated));
            prop_assert_eq!(own(|f| f.offered), own(|f| f.admitted) + own(|f| f.rejected) + undecided);
            let all_rejected = sum(|f| f.rejected) + sum(|f| f.stale);
            prop_assert_eq!(own(|f| f.rejected) + own(|f| f.stale), all_rejected);
            let in_progress = Bucket::ALL.map(|bucket| gate.signals().in_progress(bucket));
            prop_assert_eq!(in_progress.iter().sum::<u64>(), waiting);
            prop_assert!(gate.memory().len() <= 2 * memory_max);
        }
    }
}

/// A call whose phone another shard has. Each shard has its own gate.
#[test]
fn a_call_that_is_handed_off_counts_once_in_the_sum_over_the_gates() {
    for decide in [Decide::Arrival, Decide::Service] {
        for admits in [true, false] {
            let mut gates =
                [1, 2].map(|_| Gate::new(Settings { decide, ..settings(&[]) }, Seed(1), 0));
            for (gate, is_handed_off) in gates.iter_mut().zip([false, true]) {
                gate.on_arrival(at(0), 0);
                if is_handed_off && !admits {
                    gate.stop();
                }
                let sender =
                    Sender { is_handed_off, is_admitted: is_handed_off, ..Sender::default() };
                if let Verdict::Admit(ticket) =
                    gate.on_new_from(at(0), &sender, Bucket::Session, 0, CALL, true)
                {
                    assert_eq!(gate.on_taken(at(0), ticket), None);
                }
            }
            let sum = |of: fn(&Flow) -> u64| -> u64 {
                gates.iter().map(|gate| of(&gate.own_flow(Bucket::Session))).sum()
            };
            assert_eq!((sum(|f| f.arrived), sum(|f| f.offered), sum(|f| f.admitted)), (1, 1, 1));
            // The second gate has rejected work after the first one had admitted it.
            assert_eq!((sum(|f| f.rejected), sum(|f| f.stale)), (0, u64::from(!admits)));
            assert_eq!(flow(&gates[1]).offered, 1, "a law sees all work of its shard");
        }
    }
}

// Rejections that are caused by the queue are counted separately from those by the law, by limits
// and by back ends.
#[test]
fn work_lost_by_the_queue_has_a_count_of_its_own() {
    for decide in [Decide::Arrival, Decide::Service] {
        let mut gate = Gate::new(Settings { decide, ..settings(&[]) }, Seed(1), 0);
        let lost = |gate: &Gate| flow(gate).lost;
        gate.on_arrival(at(0), 0);
        gate.on_new(at(0), Bucket::Session, 0, Some(1), false);
        assert_eq!(lost(&gate), 1, "no room");
        let ticket = enters(&mut gate, at(0), Some(2));
        gate.control.queue.wait_max = Some(MS * 10);
        gate.on_service(at(11), Some(&ticket), MS * 11, 0);
        assert_eq!(gate.on_taken(at(11), ticket), Some(Reason::Stale));
        assert_eq!(lost(&gate), 2, "waited too long");
        gate.stop();
        assert_eq!(arrives(&mut gate, at(12), Some(3), 0), Verdict::Reject(Reason::Stopping));
        assert_eq!(lost(&gate), 2);
    }
}
