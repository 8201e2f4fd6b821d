//! Reproduces the claims of papers: runs the scenarios that a claim names, and judges the claim by
//! their results.

mod claims;
mod expression;
mod judge;
mod measure;
mod origin;
mod page;
mod points;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::{fmt, fs, io};

pub use claims::{Claim, Claims, Grade, Paper, Setup};
pub use judge::{Finding, Range};
pub use origin::Origin;
pub use page::{Page, Stale};

use crate::experiment::Runner;
use crate::outcome::Outcome;
use crate::run_spec::RunSpec;
use crate::runs::Observer;
use crate::scenario::Scenario;
use crate::store::Programs;
use crate::worlds::World;
use expression::{Evaluator, Need};
use points::Points;

/// The settings for reproducing claims.
pub struct Reproduction<'a> {
    /// Claims of all papers.
    pub claims: &'a Claims,
    /// Folder of the scenarios that the claims name.
    pub scenarios: &'a Path,
    /// Folder of the results. It contains a folder for each set-up (a scenario with changes).
    pub folder: &'a Path,
    /// The programs that make the runs.
    pub programs: &'a Programs,
    /// The world in which the runs take place: simulated time or real sockets.
    pub world: &'a dyn World,
    /// Maximum number of runs at the same time.
    pub jobs: usize,
    /// True if each set-up is run in its short form, which has the values in [`Setup::quick`] and
    /// only one run for each parameter set.
    pub quick: bool,
    /// The observer that is told the progress of the runs.
    pub observer: &'a dyn Observer,
    /// Set to true to stop [`perform`](Self::perform) early.
    pub cancelled: &'a AtomicBool,
}

impl Reproduction<'_> {
    /// Runs the parts of the set-ups that the `selected` claims use, and returns a finding for each
    /// claim, in the same order. Returns `None` if [`cancelled`](Self::cancelled) became true. The
    /// results of finished runs are kept on disk.
    ///
    /// # Errors
    /// Returns a sentence that names the faulty claim or scenario.
    pub fn perform(&self, selected: &[&Claim]) -> Result<Option<Vec<Finding>>, String> {
        let mut needs = Vec::new();
        let mut origins = Vec::new();
        for claim in selected {
            needs.extend(expression::needs(claim)?);
            origins.push(Origin::of(claim, self.claims, self.scenarios)?);
        }
        let ids: BTreeSet<&str> = needs.iter().map(|need| &*need.setup).collect();
        let mut points = Points::default();
        for setup in self.claims.setups().filter(|setup| ids.contains(&*setup.id)) {
            let mut scenario = changed(self.scenarios, setup, self.quick)?;
            restrict(&mut scenario, needs.iter().filter(|need| need.setup == setup.id));
            if !self.run(setup, &scenario, &mut points)? {
                return Ok(None);
            }
        }
        let evaluator = Evaluator::new(points);
        let found = selected.iter().zip(origins);
        let found = found.map(|(claim, origin)| judge::judge(claim, &evaluator, origin));
        found.collect::<Result<_, _>>().map(Some)
    }

    /// Runs `scenario` and adds its runs to `points`. Returns `false` if
    /// [`cancelled`](Self::cancelled) became true.
    fn run(&self, setup: &Setup, scenario: &Scenario, points: &mut Points) -> Result<bool, String> {
        let folder = self.folder.join(&setup.id);
        let runner = Runner {
            folder: &folder,
            programs: self.programs,
            world: self.world,
            jobs: self.jobs,
            observer: self.observer,
            highlight: &[],
            cancelled: self.cancelled,
        };
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        let Some(experiment) = runner.perform(scenario).map_err(failed)? else { return Ok(false) };
        if let Some((run, what)) = experiment.failed.first() {
            return Err(format!("{}: {}, {}: {what}", setup.id, run.variant.name(), run.place()));
        }
        let doubt = |(run, outcome): &(RunSpec, Outcome)| {
            let doubt = outcome.generator.doubt()?;
            Some(format!("{}: {}, {}: {doubt}", setup.id, run.variant.name(), run.place()))
        };
        if let Some(doubt) = experiment.done.iter().find_map(doubt) {
            return Err(doubt);
        }
        // Repetitions that are the same run have no spread, so no verdict may be based on them.
        if let Some(equal) = experiment.verdicts.iter().find(|verdict| !verdict.held) {
            return Err(format!("{}: {}", setup.id, equal.condition));
        }
        points.add(&setup.id, experiment, &folder);
        Ok(true)
    }
}

