//! Formats tables for a terminal.

use std::ops::RangeBounds;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, LineStyle, Table};

use crate::summary::{Row, Spread};

/// Formats `rows` below `header` as a table, as wide as its contents. The columns in `right` are
/// aligned to the right. `gap` is the number of spaces between columns.
pub(crate) fn plain_table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    right: impl RangeBounds<usize>,
    gap: u16,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING.header_separator(LineStyle::none().fill('─').junction('─')));
    table.set_header(header);
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        if right.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_padding((0, gap));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Formats the results of a scenario.
pub fn render(rows: &[Row]) -> String {
    let swept: Vec<&str> = rows
        .first()
        .map_or_else(Vec::new, |row| row.swept.iter().map(|(axis, _)| axis.title()).collect());
    let mut header = vec!["variant"];
    header.extend(&swept);
    header.push("load");
    let optional = Optional::of(rows);
    header.extend(optional.mean_load.then_some("mean load"));
    header.extend([
        "goodput/C",
        "min–max",
        "mean ±95 %",
        "bound",
        "of bound",
        "rejected",
        "resent",
        "p50 ms",
        "p99 ms",
    ]);
    header.extend(optional.recovery.then_some("recovery s"));
    header.extend(optional.outage.then_some(OUTAGE).into_iter().flatten());
    header.extend(["generator", "lost"]);
    let (mut lines, mut last) = (Vec::new(), None);
    for row in rows {
        let group = (row.variant.name(), row.swept.clone());
        let first = last.as_ref() != Some(&group);
        if first && last.is_some() {
            lines.push(vec![String::new()]);
        }
        lines.push(cells(row, first, optional));
        last = Some(group);
    }
    plain_table(&header, lines, 1.., 1)
}

/// The headings of the columns about an outage.
const OUTAGE: [&str; 7] =
    ["served", "redials", "backlog s", "back s", "at end", "registered", "emergency"];

/// The columns that most scenarios do not need.
#[derive(Clone, Copy)]
struct Optional {
    /// True if a row has a mean load that differs from its load.
    mean_load: bool,
    /// True if a row has an overload that ends.
    recovery: bool,
    /// True if a row has an outage.
    outage: bool,
}

impl Optional {
    fn of(rows: &[Row]) -> Self {
        Self {
            mean_load: rows.iter().any(|row| row.mean_load != row.load),
            recovery: rows.iter().any(|row| row.recovered.is_some()),
            outage: rows.iter().any(|row| row.outage.is_some()),
        }
    }
}

fn cells(row: &Row, first: bool, optional: Optional) -> Vec<String> {
    let mut cells = vec![if first { row.variant.name() } else { String::new() }];
    cells.extend(row.swept.iter().map(|(_, value)| value.to_string()));
    let Spread { min, median, max, mean, ci95 } = row.goodput;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    cells.push(row.load.to_string());
    cells.extend(optional.mean_load.then(|| format!("{:.3}", row.mean_load)));
    cells.extend([
        format!("{median:.3}"),
        format!("{min:.3}–{max:.3}"),
        match ci95 {
            Some([low, high]) => format!("{mean:.3} ±{:.3}", (high - low) / 2.0),
            None => format!("{mean:.3}"),
        },
        format!("{:.3}", row.bound),
        or_none(row.goodput_of_bound.map(|share| percent(share.median))),
        percent(row.rejected.median),
        format!("{:.2}", row.retransmission_ratio.median),
        or_none(row.p50_ms.map(|delay| millis(delay.median))),
        or_none(row.p99_ms.map(|delay| millis(delay.median))),
    ]);
    let recovery = || or_none(row.recovered.map(|count| back(row.recovery_s, count, row.runs)));
    cells.extend(optional.recovery.then(recovery));
    cells.extend(optional.outage.then(|| outage(row)).into_iter().flatten());
    cells.extend([
        format!("{}{}", percent(row.generator_load), if row.too_slow > 0 { " slow" } else { "" }),
        row.drops.to_string(),
    ]);
    cells
}

