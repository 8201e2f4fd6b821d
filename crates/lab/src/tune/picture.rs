//! Figures of a search.

use super::{Objective, Parameters, Step};
use crate::figure::{Axis, Figure, Line, Panel, Point, Scale, Stroke};

/// Draws the parameters over the steps, as multiples of their initial values; and the value of each
/// step.
pub fn picture(parameters: &Parameters, path: &[Step]) -> Figure {
    let law = parameters.start.entry().name;
    let names: Vec<&str> = parameters.sought.iter().map(|param| param.name).collect();
    Figure {
        title: format!("Tuning {law} for {}", word(parameters.objective)),
        note: format!(
            "Extremum seeking of {} over {} steps · {}",
            names.join(", "),
            path.len(),
            parameters.scenario.title
        ),
        panels: vec![multiples(parameters, path), values(parameters.objective, path)],
    }
}

fn word(objective: Objective) -> &'static str {
    match objective {
        Objective::Goodput => "goodput",
        Objective::Delay => "set-up delay",
    }
}

fn steps(path: &[Step]) -> Axis {
    let last = path.len().max(1);
    let every = last.div_ceil(5).max(1);
    Axis {
        label: "step".to_owned(),
        range: 0.0..=last as f64,
        scale: Scale::Linear,
        ticks: (0..=last).step_by(every).map(|step| (step as f64, step.to_string())).collect(),
    }
}

fn multiples(parameters: &Parameters, path: &[Step]) -> Panel {
    let line = |(index, param): (usize, &&tidegate_control::registry::Param)| Line {
        name: param.name.to_owned(),
        stroke: Stroke::Measured,
        points: (1..)
            .zip(path)
            .map(|(number, step)| {
                let multiple = step.estimate[index] / parameters.start.of(param);
                Point::exact(f64::from(number), multiple)
            })
            .collect(),
    };
    let lines: Vec<Line> = parameters.sought.iter().enumerate().map(line).collect();
    let all = || lines.iter().flat_map(|line| &line.points).map(|point| point.max);
    let least = all().fold(1.0, f64::min).log2().floor().min(-1.0) as i32;
    let most = all().fold(1.0, f64::max).log2().ceil().max(1.0) as i32;
    Panel {
        title: "parameters".to_owned(),
        x: steps(path),
        y: Axis {
            label: "estimate ÷ start".to_owned(),
            range: 2f64.powi(least)..=2f64.powi(most),
            scale: Scale::Logarithmic,
            ticks: (least..=most).map(|power| (2f64.powi(power), times(power))).collect(),
        },
        lines,
    }
}

/// Formats 2 to this power, for people.
fn times(power: i32) -> String {
    match power {
        0.. => format!("{}", 1u64 << power.min(62)),
        _ => format!("1/{}", 1u64 << (-power).min(62)),
    }
}

fn values(objective: Objective, path: &[Step]) -> Panel {
    let highest = path.iter().map(|step| step.value).fold(0.0, f64::max);
    // Lines at tenths, fifths or wholes, so that there are few.
    let each = [0.1, 0.2, 1.0, 2.0].into_iter().find(|each| highest / each <= 6.0).unwrap_or(5.0);
    let lines = (highest / each).ceil().max(1.0) as u32;
    let points = (1..).zip(path).map(|(number, step)| Point::exact(f64::from(number), step.value));
    let line =
        Line { name: "as tried".to_owned(), stroke: Stroke::Measured, points: points.collect() };
    let tick = |number: u32| {
        let value = each * f64::from(number);
        (value, format!("{value:.1}"))
    };
    Panel {
        title: "what came of it".to_owned(),
        x: steps(path),
        y: Axis {
            label: objective.title().to_owned(),
            range: 0.0..=each * f64::from(lines),
            scale: Scale::Linear,
            ticks: (0..=lines).map(tick).collect(),
        },
        lines: vec![line],
    }
}
