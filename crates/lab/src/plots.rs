//! Builds the figures of a scenario.

use tidegate_proxy::Disposal;

use crate::cost::Capacity;
use crate::figure::highlight::Highlights;
use crate::figure::overload::{Facet, Heading, Series};
use crate::figure::{Figure, Point, overload};
use crate::scenario::Scenario;
use crate::summary::{Row, Spread, capacity_cps};

/// Returns all figures of `scenario`, each with its file name. If there are too many variants to
/// highlight all, those named in `highlight` are highlighted.
pub fn figures(
    scenario: &Scenario,
    rows: &[Row],
    highlight: &[String],
) -> Vec<(&'static str, Figure)> {
    let note = note(scenario, rows);
    let of_bound = |row: &Row| row.goodput_of_bound.map_or(0.0, |part| part.median);
    let samples: Vec<_> =
        rows.iter().map(|row| (&*row.variant.label, row.mean_load, of_bound(row))).collect();
    let highlights = Highlights::choose(&samples, highlight);
    let heading = |what: &str, also: &str| Heading {
        title: format!("{}: {what}", scenario.title),
        note: format!("{note}{also}"),
        highlights: highlights.clone(),
    };
    let emulate = &scenario.conditions.emulate;
    let capacity = Capacity::under(&scenario.conditions);
    let (conditions, goodput) = panels(scenario, rows, |row| Some(row.goodput));
    let (_, delay) = panels(scenario, rows, |row| row.p99_ms.map(|ms| ms.scaled(1e-3)));
    let (_, resent) = panels(scenario, rows, |row| Some(row.retransmission_ratio));
    let deadlines_s: Vec<f64> = conditions.iter().map(|panel| panel.deadline_s).collect();
    vec![
        (
            "goodput",
            overload::goodput(
                heading("goodput", &rejection_costs(scenario)),
                &goodput,
                |panel, load| capacity.bound(emulate, conditions[panel].disposal, load),
            ),
        ),
        (
            "set-up-delay",
            overload::set_up_delay(
                heading("set-up delay", " · of calls that were set up"),
                &delay,
                &deadlines_s,
            ),
        ),
        ("retransmissions", overload::retransmissions(heading("retransmissions", ""), &resent)),
    ]
}

/// Describes the cost of each way to reject or drop a call that a variant of `scenario` uses.
fn rejection_costs(scenario: &Scenario) -> String {
    let capacity = Capacity::under(&scenario.conditions);
    let ratio = |disposal| capacity.ratio(&scenario.conditions.emulate, disposal);
    let has = |disposal| scenario.variants.iter().any(|v| v.overload.disposal == disposal);
    [
        (Disposal::Reject, "rejecting"),
        (Disposal::Drop, "dropping"),
        (Disposal::Kernel, "having the kernel drop"),
        (Disposal::Auto, "having the kernel drop if necessary"),
    ]
    .into_iter()
    .filter(|(disposal, _)| has(*disposal))
    .map(|(disposal, what)| format!(", {what} one costs {:.2} of it", ratio(disposal)))
    .collect()
}

/// Describes the runs and the cost of a call. Also states the capacity, unless it differs between
/// the runs.
fn note(scenario: &Scenario, rows: &[Row]) -> String {
    let runs = match scenario.schedule.repetitions {
        1 => "One run".to_owned(),
        n => format!("Median, least and greatest of {n} runs"),
    };
    let cps = capacity_cps(scenario, rows);
    format!(
        "{runs} of {} s · a call costs {:.1} ms{}",
        scenario.schedule.measured.as_secs_f64(),
        Capacity::under(&scenario.conditions).call.as_secs_f64() * 1e3,
        cps.map_or_else(String::new, |cps| format!(": {cps:.0} calls/s")),
    )
}

/// The conditions that all curves in one panel share.
struct Shared {
    disposal: Disposal,
    deadline_s: f64,
}

