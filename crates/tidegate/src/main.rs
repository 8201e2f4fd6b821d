//! `tidegate`: the proxy, and the commands that configure, observe and control it.
//!
//! The commands of the laboratory are in the program `tidegate-lab`, so that the proxy contains no
//! simulator and no charts. `tidegate lab`, `tidegate load` and `tidegate demo` run it.

mod check;
mod config;
mod configuration_file;
mod ctl;
mod run;
mod top;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tidegate::programs::{LAB, hand_over};
use tidegate::{manual, replay};

#[derive(Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Check(check::Args),
    Config(config::Args),
    Ctl(ctl::Args),
    Top(top::Args),
    /// Replay a recording, and check that the proxy sends the same packets as the recorded process
    ///
    /// With `--law NAME` the command also simulates the recorded calls under that law. See
    /// `tidegate-lab replay --help`.
    Replay(replay::Args),
    /// Demonstrate overload: a server without protection and one with it (tidegate-lab demo)
    Demo(ForLab),
    /// Generate traffic: call a SIP server, answer calls, or register users (tidegate-lab load)
    Load(ForLab),
    /// Run experiments with overload and compare laws (tidegate-lab)
    Lab(ForLab),
    #[command(hide = true)]
    Manual(manual::Args),
}

/// Arguments that are passed on to `tidegate-lab`, including `--help`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
struct ForLab {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

fn main() -> ExitCode {
    if replays_under_a_law() {
        return hand_over(LAB, env::args_os().skip(1)).exit("tidegate replay");
    }
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Manual(args) => manual::run(&args, Cli::command())
            .unwrap_or_else(|trouble| trouble.exit("tidegate manual")),
        Command::Demo(ForLab { args }) => in_lab("demo", args),
        Command::Load(ForLab { args }) => in_lab("load", args),
        Command::Lab(ForLab { args }) => hand_over(LAB, args).exit("tidegate lab"),
    }
}

/// Returns whether the command is `replay` with an option that needs the simulator.
fn replays_under_a_law() -> bool {
    let mut args = env::args_os().skip(1);
    args.next().is_some_and(|command| command == "replay")
        && args.any(|arg| arg.to_string_lossy().starts_with("--law"))
}

fn in_lab(command: &str, args: Vec<OsString>) -> ExitCode {
    let args = std::iter::once(OsString::from(command)).chain(args);
    hand_over(LAB, args).exit(&format!("tidegate {command}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
