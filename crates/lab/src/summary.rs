//! Combines the runs of each parameter set, for tables and figures.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::cost::Capacity;
use crate::outage::Outage;
use crate::outcome::Outcome;
use crate::recovery::overload_ends;
use crate::run_spec::RunSpec;
use crate::scenario::{Axis, Scenario, Variant};
pub use crate::spread::Spread;
use crate::worlds::{load, mean_load};

/// The runs of one parameter set: one variant under one set of conditions.
#[derive(Clone, Debug)]
pub struct Row {
    /// The variant that was run.
    pub variant: Variant,
    /// The swept conditions except the load, each with its value.
    pub swept: Vec<(Axis, f64)>,
    /// The results of the parameter set.
    pub figures: Figures,
    /// Values that describe the outage in the runs, or `None` if no run has an outage.
    pub outage: Option<OutageRow>,
}

/// The results of one parameter set, as they are written to `results.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Figures {
    /// Nominal load as a multiple of the capacity. The load profile multiplies it.
    pub load: f64,
    /// The average load that is offered in the measured time, as a multiple of the capacity. It
    /// differs from [`load`](Self::load) if the load has a profile over time, or is a trace.
    pub mean_load: f64,
    /// Greatest possible goodput at the mean load, as a fraction of the capacity.
    pub bound: f64,
    /// Number of runs of the parameter set.
    pub runs: usize,
    /// Goodput as a fraction of the capacity.
    pub goodput: Spread,
    /// Goodput as a fraction of the greatest possible goodput at the load that was actually offered
    /// in the run. `None` if no goodput is possible at that load in one of the runs.
    pub goodput_of_bound: Option<Spread>,
    /// Number of retransmitted INVITEs divided by the number of offered calls.
    pub retransmission_ratio: Spread,
    /// The fraction of the calls that was rejected.
    pub rejected: Spread,
    /// Median set-up delay in ms. `None` if no call was set up in any run.
    pub p50_ms: Option<Spread>,
    /// Set-up delay in ms that 1 % of the calls exceeded. `None` if no call was set up in any run.
    pub p99_ms: Option<Spread>,
    /// Seconds from the end of the overload until the goodput had recovered, in the runs that
    /// recovered. `None` if no overload ended, or if no run recovered.
    pub recovery_s: Option<Spread>,
    /// Number of runs whose goodput recovered after the overload. `None` if no overload ended.
    pub recovered: Option<usize>,
    /// The fraction of a core that the busiest thread of the load generator used, as the maximum
    /// over all runs.
    pub generator_load: f64,
    /// Number of datagrams that the load generator lost in all runs together.
    pub drops: u64,
    /// Number of runs in which the load generator could not offer the requested load.
    pub too_slow: usize,
}

impl Deref for Row {
    type Target = Figures;

    fn deref(&self) -> &Figures {
        &self.figures
    }
}

impl Row {
    /// Returns whether `run` belongs to the parameter set of this row.
    pub(crate) fn includes(&self, run: &RunSpec) -> bool {
        let beside_load = run.swept.iter().filter(|(axis, _)| *axis != Axis::LOAD);
        self.variant == run.variant
            && self.load == run.conditions.load
            && self.swept.iter().eq(beside_load)
    }
}

/// Returns the capacity of the servers under test in calls/s, or `None` if it is not the same in
/// all `rows` of `scenario`. It differs if the number of servers is swept.
pub fn capacity_cps(scenario: &Scenario, rows: &[Row]) -> Option<f64> {
    let capacity = |row: &Row| {
        let mut conditions = scenario.conditions.clone();
        row.swept.iter().for_each(|&(axis, value)| axis.set(&mut conditions, value));
        Capacity::under(&conditions).cps
    };
    let first = rows.first().map_or_else(|| Capacity::under(&scenario.conditions).cps, capacity);
    rows.iter().all(|row| (capacity(row) - first).abs() < 1e-6 * first).then_some(first)
}

/// Values that describe an outage, summarized over several runs. [`Outage`] explains the values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutageRow {
    /// The fraction of the people who were answered, at any attempt.
    pub served: Spread,
    /// The fraction of the offered calls that were redials.
    pub redials: Spread,
    /// Work that waits when the cause of the outage ends, in seconds of work at full capacity.
    pub backlog_s: Spread,
    /// Seconds from the end of the cause until the goodput has recovered, in the runs that
    /// recovered. `None` if no run recovered.
    pub recovered_s: Option<Spread>,
    /// Number of runs whose goodput recovered.
    pub recovered: usize,
    /// Number of calls set up in time divided by the number of first attempts, both in the last 30
    /// s of the load.
    pub goodput_end: Spread,
    /// The fraction of the devices that are registered at the end of the run. `None` if there are
    /// no devices.
    pub registered_end: Option<Spread>,
    /// The fraction of the emergency calls that was set up in time. `None` if there were no
    /// emergency calls.
    pub emergency: Option<Spread>,
}

