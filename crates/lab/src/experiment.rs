//! Runs a scenario, and writes its results to files.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use tidegate_server::config::emulate_toml;

use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::report::Report;
use crate::run_spec::{RunSpec, Shard, runs};
use crate::runs::{self, Observer};
use crate::scenario::Scenario;
use crate::store::{Programs, Store};
use crate::summary::{self, Row};
use crate::verdict::{self, Verdict};
use crate::worlds::{Kind, World};
use crate::{export, plots, repetitions, shares};

/// The results of a scenario.
#[derive(Debug)]
pub struct Experiment {
    /// One row for each parameter set.
    pub rows: Vec<Row>,
    /// The verdicts on the expectations of the scenario. If all repetitions of a parameter set have
    /// the same outcome, a failed verdict says so.
    pub verdicts: Vec<Verdict>,
    /// The runs that succeeded, with their outcomes.
    pub done: Vec<(RunSpec, Outcome)>,
    /// The runs that failed, with the reason of each failure.
    pub failed: Vec<(RunSpec, String)>,
    /// Hash of the programs that made the runs.
    pub program: String,
    /// The machine on which the runs were made. `None` in simulated time, which is the same on
    /// every machine.
    pub machine: Option<Machine>,
}

/// The settings for running scenarios.
pub struct Runner<'a> {
    /// Folder of results. The runs are in the subfolder `points` of this folder.
    pub folder: &'a Path,
    /// The programs that make the runs.
    pub programs: &'a Programs,
    /// World of the runs: simulated time or real sockets.
    pub world: &'a dyn World,
    /// Maximum number of runs at the same time.
    pub jobs: usize,
    /// The observer of the progress of the runs.
    pub observer: &'a dyn Observer,
    /// Names of the curves to highlight in the figures and the report. The names matter only if
    /// there are too many curves to highlight all.
    pub highlight: &'a [String],
    /// A flag that stops the runs when it becomes true.
    pub cancelled: &'a AtomicBool,
}

impl Runner<'_> {
    /// Runs those runs of `scenario` that have no result yet, and writes the tables and figures of
    /// all runs: `results.csv`, `results.json`, `*.svg`, `*.png`, `report.html`, the scenario's
    /// text, the costs, and a folder for each run. Returns `None` if [`cancelled`](Self::cancelled)
    /// became true. The results of finished runs are kept.
    ///
    /// # Errors
    /// Returns an error when a file cannot be written.
    pub fn perform(&self, scenario: &Scenario) -> io::Result<Option<Experiment>> {
        let (folder, kind) = (self.folder, self.world.kind());
        let store = self.store()?;
        let Some(results) = self.run(runs(scenario, kind), &store) else { return Ok(None) };
        let done: Vec<(&RunSpec, &Outcome)> =
            results.iter().filter_map(|(run, result)| Some((run, result.as_ref().ok()?))).collect();
        let rows = summary::rows(done.iter().copied());
        let planned = results.iter().map(|(run, _)| run);
        let mut verdicts = verdict::judge(&scenario.expectations, planned, &rows);
        verdicts.extend(repetitions::judge(&done));
        let machine = (kind == Kind::Real).then(Machine::this);

        fs::write(folder.join("scenario.toml"), &scenario.text)?;
        fs::write(folder.join("costs.toml"), emulate_toml(&scenario.conditions.emulate))?;
        fs::write(folder.join("results.csv"), export::csv(&done)?)?;
        let program = store.program();
        let json =
            export::json(scenario, kind, program, machine.as_ref(), &results, &rows, &verdicts);
        fs::write(folder.join("results.json"), serde_json::to_vec_pretty(&json)?)?;
        for (name, figure) in plots::figures(scenario, &rows, self.highlight) {
            figure.save(folder, name)?;
        }
        if let Some(figure) = shares::figure(scenario, &done, &folder.join("points"), program) {
            figure.save(folder, "shares")?;
        }
        let report = Report::read(&[folder], self.highlight).map_err(io::Error::other)?;
        fs::write(folder.join("report.html"), report.html())?;
        let program = program.to_owned();
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for (run, result) in results {
            match result {
                Ok(outcome) => done.push((run, outcome)),
                Err(what) => failed.push((run, what)),
            }
        }
        Ok(Some(Experiment { rows, verdicts, done, failed, program, machine }))
    }

    /// Runs those runs of `scenario` that belong to `shard` and have no result yet. Returns the
    /// failed runs with the reason, or `None` if [`cancelled`](Self::cancelled) became true. When
    /// all shards have run into one folder, [`perform`](Self::perform) finds every run there.
    ///
    /// # Errors
    /// Returns an error when a file cannot be written.
    pub fn contribute(
        &self,
        scenario: &Scenario,
        shard: Shard,
    ) -> io::Result<Option<Vec<(RunSpec, String)>>> {
        let own = shard.of(runs(scenario, self.world.kind()));
        Ok(self.run(own, &self.store()?).map(failed))
    }

    fn store(&self) -> io::Result<Store> {
        Store::open(&self.folder.join("points"), self.programs)
    }

    /// Returns the results of `runs`, or `None` if [`cancelled`](Self::cancelled) became true
    /// before all of them were run.
    fn run(&self, runs: Vec<RunSpec>, store: &Store) -> Option<Vec<runs::Run>> {
        let count = runs.len();
        let results = runs::run(runs, store, self.world, self.jobs, self.observer, self.cancelled);
        (results.len() == count).then_some(results)
    }
}

fn failed(results: Vec<runs::Run>) -> Vec<(RunSpec, String)> {
    let failed = results.into_iter().filter_map(|(run, result)| Some((run, result.err()?)));
    failed.collect()
}
