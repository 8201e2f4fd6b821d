//! Writes one page with the results of one or several scenarios. The page is a single HTML file
//! that loads nothing else, and therefore can be sent, kept and printed.

mod comparison;
mod page;
mod results;
mod sign;
mod table;
mod timeline;

use std::path::{Path, PathBuf};

pub use comparison::{Compared, Comparison, Pair};
pub(crate) use page::overview;
pub use results::{Results, Row, Unreadable};
pub(crate) use table::{Cell, Table};
pub use timeline::Series;

use crate::figure::Figure;
use crate::figure::highlight::Highlights;
use crate::worlds::Kind;

/// Maximum number of values over time in one report. They take about four megabytes. The report
/// omits the values of further runs, and shows the number of these runs.
const VALUES_MAX: usize = 500_000;

/// The results of one or several scenarios.
#[derive(Clone, Debug)]
pub struct Report {
    /// One experiment for each scenario, in the order of the folders that were read.
    pub experiments: Vec<Experiment>,
}

/// Tables and figures about many scenarios.
pub(crate) struct Overview {
    pub name: String,
    pub title: String,
    /// Facts about the runs, each with its label.
    pub facts: Vec<(&'static str, String)>,
    /// Explanations. Each is shown as a line.
    pub notes: Vec<String>,
    pub figures: Vec<Figure>,
    pub sections: Vec<Section>,
}

/// A table of an [`Overview`].
pub(crate) struct Section {
    pub title: String,
    pub caption: String,
    pub table: Table,
}

/// The results of one scenario, in simulated time, on real sockets, or both.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The scenario's name.
    pub name: String,
    /// Title of the scenario.
    pub title: String,
    /// The sources of the results. Sources in simulated time come first.
    pub sources: Vec<Source>,
    /// Names of the curves to highlight. The names matter only if there are too many curves to
    /// highlight all.
    pub highlight: Vec<String>,
}

/// The results that one folder contains.
#[derive(Clone, Debug)]
pub struct Source {
    /// The label that distinguishes this source from the other sources of the experiment.
    pub label: String,
    /// The results in the folder.
    pub results: Results,
}

impl Report {
    /// Reads the results in `folders`. The results of one scenario are shown together. If there are
    /// too many curves to highlight all, the curves named in `highlight` are preferred.
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
            // If all runs failed, there are no results to show.
            if !results.rows.is_empty() {
                let label = results.world.title().to_owned();
                experiments[at].sources.push(Source { label, results });
            }
        }
        for experiment in &mut experiments {
            experiment.sources.sort_by_key(|source| source.results.world);
            name_apart(&mut experiment.sources);
        }
        Ok(Self { experiments })
    }

    /// Returns the names of all curves, sorted.
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

    /// Returns a comparison of simulated time with real sockets, for each scenario that has results
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
            self.rows().map(|row| (&*row.label, row.mean_load, of_bound(row))).collect();
        Highlights::choose(&samples, &self.highlight)
    }
}

impl Source {
    /// Returns the rows of the results.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.results.rows.iter()
    }

    /// Returns all runs of this source with their folders, in the order in which the report shows
    /// the runs.
    fn runs(&self) -> Vec<(&results::Point, PathBuf)> {
        let folder = |point: &results::Point| self.results.folder.join(&point.folder);
        let mut runs: Vec<_> =
            self.results.points.iter().map(|point| (point, folder(point))).collect();
        runs.sort_by_key(|(point, _)| point.repetition);
        runs
    }
}

/// Makes labels that several sources share unique, by appending the path of the source's folder.
fn name_apart(sources: &mut [Source]) {
    let worlds: Vec<Kind> = sources.iter().map(|source| source.results.world).collect();
    for source in sources {
        if worlds.iter().filter(|world| **world == source.results.world).count() > 1 {
            source.label = format!("{}, {}", source.label, source.results.folder.display());
        }
    }
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
