//! `tidegate-lab tournament`: every law in every scenario, in simulated time.

// The command shows how long it took.
#![allow(clippy::disallowed_methods)]

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use tidegate::trouble::Trouble;
use tidegate_lab::tournament::{Bout, Cell, Place, Route, Selection, Tournament};
use tidegate_lab::worlds::Simulated;

use crate::number::number_in;
use crate::run::cores;
use crate::signals::cancelled_by_signal;

/// Compare all laws in all scenarios of a directory, in simulated time
///
/// A path is a set of values for `decide`, `queue` and `disposal`. All laws run on the path that
/// the scenario sets. Some laws also run on their own path: the path of the paper or program from
/// which they come. If the results of a law on the two paths differ, the cause is a cheaper
/// rejection or another queue, not the law. The report does not show this difference for a law that
/// also has other parameters on its own path. All laws get the same calls. For each scenario the
/// command prints the law with the highest goodput, the laws whose goodput is not significantly
/// lower, and the default law.
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the scenarios and of own-paths.toml
    #[arg(long, value_name = "DIR", default_value = "scenarios/tournament")]
    dir: PathBuf,

    /// Laws to compare, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    laws: Vec<String>,

    /// Scenarios, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    scenarios: Vec<String>,

    /// Number of runs of each law in each scenario, each with another seed
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,

    /// Speeds of the server as multiples of the scenario's speed, separated by commas. At twice the
    /// speed a run takes twice as long
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = "1", value_parser = number_in(0.01..=100.0))]
    speeds: Vec<f64>,

    /// Directory of the results
    #[arg(long, value_name = "DIR", default_value = "out/tournament")]
    out: PathBuf,

    /// Number of runs at the same time [default: number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// The default law. Its result is printed even if other laws are better.
const OURS: &str = "tide";

/// Runs the tournament, prints the result of each scenario and speed, and writes the files.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let selection = Selection {
        laws: args.laws.clone(),
        scenarios: args.scenarios.clone(),
        seeds: args.seeds,
        speeds: args.speeds.clone(),
    };
    let tournament = Tournament::load(&args.dir, selection).map_err(Trouble::usage)?;
    let cancelled = cancelled_by_signal()?;
    let jobs = args.jobs.unwrap_or_else(cores).get();
    let began = Instant::now();
    say(&format!("{} runs, {jobs} at once", tournament.runs()));
    let world = Simulated::new();
    let results = tournament
        .run(&world, jobs, &cancelled, |bout| say(&line(bout)))
        .map_err(Trouble::failure)?
        .ok_or_else(|| Trouble::failure("the tournament was stopped; it has written no results"))?;
    let page = results
        .write(&args.out)
        .map_err(|error| Trouble::failure(format!("{}: {error}", args.out.display())))?;
    say(&format!("{:.0} s; report: {}", began.elapsed().as_secs_f64(), page.display()));
    Ok(ExitCode::SUCCESS)
}

fn say(text: &str) {
    let _ = writeln!(anstream::stdout(), "{text}");
}

/// Describes the result of one scenario at one speed: for each path, the best law, the laws tied
/// with it, and the default law if it is worse.
fn line(bout: &Bout) -> String {
    let mut text = bout.name.clone();
    let has_entrants = |route: &Route| bout.cells.iter().any(|cell| cell.route == *route);
    for route in Route::ALL.into_iter().filter(has_entrants) {
        let on = |place| bout.cells.iter().filter(move |c| c.route == route && c.place == place);
        let tied: Vec<&str> = on(Place::Tied).map(|cell| cell.law).collect();
        let Some(first) = on(Place::First).next() else {
            // The best law has no run on this path.
            let tied = if tied.is_empty() { "none".to_owned() } else { tied.join(", ") };
            text += &format!(
                "\n  {:10} the best law has no run on this path; tied with it: {tied}",
                route.name()
            );
            continue;
        };
        text += &format!("\n  {:10} {}", route.name(), described(first));
        if !tied.is_empty() {
            text += &format!("; tied: {}", tied.join(", "));
        }
    }
    match bout.on(OURS, Route::Same) {
        Some(ours) if ours.place == Place::Behind => {
            text + &format!("\n  behind     {}", described(ours))
        }
        _ => text,
    }
}

fn described(cell: &Cell) -> String {
    let kept =
        cell.kept.map_or_else(String::new, |kept| format!(", {:.3} of the bound", kept.mean));
    let p99 = cell.p99_ms.map_or_else(String::new, |ms| format!(", p99 {:.0} ms", ms.mean));
    let goodput = cell.goodput.mean;
    format!("{}: goodput {goodput:.3} of the capacity{kept}{p99}", cell.law)
}
