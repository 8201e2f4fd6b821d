//! The tournament: runs every overload law in every scenario of a folder, in simulated time.
//!
//! Each law is run on one or two paths. On the *same path*, all laws decide, queue and reject as
//! the scenario says, and differ only in the law itself. On its *own path*, a law decides, queues
//! and rejects as in the paper or program from which it comes, according to the file
//! `own-paths.toml`. Both paths treat sources as the scenario says. If a law does better on its own
//! path, the reason is a cheaper rejection or another queue, not the law. A few laws also have the
//! parameters of the paper or program on their own path, and the parameters may then be the reason.
//! With the same seed, all laws get the same calls.

mod report;
mod score;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::{fs, io};

use serde::Serialize;
use serde_json::{Value, json};
use tidegate_control::registry;
use tidegate_world::unit_enum;

use crate::catalogue;
use crate::outcome::Outcome;
use crate::repetitions;
use crate::run_spec::{RunSpec, at_speed, runs};
use crate::runs::each;
use crate::scenario::{Scenario, Variant};
use crate::worlds::{Kind, World};
pub use score::{Cell, Place, Score};

/// Name of the file that describes the laws' own paths.
const OWN_PATHS: &str = "own-paths.toml";

unit_enum! {
    /// The path of a law: the settings with which the law decides, queues and rejects.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Route {
        /// The settings of the scenario, the same for all laws.
        Same = "same path",
        /// The settings of the paper or program from which the law comes.
        Own = "own path",
    }
}

/// The scenarios and laws of a tournament, with the laws' own paths.
#[derive(Clone, Debug)]
pub struct Tournament {
    /// The scenarios, in the order of their files. Each combination of swept conditions is a bout.
    scenarios: Vec<Scenario>,
    /// The laws that are compared, in the order of the registry.
    laws: Vec<&'static str>,
    /// The settings of the laws that have their own path. Other laws are run on the same path only.
    own: Vec<Variant>,
    seeds: u32,
    speeds: Vec<f64>,
}

/// The laws, scenarios, seeds and speeds of a tournament. An empty list of laws or scenarios
/// selects all of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names of the selected laws.
    pub laws: Vec<String>,
    /// Names of the selected scenarios.
    pub scenarios: Vec<String>,
    /// Number of runs of each law on each path in each bout.
    pub seeds: u32,
    /// Speeds of the server, as multiples of the speed in the scenario. Each speed gives separate
    /// bouts.
    pub speeds: Vec<f64>,
}

/// A bout of a tournament: the results of all laws under one set of conditions.
#[derive(Clone, Debug)]
pub struct Bout {
    /// The name of the scenario with the values of its swept conditions, and with the speed if it
    /// is not 1.
    pub name: String,
    /// The subject of the scenario, in one line.
    pub title: String,
    /// The results of each law on each of its paths ([`Route`]).
    pub cells: Vec<Cell>,
}

/// The result of a tournament.
#[derive(Clone, Debug)]
pub struct Results {
    /// The bouts, in the order in which they were run.
    pub bouts: Vec<Bout>,
    /// The laws that were compared.
    pub laws: Vec<&'static str>,
    /// The laws that have other parameters than their defaults on their own path.
    pub tuned: Vec<&'static str>,
    /// Number of runs of each law on each path in each bout.
    pub seeds: u32,
}

impl Tournament {
    /// Reads the scenarios that `selection` names from `folder`.
    ///
    /// # Errors
    /// Returns a sentence that describes the error, such as an invalid scenario file or an unknown
    /// name.
    pub fn load(folder: &Path, selection: Selection) -> Result<Self, String> {
        let read = |path: &Path| Scenario::load(path).map_err(|wrong| wrong.to_string());
        let own = read(&folder.join(OWN_PATHS))?.variants;
        let files = catalogue::scenarios(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?
            .into_iter()
            .map(|entry| entry.path)
            .filter(|path| !path.ends_with(OWN_PATHS));
        let scenarios = files.map(|path| read(&path)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<&str> = scenarios.iter().map(|scenario| &*scenario.name).collect();
        check("scenario", &selection.scenarios, &names)?;
        let laws: Vec<&str> = registry::LAWS.iter().map(|entry| entry.name).collect();
        check("law", &selection.laws, &laws)?;
        let selected = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|selected| selected == name)
        };
        Ok(Self {
            scenarios: scenarios
                .iter()
                .filter(|scenario| selected(&selection.scenarios, &scenario.name))
                .cloned()
                .collect(),
            laws: laws.into_iter().filter(|law| selected(&selection.laws, law)).collect(),
            own,
            seeds: selection.seeds,
            speeds: selection.speeds,
        })
    }

