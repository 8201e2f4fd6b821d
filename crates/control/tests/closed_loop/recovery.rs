//! Tests of each law's recovery after an overload.

use tidegate_control::{Decide, registry};
use tidegate_world::{Purpose, Seed};

use crate::plant::{Setup, run};
use crate::{DECIDE, setup};

/// Seconds within which each law serves the offered load again. The first value is for decisions at
/// arrival, the second for decisions at service.
///
/// If the law decides at service, a message that finds the buffer full is lost unread. Its caller
/// retransmits for up to 32 s. This is the largest part of the longer times. If a law lets the
/// buffer overflow, the overload continues after the load has fallen. `none` and `ohta` show only
/// this effect, because the watermarks of `ohta` are larger than this buffer.
const BACK_S: [(&str, [f64; 2]); registry::LAWS.len()] = [
    ("none", [1.0, 40.0]),
    ("tide", [1.0, 2.0]),
    ("occupancy", [8.0, 12.0]),
    ("acceptance", [4.0, 35.0]),
    ("aro", [8.0, 12.0]),
    ("sired", [6.0, 5.0]),
    ("ohta", [1.0, 40.0]),
    ("occ", [4.0, 25.0]),
    ("pi", [3.0, 3.0]),
    ("win-disc", [2.0, 35.0]),
    ("win-cont", [1.0, 1.0]),
    ("win-auto", [1.0, 1.0]),
    ("rate-abs", [2.0, 3.0]),
    ("rate-occ", [2.0, 2.0]),
    ("codel", [1.0, 2.0]),
    ("gradient2", [1.0, 2.0]),
    ("breakwater", [1.0, 8.0]),
    ("dagor", [20.0, 20.0]),
    ("clearwater", [4.0, 30.0]),
    ("vegas", [1.0, 2.0]),
    ("envoy-gradient", [1.0, 2.0]),
    ("cinnamon", [4.0, 40.0]),
    ("kamailio-feedback", [4.0, 70.0]),
    ("cpu-threshold", [6.0, 40.0]),
    ("asterisk", [1.0, 40.0]),
    ("deadline", [1.0, 40.0]),
];

/// Returns the share of the calls that a law may reject without any load. Two laws reject calls
/// then, as they are printed in paper 000.
fn rejected_at_rest(law: &str) -> f64 {
    if ["acceptance", "aro"].contains(&law) { 0.25 } else { 0.0 }
}

#[test]
fn each_law_is_back_in_its_time_after_an_overload() {
    for (entry, (name, times)) in registry::LAWS.iter().zip(BACK_S) {
        assert_eq!(entry.name, name, "the table is in the registry's order");
        for (decide, back_s) in DECIDE.into_iter().zip(times) {
            for load in [1.5, 3.0, 5.0] {
                let profile = [(5.0, 0.5), (20.0, load), (back_s + 6.0, 0.5)];
                let setup = Setup { queue_max: 100, ..setup(name, &[], decide, &profile) };
                let outcome = run(&setup);
                for second in 0..5 {
                    let from_s = 25.0 + back_s + f64::from(second);
                    let lost = outcome.lost_share(from_s, from_s + 1.0);
                    let most = rejected_at_rest(name).max(0.05);
                    assert!(lost <= most, "{name}, {decide:?} after {load}: {lost} at {from_s} s");
                }
            }
        }
    }
}

/// Returns a setup with random loads of up to five times the capacity for up to 50 s. A minute with
/// little or no load follows, and then ten more seconds. The queue has a random length of up to a
/// second of work. Also returns the time at which the last ten seconds start.
fn any_overload(law: &str, decide: Decide, seed: u64) -> (f64, Setup) {
    let mut draw = Seed(seed).stream(Purpose::Arrivals, 1);
    let phases = 1 + draw.below(5);
    let mut profile: Vec<(f64, f64)> =
        (0..phases).map(|_| (1.0 + 9.0 * draw.unit(), 5.0 * draw.unit())).collect();
    let from_s = profile.iter().map(|(length_s, _)| length_s).sum::<f64>() + 60.0;
    let light = 0.02 + 0.28 * draw.unit();
    let silent = draw.below(3) == 0;
    profile.push((60.0, if silent { 0.0 } else { light }));
    profile.push((10.0, if silent { 0.1 } else { light }));
    let queue_max = 20 + draw.below(480) as usize;
    let setup = setup(law, &[], decide, &profile);
    (from_s, Setup { queue_max, seed: Seed(seed), ..setup })
}

#[test]
fn after_a_minute_of_little_load_every_law_admits_everything_whatever_was_before() {
    for law in registry::LAWS.iter() {
        for decide in DECIDE {
            for seed in 1..=4 {
                let (from_s, setup) = any_overload(law.name, decide, seed);
                let outcome = run(&setup);
                let lost = outcome.lost_share(from_s, from_s + 9.0);
                let most = rejected_at_rest(law.name);
                assert!(lost <= most + 1e-9, "{}, {decide:?}, seed {seed}: {lost}", law.name);
            }
        }
    }
}

// Rejections stop with the load. But the calls in a queue of four seconds are late, are
// retransmitted, and are late again.
#[test]
fn a_queue_longer_than_patience_keeps_a_collapse_alive_at_half_of_the_capacity() {
    for (law, queue_max, back) in [("none", 2000, false), ("none", 100, true)] {
        let setup = setup(law, &[], Decide::Service, &[(20.0, 1.5), (60.0, 0.5)]);
        let outcome = run(&Setup { queue_max, ..setup });
        let lost = outcome.lost_share(70.0, 79.0);
        assert_eq!(lost < 0.01, back, "{law} with a queue of {queue_max}: {lost}");
        assert!(back || lost > 0.9, "{lost}");
    }
}
