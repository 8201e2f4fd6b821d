//! `tidegate-lab swarm`: networks drawn from seeds, watched by the checkers.

// This command reports its own duration. No world reads the clock.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::io::{IsTerminal, Write, stderr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::json;
use tidegate::trouble::Trouble;
use tidegate_lab::swarm::hunt::replay;
use tidegate_lab::swarm::{Failed, Finding, Hunt, Progress, Tally, hunt};

use crate::run::cores;
use crate::signals::cancelled_by_signal;

/// Generate whole networks from seeds, run them in simulated time, and check rules that must always
/// hold
///
/// Each seed generates proxies, callers, servers, links and faults (a world). If a checker finds an
/// error, the command tries to make the world smaller without losing the error, and writes the
/// smallest such world to a file. --replay runs the world in such a file again. Exit status: 0 if
/// no checker found an error, 1 if one did, 2 if the command could not run.
#[derive(clap::Args)]
pub struct Args {
    /// Number of seeds to run [default: no limit, until a signal stops the command]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,

    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    from: u64,

    /// Number of worlds to run at the same time [default: number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Stop at the first world with an error
    #[arg(long)]
    first: bool,

    /// Use TCP connections besides datagrams. Some connections break, stall or are slow
    #[arg(long)]
    streams: bool,

    /// Maximum number of runs to make one failing world smaller
    #[arg(long, value_name = "N", default_value_t = 400)]
    tries: u32,

    /// Directory for failing worlds
    #[arg(long, value_name = "DIR", default_value = "out/swarm")]
    out: PathBuf,

    /// Run only the world in FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "from", "jobs", "first", "streams", "tries", "out"])]
    replay: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the worlds of the seeds, or the world in a file.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    match &args.replay {
        Some(file) => replay_file(file, args.json),
        None => hunt_seeds(args),
    }
}

fn replay_file(file: &Path, as_json: bool) -> Result<ExitCode, Trouble> {
    let name = file.display();
    let text =
        fs::read_to_string(file).map_err(|error| Trouble::usage(format!("{name}: {error}")))?;
    let (_, ran) = replay(&text).map_err(|wrong| Trouble::usage(format!("{name}: {wrong}")))?;
    let trace = format!("{:032x}", ran.trace);
    let [offered, set_up, completed] = ran.calls;
    let mut out = anstream::stdout();
    let _ = if as_json {
        let report = json!({
            "findings": ran.findings,
            "trace": trace,
            "offered": offered,
            "set_up": set_up,
            "completed": completed,
            "delivered": ran.summary.delivered,
            "missing": ran.summary.missing(),
            "unwatched": ran.unwatched,
        });
        writeln!(out, "{report}")
    } else {
        print_findings(&mut out, &ran.findings).and_then(|()| {
            writeln!(
                out,
                "{offered} calls, {set_up} set up, {completed} completed; {} packets with hash {trace}",
                ran.summary.sent
            )
        })
    };
    Ok(verdict(ran.findings.is_empty()))
}

fn hunt_seeds(args: &Args) -> Result<ExitCode, Trouble> {
    let cancelled = cancelled_by_signal()?;
    let plan = Hunt {
        has_streams: args.streams,
        from: args.from,
        seeds: args.seeds,
        jobs: args.jobs.unwrap_or_else(cores).get(),
        tries_max: args.tries,
    };
    // The panic of a core counts as an error that a checker found. So the usual message of a panic
    // is not printed.
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let mut failures = Vec::new();
    let mut unwritten = None;
    let tally = hunt(plan, &cancelled, |progress| match progress {
        Progress::Ran(tally) => show_progress(&tally, args),
        Progress::Failed(failed) => {
            let file = args.out.join(format!("{}.toml", failed.seed));
            if let Err(error) = write_world(&file, &failed) {
                unwritten = Some(format!("{}: {error}", file.display()));
            }
            if !args.json {
                let _ = print_failed(&mut anstream::stdout(), &failed, &file);
            }
            failures.push(failed_json(&failed, &file));
            if args.first {
                cancelled.store(true, Ordering::SeqCst);
            }
        }
        Progress::Impossible(seed, wrong) => {
            let _ = writeln!(
                anstream::stderr(),
                "seed {seed} gives an invalid world, which is an error of the generator: \
                 {wrong}"
            );
        }
    });
    let _ = std::panic::take_hook();
    clear_progress(args);
    let seconds = started.elapsed().as_secs_f64();
    let mut out = anstream::stdout();
    let _ = if args.json {
        writeln!(out, "{}", json!({ "tally": tally, "failures": failures, "wall_s": seconds }))
    } else {
        print_tally(&mut out, &tally, seconds)
    };
    match unwritten {
        Some(wrong) => Err(Trouble::failure(wrong)),
        None => Ok(verdict(tally.failed == 0)),
    }
}

fn verdict(held: bool) -> ExitCode {
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn write_world(file: &Path, failed: &Failed) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let Failed { seed, shrunk, .. } = failed;
    let Finding { checker, what } = &shrunk.finding;
    let head = format!("# From seed {seed}. {checker}:\n# {}\n", what.replace('\n', "\n# "));
    fs::write(file, head + &shrunk.world.to_toml())
}

fn failed_json(failed: &Failed, file: &Path) -> serde_json::Value {
    json!({
        "seed": failed.seed,
        "findings": failed.findings,
        "world": failed.shrunk.world,
        "finding": failed.shrunk.finding,
        "tries": failed.shrunk.tries,
        "file": file,
    })
}

fn print_failed(out: &mut impl Write, failed: &Failed, file: &Path) -> std::io::Result<()> {
    writeln!(out, "seed {}:", failed.seed)?;
    print_findings(out, &failed.findings)?;
    writeln!(out, "the failing world, made smaller in {} runs:", failed.shrunk.tries)?;
    writeln!(out, "  {}", failed.shrunk.finding.what)?;
    for line in failed.shrunk.world.to_toml().lines() {
        writeln!(out, "    {line}")?;
    }
    writeln!(out, "run it again with: tidegate-lab swarm --replay {}\n", file.display())
}

fn print_findings(out: &mut impl Write, findings: &[Finding]) -> std::io::Result<()> {
    findings.iter().try_for_each(|finding| writeln!(out, "  {}: {}", finding.checker, finding.what))
}

fn print_tally(out: &mut impl Write, tally: &Tally, seconds: f64) -> std::io::Result<()> {
    let Tally { worlds, failed, offered, set_up, completed, delivered, missing, faults, .. } =
        tally;
    writeln!(
        out,
        "{worlds} worlds in {seconds:.0} s ({failed} with errors); in all worlds {offered} calls, \
         {set_up} set up, {completed} completed; {delivered} packets arrived, {missing} did not; \
         {faults} faults"
    )?;
    if tally.unwatched > 0 {
        writeln!(
            out,
            "{} requests, responses and calls were not checked, because the memory of the checkers was \
             full",
            tally.unwatched
        )?;
    }
    Ok(())
}

fn show_progress(tally: &Tally, args: &Args) {
    if stderr().is_terminal() && !args.json {
        let of = args.seeds.map_or(String::new(), |seeds| format!(" of {seeds}"));
        let Tally { worlds, failed, .. } = tally;
        let _ = write!(anstream::stderr(), "\r{worlds}{of} worlds, {failed} with errors");
    }
}

fn clear_progress(args: &Args) {
    if stderr().is_terminal() && !args.json {
        let _ = write!(anstream::stderr(), "\r\x1b[K");
    }
}
