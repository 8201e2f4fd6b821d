//! Draws the demonstration on a terminal.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, BorderType, Chart, Dataset, GraphType, Paragraph, Wrap};

use super::plan::{CAPACITY_CPS, MULTIPLES, Side};
use super::story::{Act, Seen, Story};

/// Minimum width of a terminal for the picture, in columns.
const WIDTH_MIN: u16 = 80;
const HEIGHT_MIN: u16 = 24;

/// The largest value on the vertical axis of the charts, as a multiple of the capacity.
const TOP: f64 = 1.25;

/// Returns the colour for a side of the demonstration. Colour-blind people can distinguish the
/// colours, which are from the palette of Okabe and Ito.
const fn colour(side: Side) -> Color {
    match side {
        Side::Unprotected => Color::Rgb(213, 94, 0),
        Side::Protected => Color::Rgb(0, 158, 115),
    }
}

const QUIET: Style = Style::new().fg(Color::DarkGray);

/// Draws the whole screen.
pub(super) fn draw(story: &Story, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text = format!(
            "The terminal is {} x {}. Enlarge it to {WIDTH_MIN} x {HEIGHT_MIN} to see the \
             demonstration, which continues.",
            area.width, area.height
        );
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let [head, sides, foot] =
        Layout::vertical([Constraint::Length(3), Constraint::Min(0), Constraint::Length(2)])
            .areas(area);
    draw_head(story, frame, head);
    let columns = Layout::horizontal([Constraint::Fill(1); 2]).spacing(1).split(sides);
    for (side, column) in Side::ALL.into_iter().zip(columns.iter()) {
        draw_side(story, side, frame, *column);
    }
    let comment = Line::from(format!(" {}", story.comment()));
    let keys = Line::styled(" q: end the demonstration", QUIET);
    frame.render_widget(Paragraph::new(vec![comment, keys]), foot);
}

fn draw_head(story: &Story, frame: &mut Frame<'_>, area: Rect) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut phases = vec![Span::raw(" offered ")];
    for (phase, multiple) in MULTIPLES.into_iter().enumerate() {
        let style = match story.act {
            Act::Load(now) if now == phase => bold.add_modifier(Modifier::REVERSED),
            _ if phase <= story.phase() => bold,
            _ => QUIET,
        };
        phases.push(Span::styled(format!(" {multiple} x "), style));
        phases.push(Span::raw(" "));
    }
    phases.push(Span::styled(format!(" capacity {CAPACITY_CPS:.0} calls/s, emulated"), QUIET));
    let total = story.plan.total().as_secs_f64();
    let done = (story.elapsed.as_secs_f64() / total).clamp(0.0, 1.0);
    let width = usize::from(area.width).saturating_sub(14);
    let filled = (done * width as f64).round() as usize;
    let bar = Line::from(vec![
        Span::raw(" "),
        Span::styled("━".repeat(filled), Style::new().fg(Color::Gray)),
        Span::styled("━".repeat(width - filled), QUIET),
        Span::raw(format!("  {:>3.0} s of {total:.0}", story.elapsed.as_secs_f64())),
    ]);
    let title = Line::from(vec![
        Span::styled(" Tidegate", bold),
        Span::raw("  the same calls, at the same time, to a server with and without protection"),
    ]);
    frame.render_widget(Paragraph::new(vec![title, Line::from(phases), bar]), area);
}

fn draw_side(story: &Story, side: Side, frame: &mut Frame<'_>, area: Rect) {
    let seen = story.side(side);
    let name = Style::new().fg(colour(side)).add_modifier(Modifier::BOLD);
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(QUIET)
        .title(Span::styled(format!(" {} ", side.name()), name))
        .title_bottom(Span::styled(format!(" {} ", side.manner()), QUIET));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [figures, chart, backends] =
        Layout::vertical([Constraint::Length(6), Constraint::Min(0), Constraint::Length(3)])
            .areas(inner);
    draw_figures(seen, side, frame, figures);
    draw_chart(story, side, frame, chart);
    draw_backends(seen, side, frame, backends);
}

/// Draws the rates on the left, and the state of the server on the right.
fn draw_figures(seen: &Seen, side: Side, frame: &mut Frame<'_>, area: Rect) {
    let now = &seen.now;
    let rate = |name: &'static str, cps: f64, style: Style| {
        Line::from(vec![
            Span::raw(format!(" {name:<11}")),
            Span::styled(format!("{cps:>6.0}"), style),
            Span::styled(" /s", QUIET),
        ])
    };
    let state = |name: &'static str, value: String| {
        Line::from(vec![Span::raw(format!("{name:<11}")), Span::raw(format!("{value:>9}"))])
    };
    let plain = Style::new();
    let strong = Style::new().fg(colour(side)).add_modifier(Modifier::BOLD);
    let left = vec![
        Line::default(),
        rate("offered", now.offered_cps, plain),
        rate("goodput", now.goodput_cps, strong),
        rate("rejected", now.rejected_cps, plain),
        rate("repeated", now.repeated_cps, plain),
    ];
    let right = vec![
        Line::default(),
        state("admitted", format!("{:.0} %", now.admitted * 100.0)),
        state("occupancy", format!("{:.0} %", now.occupancy * 100.0)),
        state("waiting", now.waiting.to_string()),
        state("wait p99", wait(now.sojourn_p99_ms)),
    ];
    let [one, other] = Layout::horizontal([Constraint::Fill(1); 2]).areas(area);
    frame.render_widget(Paragraph::new(left), one);
    frame.render_widget(Paragraph::new(right), other);
}

fn wait(ms: f64) -> String {
    if ms < 1000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1000.0) }
}

