//! Tests of feedback that is lost, late, out of order or ignored.
//!
//! A sender ignores a value that is older than its last one, and forgets a value whose validity is
//! over (RFC 7339 §5.4). The receiver has its own law, and treats a sender that exceeds its share
//! like one without feedback. `unreliable.txt` has the goodput.

use std::fmt::Write;
use std::time::Duration;

use tidegate_control::feedback::Algorithm;
use tidegate_world::Seed;

use super::{FROM_S, Setup, TO_S, goodput, goodputs, setup};
use crate::curves::assert_committed;

/// Offered loads in multiples of the capacity: one below the capacity, and three above it.
const LOADS: [f64; 4] = [0.9, 1.2, 2.8, 8.4];

/// The default law with both algorithms, and three laws of paper 002, which set a rate, a share and
/// a window.
const CARRIED: [(&str, &[Algorithm]); 4] = [
    ("tide", &[Algorithm::Loss, Algorithm::Rate]),
    ("rate-abs", &[Algorithm::Rate]),
    ("rate-occ", &[Algorithm::Loss]),
    ("win-cont", &[Algorithm::Loss]),
];

/// The path of the values to the senders: its name, the share of the values that are lost, and the
/// longest delay in milliseconds. A value holds for 500 ms after it has arrived.
type Way = (&'static str, f64, u64);

const WAYS: [Way; 5] = [
    ("all at once", 0.0, 0),
    (".5 lost", 0.5, 0),
    (".9 lost", 0.9, 0),
    (".5 s late", 0.0, 500),
    ("2 s late", 0.0, 2000),
];

/// The worst path: few feedback values arrive, and they are old. So restrictions often expire.
const WORST: Way = (".9 lost, 2 s late", 0.9, 2000);

/// The law with which the receiver collapses under the worst conditions at the highest load, with
/// some seeds. The mean goodput of this law is then .48.
const COLLAPSES: &str = "win-cont";

/// Number of seeds over which the goodput under the worst conditions is averaged. The goodput
/// depends on when the few values arrive: with one seed it is .5, with another .9.
const WORST_SEEDS: u64 = 8;

/// The goodput with unreliable feedback may be lower than without feedback by this part of the
/// capacity. A sender that ignores its values may get this part more than its share.
const SLACK: f64 = 0.05;

/// The server has collapsed if its goodput is below this part of what it could carry. The
/// reproduction of paper 002 has the same limit.
const COLLAPSED: f64 = 0.5;

/// Returns a setup with three senders that obey, and this path of the values.
fn sending(law: &str, load: f64, algorithm: Algorithm, (_, lost, late_ms): Way) -> Setup {
    let delay_max = Duration::from_millis(late_ms);
    Setup { lost, delay_max, ..setup(law, &[], load, Some(algorithm)) }
}

/// Returns the goodput with a law whose feedback values take the path `way`.
fn reached(law: &str, load: f64, algorithm: Algorithm, way: Way) -> f64 {
    let setup = sending(law, load, algorithm, way);
    let seeds = if way.0 == WORST.0 { WORST_SEEDS } else { 1 };
    let with_seed = |seed| goodput(&Setup { seed: Seed(seed), ..setup.clone() });
    (1..=seeds).map(with_seed).sum::<f64>() / seeds as f64
}

/// Feedback must not be worse than none, however few of its values arrive and however old they are.
/// Under the worst conditions the receiver must at least not collapse, with one exception.
#[test]
fn the_goodput_with_unreliable_feedback_is_as_committed_and_does_not_collapse() {
    let mut table = String::from("goodput, in multiples of the capacity\n");
    let mut row = |name: &str, values: [f64; LOADS.len()]| {
        write!(table, "{name:33}").unwrap();
        for value in values {
            write!(table, " {value:6.2}").unwrap();
        }
        table.push('\n');
    };
    let mut too_low = Vec::new();
    row("offered", LOADS);
    for (law, algorithms) in CARRIED {
        let local = LOADS.map(|load| goodput(&setup(law, &[], load, None)));
        row(&format!("{law}, local"), local);
        for &algorithm in algorithms {
            for way in WAYS.into_iter().chain([WORST]) {
                let name = format!("{law}, {}, {}", algorithm.name(), way.0);
                let reached = LOADS.map(|load| reached(law, load, algorithm, way));
                row(&name, reached);
                for ((load, reached), local) in LOADS.into_iter().zip(reached).zip(local) {
                    let least = match way.0 == WORST.0 {
                        true if law == COLLAPSES => 0.4,
                        true => COLLAPSED * load.min(1.0),
                        false => local - SLACK,
                    };
                    if reached < least {
                        too_low.push(format!("{name}, load {load}: {reached:.2} < {least:.2}"));
                    }
                }
            }
        }
    }
    assert_committed(&table, "unreliable.txt");
    assert!(too_low.is_empty(), "{too_low:#?}");
}

// RFC 7339 §5.10.2: "This is to ensure that SIP clients that do not support this specification
// don't receive an unfair advantage over those that do."
#[test]
fn a_sender_that_ignores_its_values_gains_nothing_if_values_of_others_are_lost_or_late() {
    for algorithm in [Algorithm::Loss, Algorithm::Rate] {
        for way in WAYS {
            let mut setup = sending("tide", 2.8, algorithm, way);
            setup.sources[0].obeys = false;
            let shares = goodputs(&setup, FROM_S, TO_S);
            let total: f64 = shares.iter().sum();
            assert!(total >= 0.85, "{algorithm:?}, {}: {shares:?}", way.0);
            assert!(shares[0] <= total / 3.0 + SLACK, "{algorithm:?}, {}: {shares:?}", way.0);
        }
    }
}
