//! Tests of the laws in a closed loop with a simulated server, under various loads.
//!
//! `curves.txt` has the curves of every law. `TIDEGATE_BLESS=1` rewrites the file. Read the
//! difference before you commit it.

mod bias;
#[path = "../../../world/tests/committed/mod.rs"]
mod committed;
mod curves;
mod pauses;
mod pi;
mod plant;
mod pushback;
mod recovery;
mod throttles;
mod tide;
mod tuned;

use std::time::Duration;

use plant::{Costs, Disturbance, Outcome, Setup, Spread, run};
use tidegate_control::{Decide, ThrottleKind, registry};
use tidegate_world::Seed;

/// Parameters of a law, by name.
type Params<'a> = &'a [(&'a str, f64)];

/// The costs of a server of 500 calls a second. A rejection costs a tenth of a call.
const COSTS: Costs = Costs {
    look: Duration::from_micros(100),
    serve: Duration::from_micros(1900),
    reject: Duration::from_micros(100),
    spread: Spread::Exponential,
};

const LOADS: [f64; 8] = [0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0];
const DECIDE: [Decide; 2] = [Decide::Arrival, Decide::Service];

/// The parameters of paper 001 for its law `pi`.
const PAPER: Params = &[("t_q", 0.05), ("c_t", 0.9), ("adaptive", 0.0)];

/// Returns the setup of a run of a law with these parameters. The law `clearwater` gets its own
/// throttle, the token bucket.
fn setup(law: &str, params: Params, decide: Decide, profile: &[(f64, f64)]) -> Setup {
    let seconds = |&(s, load): &(f64, f64)| (Duration::from_secs_f64(s), load);
    Setup {
        law: registry::find(law).unwrap().values(params).unwrap(),
        decide,
        throttle: match law {
            "clearwater" => (ThrottleKind::TokenBucket, 20),
            _ => (ThrottleKind::Deterministic, 1),
        },
        costs: COSTS,
        queue_max: 2000,
        profile: profile.iter().map(seconds).collect(),
        seed: Seed(1),
        disturbance: Disturbance::NONE,
        pauses: Vec::new(),
        switch: None,
    }
}

/// Runs a law at a constant load for 30 s. The tests use the time from [`FROM_S`] to [`TO_S`], so
/// that each call has enough time to be answered.
fn constant(law: &str, params: Params, decide: Decide, load: f64) -> Outcome {
    run(&setup(law, params, decide, &[(30.0, load)]))
}

const FROM_S: f64 = 10.0;
const TO_S: f64 = 29.0;

/// Returns the goodput in multiples of the capacity.
fn goodput(outcome: &Outcome) -> f64 {
    outcome.goodput_cps(FROM_S, TO_S) / COSTS.capacity_cps()
}
