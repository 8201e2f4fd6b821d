//! Reads the results that a run has written (`results.json`).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::worlds::Kind;

/// The name of the file.
const RESULTS: &str = "results.json";
/// The scenario that was run.
const SCENARIO: &str = "scenario.toml";

/// The results in a folder, without the parts that no report shows.
#[derive(Clone, Debug, Deserialize)]
pub struct Results {
    /// The folder of the results.
    #[serde(skip)]
    pub folder: PathBuf,
    /// The scenario's file; empty if it is missing.
    #[serde(skip)]
    pub text: String,
    /// The scenario's name.
    pub scenario: String,
    /// The subject, in one line.
    pub title: String,
    /// Seed of the first run.
    pub seed: u64,
    /// The code that ran.
    pub program: String,
    /// The machine it ran on, if that matters.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// Calls/s that keep the emulated processor busy.
    pub capacity_cps: f64,
    /// The cost of a whole call, in seconds.
    pub call_s: f64,
    /// Set-up delay up to which a call counts as goodput, in ms.
    #[serde(default)]
    pub deadline_ms: Option<f64>,
    /// The world of rows and points that name none; real sockets if absent.
    pub world: Option<Kind>,
    /// A row for each variant and set of conditions.
    pub rows: Vec<Row>,
    /// The expectations of the scenario.
    pub conditions: Vec<Condition>,
    /// Every run.
    #[serde(default)]
    pub points: Vec<Point>,
}

/// The machine something was measured on.
#[derive(Clone, Debug, Deserialize)]
pub struct Machine {
    /// Model name of the processor.
    pub processor: String,
    /// Cores that the process could use.
    pub cores: usize,
    /// The version of Linux.
    pub kernel: String,
}

/// Values of the swept conditions, by name.
pub type Swept = BTreeMap<String, f64>;

/// The runs of one variant under one set of conditions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Row {
    /// The world of the runs; that of the results if absent.
    pub world: Option<Kind>,
    /// The variant's name.
    pub variant: String,
    /// Its name among the variants that decide and queue in the same way.
    pub label: String,
    /// Its way to decide and queue: there is one panel for each way.
    pub panel: String,
    /// The swept conditions except the load.
    pub swept: Swept,
    /// Offered load as a multiple of the capacity.
    pub load: f64,
    /// The greatest possible goodput at that load, as a fraction of the capacity.
    pub bound: f64,
    /// Runs.
    pub runs: usize,
    /// As a part of the capacity.
    pub goodput: Spread,
    /// As a part of the bound.
    pub goodput_of_bound: Option<Spread>,
    /// INVITEs sent again for each sent first.
    pub retransmission_ratio: Spread,
    /// The part of the calls that was refused.
    pub refused: Spread,
    /// Median set-up delay.
    pub p50_ms: Option<Spread>,
    /// Set-up delay that 1 % of the calls exceeded.
    pub p99_ms: Option<Spread>,
    /// Seconds from the end of the overload until goodput was back.
    pub recovery_s: Option<Spread>,
    /// Use of a core by the busiest thread of the generator.
    #[serde(default)]
    pub generator_load: f64,
    /// Datagrams that the generator lost.
    #[serde(default)]
    pub drops: u64,
    /// Runs in which the generator could not offer the requested load.
    #[serde(default)]
    pub too_slow: usize,
}

/// Several measurements of one quantity.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The greatest.
    pub max: f64,
    /// Where the mean lies with a confidence of 95 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
}

/// An expectation, and whether it was met.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Condition {
    /// The expectation and the result, in one line.
    pub condition: String,
    /// Whether it was met.
    pub held: bool,
}

/// One run.
#[derive(Clone, Debug, Deserialize)]
pub struct Point {
    /// The world of the run; that of the results if absent.
    pub world: Option<Kind>,
    /// The variant's name.
    pub variant: String,
    /// The swept conditions, the load included.
    pub swept: Swept,
    /// The number of the run among those that differ only in their seed, from 1.
    pub repetition: u32,
    /// Its seed.
    pub seed: u64,
    /// Its folder below that of the results.
    pub folder: PathBuf,
}

/// Why a folder of results cannot be shown.
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

impl Spread {
    /// The median of `values`; `None` if there are none.
    pub fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
        crate::summary::Spread::of(values).map(|spread| spread.median)
    }
}

impl Results {
    /// Reads the results in `folder`.
    ///
    /// # Errors
    /// When there are no results, or they cannot be read.
    pub fn read(folder: &Path) -> Result<Self, Unreadable> {
        let file = folder.join(RESULTS);
        let unreadable = |why: String| Unreadable { file: file.clone(), why };
        let text = fs::read(&file).map_err(|error| unreadable(error.to_string()))?;
        let results: Self =
            serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
        let text = fs::read_to_string(folder.join(SCENARIO)).unwrap_or_default();
        Ok(Self { folder: folder.to_owned(), text, ..results })
    }

    /// The worlds that have results, simulated time first.
    pub fn worlds(&self) -> Vec<Kind> {
        let mut worlds: Vec<Kind> = self.rows.iter().map(|row| self.world_of(row.world)).collect();
        worlds.sort_unstable();
        worlds.dedup();
        worlds
    }

    /// The rows of one world.
    pub fn rows_in(&self, world: Kind) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| self.world_of(row.world) == world)
    }

    /// The runs in one world.
    pub fn points_in(&self, world: Kind) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| self.world_of(point.world) == world)
    }

    fn world_of(&self, said: Option<Kind>) -> Kind {
        said.or(self.world).unwrap_or(Kind::Real)
    }
}

/// The greatest possible goodput by load, as corners of a polygonal line from load 0 to `last`: the
/// whole load up to the capacity; beyond it, less, because the other calls have to be rejected.
/// `rows` are of one panel.
pub fn bound<'a>(rows: impl IntoIterator<Item = &'a Row>, last: f64) -> Vec<(f64, f64)> {
    // The bound beyond the capacity is (1 - load·ρ) / (1 - ρ), so any row with such a load
    // determines ρ.
    let told = |row: &Row| (row.load > 1.0 && row.bound > 0.0).then_some((row.load, row.bound));
    let ratio = rows.into_iter().find_map(told).map(|(load, bound)| (1.0 - bound) / (load - bound));
    let mut corners = vec![(0.0, 0.0), (last.min(1.0), last.min(1.0))];
    if last > 1.0
        && let Some(ratio) = ratio
    {
        let at = |load: f64| (1.0 - load * ratio) / (1.0 - ratio);
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

    pub(crate) fn row(load: f64, bound: f64) -> Row {
        let spread = Spread { min: 0.0, median: 0.0, max: 0.0, ci95: None };
        Row {
            world: None,
            variant: "pi (arrival, class)".to_owned(),
            label: "pi".to_owned(),
            panel: "on arrival".to_owned(),
            swept: Swept::new(),
            load,
            bound,
            runs: 1,
            goodput: spread,
            goodput_of_bound: None,
            retransmission_ratio: spread,
            refused: spread,
            p50_ms: None,
            p99_ms: None,
            recovery_s: None,
            generator_load: 0.0,
            drops: 0,
            too_slow: 0,
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
    fn a_folder_without_results_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Results::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("results.json") && error.contains("No such file"), "{error}");
        fs::write(folder.path().join(RESULTS), "{\"scenario\": 5}").unwrap();
        let error = Results::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
