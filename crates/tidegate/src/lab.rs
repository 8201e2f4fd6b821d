//! `tidegate lab`: scenarios, what there is to choose from, and a link that loses packets.

mod calibrate;
mod costs;
mod impair;
mod overhead;
mod report;
mod swarm;
mod tune;

use std::io::{IsTerminal, Write, stderr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tidegate_lab::cost::{self, Capacity};
use tidegate_lab::experiment::{Experiment, Runner};
use tidegate_lab::machine::Machine;
use tidegate_lab::point::Shard;
use tidegate_lab::progress::{Bar, Lines};
use tidegate_lab::runs::Observer;
use tidegate_lab::scenario::Scenario;
use tidegate_lab::worlds::{Loopback, Simulated, Speed};
use tidegate_lab::{catalogue, costs_file, list, table, worlds};
use tidegate_server::config::Diagnostics;
use tidegate_server::signal::Signals;

use crate::WRONG_USE;

/// What is said of a run that a signal ended.
const STOPPED: &str = "stopped; the runs that were done are kept";

/// Run scenarios of overload, list what they can compare, and impair a network
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(RunArgs),
    Report(report::Args),
    List(ListArgs),
    Calibrate(calibrate::Args),
    Costs(costs::Args),
    Overhead(overhead::Args),
    Tune(Box<tune::Args>),
    Impair(Box<impair::Args>),
    Swarm(swarm::Args),
}

/// Run a scenario, and show what came of it
///
/// Points that were run before are not run again. Exit status: 0 if every run succeeded and what
/// the scenario expects came true, 1 if not, 2 if it could not be tried.
#[derive(clap::Args)]
struct RunArgs {
    /// The scenario, such as scenarios/overload-local.toml
    file: PathBuf,

    /// Where it is run
    #[arg(long, value_enum, default_value_t = World::Real)]
    world: World,

    /// Seed of the first run of each point, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// What messages cost, from a file that `tidegate lab calibrate` wrote, instead of the
    /// scenario's [emulate]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,

    /// Where results go; out/lab/NAME if not given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Points run at once; as many as there are cores if not given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Run the K-th of N parts of the points and write no tables: several processes, on one
    /// machine or on many with one DIR, share the work, and a run without this puts it together
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum World {
    /// In simulated time
    Sim,
    /// On real sockets of this machine
    Real,
}

/// List scenarios, laws with their parameters, or policies
#[derive(clap::Args)]
struct ListArgs {
    #[arg(value_enum)]
    what: Listed,