/// Returns the cells of the columns about an outage. They are medians over the runs. The recovery
/// time also has the number of runs that recovered, unless all did.
fn outage(row: &Row) -> [String; 7] {
    let none = || "–".to_owned();
    let Some(outage) = &row.outage else { return std::array::from_fn(|_| none()) };
    let exact = |part: Spread| format!("{:.2} %", part.median * 100.0);
    [
        percent(outage.served.median),
        percent(outage.redials.median),
        format!("{:.1}", outage.backlog_s.median),
        back(outage.recovered_s, outage.recovered, row.runs),
        percent(outage.goodput_end.median),
        outage.registered_end.map_or_else(none, |part| percent(part.median)),
        outage.emergency.map_or_else(none, exact),
    ]
}

/// Formats a recovery time: the median of the `count` runs whose goodput recovered. Appends
/// `count`, unless the goodput recovered in all `runs`.
fn back(time: Option<Spread>, count: usize, runs: usize) -> String {
    match time {
        None => "never".to_owned(),
        Some(time) if count == runs => format!("{:.1}", time.median),
        Some(time) => format!("{:.1} ({count} of {runs})", time.median),
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Formats milliseconds, with a decimal place only below 10 ms. The usual three runs do not measure
/// a delay more precisely.
fn millis(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Generator, Outcome, Quantiles};
    use crate::summary::rows;
    use crate::testing::planned;
    use crate::worlds::Kind;

    #[test]
    fn a_line_for_each_variant_and_load() {
        let text = "[emulate]\nserve_us = { default = 2000, invite = 0 }\n\
                    [sweep]\nload = [1, 2]\n[schedule]\nrepetitions = 2\nmeasured_s = 100\n\
                    [[variant]]\noverload = { law = \"none\" }\n\
                    [[variant]]\noverload = { law = \"pi\" }\n";
        let runs = planned(text, Kind::Real);
        let outcome = |run: &crate::run_spec::RunSpec| {
            let pi = run.variant.label == "pi";
            let late = run.conditions.load > 1.0 && !pi;
            Outcome {
                offered: (run.conditions.load * 10_000.0) as u64,
                good: if late { 0 } else { 9_000 + 500 * u64::from(run.repetition) },
                rejected: if pi { 1_000 } else { 0 },
                repeated_invites: if late { 12_345 } else { 0 },
                measured_s: 100.0,
                set_up_delay: (!late).then_some(Quantiles {
                    p50_ms: 3.21,
                    p90_ms: 20.0,
                    p99_ms: 123.4,
                    max_ms: 400.0,
                }),
                generator: Generator {
                    caller_load: 0.25,
                    drops: 3,
                    too_slow: late.then(|| "slow".to_owned()),
                    ..Generator::default()
                },
                ..Outcome::default()
            }
        };
        let outcomes: Vec<_> = runs.iter().map(outcome).collect();
        let text = render(&rows(runs.iter().zip(&outcomes)));
        let expected = include_str!("table/expected.txt");
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn the_time_to_recover_has_the_number_of_runs_that_did() {
        let time = Spread::of([1.0, 3.0]);
        assert_eq!(back(time, 2, 2), "2.0");
        assert_eq!(back(time, 2, 5), "2.0 (2 of 5)");
        assert_eq!(back(None, 0, 5), "never");
    }

    #[test]
    fn with_a_profile_the_table_shows_the_mean_load_too() {
        let text = "[emulate]\nserve_us = 1000\n[workload]\n\
                    profile = \"steps:0=0.6\"\n[sweep]\nload = [2]\n\
                    [[variant]]\noverload = { law = \"pi\" }\n";
        let runs = planned(text, Kind::Sim);
        let outcome = Outcome { offered: 1, measured_s: 1.0, ..Outcome::default() };
        let text = render(&rows(runs.iter().map(|run| (run, &outcome))));
        let head = text.lines().next().unwrap();
        assert!(head.contains("load  mean load  goodput/C"), "{text}");
        let cells: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(cells[..5], ["pi", "(arrival,", "class)", "2", "1.200"], "{text}");
    }

    #[test]
    fn loads_under_the_same_conditions_are_listed_together() {
        let text = "[emulate]\nserve_us = 1000\n[sweep]\nload = [1, 2]\n\
                    queue_max = [300, 400]\n[[variant]]\noverload = { law = \"pi\" }\n";
        let runs = planned(text, Kind::Real);
        let outcome = Outcome { offered: 1, measured_s: 1.0, ..Outcome::default() };
        let text = render(&rows(runs.iter().map(|run| (run, &outcome))));
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines.iter().map(|line| line.is_empty()).collect::<Vec<_>>(),
            [false, false, true, false, false]
        );
    }
}
