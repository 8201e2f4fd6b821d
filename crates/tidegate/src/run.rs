//! `tidegate run`: the proxy, until it is asked to stop.

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tidegate_server::config::Config;
use tidegate_server::key::{self, Keys};
use tidegate_server::signal::Signals;
use tidegate_server::{Finish, RunError, StartError, Started, run as serve};

use crate::WRONG_USE;

/// Run the proxy until SIGTERM or SIGINT; a second one stops it at once
#[derive(clap::Args)]
pub struct Args {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/tidegate/tidegate.toml")]
    config: PathBuf,

    /// End at once when the process PID, which must have started this one, ends
    #[arg(long, value_name = "PID", hide = true)]
    end_with: Option<u32>,
}

/// Runs the process, and says where it can be reached and how it ended.
pub fn run(args: &Args) -> ExitCode {
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(diagnostics) => {
            let colour = stderr().is_terminal();
            let _ = write!(anstream::stderr(), "{}", diagnostics.render(colour));
            return ExitCode::from(WRONG_USE);
        }
    };
    if let Some(parent) = args.end_with
        && let Err(error) = end_with(parent)
    {
        say(&error);
        return ExitCode::from(WRONG_USE);
    }
    match start(&config) {
        Ok(Finish::Drained(after)) => {
            say(&format!("stopped after {:.1} s; nothing was held", after.as_secs_f64()));
            ExitCode::SUCCESS
        }
        Ok(Finish::Late(after)) => {
            let after = after.as_secs_f64();
            say(&format!("stopped after {after:.1} s, with transactions still open"));
            ExitCode::SUCCESS
        }
        Ok(Finish::Forced) => {
            say("stopped at once, as asked a second time");
            ExitCode::FAILURE
        }
        Err(RunError::Start(error)) => {
            say(&error.to_string());
            ExitCode::from(WRONG_USE)
        }
        Err(error @ RunError::Shard(_)) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Has the kernel kill this process when the thread that started it ends.
fn end_with(parent: u32) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("--end-with {parent}: {error}"))?;
    // It may have ended before this was asked for.
    let is_parent = getppid().is_some_and(|pid| pid.as_raw_pid().unsigned_abs() == parent);
    if is_parent { Ok(()) } else { Err(format!("--end-with {parent}: not the parent process")) }
}

fn start(config: &Config) -> Result<Finish, RunError> {
    let state_dir = key::state_dir(config.server.state_dir.as_deref())?;
    let keys = Keys::load_or_create(&state_dir)?;
    let signals = Signals::catch().map_err(|error| {
        RunError::Start(StartError {
            place: "signals".to_owned(),
            what: error.to_string(),
            remedy: "raise the limits of this process".to_owned(),
        })
    })?;
    serve(config, &keys, &signals, |started: &Started| {
        for listener in &started.listeners {
            say(&format!("listening on udp {listener}"));
        }
        if let Some(admin) = started.admin {
            say(&format!("admin on http://{admin}"));
        }
        say("ready");
    })
}

fn say(line: &str) {
    // A closed standard error is no reason to stop serving calls.
    let _ = writeln!(stderr(), "tidegate: {line}");
}
