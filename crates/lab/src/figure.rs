//! Figures: lines over a common horizontal axis, in panels side by side, as SVG and PNG.
//!
//! [`overload`] makes the figures of an overload experiment; what stands here draws any lines.

mod dots;
mod draw;
mod head;
mod ink;
mod labels;
pub mod overload;
mod raster;

use std::ops::RangeInclusive;

pub(crate) use ink::PALETTE;

/// A figure of one or more panels.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it shows: a phrase, broken into lines where it is drawn.
    pub title: String,
    /// How it is to be read, likewise.
    pub note: String,
    /// From left to right.
    pub panels: Vec<Panel>,
}

/// One pair of axes and the lines on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What tells it from the other panels; may be empty.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Drawn in this order, the last on top.
    pub lines: Vec<Line>,
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity and its unit.
    pub label: String,
    /// What is shown; values outside are drawn at the edge.
    pub range: RangeInclusive<f64>,
    /// How values become lengths.
    pub scale: Scale,
    /// Where a value is written, and how.
    pub ticks: Vec<(f64, String)>,
}

/// How values become lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equal lengths.
    Linear,
    /// Equal ratios are equal lengths; the range is above 0.
    Logarithmic,
}

/// A line with its name at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Lines of one name have one colour in all panels.
    pub name: String,
    /// How it is drawn.
    pub stroke: Stroke,
    /// By increasing `x`.
    pub points: Vec<Point>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// Measured: a coloured line, a mark at each point and a band from minimum to maximum.
    Measured,
    /// Measured in another way than a line of the same name, which it lies beside: a dashed line of
    /// the same colour, hollow marks, and no name of its own.
    Beside,
    /// Calculated: dashed and grey, without marks.
    Reference,
}

/// Several measurements of one quantity under one condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The condition.
    pub x: f64,
    /// The least of the measurements.
    pub min: f64,
    /// The one in the middle.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Point {
    /// A quantity that is known exactly, or was measured once.
    pub fn exact(x: f64, y: f64) -> Self {
        Self { x, min: y, median: y, max: y }
    }
}

impl Figure {
    /// The figure as an SVG document.
    pub fn svg(&self) -> String {
        raster::svg(self)
    }

    /// The figure as a PNG image, two pixels to a unit of the SVG.
    pub fn png(&self) -> Vec<u8> {
        raster::png(self)
    }
}

impl Axis {
    /// Where `value` lies between the ends of the axis, 0..1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let scaled = |v: f64| match self.scale {
            Scale::Linear => v,
            Scale::Logarithmic => v.max(f64::MIN_POSITIVE).log10(),
        };
        let (low, high) = (scaled(*self.range.start()), scaled(*self.range.end()));
        ((scaled(value) - low) / (high - low)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
#[path = "figure/tests.rs"]
mod tests;
