//! The figures of an overload experiment: what comes of a load, over the offered load as a
//! multiple of the capacity.

use super::{Axis, Figure, Line, Panel, Point, Scale, Stroke};

/// What a figure is called, and how it is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heading {
    /// What it shows, in one line.
    pub title: String,
    /// How it is to be read, in one line.
    pub note: String,
}

/// The measurements of one way to meet overload, such as one law.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// One name has one colour in all panels.
    pub name: String,
    /// By increasing load; `x` is the multiple of the capacity.
    pub points: Vec<Point>,
}

/// What is shown in one panel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facet {
    /// What tells it from the other panels; may be empty.
    pub title: String,
    /// In the order in which colours are given out.
    pub series: Vec<Series>,
}

/// Goodput as a part of the capacity. `bound` is the most there can be in the facet of this
/// index at a multiple of the capacity; it is drawn beside.
pub fn goodput(heading: Heading, facets: &[Facet], bound: impl Fn(usize, f64) -> f64) -> Figure {
    let loads = loads(facets);
    let top = highest(facets).max(1.0) * 1.03;
    // Fifths, unless a capacity that is none makes the goodput a multiple of it.
    let step = nice_step(top / 8.0).max(0.2);
    let y = Axis {
        label: "goodput ÷ capacity".to_owned(),
        range: 0.0..=top,
        scale: Scale::Linear,
        ticks: (0..=(top / step) as u32)
            .map(|number| f64::from(number) * step)
            .map(|value| (value, format!("{value:.1}")))
            .collect(),
    };
    let last = loads.last().copied().unwrap_or(1.0);
    let curve = (0..=200).map(|step| last * f64::from(step) / 200.0);
    let bound = |facet| Line {
        name: "bound".to_owned(),
        stroke: Stroke::Reference,
        points: curve.clone().map(|load| Point::exact(load, bound(facet, load))).collect(),
    };
    let panels = panels(facets, &loads, &y, |facet| Some(bound(facet)));
    Figure { title: heading.title, note: heading.note, panels }
}

/// A set-up delay in seconds, on a logarithmic axis. `deadlines_s`, one for each facet, are drawn
/// beside.
pub fn set_up_delay(heading: Heading, facets: &[Facet], deadlines_s: &[f64]) -> Figure {
    let loads = loads(facets);
    let values = facets.iter().flat_map(|facet| &facet.series).flat_map(|series| &series.points);
    let values = values.flat_map(|p| [p.min, p.max]).filter(|value| *value > 0.0);
    let shown = || values.clone().chain(deadlines_s.iter().copied());
    let least = shown().reduce(f64::min).unwrap_or(1.0).log10().floor() as i32;
    let most = shown().reduce(f64::max).unwrap_or(1.0).log10().ceil() as i32;
    let most = most.max(least + 1);
    let y = Axis {
        label: "99 % of set-ups take no longer than".to_owned(),
        range: 10f64.powi(least)..=10f64.powi(most),
        scale: Scale::Logarithmic,
        ticks: (least..=most).map(|power| (10f64.powi(power), duration(power))).collect(),
    };
    let last = loads.last().copied().unwrap_or(1.0);
    let deadline = |facet: usize| {
        let at = *deadlines_s.get(facet)?;
        let points = [0.0, last].map(|load| Point::exact(load, at)).to_vec();
        Some(Line { name: "deadline".to_owned(), stroke: Stroke::Reference, points })
    };
    let panels = panels(facets, &loads, &y, deadline);
    Figure { title: heading.title, note: heading.note, panels }
}

/// INVITEs sent again, for each sent first.
pub fn retransmissions(heading: Heading, facets: &[Facet]) -> Figure {
    let loads = loads(facets);
    let step = nice_step(highest(facets).max(0.1) / 4.0);
    let count = (highest(facets).max(0.1) * 1.02 / step).ceil();
    let digits = if step < 1.0 { (-step.log10()).ceil() as usize } else { 0 };
    let y = Axis {
        label: "INVITEs sent again ÷ INVITEs sent first".to_owned(),
        range: 0.0..=count * step,
        scale: Scale::Linear,
        ticks: (0..=count as u32)
            .map(|number| f64::from(number) * step)
            .map(|value| (value, format!("{value:.digits$}")))
            .collect(),
    };
    let panels = panels(facets, &loads, &y, |_| None);
    Figure { title: heading.title, note: heading.note, panels }
}

/// A panel for each facet, with the line of reference that `reference` gives it, if any.
fn panels(
    facets: &[Facet],
    loads: &[f64],
    y: &Axis,
    reference: impl Fn(usize) -> Option<Line>,
) -> Vec<Panel> {
    let x = Axis {
        label: "offered load ÷ capacity".to_owned(),
        range: 0.0..=loads.last().copied().unwrap_or(1.0),
        scale: Scale::Linear,
        ticks: loads.iter().map(|load| (*load, load.to_string())).collect(),
    };
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
    facets.iter().enumerate().map(panel).collect()
}

/// Every load there is, in order.
fn loads(facets: &[Facet]) -> Vec<f64> {
    let series = facets.iter().flat_map(|facet| &facet.series);
    let mut loads: Vec<f64> = series.flat_map(|s| &s.points).map(|point| point.x).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
}

fn highest(facets: &[Facet]) -> f64 {
    let series = facets.iter().flat_map(|facet| &facet.series);
    series.flat_map(|s| &s.points).map(|point| point.max).fold(0.0, f64::max)
}

/// The least of 1, 2, 5 times a power of ten that is not below `step`.
fn nice_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| nice * power >= step * (1.0 - 1e-9));
    nice.unwrap_or(10.0) * power
}

/// `10^power` seconds as people say it.
fn duration(power: i32) -> String {
    match power {
        ..-3 => format!("{} µs", 10f64.powi(power + 6).round()),
        -3..0 => format!("{} ms", 10f64.powi(power + 3).round()),
        _ => format!("{} s", 10f64.powi(power).round()),
    }
}
