//! The figures of a scenario.

use crate::cost;
use crate::figure::overload::{Facet, Heading, Series};
use crate::figure::{Figure, Point, overload};
use crate::scenario::Scenario;
use crate::summary::{Row, Spread};

/// Every figure with the name of its file.
pub fn figures(scenario: &Scenario, rows: &[Row]) -> Vec<(&'static str, Figure)> {
    let note = note(scenario);
    let heading = |what: &str, also: &str| Heading {
        title: format!("{}: {what}", scenario.title),
        note: format!("{note}{also}"),
    };
    let emulate = &scenario.conditions.emulate;
    let disposal = scenario.variants[0].overload.disposal;
    let deadline_s = scenario.conditions.deadline_ms / 1e3;
    let of_bound = format!(", refusing one costs {:.2} of it", cost::ratio(emulate, disposal));
    vec![
        (
            "goodput",
            overload::goodput(
                heading("goodput", &of_bound),
                &facets(rows, |row| Some(row.goodput)),
                |load| cost::bound(emulate, disposal, load),
            ),
        ),
        (
            "set-up-delay",
            overload::set_up_delay(
                heading("set-up delay", " · of calls that were set up"),
                &facets(rows, |row| row.p99_ms.map(|ms| scaled(ms, 1e-3))),
                deadline_s,
            ),
        ),
        (
            "retransmissions",
            overload::retransmissions(
                heading("retransmissions", ""),
                &facets(rows, |row| Some(row.resent)),
            ),
        ),
    ]
}

fn note(scenario: &Scenario) -> String {
    let runs = match scenario.schedule.repetitions {
        1 => "One run".to_owned(),
        n => format!("Median, least and greatest of {n} runs"),
    };
    let emulate = &scenario.conditions.emulate;
    format!(
        "{runs} of {} s · a call costs {:.1} ms: {:.0} calls/s",
        scenario.schedule.measured.as_secs_f64(),
        cost::call(emulate).as_secs_f64() * 1e3,
        cost::capacity_cps(emulate),
    )
}

/// A panel for each way to decide and to queue, and each combination of what else is swept.
fn facets(rows: &[Row], value: impl Fn(&Row) -> Option<Spread>) -> Vec<Facet> {
    let mut facets: Vec<Facet> = Vec::new();
    for row in rows {
        let title = title(row);
        let at = facets.iter().position(|facet| facet.title == title).unwrap_or_else(|| {
            facets.push(Facet { title, series: Vec::new() });
            facets.len() - 1
        });
        let series = &mut facets[at].series;
        let name = &row.variant.label;
        let at = series.iter().position(|series| series.name == *name).unwrap_or_else(|| {
            series.push(Series { name: name.clone(), points: Vec::new() });
            series.len() - 1
        });
        if let Some(Spread { min, median, max }) = value(row) {
            series[at].points.push(Point { x: row.load, min, median, max });
        }
    }
    facets
}

fn title(row: &Row) -> String {
    let when = match row.variant.decide() {
        "service" => "decided at service",
        _ => "decided on arrival",
    };
    let how = match row.variant.queue() {
        "fifo" => "one queue for all",
        _ => "queued by class",
    };
    let swept = row.swept.iter().map(|(axis, value)| format!(", {} {value}", axis.title()));
    format!("{when}, {how}{}", swept.collect::<String>())
}

fn scaled(spread: Spread, factor: f64) -> Spread {
    let Spread { min, median, max } = spread;
    Spread { min: min * factor, median: median * factor, max: max * factor }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::outcome::Outcome;
    use crate::point::points;
    use crate::summary::rows;

    #[test]
    fn a_panel_for_each_way_to_decide_and_a_line_for_each_law() {
        let text = "title = \"t\"\n[emulate]\nserve_us = 1000\n[sweep]\nload = [1, 2]\n\
                    [[variant]]\noverload = { law = \"none\", queue = \"fifo\" }\n\
                    [[variant]]\noverload = { law = \"none\" }\n\
                    [[variant]]\noverload = { law = \"pi\" }\n";
        let scenario = Scenario::parse(Path::new("s"), text.as_bytes()).unwrap();
        let points = points(&scenario);
        let outcome = Outcome { offered: 1, measured_s: 1.0, ..Outcome::default() };
        let rows = rows(points.iter().map(|point| (point, &outcome)));
        let figures = figures(&scenario, &rows);
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
        // No call was set up: there is no delay to draw, but there are the lines' names.
        assert!(figures[1].1.panels[1].lines[2].points.is_empty());
        assert_eq!(figures[0].1.panels[1].lines[2].points.len(), 2);
    }
}