    /// Returns the number of runs in the tournament.
    pub fn runs(&self) -> usize {
        self.bouts().iter().map(|bout| bout.runs.len()).sum()
    }

    /// Runs the tournament in `world`, with at most `jobs` runs at the same time. Calls `ended`
    /// after each bout. Returns `None` if `cancelled` became true.
    ///
    /// # Errors
    /// Returns an error if a run failed or its files cannot be written. Also returns an error if
    /// the results are not valid: the callers did not offer the load, or repetitions have equal
    /// outcomes.
    pub fn run(
        &self,
        world: &dyn World,
        jobs: usize,
        cancelled: &AtomicBool,
        mut ended: impl FnMut(&Bout),
    ) -> Result<Option<Results>, String> {
        let mut bouts = Vec::new();
        for planned in self.bouts() {
            let outcomes = each(&planned.runs, jobs, cancelled, |run| {
                let outcome = outcome(&run.spec, world, cancelled);
                // A failed run of a cancelled tournament does not count: it may have failed because
                // it was stopped.
                let counts = outcome.is_ok() || !cancelled.load(SeqCst);
                counts.then(|| (run.clone(), outcome))
            });
            if outcomes.len() < planned.runs.len() {
                return Ok(None);
            }
            let mut done = Vec::new();
            for (run, outcome) in outcomes {
                let place = || format!("{}, {}, {}", planned.name, run.law, run.spec.place());
                let outcome = outcome.map_err(|error| format!("{}: {error}", place()))?;
                if let Some(doubt) = outcome.generator.doubt() {
                    return Err(format!("{}: {doubt}", place()));
                }
                done.push((run, outcome));
            }
            // Repetitions that are the same run have no spread, so no rank may be based on them.
            let results: Vec<_> = done.iter().map(|(run, outcome)| (&run.spec, outcome)).collect();
            if let Some(equal) = repetitions::judge(&results).first() {
                return Err(format!("{}: {}", planned.name, equal.condition));
            }
            let score = |(run, outcome): &(Entry, Outcome)| {
                Score::of(&planned.name, run.law, run.route, &run.spec, outcome)
            };
            let mut scores: Vec<Score> = done.iter().map(score).collect();
            scores.sort_by_key(|score| score.seed);
            let cells = score::cells(&self.laws, &scores);
            let bout = Bout { name: planned.name, title: planned.title, cells };
            ended(&bout);
            bouts.push(bout);
        }
        let (laws, tuned) = (self.laws.clone(), self.tuned());
        Ok(Some(Results { bouts, laws, tuned, seeds: self.seeds }))
    }

