//! Draws the goodput of the callers of each node over time, as in figures 13 to 16 of paper 002.

use std::path::Path;

use crate::figure::{Axis, Figure, Line, Panel, Point, Stroke};
use crate::outcome::Outcome;
use crate::run_spec::RunSpec;
use crate::scenario::Scenario;
use crate::spread::Spread;
use crate::timeline;

/// Maximum number of points of a curve. Each point is the mean of an interval of the run.
const POINTS: usize = 75;

/// Returns a figure with a panel for each variant. A panel has a curve for each node to which
/// callers send: the rate of its calls that are set up in time, as a fraction of the capacity.
/// `points` is the folder of the runs, and `program` the hash of the programs that made them.
/// Returns `None` if no node to which callers send has its own load `profile`.
pub(crate) fn figure(
    scenario: &Scenario,
    runs: &[(&RunSpec, &Outcome)],
    points: &Path,
    program: &str,
) -> Option<Figure> {
    let topology = &scenario.conditions.topology;
    let entries = || topology.entries().map(|(place, _)| &topology.nodes()[place]);
    if !entries().any(|node| node.profile.is_some()) {
        return None;
    }
    let panels = scenario.variants.iter().map(|variant| {
        let runs: Vec<&RunSpec> =
            runs.iter().map(|(run, _)| *run).filter(|run| run.variant == *variant).collect();
        let line = |node: &crate::topology::Node| Line {
            name: node.name.clone(),
            stroke: Stroke::Measured,
            points: curve(&runs, points, program, &format!("callers-{}", node.name)),
        };
        let lines: Vec<Line> = entries().map(line).collect();
        let length_s = scenario.schedule.warm_up + scenario.schedule.measured;
        let all = lines.iter().flat_map(|line| &line.points);
        let highest = all.map(|point| point.max).fold(1.0, f64::max);
        Panel {
            title: variant.name(),
            x: Axis::linear("time [s]", length_s.as_secs_f64()),
            y: Axis::linear("goodput ÷ capacity", highest),
            lines,
        }
    });
    Some(Figure::new(
        format!("{}: shares over time", scenario.title),
        format!(
            "The calls of each source that are set up in time. Median, least and greatest of {} runs",
            scenario.schedule.repetitions
        ),
        panels.collect(),
    ))
}

/// Returns the goodput over time of the callers `name`, summarized over all repetitions. Each point
/// is the mean of an interval, at the middle of this interval. The curve ends with the measured
/// time, because the load ends soon after.
fn curve(runs: &[&RunSpec], points: &Path, program: &str, name: &str) -> Vec<Point> {
    let series: Vec<_> = runs
        .iter()
        .map(|run| {
            let folder = points.join(run.id(program));
            let end_s = run.measured_until().as_secs_f64();
            let samples = timeline::series(&folder, name, "in_time_cps");
            let measured = samples.into_iter().take_while(|(at, _)| *at <= end_s);
            measured.map(|(at, cps)| (at, cps / run.capacity_cps())).collect::<Vec<_>>()
        })
        .collect();
    let count = series.iter().map(Vec::len).min().unwrap_or(0);
    let each = count.div_ceil(POINTS).max(1);
    let point = |first: usize| {
        let means = series
            .iter()
            .map(|samples| samples[first..first + each].iter().map(|s| s.1).sum::<f64>())
            .map(|sum| sum / each as f64);
        let Spread { min, median, max, .. } = Spread::of(means).expect("a run has samples");
        // A sample is the mean since the sample before it.
        let from_s = first.checked_sub(1).map_or(0.0, |before| series[0][before].0);
        let to_s = series[0][first + each - 1].0;
        Point { x: from_s.midpoint(to_s), min, median, max }
    };
    // Samples that do not fill a whole part are left out at the end.
    (0..count / each).map(|part| point(part * each)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::run_spec::runs;
    use crate::testing::scenario;
    use crate::worlds::Kind;

    const SCENARIO: &str = "[emulate]\nserve_us = 1000\n[[variant]]\noverload = {}\n\
        [schedule]\nrepetitions = 3\nwarm_up_s = 50\nmeasured_s = 100\n\
        [[node]]\nname = \"re\"\nto = [\"answerers\"]\nunder_test = true\n";

    #[test]
    fn a_source_with_a_profile_has_a_curve_with_the_range_of_its_runs() {
        let with = |profile: &str| {
            let text = format!("{SCENARIO}[[node]]\nname = \"se\"\nto = [\"re\"]\n{profile}");
            scenario(&text)
        };
        let scenario = with("profile = \"instant:1\"\n");
        let folder = tempfile::tempdir().unwrap();
        let runs = runs(&scenario, Kind::Sim);
        for (run, cps) in runs.iter().zip([10.0, 40.0, 20.0]) {
            let folder = folder.path().join(run.id("p"));
            fs::create_dir(&folder).unwrap();
            let row =
                |at: u32| format!("{at},callers-se,in_time_cps,{}\n", f64::from(at % 2) * cps);
            // The measured time ends at 150 s. After that, there are samples for ten seconds.
            let rows: String = (1..=2 * POINTS as u32 + 10).map(row).collect();
            fs::write(folder.join("timeline.csv"), format!("t_s,node,quantity,value\n{rows}"))
                .unwrap();
        }
        let outcome = Outcome::default();
        let done: Vec<_> = runs.iter().map(|run| (run, &outcome)).collect();
        let drawn = figure(&scenario, &done, folder.path(), "p").unwrap();
        let [line] = &drawn.panels[0].lines[..] else { panic!("{drawn:?}") };
        let middles: Vec<f64> = line.points.iter().map(|point| point.x).collect();
        assert_eq!((middles.len(), &middles[..2]), (POINTS, &[1.0, 3.0][..]));
        let capacity_cps = runs[0].capacity_cps();
        let Point { min, median, max, .. } = line.points[7];
        for (part, expected) in [(min, 5.0), (median, 10.0), (max, 20.0)] {
            assert!((part * capacity_cps - expected).abs() < 1e-9);
        }
        let drawn = figure(&scenario, &done[..2], folder.path(), "p").unwrap();
        let of_two = drawn.panels[0].lines[0].points[7].median;
        assert!((of_two * capacity_cps - 12.5).abs() < 1e-9, "between 5 and 20: {of_two}");
        assert!(figure(&with(""), &done, folder.path(), "p").is_none());
    }
}
