//! `tidegate-lab run`: a scenario, on real sockets or in simulated time.

use std::io::{IsTerminal, Write, stderr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use tidegate::programs::{self, TIDEGATE};
use tidegate::trouble::Trouble;
use tidegate_lab::cost::{self, Capacity};
use tidegate_lab::costs_file;
use tidegate_lab::experiment::{Experiment, Runner};
use tidegate_lab::machine::Machine;
use tidegate_lab::progress::{Bar, Lines};
use tidegate_lab::run_spec::Shard;
use tidegate_lab::runs::Observer;
use tidegate_lab::scenario::Scenario;
use tidegate_lab::store::Programs;
use tidegate_lab::table;
use tidegate_lab::worlds::{self, Loopback, Simulated, Speed};

use crate::signals::cancelled_by_signal;

/// Message if a signal ends the command.
const STOPPED: &str = "the command was stopped; the results of finished runs are kept";

/// Run a scenario and show the results
///
/// The command does not repeat runs that already have results. Exit status: 0 if every
/// run succeeded and the expectations of the scenario are met, 1 if not, 2 if the scenario could
/// not run. An expectation is not met if the generator was too slow or lost datagrams.
#[derive(clap::Args)]
pub struct Args {
    /// The scenario, such as scenarios/overload-local.toml
    file: PathBuf,

    /// The world of the runs: simulated time or real sockets
    #[arg(long, value_enum, default_value_t = World::Real)]
    world: World,

    /// Seed of the first run of each parameter set, instead of the seed in the scenario
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Costs of messages, from a file that `tidegate-lab calibrate` wrote, instead of the table
    /// [emulate] of the scenario
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,

    /// Directory of the results [default: out/lab/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Names of curves that always get a colour, separated by commas. A figure has eight colours.
    /// If it has more curves, the remaining colours go to the curve `none` and to the curves with
    /// the best goodput at loads above the capacity
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    highlight: Vec<String>,

    /// Number of runs at the same time [default: number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Do only the K-th of N parts of the runs, and write no tables. So several processes, on one
    /// or several machines with a common DIR, can share the work. After that, the command without
    /// this option combines the results
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
}

/// The world in which a scenario is run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum World {
    /// In simulated time
    Sim,
    /// On real sockets of this machine
    Real,
}

