//! Compares simulated time with real sockets.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::results::{Row, Swept, bound};
use super::sign::with_sign;
use super::{Experiment, Source};
use crate::figure::highlight::Highlights;
use crate::figure::overload::{self, Facet, Heading, Series};
use crate::figure::{Figure, Point, Stroke};
use crate::spread::Spread;
use crate::table::plain_table;
use crate::worlds::Kind;

/// The results of one scenario in simulated time and on real sockets.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The scenario's name.
    pub name: String,
    /// The subject of the scenario, in one line.
    pub title: String,
    /// One row for each parameter set that was run in both worlds (simulated time and real
    /// sockets).
    pub rows: Vec<Compared>,
    /// The results of each parameter set in simulated time and on real sockets, for figures.
    both: Vec<(Row, Row)>,
    highlights: Highlights,
    deadline_ms: Option<f64>,
}

/// The results of one variant under one set of conditions, in simulated time and on real sockets.
/// Values are medians of the runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The variant's name.
    pub variant: String,
    /// The swept conditions except the load.
    pub swept: Swept,
    /// Nominal load as a multiple of the capacity.
    pub load: f64,
    /// Goodput as a fraction of the capacity.
    pub goodput: Pair,
    /// Set-up delay in ms that 1 % of the calls exceeded. `None` if no call was set up in one of
    /// the two worlds.
    pub p99_ms: Option<Pair>,
}

/// The value of one quantity in simulated time and on real sockets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The value in simulated time.
    pub sim: f64,
    /// The value on real sockets.
    pub real: f64,
}

impl Pair {
    /// Returns the value in simulated time minus the value on real sockets.
    pub fn error(self) -> f64 {
        self.sim - self.real
    }

    /// Returns [`error`](Self::error) as a fraction of the value on real sockets, or `None` if the
    /// value on real sockets is 0.
    pub(crate) fn relative_error(self) -> Option<f64> {
        (self.real != 0.0).then(|| self.error() / self.real)
    }
}

impl Comparison {
    /// Pairs the rows of simulated time with those of real sockets. Returns `None` if `experiment`
    /// was run in one world only, or if no rows match.
    pub fn of(experiment: &Experiment) -> Option<Self> {
        let source = |world| experiment.sources.iter().find(|source| source.results.world == world);
        let (sim, real) = (source(Kind::Sim)?, source(Kind::Real)?);
        let both = paired(sim, real);
        if both.is_empty() {
            return None;
        }
        Some(Self {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            rows: both.iter().map(compared).collect(),
            both,
            highlights: experiment.highlights(),
            deadline_ms: real.results.deadline_ms,
        })
    }

