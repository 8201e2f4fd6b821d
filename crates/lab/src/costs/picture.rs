//! Draws figure 4 of paper 000 for the measured costs.

use super::Derived;
use super::model::Model;
use crate::figure::{Axis, Figure, Line, Panel, Point, Stroke};

/// Draws the rate of accepted messages against the share f of the arriving messages that a server
/// admits. The rate is relative to the rate at f = 1. One line is the example of paper 000. Three
/// lines are for Tidegate: two for dropped messages, with the costs of the core alone and with the
/// costs of the whole cycle, and one for rejected calls, with the costs of the whole cycle.
pub fn picture(cycle: &Derived, processing: &Derived, processor: &str) -> Figure {
    let drawn =
        [("core", processing.dropping), ("cycle", cycle.dropping), ("cycle, 503", cycle.rejecting)];
    let mut lines = vec![line("paper", Model::PAPER, Stroke::Reference)];
    lines.extend(drawn.map(|(name, model)| line(name, model, Stroke::Measured)));
    let panel = Panel {
        title: String::new(),
        x: Axis::with_steps("f, the share that is admitted", 1.0, 0.2),
        y: Axis::with_steps("PP'(f) ÷ PP'(1)", 1.0, 0.2),
        lines,
    };
    Figure::new(
        "The accepted rate when a share f is admitted".to_owned(),
        format!(
            "PP' = f ÷ (t_a f + t_d (1 - f)), relative to PP'(1) · dashed: the example of paper 000, \
             t_a = 70 µs and t_d = 6 µs · {processor}"
        ),
        vec![panel],
    )
}

fn line(name: &str, model: Model, stroke: Stroke) -> Line {
    let most = model.accepted(1.0);
    let point = |fraction: f64| Point::exact(fraction, model.accepted(fraction) / most);
    // A measured line has a mark at each point, so it has few points. A calculated line has no
    // marks, and many points make it smooth.
    let steps = if stroke == Stroke::Measured { 20 } else { 200 };
    let points = (0..=steps).map(|step| point(f64::from(step) / f64::from(steps))).collect();
    Line { name: name.to_owned(), stroke, points }
}
