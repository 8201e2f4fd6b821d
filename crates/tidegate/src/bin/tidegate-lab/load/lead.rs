//! `tidegate-lab load lead`: divide a load among followers and merge their results.

mod follower;
mod followers;
mod merged;
mod offset;

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_agent::{CallerConfig, Share};
use tidegate_server::signal::Signals;

use super::plan;
use super::progress::Progress;
use followers::Followers;
use merged::Merged;
use tidegate::json;
use tidegate::trouble::Trouble;

/// Divide calls among several machines, each of which runs `load follow`
///
/// The leader divides the rate, the calls and the users of the command after -- into equal parts.
/// All followers begin at the same instant. The report shows sums and quantiles over all calls, and
/// a line for each follower.
///
/// If a follower is lost, the leader names it, and the others continue. The sums do not contain the
/// calls of lost followers. Ctrl-C stops all followers, and the report then contains the calls made
/// so far. A second Ctrl-C ends the leader at once.
///
/// Exit status: 0 if one or more calls were offered and all of them completed, 1 if not or if a
/// follower was lost, 2 if the command could not run.
#[derive(clap::Args)]
pub struct Args {
    /// Followers, separated by commas: HOST[:PORT]
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', required = true)]
    followers: Vec<String>,

    /// Write all results to FILE as JSON, including the results of each follower
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Print progress once a second, even if the output is not a terminal
    #[arg(long)]
    progress: bool,

    /// The command to divide: `uac` with its target and options
    #[arg(last = true, required = true, value_name = "uac TARGET OPTIONS")]
    command: Vec<String>,
}

/// Leads the followers through one load plan, and prints the results.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let calls = plan::parse(&args.command).unwrap_or_else(|error| error.exit());
    let config = calls.config()?;
    let parts = divide(&config, args.followers.len())?;
    let seed = calls.seed()?;
    // Until the start, a signal ends the leader, and the followers wait for the next load plan.
    let mut followers = Followers::connect(&args.followers)?;
    followers.prepare(&args.command, seed)?;
    let precision = followers.start()?;
    let signals = Signals::catch_stops().map_err(Trouble::uncaught_signals)?;
    let told = args.progress || stderr().is_terminal();
    let ends = followers.watch(signals.stops(), |progress: &Progress| {
        if told {
            let _ = writeln!(anstream::stderr(), "{progress}");
        }
    });
    let merged = Merged::new(&config, &parts, seed, precision, ends);
    // A reader that has closed the pipe needs no more output.
    let _ = write!(anstream::stdout(), "{merged}");
    if let Some(file) = &args.json {
        json::write(file, &merged.to_json().map_err(Trouble::failure)?)?;
    }
    Ok(if merged.is_perfect() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the configuration of each part. Returns an error if the load is invalid. The followers
/// would reject such a load too, but their errors would not tell the user which option is wrong.
fn divide(config: &CallerConfig, count: usize) -> Result<Vec<CallerConfig>, Trouble> {
    config.check().map_err(Trouble::usage)?;
    let of = u32::try_from(count).ok().filter(|&of| of <= Share::PARTS_MAX);
    let of = of.ok_or_else(|| {
        Trouble::usage(format!("{count} followers: there may be at most {}", Share::PARTS_MAX))
    })?;
    let part = |index| {
        let share = Share::new(index, of).expect("an index below the number of parts");
        let part = config.part(share).map_err(Trouble::usage)?;
        part.check().map_err(Trouble::usage)?;
        Ok(part)
    };
    (0..of).map(part).collect()
}
