//! `tidegate top`: a live view of a running Tidegate.

// The view is for people, so it uses the real clock. No core reads the clock.
#![allow(clippy::disallowed_methods)]

mod sample;
mod view;

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tidegate::screen::Screen;
use tidegate::trouble::Trouble;
use tidegate_server::signal::Signals;

use crate::ctl::Client;
use sample::{History, Sample};

/// Show a running Tidegate live: calls, occupancy, back ends and rejections
///
/// Exit status: 0 after q, Escape, Ctrl-C or --count, 1 if Tidegate does not answer at the start, 2
/// if an argument is wrong.
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

/// Reads the admin interface and shows the readings, until a key, a signal or `--count` ends the
/// view.
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
    if screen.is_plain() {
        next += args.interval;
        if !screen.wait(next).map_err(Trouble::failure)? {
            return Ok(ExitCode::SUCCESS);
        }
        history.record(read(&client).map_err(|trouble| trouble.to_string()));
    }
    loop {
        let line = || Some(view::line(&history));
        match screen.show(|frame| view::draw(&history, &args.admin, frame), line) {
            // A reader that has closed the pipe needs no more output.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            shown => shown.map_err(Trouble::failure)?,
        }
        shown += 1;
        // After a slow reading, the view does not shorten the next intervals.
        next = (next + args.interval).max(Instant::now());
        if args.count == Some(shown) || !screen.wait(next).map_err(Trouble::failure)? {
            return Ok(ExitCode::SUCCESS);
        }
        history.record(read(&client).map_err(|trouble| trouble.to_string()));
    }
}

/// Reads the admin interface once.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_between_a_tenth_of_a_second_and_an_hour() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "0.05", "-1", "NaN", "3601", "x"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }
}
