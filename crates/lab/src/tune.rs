//! Tunes the parameters of an overload law, step by step, to improve an objective.
//!
//! Each step runs the scenario with one set of parameters. All steps use the same seeds, and thus
//! differ only in the parameters. The search uses the logarithms of the parameters: the distance
//! from 5 to 10 is the same as from 50 to 100. The result is evaluated with other seeds.

mod picture;
mod seek;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use tidegate_control::Values;
use tidegate_control::registry::{Entry, Param, Range};

use crate::outcome::Outcome;
use crate::run_spec::{RunSpec, runs};
use crate::runs::{self, Observer};
use crate::scenario::{Scenario, Variant};
use crate::store::Store;
use crate::summary::Spread;
use crate::worlds::{Kind, World};
pub use picture::picture;
pub use seek::{Seeker, Settings};

/// The number that is added to the seeds of the search to get the seeds for evaluating the result.
const JUDGED_BY: u64 = 1_000_000;

/// The longest delay that [`Objective::Delay`] distinguishes, as a multiple of the deadline. A run
/// in which no call was set up has this delay.
const HOPELESS: f64 = 10.0;

/// The quantity that tuning improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Goodput as a fraction of the greatest possible goodput, averaged over the loads. More is
    /// better.
    Goodput,
    /// Set-up delay that 1 % of the calls exceed, as a multiple of the deadline, averaged over the
    /// loads. Less is better.
    Delay,
}

impl Objective {
    /// Returns the title of the objective for the axis of a figure.
    pub fn title(self) -> &'static str {
        match self {
            Self::Goodput => "goodput ÷ bound",
            Self::Delay => "p99 of the set-up delay ÷ deadline",
        }
    }

    fn of(self, run: &RunSpec, outcome: &Outcome) -> f64 {
        match self {
            Self::Goodput => outcome.goodput_of_bound(run).unwrap_or(0.0),
            Self::Delay => {
                let delay = outcome.set_up_delay.as_ref();
                let deadlines = delay.map(|delay| delay.p99_ms / run.conditions.deadline_ms);
                deadlines.unwrap_or(HOPELESS).min(HOPELESS)
            }
        }
    }

    /// Returns the number that the search minimizes, for the value `value` of the objective.
    fn cost(self, value: f64) -> f64 {
        match self {
            Self::Goodput => -value,
            Self::Delay => value,
        }
    }
}

/// The input of tuning.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// The scenario to run, with its sweep and its seeds. The law is tuned in the first variant
    /// that uses it, or in the first variant of the scenario if none does.
    pub scenario: Scenario,
    /// The law to tune, with its initial parameters.
    pub start: Values,
    /// The parameters to tune. Each must be above 0 at the start.
    pub sought: Vec<&'static Param>,
    /// The objective of the search.
    pub objective: Objective,
    /// Number of steps of the search.
    pub steps: u32,
    /// Settings of the search.
    pub settings: Settings,
}

impl Parameters {
    /// Returns the parameters in `start` that are tuned by default: those that are above 0 and are
    /// not switches (0 or 1).
    pub fn tunable(start: &Values) -> Vec<&'static Param> {
        let is_number = |param: &Param| param.range != Range::Whole(0, 1);
        let above = start.each().filter(|(param, value)| *value > 0.0 && is_number(param));
        above.map(|(param, _)| param).collect()
    }
}

/// One step of the search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The values of the tuned parameters with which the scenario was run, in the order of
    /// [`Parameters::sought`].
    pub tried: Vec<f64>,
    /// The best values of the parameters according to the search, before this step.
    pub estimate: Vec<f64>,
    /// The value of the objective with the parameters in `tried`.
    pub value: f64,
}

/// The result of tuning.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// All steps of the search.
    pub path: Vec<Step>,
    /// The law with the tuned parameters. Each is the geometric mean of the last quarter of its
    /// estimates.
    pub found: Values,
    /// The value of the objective with the initial parameters, under seeds that the search did not
    /// use.
    pub before: Spread,
    /// The value of the objective with the tuned parameters, under the same seeds as `before`.
    pub after: Spread,
}

/// The world, the store and the limits with which a search makes its runs.
pub struct Bench<'a> {
    /// The world in which the runs take place: simulated time or real sockets.
    pub world: &'a dyn World,
    /// Store of the outcomes. Runs with stored outcomes are not made again.
    pub store: &'a Store,
    /// Maximum number of runs at the same time.
    pub jobs: usize,
    /// The search stops when this flag becomes true.
    pub cancelled: &'a AtomicBool,
}