/// Returns the panels of a figure: for each, the conditions that its curves share, and its title
/// and curves. Two rows are in the same panel if their variants decide, queue and reject calls in
/// the same way, and if their swept conditions other than the load have the same values. A point is
/// drawn at the mean load of the measured time.
fn panels(
    scenario: &Scenario,
    rows: &[Row],
    value: impl Fn(&Row) -> Option<Spread>,
) -> (Vec<Shared>, Vec<Facet>) {
    let (mut shared, mut facets) = (Vec::new(), Vec::<Facet>::new());
    for row in rows {
        let title = title(row);
        let at = facets.iter().position(|facet| facet.title == title).unwrap_or_else(|| {
            let mut conditions = scenario.conditions.clone();
            row.swept.iter().for_each(|&(axis, value)| axis.set(&mut conditions, value));
            shared.push(Shared {
                disposal: row.variant.overload.disposal,
                deadline_s: conditions.deadline_ms / 1e3,
            });
            facets.push(Facet { title, series: Vec::new() });
            facets.len() - 1
        });
        let series = &mut facets[at].series;
        let name = &row.variant.label;
        let at = series.iter().position(|series| series.name == *name).unwrap_or_else(|| {
            series.push(Series { name: name.clone(), points: Vec::new() });
            series.len() - 1
        });
        if let Some(Spread { min, median, max, .. }) = value(row) {
            series[at].points.push(Point { x: row.mean_load, min, median, max });
        }
    }
    (shared, facets)
}

/// Describes when the variant of `row` decides on a call, its queues, and the treatment of calls
/// that it does not admit.
pub fn way(row: &Row) -> String {
    let when = match row.variant.decide() {
        "service" => "decided at service",
        _ => "decided on arrival",
    };
    let how = match row.variant.queue() {
        "fifo" => "one queue for all",
        _ => "queued by class",
    };
    let disposal = match row.variant.overload.disposal {
        Disposal::Reject => "",
        Disposal::Drop => ", dropped without a response",
        Disposal::Auto => ", dropped by the kernel if necessary",
        Disposal::Kernel => ", dropped by the kernel",
    };
    format!("{when}, {how}{disposal}")
}

