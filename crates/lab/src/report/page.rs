//! Writes a report as an HTML page from a template, the tables, and the data of the charts.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;

use super::results::{Row, Swept, bound};
use super::table::{self, Table};
use super::timeline::{self, Series};
use super::{Experiment, Overview, Report, Source, VALUES_MAX};
use crate::figure::{Figure, highlight};
use crate::verdict::Verdict;
use crate::worlds::Kind;

const TEMPLATE: &str = include_str!("../../assets/report.html");
const STYLES: [&str; 2] =
    [include_str!("../../assets/uPlot.min.css"), include_str!("../../assets/report.css")];
const LICENCE: &str = include_str!("../../assets/LICENSE-uPlot");
const SCRIPTS: [&str; 9] = [
    include_str!("../../assets/uPlot.iife.min.js"),
    include_str!("../../assets/words.js"),
    include_str!("../../assets/marks.js"),
    include_str!("../../assets/tip.js"),
    include_str!("../../assets/chart.js"),
    include_str!("../../assets/table.js"),
    include_str!("../../assets/loads.js"),
    include_str!("../../assets/times.js"),
    include_str!("../../assets/report.js"),
];

/// Returns `report` as an HTML document.
pub fn html(report: &Report) -> String {
    render(Page {
        experiments: report.experiments.iter().map(Part::of).collect(),
        data: island(&Data::of(report)),
        ..Page::new(title(report))
    })
}

/// Returns `overview` as an HTML document.
pub(crate) fn overview(overview: &Overview) -> String {
    let Overview { name, title, facts, notes, figures, sections } = overview;
    let overview = OverviewPart {
        name,
        facts,
        notes,
        figures: figures.iter().map(Figure::svg).collect(),
        sections: sections.iter().map(|s| (&*s.title, &*s.caption, &s.table)).collect(),
    };
    render(Page { overview: Some(overview), ..Page::new(title.clone()) })
}

fn render(page: Page<'_>) -> String {
    let mut environment = Environment::new();
    // Escapes all text that comes from a scenario.
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let page = environment.render_str(TEMPLATE, Value::from(Serde(page)));
    page.expect("the template names what it is given")
}

/// Returns `data` as JSON for embedding in an HTML element. `<` is escaped, because it could end
/// the element. JSON contains `<` only within strings.
fn island(data: &Data) -> String {
    let json = serde_json::to_string(data).expect("its keys are texts");
    json.replace('<', "\\u003c")
}

fn title(report: &Report) -> String {
    let titles: Vec<&str> = report.experiments.iter().map(|one| &*one.title).collect();
    titles.join(" · ")
}

/// Returns the colours of figures as CSS values.
fn palette() -> Vec<String> {
    let css = |(red, green, blue)| format!("#{red:02x}{green:02x}{blue:02x}");
    highlight::palette().map(css).collect()
}

