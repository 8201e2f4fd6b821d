//! Writes one page with the results of one or several scenarios: a single HTML file that loads
//! nothing else, so that it can be sent, kept and printed.

mod comparison;
mod page;
mod results;
mod sign;
mod table;
mod timeline;

use std::path::{Path, PathBuf};

pub use comparison::{Compared, Comparison, Pair};
pub(crate) use page::overview;
pub use results::{Results, Row, Spread, Unreadable};
pub(crate) use table::{Cell, Table};
pub use timeline::Series;

use crate::figure::Figure;
use crate::figure::highlight::Highlights;
use crate::worlds::Kind;

/// Maximum number of values over time in one report: about four megabytes. The report leaves out
/// the values of further runs, and says how many runs these are.
const VALUES_MAX: usize = 500_000;

/// The results of one or several scenarios.
#[derive(Clone, Debug)]
pub struct Report {
    /// One experiment for each scenario, in the order in which they were given.
    pub experiments: Vec<Experiment>,
}

/// Tables and figures of many scenarios together.
pub(crate) struct Overview {
    /// The name, shown above the title.
    pub name: String,
    /// The title: the subject of the results.
    pub title: String,
    /// Facts about the runs.
    pub facts: Vec<(&'static str, String)>,
    /// Explanations, one for each line.
    pub notes: Vec<String>,
    /// The figures, in order.
    pub figures: Vec<Figure>,
    /// The tables, in order.
    pub sections: Vec<Section>,
}

/// A table of an [`Overview`].
pub(crate) struct Section {
    /// The heading.
    pub title: String,
    /// The caption.
    pub caption: String,
    /// The table.
    pub table: Table,
}

/// The results of one scenario, in one or both worlds.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The scenario's name.
    pub name: String,
    /// Title of the scenario.
    pub title: String,
    /// The sources of results, simulated time first.
    pub sources: Vec<Source>,
    /// The curves to highlight if there are too many to highlight all.
    pub highlight: Vec<String>,
}

/// The results of one world from one folder.
#[derive(Clone, Debug)]
pub struct Source {
    /// A label that distinguishes this source from the others of the experiment.
    pub label: String,
    /// The world of the results.
    pub world: Kind,
    /// The results in the folder.
    pub results: Results,
}

impl Report {
    /// Reads the results in `folders`. Folders of one scenario are shown together. If there are
    /// many curves, those in `highlight` are among the highlighted ones.
    ///
    /// # Errors
    /// Returns an error when a folder contains no results, or they cannot be read.
    pub fn read<P: AsRef<Path>>(folders: &[P], highlight: &[String]) -> Result<Self, Unreadable> {
        let mut experiments: Vec<Experiment> = Vec::new();
        for folder in folders {
            let results = Results::read(folder.as_ref())?;
            let at = experiments.iter().position(|one| one.name == results.scenario);
            let at = at.unwrap_or_else(|| {
                let (name, title) = (results.scenario.clone(), results.title.clone());
                let (sources, highlight) = (Vec::new(), highlight.to_vec());
                experiments.push(Experiment { name, title, sources, highlight });
                experiments.len() - 1
            });
            experiments[at].sources.extend(results.worlds().into_iter().map(|world| Source {
                label: world.title().to_owned(),
                world,
                results: results.clone(),
            }));
        }
        for experiment in &mut experiments {
            experiment.sources.sort_by_key(|source| source.world);
            name_apart(&mut experiment.sources);
        }
        Ok(Self { experiments })
    }

    /// Returns the names of all curves.
    pub fn labels(&self) -> Vec<&str> {
        let rows = self.experiments.iter().flat_map(Experiment::rows);
        let mut labels: Vec<&str> = rows.map(|row| &*row.label).collect();
        labels.sort_unstable();
        labels.dedup();
        labels
    }

    /// Returns the report as an HTML page.
    pub fn html(&self) -> String {
        page::html(self)
    }

    /// Returns the comparison of simulated time with real sockets, for each scenario that was run
    /// in both.
    pub fn comparisons(&self) -> Vec<Comparison> {
        self.experiments.iter().filter_map(Comparison::of).collect()
    }
}

impl Experiment {
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sources.iter().flat_map(Source::rows)
    }

    /// Returns the curves that are drawn in colour.
    fn highlights(&self) -> Highlights {
        let of_bound = |row: &Row| row.goodput_of_bound.map_or(0.0, |part| part.median);
        let samples: Vec<_> =
            self.rows().map(|row| (&*row.label, row.load, of_bound(row))).collect();
        Highlights::choose(&samples, &self.highlight)
    }
}

impl Source {
    /// Returns the rows of this world.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.results.rows_in(self.world)
    }

    /// Returns all runs with their folders, in the order in which the report shows them.
    fn runs(&self) -> Vec<(&results::Point, PathBuf)> {
        let folder = |point: &results::Point| self.results.folder.join(&point.folder);
        let mut runs: Vec<_> =
            self.results.points_in(self.world).map(|point| (point, folder(point))).collect();
        runs.sort_by_key(|(point, _)| point.repetition);
        runs
    }
}

/// Adds the name of the folder to labels that several sources share.
fn name_apart(sources: &mut [Source]) {
    let worlds: Vec<Kind> = sources.iter().map(|source| source.world).collect();
    for source in sources {
        if worlds.iter().filter(|world| **world == source.world).count() > 1 {
            source.label = format!("{}, {}", source.label, source.results.folder.display());
        }
    }
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
