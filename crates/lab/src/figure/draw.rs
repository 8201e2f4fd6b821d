//! Drawing a figure on a backend of `plotters`.

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, RGBColor, ShapeStyle, TextStyle, WHITE};

use super::dots::DOTS;
use super::head::{BODY, Head, TITLE, font};
use super::ink::{BLACK, GREY, PALE, colour};
use super::labels::spread;
use super::{Figure, Line, Panel, Point, Stroke};

/// Lengths in units of the SVG.
const PANEL_WIDTH: f64 = 560.0;
const PANEL_HEIGHT: f64 = 400.0;
const FOOT: f64 = 14.0;
const SIDE: f64 = 20.0;
/// From the edge of a panel to its axes.
const LEFT: f64 = 54.0;
const RIGHT: f64 = 112.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 46.0;

const LINE: f64 = 2.4;
const MARK: f64 = 3.6;
const DASH: f64 = 7.0;
/// Between the middles of two labels.
const LABEL_GAP: f64 = 17.0;

/// What is drawn on: the two place letters differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Svg,
    Bitmap,
}

type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// Width and height in units of the SVG.
pub(super) fn size(figure: &Figure) -> (u32, u32) {
    let height = head(figure).height() + PANEL_HEIGHT + FOOT;
    ((2.0 * SIDE + room(figure)) as u32, height as u32)
}

/// The width of all panels.
fn room(figure: &Figure) -> f64 {
    figure.panels.len().max(1) as f64 * PANEL_WIDTH
}

fn head(figure: &Figure) -> Head {
    Head::of(figure, room(figure))
}

/// Draws the figure.
pub(super) fn draw<DB: DrawingBackend>(
    figure: &Figure,
    medium: Medium,
    area: &DrawingArea<DB, Shift>,
) -> Drawn<DB> {
    area.fill(&WHITE)?;
    let page = Page { medium, area, origin: (SIDE, 0.0) };
    let head = head(figure);
    for line in &head.title {
        page.text(&line.text, (0.0, line.y), TITLE, true, BLACK, HPos::Left)?;
    }
    for line in &head.note {
        page.text(&line.text, (0.0, line.y), BODY, false, GREY, HPos::Left)?;
    }
    for (place, panel) in figure.panels.iter().enumerate() {
        let origin = (SIDE + place as f64 * PANEL_WIDTH, head.height());
        draw_panel(panel, &figure.panels, &Page { medium, area, origin })?;
    }
    Ok(())
}

fn draw_panel<DB: DrawingBackend>(panel: &Panel, all: &[Panel], page: &Page<'_, DB>) -> Drawn<DB> {
    let frame = Frame { panel };
    page.text(&panel.title, (0.0, 12.0), BODY + 1.0, true, BLACK, HPos::Left)?;
    page.text(&panel.y.label, (0.0, 33.0), BODY - 1.0, false, GREY, HPos::Left)?;
    draw_axes(panel, page)?;
    let (measured, calculated): (Vec<&Line>, Vec<&Line>) =
        panel.lines.iter().partition(|line| line.stroke != Stroke::Reference);
    for line in &measured {
        draw_band(line, &frame, page, colour(line, all))?;
    }
    for line in &calculated {
        draw_dashes(line, &frame, page, GREY.stroke_width(page.width(1.6)))?;
    }
    for line in &measured {
        draw_line(line, &frame, page, colour(line, all))?;
    }
    draw_labels(panel, all, &frame, page)
}

fn draw_axes<DB: DrawingBackend>(panel: &Panel, page: &Page<'_, DB>) -> Drawn<DB> {
    let frame = Frame { panel };
    let (left, right) = (LEFT, PANEL_WIDTH - RIGHT);
    let base = PANEL_HEIGHT - BOTTOM;
    for (value, text) in &panel.y.ticks {
        let y = frame.y(*value);
        page.path(&[(left, y), (right, y)], PALE.stroke_width(page.width(1.0)))?;
        page.text(text, (left - 8.0, y), BODY - 1.0, false, BLACK, HPos::Right)?;
    }
    for (value, text) in &panel.x.ticks {
        let x = frame.x(*value);
        page.path(&[(x, base), (x, base + 5.0)], BLACK.stroke_width(page.width(1.0)))?;
        page.text(text, (x, base + 15.0), BODY - 1.0, false, BLACK, HPos::Center)?;
    }
    page.path(&[(left, base), (right, base)], BLACK.stroke_width(page.width(1.2)))?;
    let middle = f64::midpoint(left, right);
    page.text(&panel.x.label, (middle, base + 36.0), BODY - 1.0, false, GREY, HPos::Center)
}

fn draw_band<DB: DrawingBackend>(
    line: &Line,
    frame: &Frame<'_>,
    page: &Page<'_, DB>,
    colour: RGBColor,
) -> Drawn<DB> {
    let over = line.points.iter().map(|p| (frame.x(p.x), frame.y(p.max)));
    let under = line.points.iter().rev().map(|p| (frame.x(p.x), frame.y(p.min)));
    let outline: Vec<_> = over.chain(under).map(|at| page.dot(at)).collect();
    page.area.draw(&Polygon::new(outline, colour.mix(0.18).filled()))
}

