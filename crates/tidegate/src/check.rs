//! `tidegate check`: validates a configuration, with a hint for each error.

use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;

use tidegate_server::config::{Config, TlsFiles};
use tidegate_server::key;

use crate::configuration_file::ConfigurationFile;
use tidegate::WRONG_USE;

/// Check a configuration. Print a summary if it is valid, or its errors if not
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: ConfigurationFile,
}

/// Prints a summary of the configuration, or its errors.
pub fn run(args: &Args) -> ExitCode {
    let file = args.file.path();
    match Config::load(file) {
        Ok((config, tls, _)) => {
            for warning in warn_of_certificates(&tls).into_iter().chain(config.warnings()) {
                let _ = writeln!(anstream::stderr(), "warning: {warning}");
            }
            // A reader that has closed the pipe (`| head -1`) needs no more output.
            let _ = writeln!(anstream::stdout(), "{}: ok\n{config}", file.display());
            ExitCode::SUCCESS
        }
        Err(diagnostics) => {
            let colour = stderr().is_terminal();
            let _ = write!(anstream::stderr(), "{}", diagnostics.render(colour));
            ExitCode::from(WRONG_USE)
        }
    }
}

/// Returns a warning for each certificate that peers do not accept now, such as an expired one.
pub(crate) fn warn_of_certificates(tls: &TlsFiles) -> Vec<String> {
    let now = key::unix_time();
    tls.certificates.iter().filter_map(|certificate| certificate.warning(now)).collect()
}
