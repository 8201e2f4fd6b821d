//! `tidegate-lab`: traffic, scenarios on real sockets and in simulated time, and their reports.

mod calibrate;
mod costs;
mod demo;
mod history;
mod impair;
mod list;
mod load;
mod number;
mod overhead;
mod replay;
mod report;
mod reproduce;
mod run;
mod signals;
mod stage;
mod swarm;
mod tournament;
mod tune;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tidegate::manual;

/// The laboratory of Tidegate: a traffic generator, experiments with overload on real sockets and
/// in simulated time, and their reports
#[derive(Parser)]
#[command(name = "tidegate-lab", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Load(load::Args),
    Run(run::Args),
    Report(report::Args),
    Reproduce(reproduce::Args),
    List(list::Args),
    Calibrate(calibrate::Args),
    Costs(costs::Args),
    Overhead(overhead::Args),
    Tune(Box<tune::Args>),
    Tournament(tournament::Args),
    Replay(replay::Args),
    Impair(Box<impair::Args>),
    Swarm(swarm::Args),
    #[command(hide = true)]
    Manual(manual::Args),
}

fn main() -> ExitCode {
    let (command, done) = match Cli::parse().command {
        Command::Demo(args) => ("demo", demo::run(&args)),
        Command::Load(args) => ("load", load::run(args)),
        Command::Run(args) => ("run", run::run(&args)),
        Command::Report(args) => ("report", report::run(&args)),
        Command::Reproduce(args) => ("reproduce", reproduce::run(&args)),
        Command::List(args) => ("list", list::run(&args)),
        Command::Calibrate(args) => ("calibrate", calibrate::run(&args)),
        Command::Costs(args) => ("costs", costs::run(&args)),
        Command::Overhead(args) => ("overhead", overhead::run(&args)),
        Command::Tune(args) => ("tune", tune::run(&args)),
        Command::Tournament(args) => ("tournament", tournament::run(&args)),
        Command::Replay(args) => ("replay", replay::run(&args)),
        Command::Impair(args) => ("impair", impair::run(&args)),
        Command::Swarm(args) => ("swarm", swarm::run(&args)),
        Command::Manual(args) => ("manual", manual::run(&args, Cli::command())),
    };
    done.unwrap_or_else(|trouble| trouble.exit(&format!("tidegate-lab {command}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