    /// Returns the laws that have other parameters than their defaults on their [own
    /// path](Route::Own).
    fn tuned(&self) -> Vec<&'static str> {
        let is_tuned = |law: &&str| {
            let own = self.own.iter().map(|own| own.overload.gate.law);
            own.filter(|own| own.entry().name == *law).any(|own| own != own.entry().defaults())
        };
        self.laws.iter().copied().filter(is_tuned).collect()
    }

    fn bouts(&self) -> Vec<Planned> {
        let mut bouts: Vec<Planned> = Vec::new();
        for &speed in &self.speeds {
            for scenario in &self.scenarios {
                let first = bouts.len();
                for run in self.entries(scenario, speed) {
                    let name = name(&run.spec, &scenario.name, speed);
                    match bouts[first..].iter_mut().find(|bout| bout.name == name) {
                        Some(bout) => bout.runs.push(run),
                        None => {
                            let title = scenario.title.clone();
                            bouts.push(Planned { name, title, runs: vec![run] });
                        }
                    }
                }
            }
        }
        bouts
    }

    /// Returns every run of `scenario` at `speed`: each law on each of its paths.
    fn entries(&self, scenario: &Scenario, speed: f64) -> Vec<Entry> {
        let mut scenario = scenario.clone();
        scenario.schedule.repetitions = self.seeds;
        scenario.conditions.emulate = at_speed(&scenario.conditions.emulate, speed);
        let base = scenario.variants[0].clone();
        let mut entries = Vec::new();
        for &law in &self.laws {
            let entry = registry::find(law).expect("it was taken from the registry");
            let mut same = Variant { label: law.to_owned(), ..base.clone() };
            same.overload.gate.law = entry.defaults();
            let own = self.own.iter().find(|own| own.overload.gate.law.entry().name == law);
            let own = own.map(|own| {
                let mut own = Variant { label: law.to_owned(), ..own.clone() };
                // On both paths, sources are treated as the scenario says.
                own.overload.sources = same.overload.sources.clone();
                own.overload.gate.sources = same.overload.gate.sources.clone();
                (Route::Own, own)
            });
            let own = own.filter(|(_, own)| own.overload != same.overload);
            for (route, variant) in [(Route::Same, same)].into_iter().chain(own) {
                scenario.variants = vec![variant];
                let specs = runs(&scenario, Kind::Sim).into_iter();
                entries.extend(specs.map(|spec| Entry { law, route, spec }));
            }
        }
        entries
    }
}

/// The runs of a bout that has not taken place yet.
struct Planned {
    name: String,
    title: String,
    runs: Vec<Entry>,
}

/// A run of a law on one path.
#[derive(Clone)]
struct Entry {
    law: &'static str,
    route: Route,
    spec: RunSpec,
}

fn name(run: &RunSpec, scenario: &str, speed: f64) -> String {
    let swept = run.swept.iter().map(|(axis, value)| format!(", {} {value}", axis.title()));
    let world = if speed == 1.0 { String::new() } else { format!(", {speed} times as fast") };
    format!("{scenario}{}{world}", swept.collect::<String>())
}

fn outcome(run: &RunSpec, world: &dyn World, cancelled: &AtomicBool) -> Result<Outcome, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    world.run(run, folder.path(), cancelled)
}

fn check(what: &str, selected: &[String], known: &[&str]) -> Result<(), String> {
    match selected.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(format!("there is no {what} `{name}`; there are {}", known.join(", "))),
    }
}

impl Bout {
    /// Returns the results of a law on a path. If the law does not have its own path, returns its
    /// results on the same path. Returns `None` if the law was not run.
    pub fn on(&self, law: &str, route: Route) -> Option<&Cell> {
        let own = |route| self.cells.iter().find(|cell| cell.law == law && cell.route == route);
        own(route).or_else(|| own(Route::Same))
    }
}

impl Results {
    /// Writes `runs.csv` (a row for each run), `results.json`, `report.html` and the figures into
    /// `folder`. Returns the path of `report.html`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let cells = self.bouts.iter().flat_map(|bout| &bout.cells);
        let mut csv = csv::Writer::from_path(folder.join("runs.csv"))?;
        for score in cells.flat_map(|cell| &cell.scores) {
            csv.serialize(score)?;
        }
        csv.flush()?;
        fs::write(folder.join("results.json"), serde_json::to_vec_pretty(&self.json())?)?;
        for (name, figure) in report::figures(self) {
            figure.save(folder, name)?;
        }
        let page = folder.join("report.html");
        fs::write(&page, report::page(self))?;
        Ok(page)
    }

    fn json(&self) -> Value {
        let bouts = self
            .bouts
            .iter()
            .map(|bout| json!({ "bout": bout.name, "title": bout.title, "entrants": bout.cells }));
        json!({ "seeds": self.seeds, "laws": self.laws, "bouts": bouts.collect::<Value>() })
    }
}

#[cfg(test)]
#[path = "tournament/tests.rs"]
mod tests;