/// Checks every claim without running anything. The rule of a claim must accept the numbers of the
/// paper, and reject the wrong numbers in `planted`. The scenarios of the claim, in the folder
/// `scenarios`, must contain the runs that its expressions use.
///
/// # Errors
/// Returns a sentence that names the faulty claim.
pub fn check(claims: &Claims, scenarios: &Path) -> Result<(), String> {
    let mut both = BTreeMap::new();
    for setup in claims.setups() {
        let read = |quick| changed(scenarios, setup, quick);
        both.insert(&*setup.id, [read(false)?, read(true)?]);
    }
    for claim in claims.all() {
        judge::check(claim)?;
        for need in expression::needs(claim)? {
            let wrong = |what: &str| format!("{}: `{}` {what}", claim.id, need.setup);
            let scenarios =
                both.get(&*need.setup).ok_or_else(|| wrong("is not the name of a set-up"))?;
            scenarios
                .iter()
                .try_for_each(|scenario| check_need(&need, scenario))
                .map_err(|what| wrong(&what))?;
        }
    }
    Ok(())
}

/// Checks that `scenario` contains the run that `need` describes.
fn check_need(need: &Need, scenario: &Scenario) -> Result<(), String> {
    let is_it = |name: &str| name == need.variant;
    let mut variants = scenario.variants.iter();
    if !variants.any(|variant| is_it(&variant.label) || is_it(&variant.name())) {
        return Err(format!("has no variant `{}`", need.variant));
    }
    for (name, value) in &need.swept {
        let mut axes = scenario.sweep.iter();
        if !axes.any(|(axis, values)| axis.name() == name && values.contains(value)) {
            return Err(format!("has no runs with `{name} = {value}`"));
        }
    }
    Ok(())
}

/// Returns the path of the scenario file of `setup`.
fn file(scenarios: &Path, setup: &Setup) -> PathBuf {
    scenarios.join(format!("{}.toml", setup.scenario))
}

/// Returns the keys and values of the scenario of `setup`, after the changes of the set-up. If
/// `quick` is true, the changes for the short form are made too.
fn merged(scenarios: &Path, setup: &Setup, quick: bool) -> Result<toml::Table, String> {
    let path = file(scenarios, setup);
    let wrong = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(&path).map_err(|error| wrong(&error))?;
    let mut table: toml::Table = text.parse().map_err(|error| wrong(&error))?;
    let surplus = |error: String| format!("{}: {error}", setup.id);
    claims::merge(&mut table, &setup.change).map_err(surplus)?;
    if quick {
        claims::merge(&mut table, &setup.quick).map_err(surplus)?;
    }
    Ok(table)
}

/// Returns the scenario of `setup`, after the changes of the set-up and without the scenario's own
/// expectations. If `quick` is true, returns the short form of the scenario.
fn changed(scenarios: &Path, setup: &Setup, quick: bool) -> Result<Scenario, String> {
    let path = file(scenarios, setup);
    let table = merged(scenarios, setup, quick)?;
    let text = toml::to_string(&table).map_err(|error| format!("{}: {error}", path.display()))?;
    let parsed = Scenario::parse(&path, text.as_bytes());
    let mut scenario = parsed.map_err(|error| format!("{}: {error}", setup.id))?;
    if quick {
        scenario.schedule.repetitions = 1;
    }
    // The rules of the claims judge the scenario, not its own expectations.
    scenario.expectations.clear();
    Ok(scenario)
}

/// Removes from `scenario` the variants and swept values that no element of `needs` names. If an
/// element names no value of a swept condition, all values of the condition are kept.
fn restrict<'a>(scenario: &mut Scenario, needs: impl Iterator<Item = &'a Need> + Clone) {
    let named = |label: &str, name: &str| {
        needs.clone().any(|need| need.variant == label || need.variant == name)
    };
    scenario.variants.retain(|variant| named(&variant.label, &variant.name()));
    for (axis, values) in &mut scenario.sweep {
        let asked: Option<Vec<f64>> =
            needs.clone().map(|need| need.swept.get(axis.name()).copied()).collect();
        if let Some(asked) = asked {
            values.retain(|value| asked.contains(value));
        }
    }
}
