//! Tests of `tide` in a process that does not always run. It is preempted at its start or after a
//! time without calls, or it is stopped for seconds.

use std::time::Duration;

use tidegate_control::registry;
use tidegate_world::Seed;

use crate::plant::{Costs, Outcome, Setup, Spread, run};
use crate::tide::{FAST, ms, of_bound, offered};

/// The costs of a server of 1,000 calls a second.
const MEDIUM: Costs = Costs {
    look: Duration::from_micros(20),
    serve: Duration::from_micros(980),
    reject: Duration::from_micros(20),
    spread: Spread::Exponential,
};

/// Servers, and loads far below their capacities.
const LIGHT: [(Costs, f64); 5] =
    [(MEDIUM, 0.1), (MEDIUM, 0.2), (FAST, 0.02), (FAST, 0.1), (FAST, 0.2)];

/// Returns `count` pauses of the length `length_ms`. The first begins at `from_ms`, and then one
/// begins every `period_ms`.
fn pauses(from_ms: u64, count: u64, period_ms: u64, length_ms: u64) -> Vec<(Duration, Duration)> {
    (0..count).map(|n| (ms(from_ms + n * period_ms), ms(length_ms))).collect()
}

/// Returns four series of pauses, such as a process has on a busy machine. Each series takes about
/// a second.
fn preemptions(from_ms: u64) -> [Vec<(Duration, Duration)>; 4] {
    [(20, 40, 20), (8, 120, 50), (5, 200, 100), (4, 300, 200)]
        .map(|(count, period_ms, length_ms)| pauses(from_ms, count, period_ms, length_ms))
}

/// Runs `setup` with five seeds.
fn with_seeds(setup: &Setup) -> impl Iterator<Item = Outcome> {
    (1..=5).map(|seed| run(&Setup { seed: Seed(seed), ..setup.clone() }))
}

#[track_caller]
fn assert_none_rejected(setup: &Setup) {
    for outcome in with_seeds(setup) {
        let (rejected, began) = (&outcome.rejected, outcome.began.len());
        let capacity_cps = setup.costs.capacity_cps();
        let Setup { pauses, profile, .. } = setup;
        assert!(
            rejected.is_empty(),
            "{} of {began} calls at {profile:?} of {capacity_cps} calls/s, pauses {pauses:?}: \
             {rejected:?}",
            rejected.len()
        );
    }
}

#[test]
fn a_process_that_is_preempted_at_its_start_rejects_no_call() {
    for (costs, load) in LIGHT {
        for pauses in preemptions(0) {
            assert_none_rejected(&Setup { pauses, ..offered("tide", costs, 1, &[(3.0, load)]) });
        }
    }
}

/// The calls of the first 0.3 s wait in the receive buffer.
#[test]
fn a_process_that_is_late_and_then_preempted_rejects_no_call() {
    let pauses = [(0, 300), (305, 100), (410, 20), (440, 20), (470, 50), (550, 200)]
        .map(|(from, length)| (ms(from), ms(length)))
        .to_vec();
    for (costs, load) in LIGHT.into_iter().filter(|(_, load)| *load <= 0.1) {
        let setup = offered("tide", costs, 1, &[(3.0, load)]);
        assert_none_rejected(&Setup { pauses: pauses.clone(), ..setup });
    }
}

#[test]
fn a_process_that_is_preempted_after_hours_without_calls_rejects_no_call() {
    for (costs, load) in LIGHT {
        let profile = [(2.0, load), (7200.0, 0.0), (3.0, load)];
        for pauses in preemptions(7_202_000) {
            assert_none_rejected(&Setup { pauses, ..offered("tide", costs, 1, &profile) });
        }
    }
}

#[test]
fn a_process_that_is_preempted_after_a_switch_of_laws_rejects_no_call() {
    let tide = registry::find("tide").unwrap().defaults();
    for (costs, load) in LIGHT {
        for pauses in preemptions(1000) {
            let setup = offered("none", costs, 1, &[(4.0, load)]);
            assert_none_rejected(&Setup { pauses, switch: Some((ms(1000), tide)), ..setup });
        }
    }
}

/// The calls that begin during a pause are 100 ms of work.
#[test]
fn a_process_that_was_stopped_serves_all_calls_that_fit_in_the_queue() {
    for costs in [MEDIUM, FAST] {
        for (stop_ms, load) in [(1000, 0.1), (2000, 0.05), (5000, 0.02)] {
            let setup = offered("tide", costs, 1, &[(12.0, load)]);
            assert_none_rejected(&Setup { pauses: pauses(5000, 1, 0, stop_ms), ..setup });
        }
    }
}

/// The calls that begin during a pause are more work than fits in the queue.
#[test]
fn a_process_that_was_stopped_for_long_rejects_no_later_call() {
    for costs in [MEDIUM, FAST] {
        for stop_ms in [1000, 2000, 5000] {
            let setup = offered("tide", costs, 1, &[(12.0, 0.2)]);
            let setup = Setup { pauses: pauses(5000, 1, 0, stop_ms), ..setup };
            for outcome in with_seeds(&setup) {
                let later_s = 5.3 + stop_ms as f64 / 1000.0;
                assert_eq!(outcome.rejected_share(0.0, 5.0), 0.0);
                assert_eq!(outcome.rejected_share(later_s, 12.0), 0.0, "{stop_ms} ms");
            }
        }
    }
}

/// The law limits nothing in the first tenth of a second. If it admits too many calls then, the
/// excess is rejected when its turn comes.
#[test]
fn a_flood_at_the_start_is_under_control_within_half_a_second() {
    for costs in [MEDIUM, FAST] {
        for load in [2.0, 5.0, 10.0] {
            for outcome in with_seeds(&offered("tide", costs, 1, &[(3.0, load)])) {
                let delay_s = outcome.delay_p99_s(0.0, 0.5);
                assert!(delay_s <= 0.25, "{delay_s} s at {load}");
                let delay_s = outcome.delay_p99_s(0.5, 2.5);
                assert!(delay_s <= 0.1, "{delay_s} s at {load} later");
                let kept = of_bound(&outcome, costs, 0.5, 2.5);
                assert!(kept >= 0.95, "{kept} of the bound at {load}");
            }
        }
    }
}

/// The process has the processor for a third to half of the first second. The messages that it
/// could not read in this time, and their repetitions, keep it busy for up to two seconds more.
#[test]
fn a_flood_at_the_start_of_a_preempted_process_is_under_control_when_its_backlog_was_read() {
    for costs in [MEDIUM, FAST] {
        for pauses in preemptions(0) {
            let setup = Setup { pauses, ..offered("tide", costs, 1, &[(6.0, 10.0)]) };
            for outcome in with_seeds(&setup) {
                let delay_s = outcome.delay_p99_s(3.6, 5.5);
                assert!(delay_s <= 0.1, "{delay_s} s");
                let kept = of_bound(&outcome, costs, 3.6, 5.5);
                assert!(kept >= 0.9, "{kept} of the bound");
            }
        }
    }
}
