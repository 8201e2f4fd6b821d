//! A scenario from its points to its files.

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
use crate::{export, plots};

/// What came of a scenario.
#[derive(Debug)]
pub struct Experiment {
    /// A row for each variant and set of conditions.
    pub rows: Vec<Row>,
    /// What was expected, and whether it came true.
    pub verdicts: Vec<Verdict>,
    /// Runs that failed, and why.
    pub failed: Vec<(RunSpec, String)>,
    /// The code that ran.
    pub program: String,
    /// The machine it ran on, if that matters: simulated time is the same on all.
    pub machine: Option<Machine>,
}

/// Who runs scenarios, and where what comes of them lies.
pub struct Runner<'a> {
    /// The folder of results; points lie in `runs` within it.
    pub folder: &'a Path,
    /// The code that runs.
    pub programs: &'a Programs,
    /// Where points are run.
    pub world: &'a dyn World,
    /// How many at once.
    pub jobs: usize,
    /// Who is told how it goes.
    pub observer: &'a dyn Observer,
    /// Becomes true when it is to stop.
    pub cancelled: &'a AtomicBool,
}

impl Runner<'_> {
    /// Runs what is missing of `scenario`, and writes tables and figures of all of it:
    /// `results.csv`, `results.json`, `*.svg`, `*.png`, `report.html`, the scenario's text, the
    /// costs, and a folder for each point. `None` if it was cancelled; what was run by then is
    /// kept.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn perform(&self, scenario: &Scenario) -> io::Result<Option<Experiment>> {
        let (folder, kind) = (self.folder, self.world.kind());
        let store = self.store()?;
        let Some(results) = self.run(runs(scenario, kind), &store) else { return Ok(None) };
        let done: Vec<(&RunSpec, &Outcome)> =
            results.iter().filter_map(|(run, result)| Some((run, result.as_ref().ok()?))).collect();
        let rows = summary::rows(done.iter().copied());
        let verdicts = verdict::judge(&scenario.expectations, &rows);
        let machine = (kind == Kind::Real).then(Machine::this);

        fs::write(folder.join("scenario.toml"), &scenario.text)?;
        fs::write(folder.join("costs.toml"), emulate_toml(&scenario.conditions.emulate))?;
        fs::write(folder.join("results.csv"), export::csv(&done)?)?;
        let program = store.program();
        let json = export::json(scenario, kind, program, machine.as_ref(), &done, &rows, &verdicts);
        fs::write(folder.join("results.json"), serde_json::to_vec_pretty(&json)?)?;
        for (name, figure) in plots::figures(scenario, &rows) {
            fs::write(folder.join(name).with_extension("svg"), figure.svg())?;
            fs::write(folder.join(name).with_extension("png"), figure.png())?;
        }
        let report = Report::read(&[folder]).map_err(io::Error::other)?;
        fs::write(folder.join("report.html"), report.html())?;
        let (program, failed) = (program.to_owned(), failed(results));
        Ok(Some(Experiment { rows, verdicts, failed, program, machine }))
    }

    /// Runs what is missing of the points of `scenario` that are `shard`'s. Once all shards were
    /// run into one folder, [`perform`](Self::perform) finds every point there. The points that
    /// failed, and why; `None` if it was cancelled.
    ///
    /// # Errors
    /// When something cannot be written.
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

    /// What came of `runs`; `None` if some were not run.
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
