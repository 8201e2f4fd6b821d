//! `tidegate`: the command line.
//!
//! Exit status of every command: 0 done and every condition held, 1 a condition
//! did not hold, 2 usage or configuration error.

mod check;
mod configuration_file;
mod ctl;
mod demo;
mod json;
mod lab;
mod load;
mod replay;
mod run;
mod stage;
mod trouble;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Args),
    Demo(demo::Args),
    Run(run::Args),
    Replay(replay::Args),
    Load(load::Args),
    Lab(lab::Args),
    Ctl(ctl::Args),
}

/// The exit status of a usage or configuration error; clap's own too.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Load(args) => load::run(args),
        Command::Lab(args) => lab::run(&args),
        Command::Ctl(args) => ctl::run(&args),
    }
}
