//! Feedback between servers, in the model of 002.
//!
//! `pushback.txt` has the goodput of each law with and without feedback. `TIDEGATE_BLESS=1` rewrites it.

mod chain;

use std::fmt::Write;
use std::time::Duration;

use chain::{CAPACITY_CPS, Completed, Setup, Source, run};
use tidegate_control::feedback::{Algorithm, Algorithms, UpstreamSettings};
use tidegate_control::registry;

use crate::Params;
use crate::curves::assert_committed;

const LOADS: [f64; 8] = [0.5, 0.9, 1.0, 1.2, 1.7, 2.8, 5.6, 8.4];

/// The laws of 002 with the algorithms that carry their values, and the default law with each.
const CARRIED: [(&str, Params, Algorithm); 11] = [
    ("tide", &[], Algorithm::Rate),
    ("tide", &[], Algorithm::Loss),
    ("tide", &[], Algorithm::Window),
    ("rate-abs", &[], Algorithm::Rate),
    ("rate-occ", &[], Algorithm::Loss),
    ("win-disc", &[], Algorithm::Window),
    ("win-cont", &[], Algorithm::Window),
    ("win-auto", &[], Algorithm::Window),
    ("win-disc", &[], Algorithm::Loss),
    ("win-cont", &[], Algorithm::Loss),
    ("win-auto", &[], Algorithm::Loss),
];

const LENGTH_S: f64 = 120.0;
const FROM_S: f64 = 60.0;
const TO_S: f64 = 105.0;

/// Three senders that share a load alike and obey.
fn setup(law: &str, params: Params, load: f64, algorithm: Option<Algorithm>) -> Setup {
    let source = Source {
        cps: load * CAPACITY_CPS / 3.0,
        from_s: 0.0,
        to_s: LENGTH_S,
        offers: algorithm.map(|algorithm| Algorithms::LOSS.with(algorithm)),
        obeys: true,
        claims: None,
    };
    Setup {
        law: registry::find(law).unwrap().values(params).unwrap(),
        sources: vec![source; 3],
        upstreams: UpstreamSettings {
            accepted: Algorithms::ALL,
            preferred: algorithm.unwrap_or(Algorithm::Rate),
            ..UpstreamSettings::default()
        },
        lost: 0.0,
        delay_max: Duration::ZERO,
        length: Duration::from_secs_f64(LENGTH_S),
    }
}

/// Returns the goodput of each sender, in multiples of the capacity.
fn goodputs(setup: &Setup, from_s: f64, to_s: f64) -> Vec<f64> {
    let completed = run(setup);
    let of = |n: usize| {
        let counts = |&&(source, began, _): &&Completed| {
            source == n && (from_s..to_s).contains(&began.as_secs_f64())
        };
        completed.iter().filter(counts).count() as f64 / (to_s - from_s) / CAPACITY_CPS
    };
    (0..setup.sources.len()).map(of).collect()
}

fn goodput(setup: &Setup) -> f64 {
    goodputs(setup, FROM_S, TO_S).iter().sum()
}

#[test]
fn the_goodput_of_each_law_with_and_without_feedback_is_as_committed() {
    let mut table = String::from("goodput, in multiples of the capacity\n");
    let mut row = |name: String, of: &dyn Fn(f64) -> f64| {
        write!(table, "{name:26}").unwrap();
        for load in LOADS {
            write!(table, " {:6.2}", of(load)).unwrap();
        }
        table.push('\n');
    };
    row("offered".to_owned(), &|load| load);
    let local: [(&str, Params); 3] = [
        ("none", &[]),
        ("ohta", &[("buffer", 500.0), ("hi_wm", 400.0), ("lo_wm", 200.0)]),
        ("tide", &[]),
    ];
    for (law, params) in local {
        row(format!("{law}, local"), &|load| goodput(&setup(law, params, load, None)));
    }
    for (law, params, algorithm) in CARRIED {
        let name = format!("{law}, {}", algorithm.token());
        row(name, &|load| goodput(&setup(law, params, load, Some(algorithm))));
    }
    assert_committed(&table, "pushback.txt");
}
