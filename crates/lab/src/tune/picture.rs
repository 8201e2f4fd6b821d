//! Draws the figures of a search.

use super::{Objective, Parameters, Step};
use crate::figure::{Axis, Figure, Line, Panel, Point, Stroke};

/// Returns a figure with two panels over the steps of the search. One shows each parameter as a
/// multiple of its initial value, the other the value of the objective.
pub fn picture(parameters: &Parameters, path: &[Step]) -> Figure {
    let law = parameters.start.entry().name;
    let names: Vec<&str> = parameters.sought.iter().map(|param| param.name).collect();
    Figure::new(
        format!("Tuning {law} for {}", word(parameters.objective)),
        format!(
            "Extremum seeking of {} over {} steps · {}",
            names.join(", "),
            path.len(),
            parameters.scenario.title
        ),
        vec![multiples(parameters, path), values(parameters.objective, path)],
    )
}

fn word(objective: Objective) -> &'static str {
    match objective {
        Objective::Goodput => "goodput",
        Objective::Delay => "set-up delay",
    }
}

fn steps(path: &[Step]) -> Axis {
    let last = path.len().max(1);
    Axis::with_steps("step", last as f64, last.div_ceil(5) as f64)
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
        y: Axis::powers("estimate ÷ start", 2.0, least..=most, times),
        lines,
    }
}

/// Formats 2 to the power of `power`, such as `4` or `1/4`.
fn times(power: i32) -> String {
    match power {
        0.. => format!("{}", 1u64 << power.min(62)),
        _ => format!("1/{}", 1u64 << (-power).min(62)),
    }
}

fn values(objective: Objective, path: &[Step]) -> Panel {
    let highest = path.iter().map(|step| step.value).fold(0.0, f64::max);
    let points = (1..).zip(path).map(|(number, step)| Point::exact(f64::from(number), step.value));
    let line =
        Line { name: "as tried".to_owned(), stroke: Stroke::Measured, points: points.collect() };
    Panel {
        title: "objective".to_owned(),
        x: steps(path),
        y: Axis::linear(objective.title(), highest.max(0.1)),
        lines: vec![line],
    }
}