fn title(row: &Row) -> String {
    let swept = row.swept.iter().map(|(axis, value)| format!(", {} {value}", axis.title()));
    way(row) + &swept.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::run_spec::runs;
    use crate::summary::rows;
    use crate::testing::scenario;
    use crate::worlds::Kind;

    /// Returns the figures of a scenario in whose runs no call is set up.
    fn drawn(text: &str, world: Kind) -> Vec<(&'static str, Figure)> {
        let scenario = scenario(text);
        let points = runs(&scenario, world);
        let outcome = Outcome { offered: 1, measured_s: 1.0, ..Outcome::default() };
        figures(&scenario, &rows(points.iter().map(|point| (point, &outcome))), &[])
    }

    #[test]
    fn a_figure_has_a_panel_for_each_queue_setting_and_a_line_for_each_law() {
        let text = "[emulate]\nserve_us = 1000\n[sweep]\nload = [1, 2]\n\
                    [[variant]]\noverload = { law = \"none\", queue = \"fifo\" }\n\
                    [[variant]]\noverload = { law = \"none\" }\n\
                    [[variant]]\noverload = { law = \"pi\" }\n";
        let figures = drawn(text, Kind::Real);
        let names: Vec<&str> = figures.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["goodput", "set-up-delay", "retransmissions"]);
        let panels: Vec<(&str, Vec<&str>)> = figures[0]
            .1
            .panels
            .iter()
            .map(|p| (&*p.title, p.lines.iter().map(|line| &*line.name).collect()))
            .collect();
        let expected = [
            ("decided on arrival, one queue for all", vec!["bound", "none"]),
            ("decided on arrival, queued by class", vec!["bound", "none", "pi"]),
        ];
        assert_eq!(panels, expected);
        // No call was set up, so there is no delay to draw. The lines still have names.
        assert!(figures[1].1.panels[1].lines[2].points.is_empty());
        assert_eq!(figures[0].1.panels[1].lines[2].points.len(), 2);
    }

    #[test]
    fn a_figure_states_the_capacity_only_if_it_is_the_same_in_all_runs() {
        let note = |sweep: &str| {
            let text = format!(
                "[emulate]\nserve_us = 1000\n[farm]\nnodes = 3\n\
                 [sweep]\nload = [1, 2]\n{sweep}[[variant]]\n"
            );
            drawn(&text, Kind::Sim).remove(2).1.note
        };
        // A call takes 6 ms at one of the servers.
        assert!(note("").ends_with("a call costs 6.0 ms: 500 calls/s"), "{}", note(""));
        // The only swept number of servers differs from the one in `[farm]`.
        let one = note("nodes = [1]\n");
        assert!(one.ends_with("a call costs 6.0 ms: 167 calls/s"), "{one}");
        let several = note("nodes = [1, 10]\n");
        assert!(several.ends_with("a call costs 6.0 ms"), "{several}");
    }

    #[test]
    fn with_a_profile_a_figure_shows_the_mean_load() {
        let text = "[emulate]\nserve_us = 1000\nreject_us = 600\n\
                    [workload]\nprofile = \"steps:0=0.5\"\n[sweep]\nload = [1, 4]\n\
                    [[variant]]\noverload = { law = \"pi\" }\n";
        let figures = drawn(text, Kind::Real);
        let panel = &figures[0].1.panels[0];
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let drawn: Vec<f64> = panel.lines[1].points.iter().map(|point| point.x).collect();
        assert!(near(drawn[0], 0.5) && near(drawn[1], 2.0) && drawn.len() == 2, "{drawn:?}");
        let ticks: Vec<&str> = panel.x.ticks.iter().map(|(_, text)| &**text).collect();
        assert_eq!(ticks, ["0.5", "2"]);
        // A rejection costs a tenth of a call. The loads may have rounding errors.
        let bounds = [0.5, 2.0].map(|load| reference(&figures[0].1, 0, load - 1e-10));
        assert!((bounds[0] - 0.5).abs() < 1e-9, "{bounds:?}");
        assert!((bounds[1] - 0.8 / 0.9).abs() < 1e-9, "{bounds:?}");
    }

    /// Returns the height of a panel's reference line at its first point that is not below `load`.
    fn reference(figure: &Figure, panel: usize, load: f64) -> f64 {
        let line = &figure.panels[panel].lines[0];
        let at = line.points.iter().find(|point| point.x >= load).expect("it is that long");
        at.median
    }

    #[test]
    fn each_panel_has_the_bound_and_the_deadline_of_its_runs() {
        let text = "[emulate]\noffer_us = 100\nserve_us = 900\nreject_us = 100\n\
                    [sweep]\nload = [1, 5]\ndeadline_ms = [250, 500]\n\
                    [[variant]]\noverload = { law = \"pi\" }\n\
                    [[variant]]\nlabel = \"silent\"\n\
                    overload = { law = \"pi\", disposal = \"drop\" }\n";
        let figures = drawn(text, Kind::Real);
        let (goodput, delay) = (&figures[0].1, &figures[1].1);
        let titles: Vec<&str> = goodput.panels.iter().map(|panel| &*panel.title).collect();
        let expected = [
            "decided on arrival, queued by class, deadline (ms) 250",
            "decided on arrival, queued by class, deadline (ms) 500",
            "decided on arrival, queued by class, dropped without a response, deadline (ms) 250",
            "decided on arrival, queued by class, dropped without a response, deadline (ms) 500",
        ];
        assert_eq!(titles, expected);
        // A call costs 6 ms. A rejection costs 0.3 ms, and a drop 0.2 ms.
        for (panel, ratio) in [0.05, 0.05, 1.0 / 30.0, 1.0 / 30.0].into_iter().enumerate() {
            let bound = (1.0 - 5.0 * ratio) / (1.0 - ratio);
            assert!((reference(goodput, panel, 5.0) - bound).abs() < 1e-9, "{panel}");
        }
        let deadlines = [0, 1, 2, 3].map(|panel| reference(delay, panel, 0.0));
        assert_eq!(deadlines, [0.25, 0.5, 0.25, 0.5]);
        assert!(
            goodput.note.ends_with("rejecting one costs 0.05 of it, dropping one costs 0.03 of it")
        );
    }
}
