//! Draws the figures of the cost and accuracy of load measurements, and of the two throttles.

use super::packets::{EVERY, Reading};
use super::{Overhead, droppers, packets, readings};
use crate::figure::{Axis, Figure, Line, Panel, Point, Stroke};

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
    let power = |power: i32| 10f64.powi(power).to_string();
    let panel = |reading: Reading| Panel {
        title: format!("read {}", reading.name()),
        x: Axis::powers("messages from one measurement to the next", 10.0, 0..=3, power),
        y: Axis::linear("additional CPU time of a message, %", highest),
        lines: lines_of(rows, reading),
    };
    Figure::new(
        "The cost of load measurements".to_owned(),
        format!(
            "Compared with a server without overload control · the core alone, without sockets · \
             all messages admitted · medians · {}",
            overhead.machine.processor
        ),
        Reading::ALL.map(panel).to_vec(),
    )
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
    let power = |power: i32| 10f64.powi(power).to_string();
    let panel = Panel {
        title: String::new(),
        x: Axis::powers("packets in the window, (k - 1) · measure", 10.0, 0..=4, power),
        y: Axis::powers("root of the mean square error of the occupancy", 10.0, -3..=1, power),
        lines: clocks.iter().map(line).collect(),
    };
    Figure::new(
        "The error of the occupancy by the resolution of the clock".to_owned(),
        format!(
            "A thread that serves packets for {:.0} % of the time: {} of them in {:.1} s",
            readings.occupancy * 100.0,
            readings.packets,
            readings.seconds
        ),
        vec![panel],
    )
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
        Panel {
            title: title.to_owned(),
            x: Axis::with_steps("f, the share that is admitted", 1.0, 0.2),
            y: Axis::linear(label, highest.fold(1.0, f64::max)),
            lines,
        }
    };
    Figure::new(
        "The accuracy of two throttles".to_owned(),
        "Solid lines: measured · dashed lines: by the formulas".to_owned(),
        vec![
            panel("standard deviation", "of the admitted requests among 100", |row| row.deviation),
            panel("longest run", "rejections between two admissions", |row| row.run_longest),
        ],
    )
}