    /// Where scenarios lie
    #[arg(long, value_name = "DIR", default_value = "scenarios")]
    dir: PathBuf,

    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Listed {
    /// Scenarios, with their runs and how long these take
    Scenarios,
    /// Laws of overload control
    Laws,
    /// Policies of balancing
    Policies,
}

/// Runs, lists or impairs.
pub fn run(args: &Args) -> ExitCode {
    match &args.command {
        Command::Run(args) => run_scenario(args),
        Command::Report(args) => report::run(args),
        Command::List(args) => list(args),
        Command::Calibrate(args) => {
            calibrate::run(args).unwrap_or_else(|trouble| trouble.exit("tidegate lab calibrate"))
        }
        Command::Costs(args) => {
            costs::run(args).unwrap_or_else(|trouble| trouble.exit("tidegate lab costs"))
        }
        Command::Overhead(args) => {
            overhead::run(args).unwrap_or_else(|trouble| trouble.exit("tidegate lab overhead"))
        }
        Command::Tune(args) => {
            tune::run(args).unwrap_or_else(|trouble| trouble.exit("tidegate lab tune"))
        }
        Command::Impair(args) => {
            impair::run(args).unwrap_or_else(|trouble| trouble.exit("tidegate lab impair"))
        }
        Command::Swarm(args) => swarm::run(args),
    }
}

fn list(args: &ListArgs) -> ExitCode {
    let text = match (args.what, args.json) {
        (Listed::Scenarios, as_json) => match catalogue::scenarios(&args.dir) {
            Ok(entries) if as_json => format!("{:#}\n", catalogue::json(&entries)),
            Ok(entries) => catalogue::text(&entries, cores().get()),
            Err(error) => return trouble(WRONG_USE, &format!("{}: {error}", args.dir.display())),
        },
        (Listed::Laws, false) => list::laws(),
        (Listed::Laws, true) => format!("{:#}\n", list::laws_json()),
        (Listed::Policies, false) => list::policies(),
        (Listed::Policies, true) => format!("{:#}\n", list::policies_json()),
    };
    // A reader that has gone away has seen what it wanted.
    let _ = write!(anstream::stdout(), "{text}");
    ExitCode::SUCCESS
}

fn cores() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn run_scenario(args: &RunArgs) -> ExitCode {
    let mut scenario = match Scenario::load(&args.file) {
        Ok(scenario) => scenario,
        Err(diagnostics) => return refuse(&diagnostics),
    };
    if let Some(file) = &args.costs {
        match costs_file::load(file) {
            Ok(emulate) => scenario.conditions.emulate = emulate,
            Err(diagnostics) => return refuse(&diagnostics),
        }
    }
    if let Some(seed) = args.seed {
        scenario.schedule.seed = seed;
    }
    let out = args.out.clone().unwrap_or_else(|| ["out", "lab", &scenario.name].iter().collect());
    let jobs = args.jobs.unwrap_or_else(cores).get();
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return trouble(WRONG_USE, &format!("this program is not found: {error}")),
    };
    let cancelled = match cancelled_by_signal() {
        Ok(cancelled) => cancelled,
        Err(error) => return trouble(1, &format!("signals cannot be caught: {error}")),
    };
    let observer: &dyn Observer =
        if stderr().is_terminal() { &Bar::new() } else { &Lines::new(stderr()) };
    print_head(&scenario);
    let (loopback, simulated) = (Loopback::new(program.clone()), Simulated::new());
    let world: &dyn worlds::World = match args.world {
        World::Sim => &simulated,
        World::Real => &loopback,
    };
    let runner =
        Runner { folder: &out, program: &program, world, jobs, observer, cancelled: &cancelled };
    if let Some(shard) = args.shard {
        return match runner.contribute(&scenario, shard) {
            Ok(Some(failed)) if failed.is_empty() => ExitCode::SUCCESS,
            Ok(Some(_)) => ExitCode::FAILURE,
            Ok(None) => trouble(1, STOPPED),
            Err(error) => trouble(1, &format!("{}: {error}", out.display())),
        };
    }
    match runner.perform(&scenario) {
        Ok(Some(experiment)) => {
            print(&experiment);
            print_speed(simulated.speed());
            let _ = writeln!(anstream::stdout(), "results and figures: {}", out.display());
            let held = experiment.verdicts.iter().all(|verdict| verdict.held);
            if held && experiment.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Ok(None) => trouble(1, STOPPED),
        Err(error) => trouble(1, &format!("{}: {error}", out.display())),
    }
}

fn refuse(diagnostics: &Diagnostics) -> ExitCode {
    let colour = stderr().is_terminal();
    let _ = write!(anstream::stderr(), "{}", diagnostics.render(colour));
    ExitCode::from(WRONG_USE)
}

fn print_head(scenario: &Scenario) {
    let emulate = &scenario.conditions.emulate;
    let capacity = Capacity::under(&scenario.conditions);
    let disposal = scenario.variants[0].overload.disposal;
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let _ = writeln!(
        anstream::stdout(),
        "{}\na call costs s = {:.2} ms, refusing one r = {:.2} ms, r/s = {:.3}; the capacity is \
         C = {:.1} calls/s\n{} runs of each point, seed {}",
        scenario.title,
        ms(capacity.call),
        ms(cost::refusal(emulate, disposal)),
        capacity.ratio(emulate, disposal),
        capacity.cps,
        scenario.schedule.repetitions,
        scenario.schedule.seed,
    );
}

fn print(experiment: &Experiment) {
    let Experiment { rows, verdicts, failed, program, machine } = experiment;
    let place = match machine {
        Some(Machine { processor, cores, kernel }) => {
            format!("{processor}, {cores} cores, Linux {kernel}")
        }
        None => "simulated time".to_owned(),
    };
    let mut text = format!("program {program}, {place}\n\n{}\n", table::render(rows));
    for (point, what) in failed {
        text += &format!("failed  {}, {}: {what}\n", point.variant.name(), point.place());
    }
    for verdict in verdicts {
        text += &format!("{}  {}\n", if verdict.held { "ok  " } else { "FAIL" }, verdict.condition);
    }
    if rows.iter().any(|row| row.drops > 0 || row.too_slow > 0) {
        text += "Where the generator lost datagrams or was slow, it may be to blame and not the \
                 server.\n";
    }
    let _ = write!(anstream::stdout(), "{text}");
}

/// What simulating took, if anything was simulated.
fn print_speed(speed: Speed) {
    if speed.deliveries > 0 {
        let _ = writeln!(
            anstream::stdout(),
            "{} deliveries in {:.1} s of CPU time, {:.0} in each",
            speed.deliveries,
            speed.cpu.as_secs_f64(),
            speed.per_cpu_s()
        );
    }
}

/// Becomes true by SIGINT or SIGTERM.
fn cancelled_by_signal() -> std::io::Result<Arc<AtomicBool>> {
    let signals = Signals::catch_stops()?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&cancelled);
    thread::Builder::new().name("watch".to_owned()).spawn(move || {
        while signals.stops().recv().is_ok() {
            told.store(true, Ordering::SeqCst);
        }
    })?;
    Ok(cancelled)
}

fn trouble(status: u8, what: &str) -> ExitCode {
    let _ = writeln!(anstream::stderr(), "tidegate lab: {what}");
    ExitCode::from(status)
}
