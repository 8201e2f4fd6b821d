//! Builds the tables of a page, cell by cell.

use serde::Serialize;

use super::Experiment;
use super::comparison::{Compared, Comparison, Pair};
use super::results::{Row, Swept};
use super::sign::with_sign;
use crate::spread::Spread;

/// A table that can be sorted by each of its columns.
#[derive(Serialize)]
pub(crate) struct Table {
    head: Vec<Column>,
    body: Vec<Vec<Cell>>,
}

#[derive(Serialize)]
pub(crate) struct Column {
    title: String,
    /// The meaning of the column in a sentence, or an empty text.
    meaning: &'static str,
    numeric: bool,
}

#[derive(Serialize, Default)]
pub(crate) struct Cell {
    text: String,
    /// Text in small letters below the value, such as its range, or an empty text.
    spread: String,
    /// The sort key, or `None` to sort by the text.
    order: Option<f64>,
}

fn text(title: &str) -> Column {
    Column { title: title.to_owned(), meaning: "", numeric: false }
}

fn number(title: &str, meaning: &'static str) -> Column {
    Column { title: title.to_owned(), meaning, numeric: true }
}

impl Table {
    /// Returns a table of numbers. `head` has the title and the meaning of each column. `body` has
    /// the name and the cells of each row. `rows` is the title of the first column, which has the
    /// names of the rows.
    pub(crate) fn by_row(
        rows: &str,
        head: impl IntoIterator<Item = (String, &'static str)>,
        body: impl IntoIterator<Item = (String, Vec<Cell>)>,
    ) -> Self {
        let columns = head.into_iter().map(|(title, meaning)| number(&title, meaning));
        let head = [text(rows)].into_iter().chain(columns).collect();
        let row = |(name, cells): (String, Vec<Cell>)| {
            [Cell::text(&name)].into_iter().chain(cells).collect()
        };
        Self { head, body: body.into_iter().map(row).collect() }
    }
}

impl Cell {
    /// Returns a cell with the mean, followed by `mark`, and below them the 95 % interval of the
    /// mean. The numbers are multiplied by `factor`.
    pub(crate) fn mean(spread: Option<Spread>, factor: f64, digits: usize, mark: &str) -> Self {
        let Some(spread) = spread else { return Self::text("–") };
        let shown = |value: f64| format!("{:.digits$}", value * factor);
        let beneath = spread.ci95.filter(|[low, high]| shown(*low) != shown(*high));
        Self {
            text: shown(spread.mean) + mark,
            spread: beneath.map_or_else(String::new, |[low, high]| {
                format!("{} – {}", shown(low), shown(high))
            }),
            order: Some(spread.mean),
        }
    }

    /// Adds `count`, the number of runs that have a value, to the text if it is less than `runs`.
    #[must_use]
    pub(crate) fn of(mut self, count: usize, runs: usize) -> Self {
        if count < runs {
            self.text += &format!(" ({count} of {runs})");
        }
        self
    }