fn draw_line<DB: DrawingBackend>(
    line: &Line,
    frame: &Frame<'_>,
    page: &Page<'_, DB>,
    colour: RGBColor,
) -> Drawn<DB> {
    let places: Vec<_> = line.points.iter().map(|point| frame.place(point)).collect();
    let style = colour.stroke_width(page.width(LINE));
    let hollow = line.stroke == Stroke::Beside;
    if hollow {
        draw_dashes(line, frame, page, style)?;
    } else {
        page.path(&places, style)?;
    }
    for place in places {
        let dots = |radius: f64| (radius * f64::from(DOTS)) as i32;
        page.area.draw(&Circle::new(page.dot(place), dots(MARK + 1.2), WHITE.filled()))?;
        page.area.draw(&Circle::new(page.dot(place), dots(MARK), colour.filled()))?;
        if hollow {
            page.area.draw(&Circle::new(page.dot(place), dots(MARK - 1.4), WHITE.filled()))?;
        }
    }
    Ok(())
}

/// A dashed line, each dash by itself, since backends know only whole ones.
fn draw_dashes<DB: DrawingBackend>(
    line: &Line,
    frame: &Frame<'_>,
    page: &Page<'_, DB>,
    style: ShapeStyle,
) -> Drawn<DB> {
    let mut dash = Vec::new();
    let mut walked = 0.0;
    for pair in line.points.windows(2) {
        let (from, to) = (frame.place(&pair[0]), frame.place(&pair[1]));
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let steps = (length.ceil() as usize).max(1);
        for step in 0..steps {
            let part = step as f64 / steps as f64;
            let at = (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
            let gap = ((walked + length * part) / DASH) as u64 % 2 == 1;
            if !gap {
                dash.push(at);
            } else if !dash.is_empty() {
                page.path(&dash, style)?;
                dash.clear();
            }
        }
        walked += length;
    }
    page.path(&dash, style)
}

fn draw_labels<DB: DrawingBackend>(
    panel: &Panel,
    all: &[Panel],
    frame: &Frame<'_>,
    page: &Page<'_, DB>,
) -> Drawn<DB> {
    let ends: Vec<(&Line, (f64, f64))> = panel
        .lines
        .iter()
        .filter(|line| line.stroke != Stroke::Beside)
        .filter_map(|line| Some((line, frame.place(line.points.last()?))))
        .collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
    let places = spread(&wanted, LABEL_GAP, TOP, PANEL_HEIGHT - BOTTOM - 6.0);
    for ((line, end), y) in ends.iter().zip(places) {
        let colour = colour(line, all);
        let edge = PANEL_WIDTH - RIGHT;
        let led = [(end.0 + MARK + 3.0, end.1), (edge + 12.0, y), (edge + 15.0, y)];
        page.path(&led, colour.mix(0.6).stroke_width(page.width(0.8)))?;
        page.text(&line.name, (edge + 19.0, y), BODY, true, colour, HPos::Left)?;
    }
    Ok(())
}

/// Where values lie in a panel.
struct Frame<'a> {
    panel: &'a Panel,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.panel.x.place(value) * (PANEL_WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - self.panel.y.place(value)) * (PANEL_HEIGHT - TOP - BOTTOM)
    }

    fn place(&self, point: &Point) -> (f64, f64) {
        (self.x(point.x), self.y(point.median))
    }
}

/// A part of the drawing with its own origin, in units of the SVG.
struct Page<'a, DB: DrawingBackend> {
    medium: Medium,
    area: &'a DrawingArea<DB, Shift>,
    origin: (f64, f64),
}

impl<DB: DrawingBackend> Page<'_, DB> {
    fn dot(&self, (x, y): (f64, f64)) -> (i32, i32) {
        let dots = |length: f64| (length * f64::from(DOTS)).round() as i32;
        (dots(self.origin.0 + x), dots(self.origin.1 + y))
    }

    fn width(&self, units: f64) -> u32 {
        (units * f64::from(DOTS)).round() as u32
    }

    fn path(&self, places: &[(f64, f64)], style: ShapeStyle) -> Drawn<DB> {
        if places.len() < 2 {
            return Ok(());
        }
        let dots: Vec<_> = places.iter().map(|place| self.dot(*place)).collect();
        self.area.draw(&PathElement::new(dots, style))
    }

    /// `text` whose capitals have their middle at the height of `place`.
    fn text(
        &self,
        text: &str,
        place: (f64, f64),
        size: f64,
        bold: bool,
        colour: RGBColor,
        anchor: HPos,
    ) -> Drawn<DB> {
        let style = TextStyle::from(font(size, bold)).color(&colour);
        let style = style.pos(Pos::new(anchor, VPos::Center));
        let lower = match self.medium {
            Medium::Svg => 0.08 * size,
            Medium::Bitmap => 0.2 * size,
        };
        let at = self.dot((place.0, place.1 + lower));
        self.area.draw(&Text::new(text.to_owned(), at, style))
    }
}
