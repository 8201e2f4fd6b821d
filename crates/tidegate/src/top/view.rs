//! Display of the readings on a terminal, or as a line.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Axis, Block, BorderType, Cell, Chart, Dataset, GraphType, Paragraph, Row, Table, Wrap,
};

use super::sample::{Backend, History, Rates, Sample};

/// Minimum width in columns. A terminal that is narrower, or has fewer than [`HEIGHT_MIN`] lines,
/// gets only a line of figures.
const WIDTH_MIN: u16 = 72;
const HEIGHT_MIN: u16 = 16;

/// Colours of Okabe and Ito, which colour-blind readers can distinguish. Vermilion marks danger
/// only.
const GOOD: Color = Color::Rgb(0, 158, 115);
const DANGER: Color = Color::Rgb(213, 94, 0);
const NOTICE: Color = Color::Rgb(230, 159, 0);
const QUIET: Style = Style::new().fg(Color::DarkGray);

/// Draws the last reading, and the rates between successive readings.
pub(super) fn draw(history: &History, address: &str, frame: &mut Frame<'_>) {
    let Some(sample) = history.latest() else { return };
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        frame.render_widget(Paragraph::new(line(history)).wrap(Wrap { trim: true }), area);
        return;
    }
    let rates = history.rates();
    // Each back end gets a line, but the chart keeps at least six lines.
    let backends = u16::try_from(sample.backends.len()).unwrap_or(u16::MAX).saturating_add(1);
    let backends = backends.min(area.height.saturating_sub(7 + 8));
    let [head, figures, chart, table, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(4),
        Constraint::Min(0),
        Constraint::Length(backends),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(history, sample, address, frame, head);
    frame.render_widget(Paragraph::new(figure_lines(sample, &rates)), figures);
    draw_chart(history, frame, chart);
    draw_backends(sample, &rates, frame, table);
    frame.render_widget(Line::from(reasons(&rates)), foot);
}

fn draw_head(history: &History, sample: &Sample, address: &str, frame: &mut Frame<'_>, area: Rect) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let phase = if sample.phase == "admitting" { GOOD } else { NOTICE };
    let title = Line::from(vec![
        Span::styled(format!(" Tidegate {}", sample.version), bold),
        Span::styled(format!("  {address}  "), QUIET),
        Span::styled(sample.phase.clone(), Style::new().fg(phase)),
        Span::raw(format!("  law {}  up {}", sample.law, duration(sample.now_s))),
        Span::styled("  q quits", QUIET),
    ]);
    let second = match history.error() {
        Some(error) => Line::styled(format!(" {error}"), Style::new().fg(DANGER)),
        None => Line::styled(format!(" {}", sample.listeners.join(", ")), QUIET),
    };
    frame.render_widget(Paragraph::new(vec![title, second]), area);
}