/// The data that fills the template.
#[derive(Serialize)]
struct Page<'a> {
    title: String,
    overview: Option<OverviewPart<'a>>,
    experiments: Vec<Part>,
    data: String,
    palette: Vec<String>,
    styles: [&'static str; STYLES.len()],
    licence: &'static str,
    scripts: [&'static str; SCRIPTS.len()],
    version: &'static str,
}

impl Page<'_> {
    fn new(title: String) -> Self {
        Self {
            title,
            overview: None,
            experiments: Vec::new(),
            data: island(&Data { experiments: Vec::new() }),
            palette: palette(),
            styles: STYLES,
            licence: LICENCE,
            scripts: SCRIPTS,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The part of the template's data for an [`Overview`].
#[derive(Serialize)]
struct OverviewPart<'a> {
    name: &'a str,
    facts: &'a [(&'static str, String)],
    notes: &'a [String],
    /// The figures as SVG documents.
    figures: Vec<String>,
    /// Title, caption and table of each section.
    sections: Vec<(&'a str, &'a str, &'a Table)>,
}

#[derive(Serialize)]
struct Part {
    name: String,
    title: String,
    sources: Vec<Facts>,
    conditions: Vec<SourceCondition>,
    held: usize,
    table: Table,
    comparison: Option<Compared>,
    texts: Vec<Text>,
}

/// The label of one source of results, and facts about it.
#[derive(Serialize)]
struct Facts {
    label: String,
    facts: Vec<(&'static str, String)>,
}

#[derive(Serialize)]
struct SourceCondition {
    source: String,
    #[serde(flatten)]
    condition: Verdict,
}

#[derive(Serialize)]
struct Compared {
    verdict: Vec<String>,
    table: Table,
}

/// The text of a scenario file.
#[derive(Serialize)]
struct Text {
    label: String,
    text: String,
}

impl Part {
    fn of(experiment: &Experiment) -> Self {
        let conditions: Vec<SourceCondition> = experiment
            .sources
            .iter()
            .flat_map(|source| {
                let of_source = |condition: &Verdict| SourceCondition {
                    source: source.label.clone(),
                    condition: condition.clone(),
                };
                source.results.conditions.iter().map(of_source)
            })
            .collect();
        let mut texts: Vec<Text> = Vec::new();
        for source in &experiment.sources {
            let text = &source.results.text;
            if !text.is_empty() && texts.iter().all(|other| other.text != *text) {
                texts.push(Text { label: source.label.clone(), text: text.clone() });
            }
        }
        Self {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            sources: experiment.sources.iter().map(facts).collect(),
            held: conditions.iter().filter(|judged| judged.condition.held).count(),
            conditions,
            table: table::results(experiment),
            comparison: super::Comparison::of(experiment).map(|comparison| Compared {
                verdict: comparison.verdict(),
                table: table::comparison(&comparison),
            }),
            texts,
        }
    }
}

fn facts(source: &Source) -> Facts {
    let results = &source.results;
    let capacity = match results.capacity_cps {
        Some(cps) => format!("{cps:.1} calls/s"),
        None => "differs between the runs".to_owned(),
    };
    let mut facts = vec![
        ("capacity", capacity),
        ("a call costs", format!("{:.2} ms", results.call_s * 1e3)),
        ("runs", source.rows().map(|row| row.runs).sum::<usize>().to_string()),
        ("first seed", results.seed.to_string()),
    ];
    if let Some(ms) = results.deadline_ms {
        facts.insert(2, ("deadline", format!("{ms} ms")));
    }
    if let (Some(machine), Kind::Real) = (&results.machine, results.world) {
        facts.push(("machine", format!("{}, {} cores", machine.processor, machine.cores)));
        facts.push(("Linux", machine.kernel.clone()));
    }
    facts.push(("program", results.program.clone()));
    Facts { label: source.label.clone(), facts }
}

/// The data of the charts.
#[derive(Serialize)]
struct Data {
    experiments: Vec<Drawn>,
}

#[derive(Serialize)]
struct Drawn {
    deadline_ms: Option<f64>,
    /// The highlighted curves. Each has the index of its colour in the palette.
    slots: Vec<(String, usize)>,
    sources: Vec<DrawnSource>,
    bounds: Vec<Bound>,
    /// Number of runs that the page shows without their values over time, because it would
    /// otherwise have more values than [`VALUES_MAX`].
    left_out: usize,
}

#[derive(Serialize)]
struct DrawnSource {
    label: String,
    rows: Vec<Row>,
    runs: Vec<Run>,
}

/// A line that shows the greatest possible goodput over the mean load, in one panel under one set
/// of swept conditions. The line is given by its corners.
#[derive(Serialize)]
struct Bound {
    panel: String,
    swept: Swept,
    corners: Vec<(f64, f64)>,
}

/// The values of a run over time.
#[derive(Serialize)]
struct Run {
    variant: String,
    swept: Swept,
    repetition: u32,
    seed: u64,
    /// The sampling times of the series. Most series of a run share one list of times.
    times: Vec<Vec<f64>>,
    series: Vec<DrawnSeries>,
}

/// The values of one quantity of one node over time.
#[derive(Serialize)]
struct DrawnSeries {
    node: String,
    quantity: String,
    /// Index in [`Run::times`] of the list of times for these values.
    times: usize,
    values: Vec<f64>,
}

impl Data {
    fn of(report: &Report) -> Self {
        let mut room = VALUES_MAX;
        let experiments =
            report.experiments.iter().map(|experiment| Drawn::of(experiment, &mut room));
        Self { experiments: experiments.collect() }
    }
}

impl Drawn {
    fn of(experiment: &Experiment, room: &mut usize) -> Self {
        let mut left_out = 0;
        let sources = experiment.sources.iter().map(|source| DrawnSource {
            label: source.label.clone(),
            rows: source.rows().cloned().collect(),
            runs: runs(source, room, &mut left_out),
        });
        Self {
            deadline_ms: experiment.sources.iter().find_map(|source| source.results.deadline_ms),
            slots: experiment.highlights().slots().to_vec(),
            sources: sources.collect(),
            bounds: bounds(experiment),
            left_out,
        }
    }
}

/// Returns the runs that have a timeline. `room` is the number of values that still fit in the
/// page. A run with more values is omitted and counted in `left_out`.
fn runs(source: &Source, room: &mut usize, left_out: &mut usize) -> Vec<Run> {
    let mut runs = Vec::new();
    for (point, folder) in source.runs() {
        let series = timeline::read(&folder);
        let values: usize = series.iter().map(|series| series.values.len()).sum();
        if values > *room {
            *left_out += 1;
        } else if values > 0 {
            *room -= values;
            let (times, series) = by_time(series);
            runs.push(Run {
                variant: point.variant.clone(),
                swept: point.swept.clone(),
                repetition: point.repetition,
                seed: point.seed,
                times,
                series,
            });
        }
    }
    runs
}

fn by_time(series: Vec<Series>) -> (Vec<Vec<f64>>, Vec<DrawnSeries>) {
    let mut times: Vec<Vec<f64>> = Vec::new();
    let drawn = series.into_iter().map(|Series { node, quantity, t_s, values }| {
        let known = times.iter().position(|other| *other == t_s);
        let at = known.unwrap_or_else(|| {
            times.push(t_s);
            times.len() - 1
        });
        DrawnSeries { node, quantity, times: at, values }
    });
    let drawn = drawn.collect();
    (times, drawn)
}

fn bounds(experiment: &Experiment) -> Vec<Bound> {
    let rows: Vec<&Row> = experiment.rows().collect();
    let last = rows.iter().map(|row| row.mean_load).fold(0.0, f64::max);
    let mut bounds: Vec<Bound> = Vec::new();
    for row in &rows {
        let same = |panel: &str, swept: &Swept| row.panel == panel && row.swept == *swept;
        if bounds.iter().any(|other| same(&other.panel, &other.swept)) {
            continue;
        }
        let alike = rows.iter().copied().filter(|other| same(&other.panel, &other.swept));
        bounds.push(Bound {
            panel: row.panel.clone(),
            swept: row.swept.clone(),
            corners: bound(alike, last),
        });
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{of, results};

    #[test]
    fn runs_for_which_there_is_no_room_are_counted() {
        // The run has three values.
        for (room, shown, over) in [(2, 0, 1), (3, 1, 0), (7, 1, 0)] {
            let counted = of(&[results("sim", "t", 1.0)], |report| {
                let (mut left, mut left_out) = (room, 0);
                let shown = runs(&report.experiments[0].sources[0], &mut left, &mut left_out);
                (shown.len(), left_out, room - left)
            });
            assert_eq!(counted, (shown, over, 3 * shown));
        }
    }
}
