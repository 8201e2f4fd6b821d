//! Writes the page and the figures of a tournament.

use super::{Bout, Cell, Place, Results, Route};
use crate::figure::highlight::Highlights;
use crate::figure::{Axis, Figure, Line, Panel, Point, Stroke};
use crate::report::{self, Overview, Section};
use crate::spread::Spread;

/// The law that is highlighted in every figure.
const OURS: &str = "tide";

/// Returns the report of the tournament as an HTML page.
pub(super) fn page(results: &Results) -> String {
    let mut sections = Vec::new();
    for route in Route::ALL {
        let what = match route {
            Route::Same => "all laws decide, queue and reject alike",
            Route::Own => "each law decides, queues and rejects as its source does",
        };
        sections.push(Section {
            title: format!("Goodput ÷ bound, {}", route.name()),
            caption: format!(
                "Mean of the runs, and below it the 95 % confidence interval; {what}. ▲ marks the \
                 law with the highest goodput. = marks a law that is worse by at most 0.005 of the \
                 capacity, or not significantly worse (confidence 95 %)"
            ),
            table: means(results, route, 1.0, 3, |cell| cell.kept),
        });
    }
    let same = |factor, digits, of: fn(&Cell) -> Option<Spread>| {
        means(results, Route::Same, factor, digits, of)
    };
    for (title, caption, table) in [
        (
            "99 % of set-ups within, ms",
            "Time within which 99 % of the calls that were set up got their 200. Mean of the runs, \
             on the same path",
            same(1.0, 0, |cell| cell.p99_ms),
        ),
        (
            "Settled after, s",
            "Time from the last rise of the load above the capacity until the goodput was 90 % of \
             its bound for 2 s. Mean of the runs that settled, with their number if some did not; \
             on the same path",
            settled(results),
        ),
        (
            "Rejected early, %",
            "Share of the offered calls that were rejected although the processor had idle time \
             within the last 0.1 s; on the same path",
            same(100.0, 2, |cell| Some(cell.early)),
        ),
        (
            "Fairness",
            "Jain's index of the sources' shares of calls set up in time, if each source offered \
             at least 20 calls; on the same path",
            same(1.0, 3, |cell| cell.fairness),
        ),
        (
            "Calls of the trunk set up in time, %",
            "Share of the calls that the trunk offered; on the same path",
            same(100.0, 1, |cell| cell.trunk),
        ),
        (
            "Calls of the small sources set up in time, %",
            "Share of the calls that all other sources offered together; on the same path",
            same(100.0, 1, |cell| cell.others),
        ),
    ] {
        sections.push(Section { title: title.to_owned(), caption: caption.to_owned(), table });
    }
    sections.push(Section {
        title: "The gain from the own path".to_owned(),
        caption: format!(
            "Mean goodput over all bouts, as a fraction of the capacity. Own − same is the gain of \
             a law from its own path, by a cheaper rejection or another queue. Laws that also \
             have other parameters on their own path have no such value: {}",
            if results.tuned.is_empty() { "none".to_owned() } else { results.tuned.join(", ") }
        ),
        table: by_path(results),
    });
    let facts = vec![
        ("laws", results.laws.len().to_string()),
        ("bouts", results.bouts.len().to_string()),
        ("runs of each", results.seeds.to_string()),
        ("world", "simulated time".to_owned()),
    ];
    report::overview(&Overview {
        name: "tournament".to_owned(),
        title: "Every law in every scenario".to_owned(),
        facts,
        notes: results.bouts.iter().map(|bout| format!("{}: {}", bout.name, bout.title)).collect(),
        figures: figures(results).into_iter().map(|(_, figure)| figure).collect(),
        sections,
    })
}

/// Returns a table with a row for each law and a column for each bout. `show` formats a cell from
/// the results of the law in the bout. They are `None` if the law was not run.
fn by_bout(
    results: &Results,
    route: Route,
    show: impl Fn(&Bout, Option<&Cell>) -> report::Cell,
) -> report::Table {
    let head = results.bouts.iter().map(|bout| (bout.name.clone(), ""));
    let body = results.laws.iter().map(|law| {
        let cells = results.bouts.iter().map(|bout| show(bout, bout.on(law, route)));
        (law.to_string(), cells.collect())
    });
    report::Table::by_row("law", head, body)
}

/// Returns a table of the means of one quantity.
fn means(
    results: &Results,
    route: Route,
    factor: f64,
    digits: usize,
    of: impl Fn(&Cell) -> Option<Spread>,
) -> report::Table {
    by_bout(results, route, |_, cell| {
        let mark = cell.map_or("", |cell| mark(cell, route));
        report::Cell::mean(cell.and_then(&of), factor, digits, mark)
    })
}

/// Returns the mark for the rank of a law on `route` in a bout, or an empty text.
fn mark(cell: &Cell, route: Route) -> &'static str {
    match cell.place_on(route) {
        Some(Place::First) => " ▲",
        Some(Place::Tied) => " =",
        Some(Place::Behind) | None => "",
    }
}

