//! Draws a figure with `plotters`.

use std::ops::Range;

use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::prelude::SVGBackend;
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TRANSPARENT, TextStyle, WHITE,
};

use super::labels::spread;
use super::{Axis, Figure, Line, Panel, Stroke};

/// Number of drawn dots per unit of the SVG. The library can place elements only on whole dots, so
/// a higher number makes positions more exact.
const DOTS: f64 = 4.0;

/// Width and height of the area of a panel in which curves are drawn, in units of the SVG.
const PLOT: (f64, f64) = (400.0, 300.0);
const MARGIN: f64 = 20.0;
/// Distance from the left edge of a panel to its vertical axis. `TOP` and `BOTTOM` are the
/// distances from the upper and the lower edge of the panel to the area of the curves.
const LEFT: f64 = 54.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 44.0;
/// Distance from the right edge of the plot to the labels of the curves, in units of the SVG.
const LED: f64 = 19.0;
/// Maximum number of panels in a row.
const COLUMNS: usize = 3;

const TITLE: f64 = 21.0;
const BODY: f64 = 15.0;
const TITLE_STEP: f64 = 26.0;
const BODY_STEP: f64 = 20.0;
/// Minimum vertical distance between the centres of two labels, in units of the SVG.
const LABEL_STEP: f64 = 17.0;
/// Assumed mean width of a letter, as a fraction of the font size.
const LETTER: f64 = 0.55;

const LINE: f64 = 2.4;
const MARK: f64 = 3.6;

/// Names of fonts, in the order of preference. The PNG uses the first font. The letters of the
/// other fonts are not wider than those of the first, so all texts fit.
const FONTS: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

const BLACK: RGBColor = RGBColor(34, 34, 34);
const GREY: RGBColor = RGBColor(102, 102, 102);
/// Colour of curves that are not highlighted.
const FAINT: RGBColor = RGBColor(190, 190, 190);
/// Colour of the grid.
const PALE: RGBColor = RGBColor(226, 226, 226);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn dots(length: f64) -> i32 {
    (length * DOTS).round() as i32
}

/// Returns `figure` as an SVG document.
pub(super) fn svg(figure: &Figure) -> String {
    let layout = Layout::of(figure);
    let (width, height) = (layout.width(), layout.height());
    let size = (dots(width) as u32, dots(height) as u32);
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    draw(figure, &layout, &area).expect("a string takes everything");
    drop(area);
    let drawn = format!("width=\"{}\" height=\"{}\"", size.0, size.1);
    text.replacen(&drawn, &format!("width=\"{width}\" height=\"{height}\""), 1)
}

/// The positions of the parts of a figure.
struct Layout {
    title: Vec<String>,
    note: Vec<String>,
    rows: usize,
    columns: usize,
    /// The width of the widest label of a curve, in units of the SVG.
    labels: f64,
}

impl Layout {
    fn of(figure: &Figure) -> Self {
        let columns = figure.panels.len().clamp(1, COLUMNS);
        let names = figure.panels.iter().flat_map(|panel| &panel.lines);
        let labels = names
            .filter(|line| {
                line.stroke == Stroke::Reference || figure.highlights.slot(&line.name).is_some()
            })
            .map(|line| width(&line.name, BODY, true))
            .fold(60.0, f64::max);
        let mut layout = Self {
            title: Vec::new(),
            note: Vec::new(),
            rows: figure.panels.len().div_ceil(columns).max(1),
            columns,
            labels,
        };
        let room = layout.width() - 2.0 * MARGIN;
        layout.title = broken(&figure.title, room, TITLE, true);
        layout.note = broken(&figure.note, room, BODY, false);
        layout
    }

    fn panel(&self) -> (f64, f64) {
        (LEFT + PLOT.0 + LED + self.labels + 8.0, TOP + PLOT.1 + BOTTOM)
    }

