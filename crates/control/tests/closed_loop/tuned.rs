//! Paper 000, §6.5 and §8: if all laws are tuned in the same way, they behave in the same way.
//!
//! "It became apparent that the overload controls could for the most part have the same effect
//! given the proper tuning." Here is such a tuning for a server of 500 calls a second with a queue
//! of a tenth of a second. The law `acceptance` must compare the acceptance rate with the
//! sustainable rate. As the paper prints it, the law can be tuned for one load only.

use tidegate_control::Decide;

use crate::plant::{Outcome, Setup, run};
use crate::{COSTS, FROM_S, LOADS, Params, TO_S, goodput, setup};

const ALIKE: [(&str, Params); 4] = [
    ("occupancy", &[("rho_targ", 0.95), ("k", 5.0), ("w", 0.3)]),
    ("sired", &[("q_min", 0.0), ("q_max", 0.4), ("w", 0.1), ("measure", 20.0)]),
    ("acceptance", &[("sustainable", 500.0), ("alpha_targ", 0.88), ("k", 5.0)]),
    ("occ", &[("rho_targ", 0.95), ("t_c", 0.5)]),
];

fn at(law: &str, params: Params, load: f64) -> Outcome {
    run(&Setup { queue_max: 50, ..setup(law, params, Decide::Arrival, &[(30.0, load)]) })
}

/// Returns the difference between the largest and the smallest value.
fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().fold(0.0, f64::max) - values.fold(f64::INFINITY, f64::min)
}

#[test]
fn four_laws_tuned_alike_carry_and_reject_alike_at_every_overload() {
    assert_eq!(COSTS.capacity_cps().round(), 500.0);
    for load in LOADS.into_iter().filter(|&load| load > 1.0) {
        let outcomes = ALIKE.map(|(law, params)| at(law, params, load));
        let goodputs = outcomes.each_ref().map(goodput);
        assert!(spread(goodputs.into_iter()) < 0.07, "at {load}: {goodputs:?}");
        let rejected = outcomes.each_ref().map(|outcome| outcome.rejected_share(FROM_S, TO_S));
        assert!(spread(rejected.into_iter()) < 0.06, "at {load}: {rejected:?}");
        let delays = outcomes.each_ref().map(|outcome| outcome.delay_p99_s(FROM_S, TO_S));
        assert!(delays.iter().all(|&delay| delay < 0.3), "at {load}: {delays:?}");
    }
}

#[test]
fn by_their_own_parameters_they_do_not() {
    let goodputs = ALIKE.map(|(law, _)| goodput(&at(law, &[], 1.2)));
    assert!(spread(goodputs.into_iter()) > 0.1, "{goodputs:?}");
}

// 000 §3.2: α_targ is the share that is admitted, at any offered load.
#[test]
fn acceptance_as_printed_is_tuned_for_one_load() {
    let params = [("alpha_targ", 0.41), ("k", 5.0)];
    for (load, expected) in [(0.8, 0.8 * 0.41), (1.2, 1.2 * 0.41), (2.0, 2.0 * 0.41)] {
        let goodput = goodput(&at("acceptance", &params, load));
        assert!((goodput - expected).abs() < 0.03, "{goodput} at {load}");
    }
}
