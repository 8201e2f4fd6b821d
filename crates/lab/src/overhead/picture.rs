//! Figures of the cost and accuracy of measuring, and of the two throttles.

use super::packets::{EVERY, Reading};
use super::{Overhead, droppers, packets, readings};
use crate::figure::{Axis, Figure, Line, Panel, Point, Scale, Stroke};

/// Returns every figure with the name of its file.
pub fn figures(overhead: &Overhead) -> [(&'static str, Figure); 3] {
    [
        ("measuring", measuring(overhead)),
        ("occupancy", occupancy(&overhead.readings)),
        ("droppers", both(&overhead.droppers)),
    ]
}

fn measuring(overhead: &Overhead) -> Figure {
    let rows = &overhead.packets;
    let highest = rows.iter().map(|row| row.part() * 100.0).fold(1.0, f64::max).ceil();
    let panel = |reading: Reading| Panel {
        title: format!("read {}", reading.title()),
        x: Axis {
            label: "messages from one measurement to the next".to_owned(),
            range: 1.0..=1000.0,
            scale: Scale::Logarithmic,
            ticks: [1.0, 10.0, 100.0, 1000.0].map(|x| (x, format!("{x:.0}"))).to_vec(),
        },
        y: linear("% of CPU time that a message takes longer than without control", highest),
        lines: lines_of(rows, reading),
    };
    Figure {
        title: "What measuring costs".to_owned(),
        note: format!(
            "Medians of pairs of batches of calls, core alone, all admitted · {}",
            overhead.machine.processor
        ),
        panels: Reading::ALL.map(panel).to_vec(),
    }
}

fn lines_of(rows: &[packets::Row], reading: Reading) -> Vec<Line> {
    let mut names: Vec<&str> = rows.iter().map(|row| row.law).collect();
    names.dedup();
    names.truncate(rows.len() / EVERY.len() / Reading::ALL.len());
    let line = |name: &&str| {
        let of = rows.iter().filter(|row| row.law == *name && row.reading == reading);
        let points = of.map(|row| Point::exact(f64::from(row.measure), row.part() * 100.0));
        Line { name: (*name).to_owned(), stroke: Stroke::Measured, points: points.collect() }
    };
    names.iter().map(line).collect()
}

fn occupancy(readings: &readings::Readings) -> Figure {
    let mut clocks: Vec<&str> = readings.rows.iter().map(|row| row.clock).collect();
    clocks.dedup();
    let line = |clock: &&str| {
        let of = readings.rows.iter().filter(|row| row.clock == *clock);
        let window = |row: &readings::Row| ((row.k - 1) * row.measure) as f64;
        let mut points: Vec<Point> =
            of.map(|row| Point::exact(window(row), row.error.max(1e-3))).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Line { name: format!("{clock} clock"), stroke: Stroke::Measured, points }
    };
    let powers = |from: i32, to: i32| {
        let tick = |power: i32| (10f64.powi(power), format!("{}", 10f64.powi(power)));
        (from..=to).map(tick).collect()
    };
    let panel = Panel {
        title: String::new(),
        x: Axis {
            label: "packets in the window, (k - 1) · measure".to_owned(),
            range: 1.0..=10_000.0,
            scale: Scale::Logarithmic,
            ticks: powers(0, 4),
        },
        y: Axis {
            label: "root of the mean square error of the occupancy".to_owned(),
            range: 1e-3..=10.0,
            scale: Scale::Logarithmic,
            ticks: powers(-3, 1),
        },
        lines: clocks.iter().map(line).collect(),
    };
    Figure {
        title: "What a clock shows of the occupancy".to_owned(),
        note: format!(
            "A thread that serves packets for {:.0} % of the time: {} of them in {:.1} s",
            readings.occupancy * 100.0,
            readings.packets,
            readings.seconds
        ),
        panels: vec![panel],
    }
}

fn both(rows: &[droppers::Row]) -> Figure {
    let panel = |title: &str, label: &str, of: fn(&droppers::Row) -> droppers::Pair| {
        let highest = rows.iter().map(|row| of(row).measured.max(of(row).exact));
        let mut lines = Vec::new();
        for name in ["deterministic", "random"] {
            let of_name = || rows.iter().filter(|row| row.dropper == name);
            let points = |value: fn(droppers::Pair) -> f64| {
                of_name().map(|row| Point::exact(row.fraction, value(of(row)))).collect()
            };
            let exact = points(|pair| pair.exact);
            let exact = Line { name: "exact".to_owned(), stroke: Stroke::Reference, points: exact };
            let points = points(|pair| pair.measured);
            lines.extend([exact, Line { name: name.to_owned(), stroke: Stroke::Measured, points }]);
        }
        let ticks = (0..=10).step_by(2).map(|tenth| f64::from(tenth) / 10.0);
        Panel {
            title: title.to_owned(),
            x: Axis {
                label: "f, the share that is admitted".to_owned(),
                range: 0.0..=1.0,
                scale: Scale::Linear,
                ticks: ticks.map(|value| (value, format!("{value:.1}"))).collect(),
            },
            y: linear(label, highest.fold(1.0, f64::max)),
            lines,
        }
    };
    Figure {
        title: "Two ways to pick what is refused".to_owned(),
        note: "Measured, and by the formulas".to_owned(),
        panels: vec![
            panel("deviation", "of the number admitted of 100 in a row", |row| row.deviation),
            panel("longest run", "refused between two that are admitted", |row| row.run_longest),
        ],
    }
}

/// Returns an axis from 0 to a little above `highest`.
fn linear(label: &str, highest: f64) -> Axis {
    let steps = [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
    let step = steps.into_iter().find(|step| highest / step <= 6.0).unwrap_or(highest / 5.0);
    let count = (highest / step).ceil() as u32;
    let digits = usize::from(step < 1.0);
    Axis {
        label: label.to_owned(),
        range: 0.0..=step * f64::from(count),
        scale: Scale::Linear,
        ticks: (0..=count)
            .map(|number| step * f64::from(number))
            .map(|value| (value, format!("{value:.digits$}")))
            .collect(),
    }
}
