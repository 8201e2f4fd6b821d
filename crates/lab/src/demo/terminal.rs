//! Displays the demonstration on a terminal.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tidegate_server::signal::Signals;

use super::story::Story;
use super::view;

/// Interval between two lines of plain output.
const LINE: Duration = Duration::from_secs(1);

/// The output: a terminal that shows pictures, or plain lines. Both react to signals.
pub struct Screen {
    shown: Shown,
    signals: Signals,
}

enum Shown {
    Picture(Box<DefaultTerminal>),
    Lines { next: Duration },
}

impl Screen {
    /// Creates a screen that shows pictures on the terminal of standard output. Dropping the
    /// screen, or a panic, restores the terminal.
    ///
    /// # Errors
    /// Returns an error if standard output is not a terminal, or if signals cannot be caught.
    pub fn picture() -> io::Result<Self> {
        let signals = Signals::catch_stops()?;
        Ok(Self { shown: Shown::Picture(Box::new(ratatui::try_init()?)), signals })
    }

    /// Creates a screen that writes one line a second to standard output.
    ///
    /// # Errors
    /// Returns an error when signals cannot be caught.
    pub fn lines() -> io::Result<Self> {
        Ok(Self { shown: Shown::Lines { next: Duration::ZERO }, signals: Signals::catch_stops()? })
    }

    pub(super) fn show(&mut self, story: &Story) -> io::Result<()> {
        match &mut self.shown {
            Shown::Picture(terminal) => {
                terminal.draw(|frame| view::draw(story, frame))?;
            }
            Shown::Lines { next } => {
                if story.elapsed >= *next {
                    *next = story.elapsed + LINE;
                    writeln!(io::stdout(), "{}", view::line(story))?;
                }
            }
        }
        Ok(())
    }

    /// Waits for `time`, or until the user stops. Returns `false` if the user stops.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            if self.signals.stops().try_recv().is_ok() {
                return Ok(false);
            }
            let left = until.saturating_duration_since(Instant::now());
            match &self.shown {
                Shown::Picture(_) => {
                    if event::poll(left)? && is_end(&event::read()?) {
                        return Ok(false);
                    }
                }
                Shown::Lines { .. } => {
                    if self.signals.stops().recv_timeout(left).is_ok() {
                        return Ok(false);
                    }
                }
            }
            if left.is_zero() {
                return Ok(true);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if matches!(self.shown, Shown::Picture(_)) {
            ratatui::restore();
        }
    }
}

/// Returns whether `event` is a key that stops the demonstration. Ctrl-C is such a key, because the
/// terminal sends no signal for Ctrl-C while the picture is shown.
fn is_end(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
        return false;
    };
    match code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}
