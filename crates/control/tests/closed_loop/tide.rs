//! Tests of `tide`: the part of the bound that its goodput reaches, the time until it reaches this
//! part, and its goodput under conditions that no law expects.
//!
//! `disturbances.txt` compares it with three other laws under these conditions. `TIDEGATE_BLESS=1`
//! rewrites the file. Read the difference before you commit it.

use std::fmt::Write;
use std::time::Duration;

use tidegate_control::{Decide, bound};
use tidegate_world::Seed;

use crate::curves::assert_committed;
use crate::plant::{Costs, Disturbance, Outcome, Setup, Spread, run};
use crate::{COSTS, setup};

/// The costs of a server of 5,000 calls a second. A rejection costs 0.04 of a call.
pub const FAST: Costs = Costs {
    look: Duration::from_micros(4),
    serve: Duration::from_micros(196),
    reject: Duration::from_micros(4),
    spread: Spread::Exponential,
};

/// The costs of an emulated server of the laboratory: 200 calls a second, all with the same cost.
const EMULATED: Costs = Costs {
    look: Duration::from_micros(200),
    serve: Duration::from_micros(4800),
    reject: Duration::from_micros(200),
    spread: Spread::Constant,
};

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn offered(law: &str, costs: Costs, seed: u64, profile: &[(f64, f64)]) -> Setup {
    let setup = setup(law, &[], Decide::Arrival, profile);
    Setup { costs, seed: Seed(seed), queue_max: 4000, ..setup }
}

/// Returns the goodput of the calls that began in this time, as a share of the bound.
pub fn of_bound(outcome: &Outcome, costs: Costs, from_s: f64, to_s: f64) -> f64 {
    let [goodput, offered] = [outcome.goodput_cps(from_s, to_s), outcome.offered_cps(from_s, to_s)];
    let capacity = costs.capacity_cps();
    goodput / capacity / bound::goodput(offered / capacity, costs.ratio())
}

#[test]
fn tide_keeps_97_percent_of_the_bound_at_every_load() {
    let servers = [(COSTS, 0.17, 60.0), (FAST, 0.1, 12.0), (EMULATED, 0.16, 60.0)];
    for (costs, delay_max_s, length_s) in servers {
        for load in [0.5, 0.8, 0.9, 0.95, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 10.0] {
            if load * costs.ratio() > 0.9 {
                continue; // Hardly any bound is left to keep.
            }
            for seed in [1, 2] {
                let outcome = run(&offered("tide", costs, seed, &[(length_s, load)]));
                let kept = of_bound(&outcome, costs, 5.0, length_s - 1.0);
                assert!(kept >= 0.97, "{kept} of the bound of {costs:?} at {load}, seed {seed}");
                let delay_s = outcome.delay_p99_s(5.0, length_s - 1.0);
                let delay_max_s = if load > 1.3 { 0.16 } else { delay_max_s };
                assert!(delay_s <= delay_max_s, "{delay_s} s of {costs:?} at {load}, seed {seed}");
            }
        }
    }
}

#[test]
fn tide_rejects_none_of_100_000_calls_below_the_capacity() {
    let outcome = run(&offered("tide", FAST, 1, &[(22.0, 0.94)]));
    assert!(outcome.began.len() > 100_000, "{}", outcome.began.len());
    assert_eq!(outcome.rejected.len(), 0);
}

#[test]
fn tide_settles_within_200_ms_of_a_step_and_is_back_within_a_second() {
    for seed in 1..=3 {
        let profile = [(5.0, 1.0), (5.0, 10.0), (5.0, 0.9)];
        let outcome = run(&offered("tide", FAST, seed, &profile));
        let kept = of_bound(&outcome, FAST, 5.2, 9.9);
        assert!(kept >= 0.97, "{kept} of the bound, seed {seed}");
        for after_s in [0.2, 0.3, 0.5, 1.0] {
            let delay_s = outcome.delay_p99_s(5.0 + after_s, 5.1 + after_s);
            assert!(delay_s < 0.1, "{delay_s} s {after_s} s after the step, seed {seed}");
        }
        let lost = outcome.lost_share(11.0, 14.5);
        assert!(lost <= 1e-9, "{lost} of the calls after the flood, seed {seed}");
    }
}