/// Tunes the law in `parameters`. Calls `on_step` with the number, counted from 1, and the result
/// of each step of the search.
///
/// # Errors
/// Returns an error when a run failed, when the search was stopped, or when parameters of the law
/// contradict each other.
pub fn tune(
    parameters: &Parameters,
    bench: &Bench<'_>,
    on_step: &dyn Fn(u32, &Step),
) -> Result<Tuned, String> {
    let logarithms =
        |values: &Values| parameters.sought.iter().map(|p| values.of(p).ln()).collect();
    let logarithms_of = |bounds: RangeInclusive<f64>| bounds.start().ln()..=bounds.end().ln();
    let bounds = parameters.sought.iter().map(|p| logarithms_of(p.range.bounds())).collect();
    let mut seeker = Seeker::new(logarithms(&parameters.start), bounds, parameters.settings);
    let mut path = Vec::new();
    for number in 1..=parameters.steps {
        let (tried, values) = parameters.values(&seeker.probe())?;
        let (estimate, _) = parameters.values(seeker.estimate())?;
        let results = bench.run(parameters.runs(values, 0, bench.world.kind()))?;
        let value = mean(parameters, &results);
        seeker.learn(parameters.objective.cost(value));
        let step = Step { tried, estimate, value };
        on_step(number, &step);
        path.push(step);
    }
    let (_, found) = parameters.values(&settled(&path, &logarithms(&parameters.start)))?;
    let judge = |values: Values| -> Result<Spread, String> {
        let results = bench.run(parameters.runs(values, JUDGED_BY, bench.world.kind()))?;
        let mut by_seed: Vec<(u64, Vec<(RunSpec, Outcome)>)> = Vec::new();
        for (run, outcome) in results {
            match by_seed.iter_mut().find(|(seed, _)| *seed == run.seed) {
                Some((_, group)) => group.push((run, outcome)),
                None => by_seed.push((run.seed, vec![(run, outcome)])),
            }
        }
        let of_seed = by_seed.iter().map(|(_, group)| mean(parameters, group));
        Spread::of(of_seed)
            .ok_or_else(|| "no run has a result, so there is nothing to compare".to_owned())
    };
    Ok(Tuned { path, found, before: judge(parameters.start)?, after: judge(found)? })
}

impl Parameters {
    /// Converts logarithms to parameters within their allowed ranges. Returns the tuned parameters,
    /// and the law with all its parameters.
    fn values(&self, logarithms: &[f64]) -> Result<(Vec<f64>, Values), String> {
        let bounded = |(param, ln): (&&Param, &f64)| param.range.nearest(ln.exp());
        let sought: Vec<f64> = self.sought.iter().zip(logarithms).map(bounded).collect();
        let mut given: Vec<(&str, f64)> =
            self.start.each().map(|(param, value)| (param.name, value)).collect();
        for (param, value) in self.sought.iter().zip(&sought) {
            if let Some(entry) = given.iter_mut().find(|(name, _)| *name == param.name) {
                entry.1 = *value;
            }
        }
        let entry: &'static Entry = self.start.entry();
        let values = entry.values(&given).map_err(|wrong| wrong.to_string())?;
        Ok((sought, values))
    }

    /// Returns the runs of the scenario with the law `values`. `seeds` is added to the seed of the
    /// scenario.
    fn runs(&self, values: Values, seeds: u64, world: Kind) -> Vec<RunSpec> {
        let mut scenario = self.scenario.clone();
        let law = |variant: &&Variant| variant.overload.gate.law.entry().name;
        let named = scenario.variants.iter().find(|v| law(v) == values.entry().name);
        let mut variant = named.unwrap_or(&scenario.variants[0]).clone();
        variant.overload.gate.law = values;
        scenario.variants = vec![variant];
        scenario.schedule.seed = scenario.schedule.seed.wrapping_add(seeds);
        runs(&scenario, world)
    }
}

impl Bench<'_> {
    fn run(&self, runs: Vec<RunSpec>) -> Result<Vec<(RunSpec, Outcome)>, String> {
        let count = runs.len();
        let results = runs::run(runs, self.store, self.world, self.jobs, &Unheard, self.cancelled);
        if results.len() < count || self.cancelled.load(Ordering::SeqCst) {
            return Err("stopped".to_owned());
        }
        let valid = |(run, result): (RunSpec, Result<Outcome, String>)| {
            let outcome = result?;
            match outcome.generator.doubt() {
                Some(doubt) => Err(format!("{}: {doubt}", run.place())),
                None => Ok((run, outcome)),
            }
        };
        results.into_iter().map(valid).collect()
    }
}

fn mean(parameters: &Parameters, results: &[(RunSpec, Outcome)]) -> f64 {
    let sum: f64 = results.iter().map(|(p, outcome)| parameters.objective.of(p, outcome)).sum();
    sum / results.len().max(1) as f64
}

/// Returns the logarithms of the tuned parameters: the mean of the estimates in the last quarter of
/// the steps. The mean removes the oscillation of the estimates.
fn settled(path: &[Step], start: &[f64]) -> Vec<f64> {
    let last = &path[path.len() - path.len().div_ceil(4)..];
    let mean = |i: usize| {
        let sum: f64 = last.iter().map(|step| step.estimate[i].ln()).sum();
        sum / last.len() as f64
    };
    if last.is_empty() { start.to_vec() } else { (0..start.len()).map(mean).collect() }
}

/// An observer of runs that does nothing.
struct Unheard;

impl Observer for Unheard {
    fn on_start(&self, _: &[&RunSpec], _: usize) {}
    fn ended(&self, _: &RunSpec, _: &Result<Outcome, String>) {}
    fn end(&self) {}
}

#[cfg(test)]
#[path = "tune/tests.rs"]
mod tests;