    fn width(&self) -> f64 {
        (2.0 * MARGIN + self.columns as f64 * self.panel().0).ceil()
    }

    fn head(&self) -> f64 {
        MARGIN + self.title.len() as f64 * TITLE_STEP + self.note.len() as f64 * BODY_STEP + 12.0
    }

    fn height(&self) -> f64 {
        (self.head() + self.rows as f64 * self.panel().1 + 10.0).ceil()
    }
}

fn width(text: &str, size: f64, bold: bool) -> f64 {
    text.chars().count() as f64 * size * LETTER * if bold { 1.08 } else { 1.0 }
}

/// Breaks `text` into as few lines as possible, but at least one. No line is wider than `room`,
/// unless a single word is wider.
fn broken(text: &str, room: f64, size: f64, bold: bool) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the beginning");
        if line.is_empty() {
            *line = word.to_owned();
        } else if width(line, size, bold) + width(word, size, bold) + size <= room {
            *line = format!("{line} {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn font(size: f64, bold: bool, colour: RGBColor) -> TextStyle<'static> {
    let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
    (FONTS, size * DOTS, style).into_font().color(&colour)
}

fn draw(figure: &Figure, layout: &Layout, area: &Area<'_>) -> Drawn {
    area.fill(&WHITE)?;
    let mut y = MARGIN + 6.0;
    for line in &layout.title {
        text(area, line, (MARGIN, y), font(TITLE, true, BLACK))?;
        y += TITLE_STEP;
    }
    for line in &layout.note {
        text(area, line, (MARGIN, y), font(BODY, false, GREY))?;
        y += BODY_STEP;
    }
    let (width, height) = layout.panel();
    for (place, panel) in figure.panels.iter().enumerate() {
        let (row, column) = ((place / layout.columns) as f64, (place % layout.columns) as f64);
        let at = (dots(MARGIN + column * width), dots(layout.head() + row * height));
        draw_panel(panel, figure, layout, &area.clone().shrink(at, (dots(width), dots(height))))?;
    }
    area.present()
}

fn text(area: &Area<'_>, text: &str, at: (f64, f64), style: TextStyle<'_>) -> Drawn {
    let style = style.pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(text.to_owned(), (dots(at.0), dots(at.1)), style))
}