/// Returns the conditions that no law expects. Each has a name, the costs of the server, a
/// disturbance, and the costs from which the bound is computed.
fn conditions() -> Vec<(&'static str, Costs, Disturbance, Costs)> {
    let none = Disturbance::NONE;
    let heavy = |costs| Costs { spread: Spread::Heavy, ..costs };
    let dearer = Costs { serve: 3 * FAST.serve, ..FAST };
    let begin = Costs { serve: Duration::from_micros(96), ..FAST };
    let stolen = |period, stolen| Disturbance { stolen: Some((ms(period), ms(stolen))), ..none };
    let later = |hold| Disturbance { later: Some((ms(hold), Duration::from_micros(100))), ..none };
    vec![
        ("as expected", FAST, none, FAST),
        ("500 calls/s", COSTS, none, COSTS),
        ("costs told 3 times", FAST, Disturbance { misjudged: 3.0, ..none }, FAST),
        ("costs told a third", FAST, Disturbance { misjudged: 1.0 / 3.0, ..none }, FAST),
        ("heavy-tailed costs", heavy(FAST), none, FAST),
        (
            "costs 3 times from 5 s",
            FAST,
            Disturbance { dearer_from: Some((ms(5000), 3.0)), ..none },
            dearer,
        ),
        ("half stolen, 10 ms", FAST, stolen(10, 5), FAST),
        ("quota of 1 in 5 ms", FAST, stolen(5, 4), FAST),
        ("quota of 20 in 100 ms", FAST, stolen(100, 80), FAST),
        ("stalls of 1 in 5 s", FAST, stolen(5000, 1000), FAST),
        ("repetition after 100 ms", FAST, Disturbance { t1: ms(100), ..none }, FAST),
        ("half the work 1 s later", begin, later(1000), FAST),
    ]
}

/// Returns the goodput under a condition, as a share of the bound. The offered load is `load` times
/// the capacity that the condition leaves.
fn kept(law: &str, condition: &(&str, Costs, Disturbance, Costs), load: f64) -> f64 {
    let &(_, costs, disturbance, bounding) = condition;
    let own =
        disturbance.stolen.map_or(1.0, |(period, stolen)| 1.0 - stolen.div_duration_f64(period));
    let capacity = own * bounding.capacity_cps();
    let multiple = load * capacity / costs.capacity_cps();
    let outcome = run(&Setup { disturbance, ..offered(law, costs, 1, &[(11.0, multiple)]) });
    let (from_s, to_s) = (5.5, 10.5);
    let offered = outcome.offered_cps(from_s, to_s) / capacity;
    outcome.goodput_cps(from_s, to_s) / capacity / bound::goodput(offered, bounding.ratio())
}

const LOADS: [f64; 5] = [0.9, 1.0, 1.2, 2.0, 5.0];

#[test]
fn laws_compared_under_conditions_that_none_expects() {
    let mut table = String::from("goodput as a share of the bound\n");
    write!(table, "{:36}", "offered").unwrap();
    LOADS.iter().for_each(|load| write!(table, " {load:5.2}").unwrap());
    table.push('\n');
    for condition in &conditions() {
        for law in ["tide", "breakwater", "codel", "pi"] {
            let kept = LOADS.map(|load| kept(law, condition, load));
            write!(table, "{:24} {law:11}", condition.0).unwrap();
            kept.iter().for_each(|kept| write!(table, " {kept:5.2}").unwrap());
            table.push('\n');
            if law == "tide" {
                let least = if condition.0.starts_with("stalls") { 0.6 } else { 0.85 };
                assert!(kept.iter().all(|&kept| kept >= least), "{}: {kept:?}", condition.0);
            }
        }
    }
    assert_committed(&table, "disturbances.txt");
}

// In each period, calls arrive in the first half and none in the second half. If the period is
// longer than 0.2 s, more calls would have to wait than the law permits. So in the second half
// there is nothing to serve for a time.
#[test]
fn tide_serves_bursts_at_its_own_periods() {
    for (period_s, load, least) in [
        (0.02, 1.6, 0.99),
        (0.1, 1.6, 0.99),
        (0.2, 1.6, 0.99),
        (0.02, 1.9, 0.97),
        (0.1, 1.9, 0.97),
        (0.2, 1.9, 0.97),
        (0.02, 6.0, 0.75),
        (0.1, 6.0, 0.75),
    ] {
        let profile =
            [(period_s / 2.0, load), (period_s / 2.0, 0.0)].repeat((8.0 / period_s) as usize);
        let outcome = run(&offered("tide", FAST, 1, &profile));
        let kept = of_bound(&outcome, FAST, 2.0, 7.0);
        assert!(kept >= least, "{kept} at {load} in half of {period_s} s");
    }
}
