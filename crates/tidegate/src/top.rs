//! `tidegate top`: a live view of a running Tidegate.

// The view needs the clock, because people read it. No core reads the clock.
#![allow(clippy::disallowed_methods)]

mod sample;
mod view;

use std::io::{ErrorKind, IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tidegate::trouble::Trouble;
use tidegate_server::signal::Signals;

use crate::ctl::Client;
use sample::{History, Sample};

/// Interval at which the view checks for a signal while it waits for a key.
const SIGNAL: Duration = Duration::from_millis(100);

/// Show a running Tidegate live: calls, occupancy, back ends and rejections
///
/// Exit status: 0 after q, Ctrl-C or --count, 1 if Tidegate does not answer at the start, 2 if an
/// argument is wrong.
#[derive(clap::Args)]
pub struct Args {
    /// Address of the admin interface
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8060")]
    admin: String,

    /// Seconds between two readings
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_interval)]
    interval: Duration,

    /// Print one line for each reading. Without a terminal this is the default
    #[arg(long)]
    plain: bool,

    /// Stop after N readings
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Reads and displays until a key, a signal or `--count` ends the view.
pub fn run(args: &Args) -> ExitCode {
    watch(args).unwrap_or_else(|trouble| trouble.exit("tidegate top"))
}

fn watch(args: &Args) -> Result<ExitCode, Trouble> {
    let client = Client::new(&args.admin);
    let mut history = History::default();
    // An address without an admin interface is reported before the view takes over the terminal.
    history.record(Ok(read(&client)?));
    let signals = Signals::catch_stops().map_err(Trouble::uncaught_signals)?;
    let mut screen = Screen::open(args.plain, signals).map_err(Trouble::failure)?;
    let mut next = Instant::now();
    let mut shown = 0;
    // A line of plain output has only rates, so it needs a second sample. The picture also shows
    // states.
    if screen.terminal.is_none() {
        next += args.interval;
        if !screen.wait(next).map_err(Trouble::failure)? {
            return Ok(ExitCode::SUCCESS);
        }
        history.record(read(&client).map_err(|trouble| trouble.to_string()));
    }
    loop {
        match screen.show(&history, &args.admin) {
            // A reader that has closed the pipe needs no more output.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            shown => shown.map_err(Trouble::failure)?,
        }
        shown += 1;
        // After slow readings the view does not read faster to make up for them.
        next = (next + args.interval).max(Instant::now());
        if args.count == Some(shown) || !screen.wait(next).map_err(Trouble::failure)? {
            return Ok(ExitCode::SUCCESS);
        }
        history.record(read(&client).map_err(|trouble| trouble.to_string()));
    }
}

/// Reads the admin interface, or returns the reason for a failure.
fn read(client: &Client) -> Result<Sample, Trouble> {
    let get = |path| client.get(path);
    Ok(Sample::new(&get("/status")?, &get("/overload")?, &get("/rejections")?))
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("not between 0.1 and 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Output of the view: the terminal, or lines on standard output.
struct Screen {
    /// The terminal, or `None` if lines are printed. The terminal is restored on drop and on a
    /// panic.
    terminal: Option<DefaultTerminal>,
    signals: Signals,
}

impl Screen {
    fn open(plain: bool, signals: Signals) -> std::io::Result<Self> {
        let pictures = !plain && stdout().is_terminal();
        Ok(Self { terminal: if pictures { Some(ratatui::try_init()?) } else { None }, signals })
    }

    fn show(&mut self, history: &History, address: &str) -> std::io::Result<()> {
        match &mut self.terminal {
            Some(terminal) => {
                terminal.draw(|frame| view::draw(history, address, frame))?;
                Ok(())
            }
            None => writeln!(stdout(), "{}", view::line(history)),
        }
    }

    /// Waits until `end`. Returns false if a key or a signal ends the view. Keys and signals count
    /// even if `end` has passed, because each reading may take longer than the interval.
    fn wait(&mut self, end: Instant) -> std::io::Result<bool> {
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

/// Returns whether a key ends the view. In raw mode Ctrl-C raises no signal.
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
    fn an_interval_is_between_a_tenth_of_a_second_and_an_hour() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "0.05", "-1", "NaN", "3601", "x"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
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
