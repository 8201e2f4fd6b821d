//! Tests of windows, which limit the pieces of work that wait for service.

use super::*;
use crate::registry;

// If work is judged at arrival, the window counts the pieces that wait. If work is judged when it
// is taken, the window counts the pieces that still wait behind it.
#[test]
fn a_window_counts_work_in_progress() {
    for decide in [Decide::Arrival, Decide::Service] {
        let mut gate = Gate::new(Settings { decide, ..settings(&[]) }, Seed(1), 0);
        gate.on_arrival(at(0), 0);
        gate.control.admit_of_all(Allowance::Window(2.0));
        assert_eq!(gate.share(Bucket::Session), 1.0);
        let mut tickets: Vec<_> = (1..=4)
            .filter_map(|call| match gate.on_new(at(0), Bucket::Session, 0, Some(call), true) {
                Verdict::Admit(ticket) => Some(ticket),
                _ => None,
            })
            .collect();
        assert_eq!(gate.share(Bucket::Session), 0.0);
        assert!(gate.is_rejecting());
        let entered = tickets.len() as u64;
        assert_eq!(gate.signals().in_progress(Bucket::Session), entered);
        tickets.reverse();
        let rejected: Vec<_> =
            std::iter::from_fn(|| Some(gate.on_taken(at(1), tickets.pop()?).is_some())).collect();
        match decide {
            Decide::Arrival => assert_eq!(rejected, [false, false]),
            Decide::Service => assert_eq!(rejected, [true, true, false, false]),
        }
        assert_eq!(gate.signals().in_progress(Bucket::Session), 0);
    }
}

// In one queue of all messages, it is unknown which ones are new until they are taken.
#[test]
fn decided_at_service_a_window_counts_the_new_part_of_the_unread_messages() {
    let mut gate = Gate::new(Settings { decide: Decide::Service, ..settings(&[]) }, Seed(1), 0);
    gate.on_arrival(at(0), 0);
    gate.control.admit_of_all(Allowance::Window(3.0));
    gate.control.queue.waiting_max = 1000;
    // With the second call below, one message in five is new.
    (0..8).for_each(|_| assert!(gate.on_ongoing(at(0), BYE)));
    for (call, unread, reason) in [(1, 27, Some(Reason::Law)), (2, 10, None)] {
        let Verdict::Admit(ticket) = gate.on_new(at(0), Bucket::Session, 0, Some(call), true)
        else {
            panic!("it is judged later");
        };
        gate.on_backlog(Backlog { sessions: 0, others: 0, unread });
        gate.on_service(at(0), Some(&ticket), MS, unread);
        gate.control.queue.waiting_max = 1000;
        assert_eq!(gate.on_taken(at(0), ticket), reason, "{unread} unread messages behind it");
    }
}

/// Paper 002 §3.1, equation 1: a server of 100 calls/s may let 20 calls wait, which takes 200 ms.
/// Five new calls and 60 messages of existing calls count as 15 calls.
#[test]
fn in_one_queue_of_all_messages_the_windows_of_002_admit_calls_and_not_messages() {
    // win-disc also admits the calls that can be served in the interval.
    for (law, expected) in [("win-cont", 5 + 5), ("win-disc", 5 + 5 + 20)] {
        let law = registry::find(law).unwrap().values(&[]).unwrap();
        let mut gate = Gate::new(Settings::new(law), Seed(1), 0).with_room(500);
        let mut admitted = 0;
        let mut arrive = |gate: &mut Gate, ms, call: u64| {
            let others = 60;
            gate.on_backlog(Backlog { sessions: admitted as usize, others, unread: 0 });
            gate.on_arrival(at(ms), admitted as usize + others);
            let verdict = gate.on_new(at(ms), Bucket::Session, 0, Some(call << 40), true);
            admitted += u64::from(matches!(verdict, Verdict::Admit(_)));
            admitted
        };
        // Before the first tick everything is admitted.
        (0..5).for_each(|call| assert_eq!(arrive(&mut gate, 0, call), call + 1));
        gate.on_backlog(Backlog { sessions: 5, others: 60, unread: 0 });
        gate.handle_timeout(at(200), 65);
        let admitted = (5..55).map(|call| arrive(&mut gate, 200, call)).last();
        assert_eq!(admitted, Some(expected), "{}", gate.law().entry().name);
        assert!(gate.is_rejecting());
    }
}

/// A piece of work whose service begins no longer waits. If the law counted this piece, the window
/// would admit one more piece at each service, and never reject any.
#[test]
fn the_piece_in_service_is_not_in_the_window() {
    for (decide, expected) in [(Decide::Arrival, None), (Decide::Service, Some(Reason::Law))] {
        let law = registry::find("win-cont").unwrap().values(&[("bound", 10.0)]).unwrap();
        let mut gate = Gate::new(Settings { decide, ..Settings::new(law) }, Seed(1), 0);
        let mut tickets: Vec<_> =
            (0..30).map(|call| enters(&mut gate, at(0), Some(call))).collect();
        let ticket = tickets.pop().unwrap();
        gate.on_backlog(Backlog { sessions: 29, others: 0, unread: 0 });
        gate.on_service(at(0), Some(&ticket), MS, 29);
        assert_eq!(gate.control().admit(Bucket::Session), Allowance::Window(29.0), "{decide:?}");
        assert_eq!(gate.signals().in_progress(Bucket::Session), 30, "until it is taken");
        assert_eq!(gate.on_taken(at(0), ticket), expected, "{decide:?}");
        assert_eq!(gate.signals().in_progress(Bucket::Session), 29);
    }
}
