//! `tidegate-lab demo`: two servers under the same load, one protected and one not.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use ratatui::Frame;
use tidegate::programs::{self, TIDEGATE};
use tidegate::screen::Screen;
use tidegate::trouble::Trouble;
use tidegate_lab::demo::plan::{Plan, SECONDS_MIN};
use tidegate_lab::demo::summary::Summary;
use tidegate_lab::demo::{Options, Output, run as show};
use tidegate_server::signal::Signals;

/// Demonstrate overload in a minute: a server without protection and one with it
///
/// Two servers on loopback can carry 200 calls/s each. Both get the same calls: half of this rate,
/// the same rate, twice this rate, and five times this rate. Exit status: 0 if at twice the
/// capacity the protected server reaches at least 80 % of the greatest possible goodput, 1 if not,
/// 2 if the demonstration could not run.
#[derive(clap::Args)]
pub struct Args {
    /// Approximate duration in seconds
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(SECONDS_MIN..=3600))]
    seconds: u64,

    /// Seed of the random times at which calls arrive
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one line a second instead of a picture. Without a terminal this is the default
    #[arg(long)]
    plain: bool,

    /// Write the final picture to FILE as SVG
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Write all results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the demonstration, and then prints and writes the results.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let summary = play(args)?
        .ok_or_else(|| Trouble::failure("the demonstration was stopped before its end"))?;
    tell(args, &summary)
}

/// A screen that shows the output of the demonstration.
struct OnScreen(Screen);

impl Output for OnScreen {
    fn show(
        &mut self,
        draw: &mut dyn FnMut(&mut Frame<'_>),
        line: &mut dyn FnMut() -> Option<String>,
    ) -> io::Result<()> {
        self.0.show(draw, line)
    }

    fn wait(&mut self, end: Instant) -> io::Result<bool> {
        self.0.wait(end)
    }
}

fn play(args: &Args) -> Result<Option<Summary>, Trouble> {
    let program = programs::find(TIDEGATE)?;
    let options = Options { program: &program, plan: Plan::new(args.seconds), seed: args.seed };
    // The closure drops the screen, which restores the terminal before anything else is printed.
    let screen = Signals::catch_stops().and_then(|signals| Screen::open(args.plain, signals));
    screen.and_then(|screen| show(&options, &mut OnScreen(screen))).map_err(Trouble::usage)
}

fn tell(args: &Args, summary: &Summary) -> Result<ExitCode, Trouble> {
    // A reader that has closed the pipe needs no more output.
    let _ = write!(anstream::stdout(), "\n{summary}");
    let json = || serde_json::to_string_pretty(summary).map(|text| text + "\n");
    let files = [
        (&args.picture, args.picture.as_ref().map(|_| Ok(summary.figure().svg()))),
        (&args.json, args.json.as_ref().map(|_| json())),
    ];
    for (file, content) in files {
        let (Some(file), Some(content)) = (file, content) else { continue };
        let written = content.map_err(io::Error::from).and_then(|text| fs::write(file, text));
        written.map_err(|error| Trouble::usage(format!("{}: {error}", file.display())))?;
    }
    for doubt in summary.doubts() {
        say(&doubt);
    }
    match summary.fault() {
        None => Ok(ExitCode::SUCCESS),
        Some(fault) => Err(Trouble::failure(fault)),
    }
}

fn say(line: &str) {
    // A closed standard error is no reason to stop.
    let _ = writeln!(anstream::stderr(), "tidegate-lab demo: {line}");
}
