//! Builds the figures of an overload experiment: values over the offered load as a multiple of the
//! capacity.

use super::highlight::Highlights;
use super::{Axis, Figure, Line, Panel, Point, Stroke, nice_step};

/// The texts and colours of a figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heading {
    /// The subject of the figure.
    pub title: String,
    /// The explanation of the figure.
    pub note: String,
    /// The curves that are drawn in colour.
    pub highlights: Highlights,
}

/// The measurements of one variant, such as one law.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name of the variant. Series of the same name have the same colour in all panels.
    pub name: String,
    /// Points in the order of increasing load. `x` is the offered load as a multiple of the
    /// capacity.
    pub points: Vec<Point>,
}

/// The curves of one panel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facet {
    /// The title, which distinguishes the panel from other panels. Empty if there is only one
    /// panel.
    pub title: String,
    /// The curves, in the order in which they get colours.
    pub series: Vec<Series>,
}

/// Returns the figure of goodput as a fraction of the capacity. The figure also shows the greatest
/// possible goodput. `bound` returns this goodput from two arguments: the index of a facet, and an
/// offered load as a multiple of the capacity.
pub fn goodput(heading: Heading, facets: &[Facet], bound: impl Fn(usize, f64) -> f64) -> Figure {
    let loads = loads(facets);
    let top = highest(facets).max(1.0) * 1.03;
    // The axis has steps of a fifth, unless the goodput is several times the capacity.
    let y = Axis::with_steps("goodput ÷ capacity", top, nice_step(top / 8.0).max(0.2));
    let last = last(&loads);
    let curve = (0..=200).map(|step| last * f64::from(step) / 200.0);
    let bound = |facet| Line {
        name: "bound".to_owned(),
        stroke: Stroke::Reference,
        points: curve.clone().map(|load| Point::exact(load, bound(facet, load))).collect(),
    };
    figure(heading, facets, &y, |facet| Some(bound(facet)))
}

/// Returns the figure of set-up delays in seconds, on a logarithmic axis. The figure also shows the
/// deadline of each facet from `deadlines_s`.
pub fn set_up_delay(heading: Heading, facets: &[Facet], deadlines_s: &[f64]) -> Figure {
    let values = facets.iter().flat_map(|facet| &facet.series).flat_map(|series| &series.points);
    let values = values.flat_map(|p| [p.min, p.max]).filter(|value| *value > 0.0);
    let shown = || values.clone().chain(deadlines_s.iter().copied());
    let least = shown().reduce(f64::min).unwrap_or(1.0).log10().floor() as i32;
    let most = shown().reduce(f64::max).unwrap_or(1.0).log10().ceil() as i32;
    let powers = least..=most.max(least + 1);
    let y = Axis::powers("99 % of set-ups take no longer than", 10.0, powers, duration);
    let last = last(&loads(facets));
    let deadline = |facet: usize| {
        let at = *deadlines_s.get(facet)?;
        let points = [0.0, last].map(|load| Point::exact(load, at)).to_vec();
        Some(Line { name: "deadline".to_owned(), stroke: Stroke::Reference, points })
    };
    figure(heading, facets, &y, deadline)
}

/// Returns the figure of the number of INVITEs retransmitted per INVITE first sent.
pub fn retransmissions(heading: Heading, facets: &[Facet]) -> Figure {
    let y = Axis::linear("INVITEs sent again ÷ INVITEs sent first", highest(facets).max(0.1));
    figure(heading, facets, &y, |_| None)
}

/// Returns a figure with one panel for each facet. `reference` returns the reference line for the
/// index of a facet, or `None` if the facet has no reference line.
fn figure(
    heading: Heading,
    facets: &[Facet],
    y: &Axis,
    reference: impl Fn(usize) -> Option<Line>,
) -> Figure {
    let loads = loads(facets);
    let last = last(&loads);
    let mut x = Axis::linear("offered load ÷ capacity", last);
    x.range = 0.0..=last;
    // A mean load can have many decimal places. The axis shows three.
    let text = |load: f64| ((load * 1e3).round() / 1e3).to_string();
    x.ticks = loads.iter().map(|load| (*load, text(*load))).collect();
    let measured = |series: &Series| Line {
        name: series.name.clone(),
        stroke: Stroke::Measured,
        points: series.points.clone(),
    };
    let panel = |(index, facet): (usize, &Facet)| Panel {
        title: facet.title.clone(),
        x: x.clone(),
        y: y.clone(),
        lines: reference(index).into_iter().chain(facet.series.iter().map(measured)).collect(),
    };
    let panels = facets.iter().enumerate().map(panel).collect();
    let Heading { title, mut note, highlights } = heading;
    let mut grey: Vec<&str> = Vec::new();
    for series in facets.iter().flat_map(|facet| &facet.series) {
        if highlights.slot(&series.name).is_none() && !grey.contains(&&*series.name) {
            grey.push(&series.name);
        }
    }
    if !grey.is_empty() {
        note += &format!(" · grey: {}", grey.join(", "));
    }
    Figure { title, note, panels, highlights }
}

/// Returns the end of the load axis: the last of `loads`, or 1 if there is no load above 0.
fn last(loads: &[f64]) -> f64 {
    loads.last().copied().filter(|load| *load > 0.0).unwrap_or(1.0)
}

/// Returns the offered loads of all points in increasing order. Loads that differ only by a
/// rounding error are returned once.
fn loads(facets: &[Facet]) -> Vec<f64> {
    let series = facets.iter().flat_map(|facet| &facet.series);
    let mut loads: Vec<f64> = series.flat_map(|s| &s.points).map(|point| point.x).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup_by(|load, before| *load - *before < 1e-9);
    loads
}

fn highest(facets: &[Facet]) -> f64 {
    let series = facets.iter().flat_map(|facet| &facet.series);
    series.flat_map(|s| &s.points).map(|point| point.max).fold(0.0, f64::max)
}

/// Formats `10^power` seconds with a unit.
fn duration(power: i32) -> String {
    match power {
        ..-3 => format!("{} µs", 10f64.powi(power + 6).round()),
        -3..0 => format!("{} ms", 10f64.powi(power + 3).round()),
        _ => format!("{} s", 10f64.powi(power).round()),
    }
}