fn figure_lines(sample: &Sample, rates: &Rates) -> Vec<Line<'static>> {
    let coloured = |colour, is_so| if is_so { Style::new().fg(colour) } else { Style::new() };
    let (notice, alarm) = (|is_so| coloured(NOTICE, is_so), |is_so| coloured(DANGER, is_so));
    let figure = |name: &'static str, value: String, style: Style| {
        [Span::styled(format!(" {name} "), QUIET), Span::styled(format!("{value:>7}"), style)]
    };
    let row = |figures: [[Span<'static>; 2]; 4]| Line::from(figures.concat());
    let rate = |value: f64| format!("{value:.0}/s");
    vec![
        row([
            figure("arrived  ", rate(rates.arrived), Style::new()),
            figure("kernel drops", rate(rates.in_kernel), notice(rates.in_kernel > 0.0)),
            figure("repeated", rate(rates.repeated), Style::new()),
            figure("drops", rate(rates.socket_drops), alarm(rates.socket_drops > 0.0)),
        ]),
        row([
            figure("offered  ", rate(rates.offered), Style::new()),
            figure("admitted    ", rate(rates.admitted), Style::new().fg(GOOD)),
            figure("rejected", rate(rates.rejected), notice(rates.rejected > 0.0)),
            figure("ended", sample.ended.to_string(), Style::new()),
        ]),
        row([
            figure("occupancy", format!("{:.0} %", sample.occupancy * 100.0), Style::new()),
            figure("transactions", sample.transactions.to_string(), Style::new()),
            figure("calls   ", sample.in_progress.to_string(), Style::new()),
            figure("wait ", format!("{:.0} ms", sample.wait_p99_ms), Style::new()),
        ]),
    ]
}

fn draw_chart(history: &History, frame: &mut Frame<'_>, area: Rect) {
    let arrived = history.points(|rates| rates.arrived);
    let admitted = history.points(|rates| rates.admitted);
    // The vertical axis shows at least ten calls/s, even if the server is idle. The horizontal axis
    // shows at least a minute, even if the view has just started.
    let most = arrived.iter().chain(&admitted).map(|point| point.1).fold(10.0, f64::max);
    let step = 10_f64.powf(most.log10().floor()) / 2.0;
    let top = (most / step).ceil() * step;
    let line = |data, style: Style| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(style)
            .data(data)
    };
    let (grey, green) = (Style::new().fg(Color::Gray), Style::new().fg(GOOD));
    let sets = vec![line(&arrived, grey), line(&admitted, green)];
    let span = history.span_s().max(60.0);
    let label = |text: String| Span::styled(text, QUIET);
    let chart = Chart::new(sets)
        .block(Block::bordered().border_type(BorderType::Rounded).border_style(QUIET).title(
            Line::from(vec![
                Span::styled(" new calls/s: ", QUIET),
                Span::styled("━ arrived ", grey),
                Span::styled("━ admitted ", green),
            ]),
        ))
        .x_axis(
            Axis::default()
                .bounds([-span, 0.0])
                .style(QUIET)
                .labels([label(format!("-{}", duration(span))), label("now".to_owned())]),
        )
        .y_axis(
            Axis::default()
                .bounds([0.0, top])
                .style(QUIET)
                .labels([label("0".to_owned()), label(format!("{top:.0}"))]),
        );
    frame.render_widget(chart, area);
}

fn draw_backends(sample: &Sample, rates: &Rates, frame: &mut Frame<'_>, area: Rect) {
    let heads = [" pool", "back end", "state", "calls", "new/s", "limit", "ms", "503s", "failed"];
    let number = |text: String| Cell::new(Line::from(text).right_aligned());
    let head = Row::new(heads.into_iter().enumerate().map(|(index, head)| {
        let cell = if index < 3 { Cell::new(head) } else { number(head.to_owned()) };
        cell.style(QUIET)
    }));
    let row = |(index, backend): (usize, &Backend)| {
        let Backend { pool, name, state, calls, invite_ms, rejections, failures, .. } = backend;
        let colour = match &**state {
            "up" => GOOD,
            "down" => DANGER,
            _ => NOTICE,
        };
        let new = rates.backends.get(index).copied().unwrap_or(0.0);
        Row::new([
            Cell::new(format!(" {pool}")),
            Cell::new(name.clone()),
            Cell::new(state.clone()).style(Style::new().fg(colour)),
            number(calls.to_string()),
            number(format!("{new:.0}")),
            number(backend.limit_cps.map_or("-".to_owned(), |limit| format!("{limit:.0}"))),
            number(format!("{invite_ms:.1}")),
            number(rejections.to_string()),
            number(failures.to_string()),
        ])
    };
    let longest = sample.backends.iter().map(|backend| backend.name.chars().count()).max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let widths = [
        Constraint::Length(8),
        Constraint::Max(longest.max(15)),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(5),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Length(5),
        Constraint::Length(6),
    ];
    let table = Table::new(sample.backends.iter().enumerate().map(row), widths).header(head);
    frame.render_widget(table, area);
}

/// Returns a line with the reasons of the rejections in the last interval and their rates, the most
/// frequent reason first.
fn reasons(rates: &Rates) -> String {
    if rates.reasons.is_empty() {
        return " no rejections".to_owned();
    }
    let mut reasons = rates.reasons.clone();
    reasons.sort_by(|a, b| b.1.total_cmp(&a.1));
    let texts: Vec<_> = reasons.iter().map(|(name, rate)| format!("{name} {rate:.0}/s")).collect();
    format!(" rejected by {}", texts.join(", "))
}

