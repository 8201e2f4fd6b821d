//! Reads the results of an experiment from `results.json`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::summary::Figures;
use crate::verdict::Verdict;
use crate::worlds::Kind;

const RESULTS: &str = "results.json";
const SCENARIO: &str = "scenario.toml";

/// The results in a folder. Parts that no report shows are left out.
#[derive(Clone, Debug, Deserialize)]
pub struct Results {
    /// The folder that contains the results.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Content of the scenario file. Empty if the file is missing.
    #[serde(skip)]
    pub text: String,
    /// The scenario's name.
    pub scenario: String,
    /// The subject of the scenario, in one line.
    pub title: String,
    /// Seed of the first run of each parameter set.
    pub seed: u64,
    /// Hash of the programs with which the runs were made.
    pub program: String,
    /// The machine on which the runs were made. `None` in simulated time.
    pub machine: Option<Machine>,
    /// The rate in calls/s that keeps the emulated processor fully busy. `None` if it differs
    /// between the runs.
    pub capacity_cps: Option<f64>,
    /// The processor time that a whole call costs, in seconds.
    pub call_s: f64,
    /// Set-up delay up to which a call counts as goodput, in ms.
    pub deadline_ms: Option<f64>,
    /// The world of the runs: simulated time or real sockets.
    pub world: Kind,
    /// One row for each parameter set.
    pub rows: Vec<Row>,
    /// The verdicts on the expectations of the scenario, and on repetitions with equal outcomes.
    pub conditions: Vec<Verdict>,
    /// All runs that succeeded.
    pub points: Vec<Point>,
}

/// The values of the swept conditions, by name of the condition.
pub(crate) type Swept = BTreeMap<String, f64>;

/// The runs of one variant under one set of conditions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Row {
    /// The variant's name.
    pub variant: String,
    /// The name of the variant's curve within its panel.
    pub label: String,
    /// The way in which the variant decides on, queues and rejects calls. Each way has its own
    /// panel.
    pub panel: String,
    /// The swept conditions except the load.
    pub swept: Swept,
    /// The figures of the runs.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Deref for Row {
    type Target = Figures;

    fn deref(&self) -> &Figures {
        &self.figures
    }
}

/// One run of a scenario.
#[derive(Clone, Debug, Deserialize)]
pub struct Point {
    /// The variant's name.
    pub variant: String,
    /// The swept conditions, including the load.
    pub swept: Swept,
    /// The number of the run, from 1, among the runs that differ only in their seed.
    pub repetition: u32,
    /// Seed of the run.
    pub seed: u64,
    /// Folder of the run, relative to the folder of the results.
    pub folder: PathBuf,
}

/// The reason why the results in a folder cannot be shown.
#[derive(Debug)]
pub struct Unreadable {
    file: PathBuf,
    why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for Unreadable {}

impl Results {
    /// Reads the results in `folder`.
    ///
    /// # Errors
    /// Returns an error when `folder` contains no results, or the results cannot be read.
    pub fn read(folder: &Path) -> Result<Self, Unreadable> {
        let file = folder.join(RESULTS);
        let unreadable = |why: String| Unreadable { file: file.clone(), why };
        let text = fs::read(&file).map_err(|error| unreadable(error.to_string()))?;
        let results: Self =
            serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
        let text = fs::read_to_string(folder.join(SCENARIO)).unwrap_or_default();
        Ok(Self { folder: folder.to_owned(), text, ..results })
    }
}

/// Returns the greatest possible goodput over the mean load, as the corners of a line from load 0
/// to `last`, or to 1 if `last` is 0. Up to the capacity, all of the load can become goodput.
/// Beyond the capacity, the possible goodput decreases, because the servers spend time on
/// rejections. All `rows` must belong to one panel and have the same swept conditions. The line
/// ends at the capacity if no row has a mean load above the capacity and a bound above 0.
pub fn bound<'a>(rows: impl IntoIterator<Item = &'a Row>, last: f64) -> Vec<(f64, f64)> {
    let last = if last > 0.0 { last } else { 1.0 };
    // The bound beyond the capacity is (1 - mean·ρ) / (1 - ρ), so any row with a mean load above
    // the capacity determines ρ.
    let told = rows.into_iter().find(|row| row.mean_load > 1.0 && row.bound > 0.0);
    let ratio = told.map(|row| (1.0 - row.bound) / (row.mean_load - row.bound));
    let mut corners = vec![(0.0, 0.0), (last.min(1.0), last.min(1.0))];
    if last > 1.0
        && let Some(ratio) = ratio
    {
        let at = |mean: f64| (1.0 - mean * ratio) / (1.0 - ratio);
        if last * ratio > 1.0 {
            corners.extend([(1.0 / ratio, 0.0), (last, 0.0)]);
        } else {
            corners.push((last, at(last)));
        }
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Spread;

    pub(crate) fn row(load: f64, bound: f64) -> Row {
        let spread = Spread::of([0.0]).unwrap();
        Row {
            variant: "pi (arrival, class)".to_owned(),
            label: "pi".to_owned(),
            panel: "on arrival".to_owned(),
            swept: Swept::new(),
            figures: Figures {
                load,
                mean_load: load,
                bound,
                runs: 1,
                goodput: spread,
                goodput_of_bound: None,
                retransmission_ratio: spread,
                rejected: spread,
                p50_ms: None,
                p99_ms: None,
                recovery_s: None,
                recovered: None,
                generator_load: 0.0,
                drops: 0,
                too_slow: 0,
            },
        }
    }

    #[test]
    fn the_bound_has_its_corners_at_the_capacity_and_where_nothing_is_left() {
        let reckoned = |load| tidegate_control::bound::goodput(load, 0.08);
        let rows = [row(0.5, 0.5), row(2.0, reckoned(2.0))];
        let corners = bound(&rows, 5.0);
        assert_eq!(corners[..2], [(0.0, 0.0), (1.0, 1.0)]);
        assert_eq!(corners.len(), 3);
        assert!((corners[2].1 - reckoned(5.0)).abs() < 1e-9, "{corners:?}");
        let corners = bound(&rows, 20.0);
        assert!((corners[2].0 - 12.5).abs() < 1e-6 && corners[3] == (20.0, 0.0), "{corners:?}");
        assert_eq!(bound(&rows[..1], 0.5), [(0.0, 0.0), (0.5, 0.5)]);
    }

    #[test]
    fn with_a_profile_the_bound_is_drawn_over_the_mean_load() {
        let reckoned = |mean| tidegate_control::bound::goodput(mean, 0.1);
        let with = |load, mean_load, bound| {
            let mut row = row(load, bound);
            row.figures.mean_load = mean_load;
            row
        };
        let half = |load: f64| with(load, load / 2.0, reckoned(load / 2.0));
        let corners = bound(&[half(1.0), half(4.0)], 3.0);
        assert_eq!(corners[..2], [(0.0, 0.0), (1.0, 1.0)]);
        assert!(corners[2].0 == 3.0 && (corners[2].1 - reckoned(3.0)).abs() < 1e-9, "{corners:?}");
        let idle = with(2.0, 0.0, 0.0);
        assert_eq!(bound(&[idle], 0.0), [(0.0, 0.0), (1.0, 1.0)]);
    }

    #[test]
    fn a_folder_without_results_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Results::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("results.json") && error.contains("No such file"), "{error}");
        fs::write(folder.path().join(RESULTS), "{\"scenario\": 5}").unwrap();
        let error = Results::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
