//! Reads the values of a run over time from `timeline.csv` in the folder of the run, and averages
//! neighbouring samples of long series for display.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

const TIMELINE: &str = "timeline.csv";

/// Maximum number of lines that the report reads from a timeline. No run writes more lines.
const LINES_MAX: usize = 4_000_000;

/// Maximum number of samples of one series in a report. In longer series, neighbouring samples are
/// averaged, because a screen has no more columns.
pub const SAMPLES_MAX: usize = 500;

/// The values of one quantity of one node over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the node.
    pub node: String,
    /// The quantity with its unit.
    pub quantity: String,
    /// The time of each value, in seconds since the start of the run, in increasing order.
    pub t_s: Vec<f64>,
    /// The values at the times in `t_s`.
    pub values: Vec<f64>,
}

#[derive(Deserialize)]
struct Sample {
    t_s: f64,
    node: String,
    quantity: String,
    value: f64,
}

/// Returns the time series in the folder of a run, in the order of their first samples. Returns no
/// series if the folder has no timeline.
pub fn read(folder: &Path) -> Vec<Series> {
    let Ok(reader) = csv::Reader::from_path(folder.join(TIMELINE)) else { return Vec::new() };
    let samples = reader.into_deserialize().take(LINES_MAX).filter_map(Result::ok);
    let mut places = HashMap::<(String, String), usize>::new();
    let mut series = Vec::<(String, String, Vec<(f64, f64)>)>::new();
    for Sample { t_s, node, quantity, value } in samples {
        if !(t_s.is_finite() && value.is_finite()) {
            continue;
        }
        let place = *places.entry((node.clone(), quantity.clone())).or_insert_with(|| {
            series.push((node, quantity, Vec::new()));
            series.len() - 1
        });
        series[place].2.push((t_s, value));
    }
    let series = series.into_iter().map(|(node, quantity, mut samples)| {
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (t_s, values) = decimated(&samples).unzip();
        Series { node, quantity, t_s, values }
    });
    series.collect()
}

/// Returns `samples` if there are at most [`SAMPLES_MAX`]. Otherwise returns means of neighbouring
/// samples.
fn decimated(samples: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let together = samples.len().div_ceil(SAMPLES_MAX).max(1);
    samples.chunks(together).map(|chunk| {
        let count = chunk.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| chunk.iter().map(of).sum::<f64>() / count;
        (rounded(mean(|sample| sample.0)), rounded(mean(|sample| sample.1)))
    })
}

/// Rounds to five significant digits, which are enough for a chart.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written(text: &str) -> Vec<Series> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(TIMELINE), text).unwrap();
        read(folder.path())
    }

    #[test]
    fn samples_are_gathered_by_quantity_and_node() {
        let series = written(
            "t_s,node,quantity,value\n0,b,queue,1\n0,a,queue,2\n0,a,busy,0.5\n1,a,queue,3\n\
             2,a,queue,NaN\nx,a,queue,1\n",
        );
        let found: Vec<_> =
            series.iter().map(|s| (&*s.quantity, &*s.node, s.values.clone())).collect();
        let expected =
            [("queue", "b", vec![1.0]), ("queue", "a", vec![2.0, 3.0]), ("busy", "a", vec![0.5])];
        assert_eq!(found, expected);
        assert_eq!(series[1].t_s, [0.0, 1.0]);
    }

    #[test]
    fn many_samples_become_means_that_cover_the_whole_run() {
        let lines: String = (0..3000).map(|i| format!("{i},a,queue,{}\n", i % 2)).collect();
        let series = written(&format!("t_s,node,quantity,value\n{lines}"));
        assert_eq!(series[0].values.len(), SAMPLES_MAX);
        assert!(series[0].values.iter().all(|value| *value == 0.5));
        assert_eq!((series[0].t_s[0], series[0].t_s[SAMPLES_MAX - 1]), (2.5, 2996.5));
    }

    #[test]
    fn a_run_without_a_timeline_has_none() {
        assert_eq!(read(tempfile::tempdir().unwrap().path()), []);
        assert_eq!(written("something else\n1\n"), []);
    }
}