fn draw_chart(story: &Story, side: Side, frame: &mut Frame<'_>, area: Rect) {
    let end = story.plan.total().as_secs_f64();
    let capacity = [(0.0, 1.0), (end, 1.0)];
    let bound = bounds(story);
    let line = |data, style: Style| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(style)
            .data(data)
    };
    let shown = story.side(side);
    let mut sets = vec![line(&capacity, QUIET)];
    sets.extend(bound.iter().map(|segment| line(&segment[..], Style::new().fg(Color::Gray))));
    sets.push(line(&shown.goodput, Style::new().fg(colour(side))));
    let chart = Chart::new(sets).x_axis(Axis::default().bounds([0.0, end]).style(QUIET)).y_axis(
        Axis::default()
            .title(Span::styled("goodput ÷ capacity, and the bound", QUIET))
            .bounds([0.0, TOP])
            .style(QUIET)
            .labels(["0", "", "0.5", "", "1", ""].map(|label| Span::styled(label, QUIET))),
    );
    let [above, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
    frame.render_widget(chart, above);
    // The width of the widest label of the vertical axis, and of the axis itself.
    let left = 4;
    let middle = |phase| story.plan.start_of(phase) + story.plan.load / 2;
    let width = f64::from(below.width.saturating_sub(left));
    for (phase, multiple) in MULTIPLES.into_iter().enumerate() {
        let label = format!("{multiple} x");
        let at = middle(phase).as_secs_f64() / end * width - label.len() as f64 / 2.0;
        let x = below.x + left + at.max(0.0) as u16;
        let style = if phase <= story.phase() { Style::new() } else { QUIET };
        frame.buffer_mut().set_stringn(x, below.y, &label, label.len(), style);
    }
}

/// Returns a line of the chart for each load so far. The line shows the greatest possible goodput
/// from the start to the end of the load.
fn bounds(story: &Story) -> Vec<[(f64, f64); 2]> {
    let phases = 0..=story.phase();
    let begin = |phase| story.plan.start_of(phase).as_secs_f64();
    let until = |phase| begin(phase) + story.plan.load.as_secs_f64();
    let height = |phase: usize| super::plan::bound(MULTIPLES[phase]);
    phases.map(|p| [(begin(p), height(p)), (until(p), height(p))]).collect()
}

fn draw_backends(seen: &Seen, side: Side, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width).saturating_sub(24);
    let full = CAPACITY_CPS;
    let lines: Vec<Line<'_>> = seen
        .now
        .backends_cps
        .into_iter()
        .enumerate()
        .map(|(index, cps)| {
            let length = ((cps / full).clamp(0.0, 1.0) * width as f64).round() as usize;
            Line::from(vec![
                Span::raw(format!(" back end {} {cps:>6.0}", index + 1)),
                Span::styled(" /s ", QUIET),
                Span::styled("▇".repeat(length), Style::new().fg(colour(side))),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// Formats both sides as one line of plain output.
pub(super) fn line(story: &Story) -> String {
    let mut text = format!("{:>3.0} s", story.elapsed.as_secs_f64());
    match story.act {
        Act::Load(phase) => text += &format!("  {:>3} x", MULTIPLES[phase]),
        Act::Pause(_) => text += "  pause",
    }
    for side in Side::ALL {
        let now = &story.side(side).now;
        text += &format!(
            "  | {:<11} offered {:>4.0}/s goodput {:>4.0}/s rejected {:>4.0}/s wait p99 {:>7}",
            side.name(),
            now.offered_cps,
            now.goodput_cps,
            now.rejected_cps,
            wait(now.sojourn_p99_ms)
        );
    }
    text
}

/// Interval at which the picture is redrawn.
pub(super) const REFRESH: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::demo::plan::Plan;

    fn story() -> Story {
        let mut story = Story::new(Plan::new(60));
        story.act = Act::Load(2);
        story.elapsed = story.plan.start_of(2) + Duration::from_secs(5);
        for side in Side::ALL {
            let seen = &mut story.sides[side as usize];
            let low = if side == Side::Protected { 0.9 } else { 0.1 };
            seen.goodput =
                (0..140).map(|i| (f64::from(i) / 4.0, if i < 100 { 0.5 } else { low })).collect();
            seen.now.offered_cps = 401.0;
            seen.now.goodput_cps = low * CAPACITY_CPS;
            seen.now.sojourn_p99_ms = 1250.0 * (1.0 - low);
            seen.now.backends_cps = [91.0, 90.0];
        }
        story
    }

    fn drawn(story: &Story, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(story, frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn both_sides_show_their_figures() {
        let drawn = drawn(&story(), 100, 30);
        for expected in [
            "unprotected",
            "protected",
            "goodput       180 /s",
            "goodput        20 /s",
            "offered       401 /s",
            "1.1 s",
            "125 ms",
            "back end 2     90 /s",
            "36 s of 59",
            "2 x capacity: waiting callers repeat",
        ] {
            assert!(drawn.contains(expected), "no {expected:?} in\n{drawn}");
        }
    }

    #[test]
    fn a_small_terminal_shows_the_required_size() {
        assert!(drawn(&story(), 60, 20).contains("80 x 24"));
        assert!(drawn(&story(), 80, 24).contains("back end 2"));
    }

    #[test]
    fn without_a_terminal_there_is_a_line() {
        assert_eq!(
            line(&story()),
            " 36 s    2 x  | unprotected offered  401/s goodput   20/s rejected    0/s wait p99   \
             1.1 s  | protected   offered  401/s goodput  180/s rejected    0/s wait p99  125 ms"
        );
    }
}
