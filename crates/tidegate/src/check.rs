//! `tidegate check`: is a configuration right, and if not, what would be?

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_server::config::Config;

use crate::WRONG_USE;

/// Say whether a configuration is right and, if not, what would be
#[derive(clap::Args)]
pub struct Args {
    /// The configuration file
    file: PathBuf,
}

/// Prints what the configuration amounts to, or what is wrong with it.
pub fn run(args: &Args) -> ExitCode {
    match Config::load(&args.file) {
        Ok(config) => {
            // A reader that has gone away (`| head -1`) has seen what it wanted.
            let _ = writeln!(anstream::stdout(), "{}: ok\n{config}", args.file.display());
            ExitCode::SUCCESS
        }
        Err(diagnostics) => {
            let colour = stderr().is_terminal();
            let _ = write!(anstream::stderr(), "{}", diagnostics.render(colour));
            ExitCode::from(WRONG_USE)
        }
    }
}
