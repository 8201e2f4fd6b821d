//! Lists the scenarios in a folder, with their titles and durations.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::prediction;
use crate::run_spec::runs;
use crate::scenario::Scenario;
use crate::table::plain_table;
use crate::worlds::{self, Kind};

/// A file in a folder of scenarios.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Path of the file.
    pub path: PathBuf,
    /// A summary of the scenario in the file, or all errors of the file.
    pub content: Result<Content, String>,
}

/// A summary of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// Name of the scenario.
    pub name: String,
    /// Title of the scenario, in one line.
    pub title: String,
    /// Number of parameter sets: each is one variant with one combination of the swept values.
    pub parameter_sets: usize,
    /// Number of runs of all parameter sets together.
    pub runs: usize,
    /// Total duration of all runs on real sockets, one after another. It does not include the time
    /// to start the runs.
    pub real: Duration,
    /// Estimated CPU time to simulate all runs.
    pub simulated: Duration,
}

/// Returns an entry for each file `*.toml` in `folder`, in the order of the file names.
///
/// # Errors
/// Returns an error when the folder cannot be read. A file that is not a scenario causes no error.
pub fn scenarios(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths.into_iter().map(entry).collect())
}

fn entry(path: PathBuf) -> Entry {
    let content = Scenario::load(&path).map(content).map_err(|wrong| wrong.to_string());
    Entry { path, content }
}

fn content(scenario: Scenario) -> Content {
    let runs = runs(&scenario, Kind::Real);
    Content {
        parameter_sets: runs.len() / scenario.schedule.repetitions.max(1) as usize,
        runs: runs.len(),
        real: runs.iter().map(worlds::lasts).sum(),
        simulated: runs.iter().map(prediction::simulated).sum(),
        name: scenario.name,
        title: scenario.title,
    }
}

/// Formats the entries as readable text. The durations assume that `jobs` runs take place at the
/// same time.
pub fn text(entries: &[Entry], jobs: usize) -> String {
    let header = ["scenario", "parameter sets", "runs", "simulated", "on real sockets", "title"];
    let row = |content: &Content| {
        vec![
            content.name.clone(),
            content.parameter_sets.to_string(),
            content.runs.to_string(),
            words(content.simulated.div_f64(jobs.max(1) as f64)),
            words(content.real.div_f64(jobs.max(1) as f64)),
            content.title.clone(),
        ]
    };
    let contents = entries.iter().filter_map(|entry| entry.content.as_ref().ok());
    let mut text = plain_table(&header, contents.map(row), 1..=4, 2);
    for entry in entries {
        if let Err(wrong) = &entry.content {
            text +=
                &format!("\n{} is not a scenario:\n{}\n", entry.path.display(), wrong.trim_end());
        }
    }
    text
}

/// Returns the entries as JSON, for programs. Each duration is the total of all runs, one after
/// another.
pub fn json(entries: &[Entry]) -> Value {
    let entry = |entry: &Entry| match &entry.content {
        Ok(content) => json!({
            "file": entry.path,
            "name": content.name,
            "title": content.title,
            "points": content.parameter_sets,
            "runs": content.runs,
            "worlds": [Kind::Sim, Kind::Real],
            "sim_cpu_s": content.simulated.as_secs_f64(),
            "real_s": content.real.as_secs_f64(),
        }),
        Err(wrong) => json!({ "file": entry.path, "error": wrong }),
    };
    entries.iter().map(entry).collect()
}

/// Formats a time with a unit, such as `12 min`. The number is rounded up.
fn words(time: Duration) -> String {
    match time.as_secs_f64().ceil() as u64 {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds @ 100..6000 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = "title = \"Two loads\"\n[emulate]\nserve_us = 1000\n\
        [sweep]\nload = [1, 2]\n[workload]\ndeadline_ms = 400\n\
        [schedule]\nwarm_up_s = 1\nmeasured_s = 8.1\nrepetitions = 3\n\
        [[variant]]\noverload = { law = \"pi\" }\n[[variant]]\noverload = { law = \"none\" }\n";

    fn listed() -> (tempfile::TempDir, Vec<Entry>) {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("two.toml", SCENARIO);
        write("broken.toml", "title = 5\n");
        write("notes.txt", "not a scenario");
        let entries = scenarios(folder.path()).unwrap();
        (folder, entries)
    }

    #[test]
    fn scenarios_are_listed_with_what_they_ask_for() {
        let (_folder, entries) = listed();
        assert_eq!(entries.len(), 2);
        let content = entries[1].content.as_ref().unwrap();
        assert_eq!((content.parameter_sets, content.runs), (4, 12));
        assert_eq!((&*content.name, &*content.title), ("two", "Two loads"));
        // Each of the 12 runs takes ten seconds, including twice the deadline of 0.4 s and a margin
        // of 0.1 s.
        assert_eq!(content.real, Duration::from_secs(120));
        let text = text(&entries, 2);
        let words: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            ["two", "4", "12", "1", "s", "60", "s", "Two", "loads"],
            "two at once: {text}"
        );
        assert_eq!(json(&entries)[1]["real_s"], 120.0);
        // A call is six messages of 1 ms, so load 1 is 166.7 calls/s. Each run lasts 9.5 s, and
        // there are six runs of each load.
        let expected = 6.0 * (1.0 + 2.0) * 9.5 / 0.006 * 12.0 / 250_000.0;
        assert!((content.simulated.as_secs_f64() - expected).abs() < 1e-6);
    }

    #[test]
    fn a_broken_file_is_listed_with_its_error() {
        let (_folder, entries) = listed();
        let wrong = entries[0].content.as_ref().unwrap_err();
        assert!(wrong.contains("broken.toml:1"), "{wrong}");
        assert!(text(&entries, 1).contains("broken.toml is not a scenario:\n"));
        assert!(json(&entries)[0]["error"].as_str().unwrap().contains("title"));
        assert!(scenarios(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn times_are_rounded_up() {
        let said = [0.2, 99.0, 100.0, 5999.0, 6000.0, 7201.0]
            .map(|seconds| words(Duration::from_secs_f64(seconds)));
        assert_eq!(said, ["1 s", "99 s", "2 min", "100 min", "2 h", "3 h"]);
    }
}