    /// Returns the comparison as a table for a terminal, followed by the lines of
    /// [`verdict`](Self::verdict).
    pub fn text(&self) -> String {
        let header = [
            "variant",
            "swept",
            "load",
            "goodput: sim",
            "real",
            "error",
            "p99 ms: sim",
            "real",
            "error",
        ];
        let mut text = format!("{}: simulated time beside real sockets\n", self.title);
        text += &plain_table(&header, self.rows.iter().map(Compared::cells), 2.., 1);
        for line in self.verdict() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// Returns two lines. The first has the median and the largest error of the goodput, and the
    /// second those of the set-up delay. A line is missing if there are no values.
    pub fn verdict(&self) -> Vec<String> {
        let goodput: Vec<(f64, &Compared)> =
            self.rows.iter().map(|row| (row.goodput.error().abs(), row)).collect();
        let delay = self
            .rows
            .iter()
            .filter_map(|row| Some((row.p99_ms?.relative_error()?.abs() * 100.0, row)));
        let line = |what: &str, errors: &[(f64, &Compared)], unit: &str, digits: usize| {
            let (worst, at) = errors.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
            let median = Spread::of(errors.iter().map(|(error, _)| *error))?.median;
            Some(format!(
                "error in {what}: median {median:.digits$} {unit}, largest {worst:.digits$} \
                 {unit} ({}, load {})",
                at.variant, at.load
            ))
        };
        [
            line("goodput", &goodput, "of the capacity", 3),
            line("p99 set-up delay", &delay.collect::<Vec<_>>(), "%", 0),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns a figure of goodput and a figure of delay, each with its file name. Each figure
    /// shows simulated time and real sockets.
    pub fn figures(&self) -> Vec<(&'static str, Figure)> {
        let heading = |what: &str| Heading {
            title: format!("{}: {what}", self.title),
            note: "Solid lines: simulated time · dashed lines: real sockets · median, minimum and \
                   maximum of the runs"
                .to_owned(),
            highlights: self.highlights.clone(),
        };
        let bounds = self.bounds();
        let goodput = self.facets(|row| Some(row.goodput), 1.0);
        let delay = self.facets(|row| row.p99_ms, 1e-3);
        let deadlines: Vec<f64> = self.deadlines_s();
        let bound = |panel: usize, load: f64| between(&bounds[panel], load);
        vec![
            ("worlds-goodput", marked(overload::goodput(heading("goodput"), &goodput, bound))),
            (
                "worlds-set-up-delay",
                marked(overload::set_up_delay(heading("set-up delay"), &delay, &deadlines)),
            ),
        ]
    }

    /// Returns a panel for each combination of [`Row::panel`] and swept conditions. A panel has
    /// each series twice: first in simulated time, and then on real sockets. Values are multiplied
    /// by `factor`.
    fn facets(&self, value: fn(&Row) -> Option<Spread>, factor: f64) -> Vec<Facet> {
        let mut facets = Vec::new();
        for rows in self.panels().values() {
            let mut facet = Facet { title: panel(&rows[0].0), series: Vec::new() };
            for (sim, real) in rows {
                let first = facet.series.iter().position(|series| series.name == sim.label);
                let first = first.unwrap_or_else(|| {
                    let empty = Series { name: sim.label.clone(), points: Vec::new() };
                    facet.series.extend([empty.clone(), empty]);
                    facet.series.len() - 2
                });
                for (series, row) in [(first, sim), (first + 1, real)] {
                    facet.series[series].points.extend(value(row).map(|spread| Point {
                        x: row.mean_load,
                        min: spread.min * factor,
                        median: spread.median * factor,
                        max: spread.max * factor,
                    }));
                }
            }
            facets.push(facet);
        }
        facets
    }

    fn bounds(&self) -> Vec<Vec<(f64, f64)>> {
        let last = self.both.iter().map(|(sim, _)| sim.mean_load).fold(0.0, f64::max);
        self.panels().values().map(|rows| bound(rows.iter().map(|(sim, _)| sim), last)).collect()
    }

    fn deadlines_s(&self) -> Vec<f64> {
        let deadline_ms = |row: &Row| row.swept.get("deadline_ms").copied().or(self.deadline_ms);
        let panels = self.panels();
        let deadlines = panels.values().map(|rows| deadline_ms(&rows[0].0));
        deadlines.map_while(|ms| Some(ms? / 1e3)).collect()
    }

    fn panels(&self) -> BTreeMap<String, Vec<&(Row, Row)>> {
        let mut panels = BTreeMap::<String, Vec<&(Row, Row)>>::new();
        for rows in &self.both {
            panels.entry(panel(&rows.0)).or_default().push(rows);
        }
        panels
    }
}

impl Compared {
    /// Returns the cells of this row of the table: variant, swept conditions and load; simulated
    /// value, real value and error of the goodput; simulated value, real value and error of the
    /// delay.
    pub fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.variant.clone(), swept(&self.swept), self.load.to_string()];
        let Pair { sim, real } = self.goodput;
        cells.extend([
            format!("{sim:.3}"),
            format!("{real:.3}"),
            with_sign(self.goodput.error(), 3),
        ]);
        match self.p99_ms {
            Some(delay) => cells.extend([
                format!("{:.0}", delay.sim),
                format!("{:.0}", delay.real),
                delay
                    .relative_error()
                    .map_or_else(String::new, |error| with_sign(error * 100.0, 0) + " %"),
            ]),
            None => cells.extend(["–"; 3].map(str::to_owned)),
        }
        cells
    }
}

/// Pairs the rows of simulated time and real sockets that have the same variant, load and
/// conditions.
fn paired(sim: &Source, real: &Source) -> Vec<(Row, Row)> {
    let counterpart = |row: &Row| {
        let alike = |other: &&Row| {
            other.variant == row.variant && other.load == row.load && other.swept == row.swept
        };
        Some((row.clone(), real.rows().find(alike)?.clone()))
    };
    sim.rows().filter_map(counterpart).collect()
}

fn compared((sim, real): &(Row, Row)) -> Compared {
    let pair = |sim: Spread, real: Spread| Pair { sim: sim.median, real: real.median };
    Compared {
        variant: sim.variant.clone(),
        swept: sim.swept.clone(),
        load: sim.load,
        goodput: pair(sim.goodput, real.goodput),
        p99_ms: sim.p99_ms.zip(real.p99_ms).map(|(sim, real)| pair(sim, real)),
    }
}

/// Makes the lines of real sockets dashed. If two lines have the same name, the second belongs to
/// real sockets.
fn marked(mut figure: Figure) -> Figure {
    for panel in &mut figure.panels {
        let measured = panel.lines.iter_mut().filter(|line| line.stroke == Stroke::Measured);
        measured.skip(1).step_by(2).for_each(|line| line.stroke = Stroke::Beside);
    }
    figure
}

/// Returns the y value at `x` of the line through `corners`. The corners must be sorted by their x
/// value.
fn between(corners: &[(f64, f64)], x: f64) -> f64 {
    let right = corners.partition_point(|corner| corner.0 < x).clamp(1, corners.len() - 1);
    let ((x0, y0), (x1, y1)) = (corners[right - 1], corners[right]);
    y0 + (y1 - y0) * (x - x0) / (x1 - x0)
}

fn panel(row: &Row) -> String {
    match swept(&row.swept) {
        conditions if conditions.is_empty() => row.panel.clone(),
        conditions => format!("{}, {conditions}", row.panel),
    }
}

/// Formats the swept conditions, for example `queue_max 300, t1_ms 500`.
fn swept(swept: &Swept) -> String {
    let words: Vec<String> = swept.iter().map(|(name, value)| format!("{name} {value}")).collect();
    words.join(", ")
}