impl OutageRow {
    fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome> + Clone) -> Option<Self> {
        let outages = || outcomes.clone().filter_map(|outcome| outcome.outage.as_ref());
        let of = |figure: fn(&Outage) -> f64| Spread::of(outages().map(figure));
        let redials = |outcome: &Outcome| outcome.redials() as f64 / outcome.offered.max(1) as f64;
        let recovered = || outages().filter_map(|outage| outage.recovered_s);
        Some(Self {
            backlog_s: of(|outage| outage.backlog_s)?,
            goodput_end: of(|outage| outage.goodput_end)?,
            served: Spread::of(outcomes.clone().map(Outcome::served_part))?,
            redials: Spread::of(outcomes.clone().map(redials))?,
            recovered_s: Spread::of(recovered()),
            recovered: recovered().count(),
            registered_end: Spread::of(outages().filter_map(|outage| outage.registered_end)),
            emergency: Spread::of(outages().filter_map(Outage::emergency_part)),
        })
    }
}

/// Returns a row for each parameter set, in the order in which the sets first occur in `results`.
pub fn rows<'a>(results: impl IntoIterator<Item = (&'a RunSpec, &'a Outcome)>) -> Vec<Row> {
    groups(results).iter().map(|group| row(group)).collect()
}

/// Groups the runs by parameter set, in the order in which the sets first occur in `results`.
pub(crate) fn groups<'a>(
    results: impl IntoIterator<Item = (&'a RunSpec, &'a Outcome)>,
) -> Vec<Vec<(&'a RunSpec, &'a Outcome)>> {
    let mut groups: Vec<Vec<(&RunSpec, &Outcome)>> = Vec::new();
    for (run, outcome) in results {
        let alike = |group: &&mut Vec<(&RunSpec, &Outcome)>| {
            let (other, _) = group[0];
            other.variant == run.variant && other.swept == run.swept
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push((run, outcome)),
            None => groups.push(vec![(run, outcome)]),
        }
    }
    groups
}