fn draw_panel(panel: &Panel, figure: &Figure, layout: &Layout, area: &Area<'_>) -> Drawn {
    text(area, &panel.title, (0.0, 12.0), font(BODY + 1.0, true, BLACK))?;
    text(area, &panel.y.label, (0.0, 33.0), font(BODY - 1.0, false, GREY))?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(dots(TOP))
        .margin_right(dots(LED + layout.labels + 8.0))
        .x_label_area_size(dots(BOTTOM))
        .y_label_area_size(dots(LEFT))
        .build_cartesian_2d(panel.x.clone(), panel.y.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(PALE.stroke_width(dots(1.0) as u32))
        .light_line_style(TRANSPARENT)
        .axis_style(BLACK.stroke_width(dots(1.0) as u32))
        .set_tick_mark_size(LabelAreaPosition::Left, dots(5.0))
        .set_tick_mark_size(LabelAreaPosition::Bottom, dots(5.0))
        .label_style(font(BODY - 1.0, false, BLACK))
        .axis_desc_style(font(BODY - 1.0, false, GREY))
        .x_desc(&*panel.x.label)
        .draw()?;
    let colour = |line: &Line| match (line.stroke, figure.highlights.colour(&line.name)) {
        (Stroke::Reference, _) => Some(GREY),
        (_, colour) => colour.map(|(red, green, blue)| RGBColor(red, green, blue)),
    };
    let is_measured = |line: &&Line| line.stroke != Stroke::Reference;
    for line in panel.lines.iter().filter(|line| colour(line).is_none()) {
        draw_curve(line, FAINT, 1.2, &mut chart)?;
    }
    let coloured = || panel.lines.iter().filter_map(|line| Some((line, colour(line)?)));
    for (line, colour) in coloured().filter(|(line, _)| is_measured(line)) {
        let over = line.points.iter().map(|point| (point.x, point.max));
        let under = line.points.iter().rev().map(|point| (point.x, point.min));
        let outline: Vec<_> = over.chain(under).collect();
        chart.draw_series([Polygon::new(outline, colour.mix(0.18).filled())])?;
    }
    for (line, colour) in coloured() {
        let width = if is_measured(&line) { LINE } else { 1.6 };
        draw_curve(line, colour, width, &mut chart)?;
        if is_measured(&line) {
            draw_marks(line, colour, &mut chart)?;
        }
    }
    let mut values =
        panel.lines.iter().filter(is_measured).flat_map(|line| &line.points).peekable();
    if values.peek().is_some() && values.all(|point| point.max == 0.0) {
        let middle = (LEFT + 0.35 * PLOT.0, TOP + 0.5 * PLOT.1);
        text(area, "0 at every point", middle, font(BODY, false, GREY))?;
    }
    let labelled = coloured().filter(|(line, _)| line.stroke != Stroke::Beside);
    draw_labels(&labelled.collect::<Vec<_>>(), &chart, area)
}

fn draw_curve(line: &Line, colour: RGBColor, width: f64, chart: &mut Chart<'_, '_>) -> Drawn {
    let points = line.points.iter().map(|point| (point.x, point.median));
    let style = colour.stroke_width(dots(width) as u32);
    match line.stroke {
        Stroke::Measured => chart.draw_series(LineSeries::new(points, style)).map(|_| ()),
        _ => {
            let series = DashedLineSeries::new(points, dots(7.0), dots(5.0), style);
            chart.draw_series(series).map(|_| ())
        }
    }
}

fn draw_marks(line: &Line, colour: RGBColor, chart: &mut Chart<'_, '_>) -> Drawn {
    let mut discs = |radius: f64, style: ShapeStyle| {
        let marks = line.points.iter().map(|point| (point.x, point.median));
        chart.draw_series(marks.map(|at| Circle::new(at, dots(radius), style))).map(|_| ())
    };
    discs(MARK + 1.2, WHITE.filled())?;
    discs(MARK, colour.filled())?;
    if line.stroke == Stroke::Beside {
        discs(MARK - 1.4, WHITE.filled())?;
    }
    Ok(())
}

/// Writes the name of each curve at its end.
fn draw_labels(lines: &[(&Line, RGBColor)], chart: &Chart<'_, '_>, area: &Area<'_>) -> Drawn {
    let base = area.get_base_pixel();
    let ends: Vec<(&str, RGBColor, (i32, i32))> = lines
        .iter()
        .filter_map(|(line, colour)| {
            let last = line.points.last()?;
            let (x, y) = chart.backend_coord(&(last.x, last.median));
            Some((&*line.name, *colour, (x - base.0, y - base.1)))
        })
        .collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, _, (_, y))| f64::from(*y) / DOTS).collect();
    let places = spread(&wanted, LABEL_STEP, TOP, TOP + PLOT.1 - 6.0);
    let edge = dots(LEFT + PLOT.0);
    for ((name, colour, end), y) in ends.into_iter().zip(places) {
        let begun = (end.0 + dots(MARK + 3.0), end.1);
        let led = vec![begun, (edge + dots(12.0), dots(y)), (edge + dots(LED - 4.0), dots(y))];
        area.draw(&PathElement::new(led, colour.mix(0.6).stroke_width(dots(0.8) as u32)))?;
        text(area, name, (LEFT + PLOT.0 + LED, y), font(BODY, true, colour))?;
    }
    Ok(())
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        low + (f64::from(high - low) * self.position(*value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        *self.range.start()..*self.range.end()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(at, _)| at == value);
        tick.map_or_else(String::new, |(_, text)| text.clone())
    }
}
