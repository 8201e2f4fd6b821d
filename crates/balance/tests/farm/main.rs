//! Runs each policy in front of a farm of simulated servers.

#[path = "../../../world/tests/committed/mod.rs"]
mod committed;
mod herd;
mod servers;

use std::fmt::Write;

use committed::assert_committed;
use servers::{Farm, Outcome};
use tidegate_balance::{Policy, Values, registry};

/// Eight servers, each with a capacity of 300 calls/s, and the cost of an INVITE as in paper 003,
/// §VI.
const EIGHT: Farm<'_> = Farm {
    speeds: &[1.0; 8],
    weights: &[1; 8],
    ratio: 1.75,
    load: 0.8,
    hold_mean_s: 5.0,
    lasts_s: 20.0,
};
/// Two servers as in paper 003, §VI.d. One of them uses half of its processor for other work, and
/// the configured weights do not show this.
const UNEQUAL: Farm<'_> = Farm { speeds: &[1.0, 0.5], weights: &[1, 1], ..EIGHT };
/// The servers of [`UNEQUAL`], with weights that match their speeds.
const WEIGHTED: Farm<'_> = Farm { weights: &[2, 1], ..UNEQUAL };
const LOADS: [f64; 3] = [0.5, 0.8, 0.95];

/// Returns all policies, and two variants of `tlwl`: an INVITE weighs 2 (as in paper 003), or its
/// weight is learned.
fn subjects() -> Vec<(String, Values)> {
    let mut subjects: Vec<(String, Values)> =
        registry::POLICIES.iter().map(|entry| (entry.name.to_owned(), entry.defaults())).collect();
    for (name, given) in [("tlwl, 2", ("invite", 2.0)), ("tlwl, learned", ("learned", 1.0))] {
        subjects.push((name.to_owned(), Policy::Tlwl.entry().values(&[given]).unwrap()));
    }
    subjects
}

// When a policy changes, read the difference in this table, and commit it with the change.
#[test]
fn the_response_times_of_every_policy_are_as_committed() {
    let mut text = String::new();
    for (title, farm) in [
        ("eight equal servers", EIGHT),
        ("two unequal servers, weights 1 and 1", UNEQUAL),
        ("two unequal servers, weights 2 and 1", WEIGHTED),
    ] {
        let _ = writeln!(text, "{title}: response time of an INVITE, ms: mean and 99th percentile");
        let _ = writeln!(text, "{:<16}{:>18}{:>18}{:>18}", "load", LOADS[0], LOADS[1], LOADS[2]);
        for (name, values) in subjects() {
            let _ = write!(text, "{name:<16}");
            for load in LOADS {
                let outcome = Farm { load, ..farm }.run(values);
                let _ = write!(text, " {:>8.1} {:>8.1}", outcome.mean_ms(), outcome.p99_ms());
            }
            text.push('\n');
        }
        text.push('\n');
    }
    assert_committed("tests/farm/response_times.txt", &text, Some(0.2));
}

// 003 §VII: "Under light to moderate loads, TLWL-1.75, TLWL-2, and TJSQ achieved response times for
// INVITE transactions that were at least five times smaller than the other algorithms we tested."
// Queueing alone gives less than five times. But the response times are smaller at every load.
#[test]
fn policies_that_see_open_requests_respond_sooner() {
    for load in LOADS {
        let mean = |policy: Policy| Farm { load, ..EIGHT }.run(policy).mean_ms();
        let open = [Policy::Tjsq, Policy::Tlwl].map(mean);
        let blind = [Policy::Rr, Policy::Hash, Policy::Fnv, Policy::HashTo].map(mean);
        let least = blind.into_iter().fold(f64::INFINITY, f64::min);
        assert!(open.iter().all(|&mean| mean < least / 1.2), "{load}: {open:?} {blind:?}");
    }
}

// 003 §VI.d: "Ideally, the load balancing algorithm in this heterogeneous system should result in a
// throughput of about one and a half times this rate". Policies that ignore load give the slow
// server half of the offered calls, which at .95 is 1.4 times its capacity.
#[test]
fn unequal_servers_are_used_to_the_full_by_policies_that_see_them() {
    for policy in [Policy::Tjsq, Policy::Tlwl, Policy::P2c, Policy::PeakEwma] {
        let outcome = Farm { load: 0.95, ..UNEQUAL }.run(policy);
        assert!(outcome.p99_ms() < 200.0, "{policy:?} {}", outcome.p99_ms());
    }
    let blind = Farm { load: 0.95, ..UNEQUAL }.run(Policy::Rr);
    assert!(blind.p99_ms() > 1000.0, "{}", blind.p99_ms());
    let told = Farm { load: 0.8, ..WEIGHTED }.run(Policy::Rr);
    assert!(told.p99_ms() < 200.0, "{}", told.p99_ms());
}

#[test]
fn the_costs_of_invite_and_bye_are_learned_from_their_waiting() {
    let learned = Policy::Tlwl.entry().values(&[("learned", 1.0)]).unwrap();
    let ratios = |outcome: &Outcome| -> Vec<f64> {
        outcome.pool.backends().iter().filter_map(|backend| backend.cost_ratio()).collect()
    };
    for ratio in [1.2, 1.75, 3.0] {
        let outcome = Farm { ratio, load: 0.9, lasts_s: 60.0, ..EIGHT }.run(learned);
        let ratios = ratios(&outcome);
        assert_eq!(ratios.len(), 8, "each has learned");
        let mean = ratios.iter().sum::<f64>() / 8.0;
        assert!((mean / ratio - 1.0).abs() < 0.15, "{ratio}: {ratios:?}");
    }
    // If almost no request waits, nothing is learned.
    let idle = Farm { ratio: 3.0, load: 0.02, lasts_s: 60.0, ..EIGHT }.run(learned);
    assert_eq!(ratios(&idle), []);
    // Another policy does not learn.
    let other = Farm { load: 0.9, ..EIGHT }.run(Policy::Tjsq);
    assert_eq!(ratios(&other), []);
}

#[test]
fn every_count_is_given_back_when_all_calls_are_over() {
    for policy in Policy::ALL {
        let outcome = Farm { lasts_s: 5.0, ..EIGHT }.run(policy);
        for backend in outcome.pool.backends() {
            let counts = (backend.calls(), backend.transactions(), backend.work());
            assert_eq!(counts, (0, 0, 0), "{policy:?}");
        }
    }
}