/// Returns a table of settling times on the same path. A column without times belongs to a bout in
/// which no law settled, because the load does not rise above the capacity or is too high for all
/// laws.
fn settled(results: &Results) -> report::Table {
    by_bout(results, Route::Same, |bout, cell| {
        let can_settle = bout.cells.iter().any(|cell| cell.settled.0 > 0);
        let (count, time) = cell.map_or((0, None), |cell| cell.settled);
        match (cell, count) {
            (Some(_), 0) if can_settle => report::Cell::text("never"),
            (None, _) | (Some(_), 0) => report::Cell::text("–"),
            (Some(cell), _) => {
                let mark = mark(cell, Route::Same);
                report::Cell::mean(time, 1.0, 2, mark).of(count, cell.scores.len())
            }
        }
    })
}

/// Returns the settling time of a law in a bout, or `None` unless the law settled in all its runs.
/// A mean over only some of the runs would favour a law that often does not settle.
fn settled_always(cell: &Cell) -> Option<Spread> {
    let (count, time) = cell.settled;
    time.filter(|_| count == cell.scores.len())
}

/// Returns the mean goodput of a law on a path over all bouts, as a fraction of the capacity.
fn mean(results: &Results, law: &str, route: Route) -> Option<f64> {
    let goodput = results.bouts.iter().filter_map(|bout| Some(bout.on(law, route)?.goodput.mean));
    Spread::of(goodput).map(|spread| spread.mean)
}

/// Returns the goodput of a law on its own path minus its goodput on the same path. Returns `None`
/// if its parameters also differ between the paths, because the difference then has two causes.
pub(super) fn win(results: &Results, law: &str) -> Option<f64> {
    let [same, own] = Route::ALL.map(|route| mean(results, law, route));
    Some(own? - same?).filter(|_| !results.tuned.contains(&law))
}

fn by_path(results: &Results) -> report::Table {
    let head = ["same path", "own path", "own − same"].map(|title| (title.to_owned(), ""));
    let body = results.laws.iter().map(|law| {
        let [same, own] = Route::ALL.map(|route| mean(results, law, route));
        let cells = [same, own, win(results, law)].map(|value| {
            report::Cell::mean(value.and_then(|value| Spread::of([value])), 1.0, 3, "")
        });
        (law.to_string(), cells.into())
    });
    report::Table::by_row("law", head, body)
}

/// Returns the figures of the tournament, each with its file name.
pub(super) fn figures(results: &Results) -> Vec<(&'static str, Figure)> {
    let kept = Axis::with_steps("goodput ÷ bound", 1.2, 0.2);
    let delay =
        Axis::powers("99 % of set-ups take no longer than", 10.0, 0..=5, |power| match power {
            ..3 => format!("{} ms", 10f64.powi(power)),
            _ => format!("{} s", 10f64.powi(power - 3)),
        });
    let axis = Axis::with_steps("settled after, s", 5.0, 1.0);
    vec![
        ("goodput-of-bound", figure(results, "goodput", &kept, &Route::ALL, |cell| cell.kept)),
        (
            "set-up-delay",
            figure(results, "set-up delay", &delay, &[Route::Same], |cell| cell.p99_ms),
        ),
        (
            "settling",
            figure(results, "settling, if all runs settled", &axis, &[Route::Same], settled_always),
        ),
    ]
}

/// Returns a figure of one quantity, with a panel for each path and the bouts on the horizontal
/// axis.
fn figure(
    results: &Results,
    what: &str,
    y: &Axis,
    routes: &[Route],
    of: impl Fn(&Cell) -> Option<Spread>,
) -> Figure {
    let count = results.bouts.len();
    let x = Axis {
        ticks: (1..=count).map(|bout| (bout as f64, bout.to_string())).collect(),
        range: 0.5..=count as f64 + 0.5,
        ..Axis::linear("bout", count as f64)
    };
    let panel = |&route: &Route| Panel {
        title: route.name().to_owned(),
        x: x.clone(),
        y: y.clone(),
        lines: results
            .laws
            .iter()
            .map(|law| Line {
                name: law.to_string(),
                stroke: Stroke::Measured,
                points: (1..)
                    .zip(&results.bouts)
                    .filter_map(|(x, bout)| {
                        let Spread { min, mean, max, ci95, .. } = of(bout.on(law, route)?)?;
                        let [min, max] = ci95.unwrap_or([min, max]);
                        Some(Point { x: f64::from(x), min, median: mean, max })
                    })
                    .collect(),
            })
            .collect(),
    };
    let samples: Vec<_> = results
        .bouts
        .iter()
        .flat_map(|bout| bout.cells.iter().filter(|cell| cell.route == Route::Same))
        .map(|cell| (cell.law, 2.0, cell.goodput.mean))
        .collect();
    let names: Vec<_> =
        (1..).zip(&results.bouts).map(|(number, bout)| format!("{number} {}", bout.name)).collect();
    Figure {
        title: format!("Every law in every scenario: {what}"),
        note: format!(
            "Mean of {} runs, with its 95 % confidence interval · {}",
            results.seeds,
            names.join(" · ")
        ),
        panels: routes.iter().map(panel).collect(),
        highlights: Highlights::choose(&samples, &[OURS.to_owned()]),
    }
}
