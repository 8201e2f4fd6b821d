//! The output of a live view: pictures on a terminal, or lines on standard output.

// The view is for people, so it uses the real clock. No core reads the clock.
#![allow(clippy::disallowed_methods)]

use std::io::{self, IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use tidegate_server::signal::Signals;

/// Interval at which the view checks for a signal while it waits for a key.
const SIGNAL: Duration = Duration::from_millis(100);

/// The output of a live view: pictures on the terminal, or lines on standard output. A signal ends
/// the view in both cases.
pub struct Screen {
    /// The terminal, or `None` if the screen prints lines. The terminal is restored when the screen
    /// is dropped, and on a panic.
    terminal: Option<DefaultTerminal>,
    signals: Signals,
}

impl Screen {
    /// Creates a screen that shows pictures on the terminal. If `plain` is true, or if standard
    /// output is not a terminal, the screen prints lines instead.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot show pictures.
    pub fn open(plain: bool, signals: Signals) -> io::Result<Self> {
        let pictures = !plain && stdout().is_terminal();
        Ok(Self { terminal: if pictures { Some(ratatui::try_init()?) } else { None }, signals })
    }

    /// Returns whether the screen prints lines instead of pictures.
    pub fn is_plain(&self) -> bool {
        self.terminal.is_none()
    }

    /// Draws a picture with `draw`, or prints the line that `line` returns, if any.
    ///
    /// # Errors
    /// Returns an error if standard output fails.
    pub fn show(
        &mut self,
        draw: impl FnOnce(&mut Frame<'_>),
        line: impl FnOnce() -> Option<String>,
    ) -> io::Result<()> {
        match &mut self.terminal {
            Some(terminal) => {
                terminal.draw(draw)?;
                Ok(())
            }
            None => line().map_or(Ok(()), |line| writeln!(stdout(), "{line}")),
        }
    }

    /// Waits until `end`, and returns true. Returns false as soon as a key or a signal ends the
    /// view. Checks for keys and signals even if `end` has passed, so that they also end a view
    /// that is always late.
    ///
    /// # Errors
    /// Returns an error if the terminal's keys cannot be read.
    pub fn wait(&mut self, end: Instant) -> io::Result<bool> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let has_event = self.terminal.is_some() && event::poll(left.min(SIGNAL))?;
            let stopped = match self.terminal {
                Some(_) => has_event && is_end(&event::read()?),
                None => self.signals.stops().recv_timeout(left).is_ok(),
            };
            if stopped || self.signals.stops().try_recv().is_ok() {
                return Ok(false);
            }
            if left.is_zero() && !has_event {
                return Ok(true);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal.is_some() {
            ratatui::restore();
        }
    }
}

/// Returns whether an event is the press of a key that ends the view: q, Escape or Ctrl-C. In the
/// raw mode of a terminal, Ctrl-C raises no signal.
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

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn a_signal_ends_the_view_even_if_readings_take_longer_than_the_interval() {
        let signals = Signals::catch_stops().unwrap();
        let mut screen = Screen { terminal: None, signals };
        let passed = Instant::now();
        assert!(screen.wait(passed).unwrap(), "no signal has arrived");
        kill_process(getpid(), Signal::TERM).unwrap();
        while screen.signals.stops().is_empty() {
            std::thread::yield_now();
        }
        assert!(!screen.wait(passed).unwrap());
    }

    #[test]
    fn q_escape_and_control_c_end_the_view() {
        let press = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let none = KeyModifiers::NONE;
        assert!(is_end(&press(KeyCode::Char('q'), none)));
        assert!(is_end(&press(KeyCode::Esc, none)));
        assert!(is_end(&press(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!is_end(&press(KeyCode::Char('c'), none)));
        assert!(!is_end(&Event::Resize(80, 24)));
    }
}