    pub(crate) fn text(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    fn number(value: f64, digits: usize) -> Self {
        Self { text: format!("{value:.digits$}"), order: Some(value), ..Self::default() }
    }

    fn exact(value: f64) -> Self {
        Self { text: value.to_string(), order: Some(value), ..Self::default() }
    }

    /// Returns a cell with the median, and below it the minimum, the maximum and the 95 % interval
    /// of the mean. The numbers are multiplied by `factor`.
    fn spread(spread: Option<Spread>, factor: f64, digits: usize) -> Self {
        let Some(Spread { min, median, max, ci95, .. }) = spread else { return Self::text("–") };
        let shown = |value: f64| format!("{:.digits$}", value * factor);
        let mut beneath = String::new();
        if min != max {
            beneath = format!("{} – {}", shown(min), shown(max));
        }
        if let Some([low, high]) = ci95 {
            beneath += &format!("; 95 %: {} – {}", shown(low), shown(high));
        }
        let spread = beneath.trim_start_matches("; ").to_owned();
        Self { text: shown(median), spread, order: Some(median) }
    }
}

/// Returns a table with a line for each row of each source of results.
pub(super) fn results(experiment: &Experiment) -> Table {
    let rows = || experiment.rows();
    let several = experiment.sources.len() > 1;
    let recovers = rows().any(|row| row.recovery_s.is_some() || row.recovered.is_some());
    let differs = rows().any(|row| row.mean_load != row.load);
    let mut head = Vec::new();
    head.extend(several.then(|| text("results of")));
    head.push(text("variant"));
    head.extend(swept(rows().map(|row| &row.swept)));
    head.push(if differs {
        number("load", "nominal load ÷ capacity, before the load profile")
    } else {
        number("load", "offered load ÷ capacity")
    });
    head.extend(
        differs.then(|| {
            number("mean load", "mean of the load offered in the measured time ÷ capacity")
        }),
    );
    head.extend([
        number(
            "goodput",
            "calls set up in time ÷ capacity: median, minimum and maximum of the runs",
        ),
        number(
            "bound",
            "greatest possible goodput at the mean load of the measured time ÷ capacity",
        ),
        number("of bound, %", "goodput ÷ bound at the load that was offered in the run"),
        number("rejected, %", "calls rejected ÷ calls offered"),
        number("resent", "INVITEs sent again ÷ INVITEs sent first"),
        number("p50, ms", "half of the calls were set up within this time"),
        number("p99, ms", "99 % of the calls were set up within this time"),
    ]);
    head.extend(recovers.then(|| {
        number(
            "back after, s",
            "time from the end of the overload until the goodput was back, in the runs in which it \
             came back",
        )
    }));
    head.extend([
        number("runs", "runs of this row"),
        number("generator, %", "use of a processor core by the generator's busiest thread"),
        number("lost", "datagrams that the generator lost"),
    ]);
    let body = experiment.sources.iter().flat_map(|source| {
        source.rows().map(move |row| {
            let mut cells = Vec::new();
            cells.extend(several.then(|| Cell::text(&source.label)));
            cells.push(Cell::text(&row.variant));
            cells.extend(row.swept.values().map(|value| Cell::exact(*value)));
            cells.push(Cell::exact(row.load));
            cells.extend(differs.then(|| Cell::number(row.mean_load, 3)));
            cells.extend(measured(row));
            cells.extend(recovers.then(|| recovery(row)));
            cells.extend([
                Cell::exact(row.runs as f64),
                generator(row),
                Cell::exact(row.drops as f64),
            ]);
            cells
        })
    });
    Table { head, body: body.collect() }
}

fn measured(row: &Row) -> [Cell; 7] {
    [
        Cell::spread(Some(row.goodput), 1.0, 3),
        Cell::number(row.bound, 3),
        Cell::spread(row.goodput_of_bound, 100.0, 0),
        Cell::spread(Some(row.rejected), 100.0, 0),
        Cell::spread(Some(row.retransmission_ratio), 1.0, 2),
        Cell::spread(row.p50_ms, 1.0, 0),
        Cell::spread(row.p99_ms, 1.0, 0),
    ]
}

fn recovery(row: &Row) -> Cell {
    match row.recovered {
        Some(0) => Cell::text("never"),
        Some(count) => Cell::spread(row.recovery_s, 1.0, 1).of(count, row.runs),
        None => Cell::spread(row.recovery_s, 1.0, 1),
    }
}

fn generator(row: &Row) -> Cell {
    let slow = match row.too_slow {
        0 => String::new(),
        runs => format!("too slow in {runs}"),
    };
    Cell { spread: slow, ..Cell::number(row.generator_load * 100.0, 0) }
}

/// Returns a table that compares simulated time with real sockets.
pub(super) fn comparison(comparison: &Comparison) -> Table {
    let mut head = vec![text("variant")];
    head.extend(swept(comparison.rows.iter().map(|row| &row.swept)));
    head.extend([
        number("load", "nominal load ÷ capacity, before a load profile"),
        number("goodput, simulated", "calls set up in time ÷ capacity, median of the runs"),
        number("goodput, real", "calls set up in time ÷ capacity, median of the runs"),
        number("error", "simulated − real"),
        number("p99, simulated, ms", "99 % of the calls were set up within this time"),
        number("p99, real, ms", "99 % of the calls were set up within this time"),
        number("error, %", "(simulated − real) ÷ real"),
    ]);
    let body = comparison.rows.iter().map(|row: &Compared| {
        let Pair { sim, real } = row.goodput;
        let mut cells = vec![Cell::text(&row.variant)];
        cells.extend(row.swept.values().map(|value| Cell::exact(*value)));
        let error = row.goodput.error();
        cells.extend([Cell::exact(row.load), Cell::number(sim, 3), Cell::number(real, 3)]);
        cells.push(signed(Some(error), 3));
        let delay = row.p99_ms;
        let ms = |value: Option<f64>| value.map_or(Cell::text("–"), |ms| Cell::number(ms, 0));
        cells.extend([ms(delay.map(|pair| pair.sim)), ms(delay.map(|pair| pair.real))]);
        cells.push(signed(delay.and_then(Pair::relative_error).map(|part| part * 100.0), 0));
        cells
    });
    Table { head, body: body.collect() }
}

fn signed(value: Option<f64>, digits: usize) -> Cell {
    let Some(value) = value else { return Cell::text("–") };
    Cell { text: with_sign(value, digits), order: Some(value), ..Cell::default() }
}

/// Returns a column for each swept condition. All rows have values of the same swept conditions, so
/// only the first row is read.
fn swept<'a>(mut rows: impl Iterator<Item = &'a Swept>) -> Vec<Column> {
    let names = rows.next().into_iter().flat_map(|swept| swept.keys());
    names.map(|name| number(name, "a swept condition with its name in the scenario")).collect()
}
