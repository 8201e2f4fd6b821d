//! A scenario from its points to its files.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use tidegate_server::config::emulate_toml;

use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::point::{Point, points};
use crate::report::Report;
use crate::runs::{self, Observer};
use crate::scenario::Scenario;
use crate::store::Store;
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
    pub failed: Vec<(Point, String)>,
    /// The code that ran.
    pub program: String,
    /// The machine it ran on, if that matters: simulated time is the same on all.
    pub machine: Option<Machine>,
}

/// Runs what is missing of `scenario` in `world`, `jobs` points at once, and writes tables and
/// figures of all of it to `folder`: `results.csv`, `results.json`, `*.svg`, `*.png`,
/// `report.html`, the scenario's text and the costs, and a folder for each point in `points`.
/// `None` if it was cancelled; what was run by then is kept.
///
/// # Errors
/// When something cannot be written.
pub fn perform(
    scenario: &Scenario,
    folder: &Path,
    program: &Path,
    world: &dyn World,
    jobs: usize,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> io::Result<Option<Experiment>> {
    let store = Store::open(&folder.join("points"), program)?;
    let all = points(scenario, world.kind());
    let count = all.len();
    let results = runs::run(all, &store, world, jobs, observer, cancelled);
    if results.len() < count {
        return Ok(None);
    }
    let done: Vec<(&Point, &Outcome)> =
        results.iter().filter_map(|(point, result)| Some((point, result.as_ref().ok()?))).collect();
    let rows = summary::rows(done.iter().copied());
    let verdicts = verdict::judge(&scenario.expectations, &rows);
    let machine = (world.kind() == Kind::Real).then(Machine::this);

    fs::write(folder.join("scenario.toml"), &scenario.text)?;
    fs::write(folder.join("costs.toml"), emulate_toml(&scenario.conditions.emulate))?;
    fs::write(folder.join("results.csv"), export::csv(&done)?)?;
    let json = export::json(
        scenario,
        world.kind(),
        store.program(),
        machine.as_ref(),
        &done,
        &rows,
        &verdicts,
    );
    fs::write(folder.join("results.json"), serde_json::to_vec_pretty(&json)?)?;
    for (name, figure) in plots::figures(scenario, &rows) {
        fs::write(folder.join(name).with_extension("svg"), figure.svg())?;
        fs::write(folder.join(name).with_extension("png"), figure.png())?;
    }
    let report = Report::read(&[folder]).map_err(io::Error::other)?;
    fs::write(folder.join("report.html"), report.html())?;
    let program = store.program().to_owned();
    let failed = results.into_iter().filter_map(|(point, result)| Some((point, result.err()?)));
    let failed = failed.collect();
    Ok(Some(Experiment { rows, verdicts, failed, program, machine }))
}
