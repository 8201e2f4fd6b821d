//! Draws figures as SVG and PNG. A figure has panels, and a panel has curves over a horizontal
//! axis.
//!
//! This module draws any curves. [`overload`] builds the figures of an overload experiment.
//! [`highlight`] decides which curves get a colour.

mod draw;
pub mod highlight;
mod labels;
pub mod overload;

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use resvg::{tiny_skia, usvg};

use highlight::Highlights;

/// A figure of one or more panels.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The subject of the figure. The text is broken into lines when the figure is drawn.
    pub title: String,
    /// The explanation of the figure. The text is broken into lines when the figure is drawn.
    pub note: String,
    /// The panels, from left to right in rows of up to three.
    pub panels: Vec<Panel>,
    /// The curves drawn in colour.
    pub highlights: Highlights,
}

/// One pair of axes and the curves on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The title, which distinguishes the panel from other panels. Empty if there is only one
    /// panel.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves, in the order of drawing. The last one is on top.
    pub lines: Vec<Line>,
}

/// An axis of a panel.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The name of the quantity on the axis, with its unit.
    pub label: String,
    /// The range of values on the axis. A value outside this range is drawn at the nearer end of
    /// the axis.
    pub range: RangeInclusive<f64>,
    /// The mapping of values to positions on the axis.
    pub scale: Scale,
    /// The labelled values and their labels.
    pub ticks: Vec<(f64, String)>,
}

/// The mapping of values to positions on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences of values have equal lengths on the axis.
    Linear,
    /// Equal ratios of values have equal lengths on the axis. The range must be above 0.
    Logarithmic,
}

/// A curve, which is labelled with its name at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Name of the curve. Curves of the same name have the same colour in all panels.
    pub name: String,
    /// Style of the curve.
    pub stroke: Stroke,
    /// Points in the order of increasing `x`.
    pub points: Vec<Point>,
}

/// The style of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A measured curve: a solid line. A highlighted curve also has a mark at each point and a band
    /// from minimum to maximum.
    Measured,
    /// The second of two curves with the same name in a panel, for values that were measured in
    /// another way. It is dashed and has the colour of the first curve, but no label. If it is
    /// highlighted, its marks are hollow.
    Beside,
    /// A calculated curve: dashed and grey, without marks.
    Reference,
}

/// Several measurements of one quantity under one condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The condition, a value on the horizontal axis.
    pub x: f64,
    /// The smallest measurement.
    pub min: f64,
    /// The median of the measurements.
    pub median: f64,
    /// The largest measurement.
    pub max: f64,
}

impl Point {
    /// Returns a point for a quantity that is known exactly, or was measured once.
    pub fn exact(x: f64, y: f64) -> Self {
        Self { x, min: y, median: y, max: y }
    }
}

impl Axis {
    /// Returns a linear axis from 0 to at least `highest`, with at most seven round ticks.
    pub fn linear(label: &str, highest: f64) -> Self {
        let step = nice_step(highest / 6.0 * (1.0 - 1e-9));
        let count = (highest / step * (1.0 - 1e-9)).ceil().max(1.0);
        Self::with_steps(label, count * step, step)
    }

    /// Returns a linear axis from 0 to `end`, with a tick at each multiple of `step`.
    pub(crate) fn with_steps(label: &str, end: f64, step: f64) -> Self {
        let digits = if step < 1.0 { (-step.log10()).ceil() as usize } else { 0 };
        let values = (0..=(end / step * (1.0 + 1e-9)) as u32).map(|n| f64::from(n) * step);
        Self {
            label: label.to_owned(),
            range: 0.0..=end,
            scale: Scale::Linear,
            ticks: values.map(|value| (value, format!("{value:.digits$}"))).collect(),
        }
    }

    /// Returns a logarithmic axis between two powers of `base`, with a tick at each power. `text`
    /// returns the label of a tick for its exponent.
    pub(crate) fn powers(
        label: &str,
        base: f64,
        powers: RangeInclusive<i32>,
        text: impl Fn(i32) -> String,
    ) -> Self {
        Self {
            label: label.to_owned(),
            range: base.powi(*powers.start())..=base.powi(*powers.end()),
            scale: Scale::Logarithmic,
            ticks: powers.map(|power| (base.powi(power), text(power))).collect(),
        }
    }

    /// Returns the position of `value` between the ends of the axis, 0 to 1.
    fn position(&self, value: f64) -> f64 {
        let scaled = |v: f64| match self.scale {
            Scale::Linear => v,
            Scale::Logarithmic => v.max(f64::MIN_POSITIVE).log10(),
        };
        let (low, high) = (scaled(*self.range.start()), scaled(*self.range.end()));
        ((scaled(value) - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// Returns the smallest number that is at least `step` and is 1, 2 or 5 times a power of ten.
fn nice_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| nice * power >= step * (1.0 - 1e-9));
    nice.unwrap_or(10.0) * power
}

impl Figure {
    /// Creates a figure. Its curves get colours in the order in which they appear, until no colour
    /// is left.
    pub fn new(title: String, note: String, panels: Vec<Panel>) -> Self {
        let lines = panels.iter().flat_map(|panel| &panel.lines);
        let measured = lines.filter(|line| line.stroke != Stroke::Reference);
        let names: Vec<_> = measured.map(|line| (&*line.name, 0.0, 0.0)).collect();
        let highlights = Highlights::choose(&names, &[]);
        Self { title, note, panels, highlights }
    }

    /// Returns the figure as an SVG document.
    pub fn svg(&self) -> String {
        draw::svg(self)
    }

    /// Returns the figure as a PNG image, with two pixels for each unit of the SVG.
    pub fn png(&self) -> Vec<u8> {
        /// The fonts that are built into the program. No other fonts are used, so the image is the
        /// same on every machine.
        static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
            let mut fonts = usvg::fontdb::Database::new();
            fonts.load_font_data(include_bytes!("figure/font/DejaVuSans.ttf").to_vec());
            fonts.load_font_data(include_bytes!("figure/font/DejaVuSans-Bold.ttf").to_vec());
            Arc::new(fonts)
        });
        let options = usvg::Options { fontdb: FONTS.clone(), ..usvg::Options::default() };
        let tree =
            usvg::Tree::from_str(&self.svg(), &options).expect("the document is well formed");
        let size = tree.size().to_int_size().scale_by(2.0).expect("a figure has a size");
        let mut image = tiny_skia::Pixmap::new(size.width(), size.height()).expect("not empty");
        resvg::render(&tree, tiny_skia::Transform::from_scale(2.0, 2.0), &mut image.as_mut());
        image.encode_png().expect("a vector takes everything")
    }

    /// Writes the figure to two files in `folder`: `name` with the ending `.svg`, and `name` with
    /// the ending `.png`.
    ///
    /// # Errors
    /// Returns an error when a file cannot be written.
    pub fn save(&self, folder: &Path, name: &str) -> io::Result<()> {
        fs::write(folder.join(format!("{name}.svg")), self.svg())?;
        fs::write(folder.join(format!("{name}.png")), self.png())
    }
}

#[cfg(test)]
#[path = "figure/tests.rs"]
mod tests;