fn row(runs: &[(&RunSpec, &Outcome)]) -> Row {
    let (run, _) = runs[0];
    let (capacity, mean_load) = (run.capacity_cps(), mean_load(run));
    let outcomes = || runs.iter().map(|(_, outcome)| *outcome);
    let spread = |value: fn(&Outcome) -> f64| {
        Spread::of(outcomes().map(value)).expect("a group has at least one run")
    };
    let of_bound: Option<Vec<f64>> =
        outcomes().map(|outcome| outcome.goodput_of_bound(run)).collect();
    let delay = |value: fn(&crate::outcome::Quantiles) -> f64| {
        Spread::of(outcomes().filter_map(|outcome| outcome.set_up_delay.as_ref().map(value)))
    };
    let recovered = || outcomes().filter_map(|outcome| outcome.recovery_s);
    let busiest =
        |outcome: &Outcome| outcome.generator.caller_load.max(outcome.generator.answerer_load);
    Row {
        variant: run.variant.clone(),
        swept: run.swept.iter().copied().filter(|(axis, _)| *axis != Axis::LOAD).collect(),
        figures: Figures {
            load: run.conditions.load,
            mean_load,
            bound: run.bound(mean_load),
            runs: runs.len(),
            goodput: spread(Outcome::goodput_cps).scaled(1.0 / capacity),
            goodput_of_bound: Spread::of(of_bound.into_iter().flatten()),
            retransmission_ratio: spread(Outcome::retransmission_ratio),
            rejected: spread(Outcome::rejected_part),
            p50_ms: delay(|delay| delay.p50_ms),
            p99_ms: delay(|delay| delay.p99_ms),
            recovery_s: Spread::of(recovered()),
            recovered: overload_ends(&load(run, 1.0), capacity).map(|_| recovered().count()),
            generator_load: outcomes().map(busiest).fold(0.0, f64::max),
            drops: outcomes().map(|outcome| outcome.generator.drops).sum(),
            too_slow: outcomes().filter(|outcome| outcome.generator.too_slow.is_some()).count(),
        },
        outage: OutageRow::of(outcomes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_spec::runs;
    use crate::testing::planned;
    use crate::worlds::Kind;

    /// Returns the mean load and the bound of a scenario at a load of 2 whose rejections cost a
    /// tenth of a call.
    fn bound_of(lines: &str) -> (f64, f64) {
        let text = format!(
            "[emulate]\nserve_us = 1000\nreject_us = 600\n\
             [sweep]\nload = [2]\n[schedule]\nwarm_up_s = 10\nmeasured_s = 20\n\
             [[variant]]\noverload = {{}}\n{lines}"
        );
        let runs = planned(&text, Kind::Sim);
        let outcome = Outcome { offered: 1, measured_s: 20.0, ..Outcome::default() };
        let row = rows([(&runs[0], &outcome)]).remove(0);
        (row.mean_load, row.bound)
    }

    /// The mean recovery time does not show how many runs did not recover.
    #[test]
    fn a_row_says_how_many_runs_recovered() {
        let recovered_of = |profile: &str, times: [Option<f64>; 3]| {
            let text = format!(
                "[emulate]\nserve_us = 1000\n[workload]\nprofile = \"{profile}\"\n\
                 [schedule]\nwarm_up_s = 0\nmeasured_s = 30\n[[variant]]\noverload = {{}}\n"
            );
            let runs = planned(&text, Kind::Sim);
            let outcome =
                |recovery_s| Outcome { recovery_s, measured_s: 1.0, ..Outcome::default() };
            let outcomes = times.map(outcome);
            let row = rows(outcomes.iter().map(|outcome| (&runs[0], outcome))).remove(0);
            (row.recovered, row.recovery_s.map(|time| time.mean))
        };
        let ends = "steps:0=2,10=0.5";
        assert_eq!(recovered_of(ends, [Some(1.0), None, Some(3.0)]), (Some(2), Some(2.0)));
        assert_eq!(recovered_of(ends, [None; 3]), (Some(0), None));
        assert_eq!(recovered_of("steps:0=2", [None; 3]), (None, None), "it does not end");
    }

    #[test]
    fn the_load_of_a_trace_is_that_of_its_calls_in_the_measured_time() {
        let folder = tempfile::tempdir().unwrap();
        // There are 10 calls/s in the warm-up, 500 calls/s in the measured time, and then none.
        let warm_up = (0..100).map(|index| f64::from(index) / 10.0);
        let measured = (1..=10_000).map(|index| 10.0 + f64::from(index) / 500.0);
        let times = warm_up.chain(measured).chain([100.0]);
        let trace: String = times.map(|at| format!("{at:.3}\n")).collect();
        std::fs::write(folder.path().join("calls.txt"), trace).unwrap();
        let text = "title = \"t\"\n[emulate]\nserve_us = 1000\nreject_us = 600\n\
                    [workload]\narrivals = \"trace:calls.txt\"\n\
                    [schedule]\nwarm_up_s = 10\nmeasured_s = 20\n\
                    [[variant]]\noverload = {}\n";
        let scenario = Scenario::parse(&folder.path().join("s.toml"), text.as_bytes());
        let runs = runs(&scenario.unwrap_or_else(|wrong| panic!("{wrong}")), Kind::Sim);
        let outcome = Outcome { offered: 1, measured_s: 20.0, ..Outcome::default() };
        let row = rows([(&runs[0], &outcome)]).remove(0);
        // A call takes 6 ms.
        assert!((row.load - 101.01 * 0.006).abs() < 1e-9, "{}", row.load);
        assert!((row.mean_load - 3.0).abs() < 1e-9, "{}", row.mean_load);
        assert!((row.bound - 0.7 / 0.9).abs() < 1e-9, "{}", row.bound);
        assert_eq!(row.recovered, None);
    }

    #[test]
    fn the_bound_is_that_of_the_load_in_the_measured_time() {
        let profile = |steps: &str| format!("[workload]\nprofile = \"steps:{steps}\"\n");
        let node = |name: &str, steps: &str| {
            format!("[[node]]\nname = \"{name}\"\nto = [\"re\"]\nprofile = \"steps:{steps}\"\n")
        };
        let tested = "[[node]]\nname = \"re\"\nto = [\"answerers\"]\nunder_test = true\n";
        for (lines, load) in [
            (String::new(), 2.0),
            (profile("0=0.6"), 1.2),
            // The rate during the warm-up does not count.
            (profile("0=5,10=1,20=0.5"), 1.5),
            (profile("0=0.1"), 0.2),
            // Each of the two nodes gets half of the load.
            (node("a", "0=1") + &node("b", "0=0.5") + tested, 1.5),
        ] {
            let (mean_load, bound) = bound_of(&lines);
            assert!((mean_load - load).abs() < 1e-9, "{lines}: {mean_load}");
            let expected = if load <= 1.0 { load } else { (1.0 - load / 10.0) / 0.9 };
            assert!((bound - expected).abs() < 1e-9, "{lines}: {bound}");
        }
    }
}