/// Returns the last reading as one line, or the error if it failed.
pub(super) fn line(history: &History) -> String {
    let Some(sample) = history.latest() else { return String::new() };
    if let Some(error) = history.error() {
        return error.to_owned();
    }
    let rates = history.rates();
    // A back end that was removed from the configuration is shown until its calls have ended.
    let configured = || sample.backends.iter().filter(|backend| backend.state != "removed");
    let up = configured().filter(|backend| backend.is_up).count();
    format!(
        "{} law {} arrived {:.0}/s kernel drops {:.0}/s repeated {:.0}/s offered {:.0}/s \
         admitted {:.0}/s rejected {:.0}/s socket drops {:.0}/s occupancy {:.0} % wait p99 {:.0} ms \
         calls {} ended {} back ends {up} of {} up",
        sample.phase,
        sample.law,
        rates.arrived,
        rates.in_kernel,
        rates.repeated,
        rates.offered,
        rates.admitted,
        rates.rejected,
        rates.socket_drops,
        sample.occupancy * 100.0,
        sample.wait_p99_ms,
        sample.in_progress,
        sample.ended,
        configured().count(),
    )
}

/// Formats a duration, given in seconds, in its two largest units.
fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86400 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {} h", whole / 86400, whole % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::sample::Calls;
    use super::*;

    fn history() -> History {
        let mut history = History::default();
        for second in 0..30_u64 {
            let calls = Calls {
                arrived: second * 2100,
                repeated: second * 100,
                in_kernel: second * 1500,
                offered: second * 500,
                admitted: second * 180,
                rejected: second * 320,
            };
            let backend = |name: &str, state: &str| Backend {
                pool: "app".to_owned(),
                name: name.to_owned(),
                state: state.to_owned(),
                is_up: state == "suspect",
                assigned: second * 90,
                ..Backend::default()
            };
            history.record(Ok(Sample {
                now_s: 3700.0 + second as f64,
                phase: "admitting".to_owned(),
                law: "pi".to_owned(),
                calls,
                occupancy: 0.95,
                backends: vec![
                    backend("one", "suspect"),
                    backend("two", "down"),
                    backend("three", "removed"),
                ],
                reasons: vec![("law".to_owned(), second * 320)],
                ..Sample::default()
            }));
        }
        history
    }

    fn drawn(history: &History, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(history, "127.0.0.1:8060", frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_view_has_rates_back_ends_and_reasons() {
        let text = drawn(&history(), 100, 30);
        for part in [
            "admitting",
            "law pi",
            "up 1 h 2 min",
            "2100/s",
            "1500/s",
            "100/s",
            "500/s",
            "180/s",
            "320/s",
            "95 %",
            "down",
            "90",
            "rejected by law 320/s",
            "new calls/s",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn all_figures_fit_into_the_minimum_width() {
        let text = drawn(&history(), WIDTH_MIN, HEIGHT_MIN);
        for part in ["drops     0/s", "wait     0 ms", "ended       0", "━ admitted", "failed"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_small_terminal_shows_a_single_line_without_removed_back_ends() {
        let text = drawn(&history(), 60, 10);
        assert!(text.contains("offered 500/s") && text.contains("ends 1 of 2 up"), "{text}");
    }

    #[test]
    fn a_lost_connection_is_shown_above_the_last_figures() {
        let mut history = history();
        history.record(Err("nobody answers".to_owned()));
        let text = drawn(&history, 100, 30);
        assert!(text.contains("nobody answers") && text.contains("500/s"), "{text}");
        assert_eq!(line(&history), "nobody answers");
    }

    #[test]
    fn any_size_can_be_drawn() {
        for width in [1, 71, 72, 200] {
            for height in [1, 15, 16, 17, 60] {
                drawn(&history(), width, height);
            }
        }
    }
}
