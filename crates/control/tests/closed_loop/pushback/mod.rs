//! Tests of feedback between servers, in the model of paper 002.
//!
//! `pushback.txt` has the goodput of each law with and without feedback, `shares.txt` the shares of
//! unequal senders, and `unreliable.txt` the goodput if feedback is lost or late.
//! `TIDEGATE_BLESS=1` rewrites these files.

mod chain;
mod unreliable;

use std::fmt::Write;
use std::time::Duration;

use chain::{CAPACITY_CPS, Completed, ROOM, Setup, Source, run};
use tidegate_control::feedback::{Algorithm, Algorithms, UpstreamFairness, UpstreamSettings};
use tidegate_control::registry;
use tidegate_world::Seed;

use crate::Params;
use crate::curves::assert_committed;

const LOADS: [f64; 8] = [0.5, 0.9, 1.0, 1.2, 1.7, 2.8, 5.6, 8.4];

/// The laws of paper 002 with the algorithms that carry their values, and the default law with each
/// algorithm.
const CARRIED: [(&str, Params, Algorithm); 7] = [
    ("tide", &[], Algorithm::Rate),
    ("tide", &[], Algorithm::Loss),
    ("rate-abs", &[], Algorithm::Rate),
    ("rate-occ", &[], Algorithm::Loss),
    ("win-disc", &[], Algorithm::Loss),
    ("win-cont", &[], Algorithm::Loss),
    ("win-auto", &[], Algorithm::Loss),
];

const LENGTH_S: f64 = 120.0;
const FROM_S: f64 = 60.0;
const TO_S: f64 = 105.0;

/// Returns a setup with three senders that obey. Each offers a third of the load.
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
            preferred: algorithm.unwrap_or(Algorithm::Rate),
            ..UpstreamSettings::default()
        },
        room: ROOM,
        lost: 0.0,
        delay_max: Duration::ZERO,
        length: Duration::from_secs_f64(LENGTH_S),
        seed: Seed(1),
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
        let name = format!("{law}, {}", algorithm.name());
        row(name, &|load| goodput(&setup(law, params, load, Some(algorithm))));
    }
    assert_committed(&table, "pushback.txt");
}

/// Delay beyond which a call counts as late. A set-up needs three messages, one after the other,
/// and each may wait for the laws' budget of 200 ms.
const LATE: Duration = Duration::from_millis(1000);

/// The paper's queue holds one second of messages. A server with a longer queue must not fill it
/// before its law has found the right share. Otherwise all calls in the queue would be served too
/// late.
#[test]
fn a_long_queue_makes_no_calls_late_whatever_the_law_sees() {
    for (law, _, algorithm) in CARRIED {
        let setup = Setup { room: 40_000, ..setup(law, &[], 8.0, Some(algorithm)) };
        let is_in_time = |&&(_, began, acked): &&Completed| {
            (3.0..10.0).contains(&began.as_secs_f64()) && acked.since(began) <= LATE
        };
        let goodput = run(&setup).iter().filter(is_in_time).count() as f64 / 7.0 / CAPACITY_CPS;
        assert!(goodput >= 0.8, "{law}, {}: {goodput}", algorithm.name());
    }
}

/// The loads of the three senders in paper 002, §6.2, in multiples of the capacity.
const UNEQUAL: [f64; 3] = [0.57, 1.68, 3.36];

/// Returns a setup with three senders of unequal loads, which they state.
fn unequal(law: &str, algorithm: Algorithm, fairness: UpstreamFairness) -> Setup {
    let mut setup = setup(law, &[], 1.0, Some(algorithm));
    setup.upstreams.fairness = fairness;
    for (source, load) in setup.sources.iter_mut().zip(UNEQUAL) {
        (source.cps, source.claims) = (load * CAPACITY_CPS, Some(1.0));
    }
    setup
}

// 002 §6.2: "The three sources settle at a stable situation with roughly 0.1, 0.3, and 0.6 goodput,
// matching the original individual load." "The graph for service-provider centric fairness is
// similar, with the total allocation equally shared by the current number of active sources during
// each load interval."
#[test]
fn the_shares_of_unequal_senders_are_as_committed() {
    let mut table = String::from(
        "goodput of three senders that offer .57, 1.68 and 3.36 times the capacity, in multiples of it\n",
    );
    for (law, _, algorithm) in CARRIED {
        for fairness in [UpstreamFairness::Provider, UpstreamFairness::User] {
            let shares = goodputs(&unequal(law, algorithm, fairness), FROM_S, TO_S);
            let name = format!("{law}, {}, {fairness:?}", algorithm.name());
            write!(table, "{name:26}").unwrap();
            shares.iter().for_each(|share| write!(table, " {share:6.2}").unwrap());
            table.push('\n');
        }
    }
    assert_committed(&table, "shares.txt");
}

#[test]
fn stated_loads_make_shares_user_centric() {
    let by_loss = CARRIED.into_iter().filter(|(.., algorithm)| *algorithm == Algorithm::Loss);
    for (law, _, algorithm) in
        by_loss.chain(["tide", "rate-abs"].map(|law| (law, &[][..], Algorithm::Rate)))
    {
        let shares = goodputs(&unequal(law, algorithm, UpstreamFairness::User), FROM_S, TO_S);
        let total: f64 = shares.iter().sum();
        for (share, expected) in shares.iter().zip([0.1, 0.3, 0.6]) {
            let part = share / total;
            assert!((part - expected).abs() <= 0.05, "{law}, {}: {shares:?}", algorithm.name());
        }
    }
}

#[test]
fn a_false_claim_gains_at_most_the_largest_share_and_only_under_user_centric_fairness() {
    let parts = |fairness, share_max, obeys| {
        let mut setup = unequal("tide", Algorithm::Loss, fairness);
        setup.upstreams.share_max = share_max;
        setup.sources[0].claims = Some(100.0);
        setup.sources[0].obeys = obeys;
        let shares = goodputs(&setup, FROM_S, TO_S);
        let total: f64 = shares.iter().sum();
        assert!(total > 0.9, "{shares:?}");
        shares[0] / total
    };
    // The sender holds back as much as it is told, so its false claim makes it send less than its
    // share. The receiver sees this.
    assert!(parts(UpstreamFairness::User, 0.75, true) <= 0.13);
    // The sender does not hold back. Its whole load is .57 of the capacity.
    assert!(parts(UpstreamFairness::User, 0.4, false) <= 0.44);
    for obeys in [true, false] {
        assert!(parts(UpstreamFairness::Provider, 0.75, obeys) <= 0.36);
    }
}