/// Runs the scenario, and prints its table, its verdicts and its output folder.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let mut scenario = match &args.costs {
        Some(file) => Scenario::load_with_costs(&args.file, &costs_file::load(file)?)?,
        None => Scenario::load(&args.file)?,
    };
    if let Some(seed) = args.seed {
        scenario.schedule.seed = seed;
    }
    let labels: Vec<&str> = scenario.variants.iter().map(|variant| &*variant.label).collect();
    check_highlight(&args.highlight, &labels)?;
    let out = args.out.clone().unwrap_or_else(|| ["out", "lab", &scenario.name].iter().collect());
    let jobs = args.jobs.unwrap_or_else(cores).get();
    let stage = Worlds::new(args.world)?;
    let cancelled = cancelled_by_signal()?;
    let observer: &dyn Observer =
        if stderr().is_terminal() { &Bar::new() } else { &Lines::new(stderr()) };
    print_head(&scenario);
    let runner = Runner {
        folder: &out,
        programs: &stage.programs,
        world: stage.world(),
        jobs,
        observer,
        highlight: &args.highlight,
        cancelled: &cancelled,
    };
    let failed = |error| Trouble::failure(format!("{}: {error}", out.display()));
    if let Some(shard) = args.shard {
        let done = runner.contribute(&scenario, shard).map_err(failed)?;
        let failures = done.ok_or_else(|| Trouble::failure(STOPPED))?;
        return Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let done = runner.perform(&scenario).map_err(failed)?;
    let experiment = done.ok_or_else(|| Trouble::failure(STOPPED))?;
    print(&experiment);
    print_speed(stage.speed());
    let _ = writeln!(anstream::stdout(), "the results and the figures are in {}", out.display());
    let held = experiment.verdicts.iter().all(|verdict| verdict.held);
    Ok(if held && experiment.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks that each of the `asked` curves is one of `labels`.
///
/// # Errors
/// Returns an error that names the first curve that does not exist.
pub fn check_highlight(asked: &[String], labels: &[&str]) -> Result<(), Trouble> {
    match asked.iter().find(|name| !labels.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Trouble::usage(format!(
            "--highlight: there is no curve {name}; the curves are {}",
            labels.join(", ")
        ))),
    }
}

/// The world in which a scenario is run, and the programs that the runs need.
pub struct Worlds {
    /// The laboratory and, for real sockets, the proxy.
    pub programs: Programs,
    stage: Stage,
}

enum Stage {
    Simulated(Simulated),
    Loopback(Loopback),
}

impl Worlds {
    /// Finds the programs that runs in `world` need.
    ///
    /// # Errors
    /// Returns an error if a program is missing or cannot be read.
    pub fn new(world: World) -> Result<Self, Trouble> {
        let lab = std::env::current_exe().map_err(Trouble::usage)?;
        let read = |programs: &[PathBuf]| Programs::read(programs).map_err(Trouble::usage);
        Ok(match world {
            World::Sim => {
                Self { programs: read(&[lab])?, stage: Stage::Simulated(Simulated::new()) }
            }
            World::Real => {
                let server = programs::find(TIDEGATE)?;
                let programs = read(&[lab, server.clone()])?;
                Self { programs, stage: Stage::Loopback(Loopback::new(server)) }
            }
        })
    }

    /// Returns the world in which the runs are made.
    pub fn world(&self) -> &dyn worlds::World {
        match &self.stage {
            Stage::Simulated(simulated) => simulated,
            Stage::Loopback(loopback) => loopback,
        }
    }

    /// Returns the number of simulated packets so far, and the CPU time for them. Both are 0 on
    /// real sockets.
    fn speed(&self) -> Speed {
        match &self.stage {
            Stage::Simulated(simulated) => simulated.speed(),
            Stage::Loopback(_) => Speed::default(),
        }
    }
}

/// Returns the number of cores that this process may use.
pub fn cores() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn print_head(scenario: &Scenario) {
    let emulate = &scenario.conditions.emulate;
    let capacity = Capacity::under(&scenario.conditions);
    let disposal = scenario.variants[0].overload.disposal;
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let _ = writeln!(
        anstream::stdout(),
        "{}\na call costs s = {:.2} ms, rejecting one costs r = {:.2} ms, r/s = {:.3}; the capacity is \
         C = {:.1} calls/s\n{} runs of each parameter set, seed {}",
        scenario.title,
        ms(capacity.call),
        ms(cost::rejection(emulate, disposal)),
        capacity.ratio(emulate, disposal),
        capacity.cps,
        scenario.schedule.repetitions,
        scenario.schedule.seed,
    );
}

fn print(experiment: &Experiment) {
    let Experiment { rows, verdicts, failed, program, machine, .. } = experiment;
    let place = match machine {
        Some(Machine { processor, cores, kernel }) => {
            format!("{processor}, {cores} cores, Linux {kernel}")
        }
        None => "simulated time".to_owned(),
    };
    let mut text = format!("program {program}, {place}\n\n{}\n", table::render(rows));
    for (run, what) in failed {
        text += &format!("failed  {}, {}: {what}\n", run.variant.name(), run.place());
    }
    for verdict in verdicts {
        text += &format!("{:<4}  {}\n", verdict.word(), verdict.condition);
    }
    if rows.iter().any(|row| row.drops > 0 || row.too_slow > 0) {
        text += "In some runs the generator was too slow or lost datagrams. Their results may be due \
                 to the generator and not to the server.\n";
    }
    let _ = write!(anstream::stdout(), "{text}");
}

/// Prints the speed of the simulation, if anything was simulated.
fn print_speed(speed: Speed) {
    if speed.deliveries > 0 {
        let _ = writeln!(
            anstream::stdout(),
            "{} packets delivered in {:.1} s of CPU time: {:.0} a second",
            speed.deliveries,
            speed.cpu.as_secs_f64(),
            speed.per_cpu_s()
        );
    }
}
