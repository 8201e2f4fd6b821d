//! `tidegate config`: a description of the configuration file, for programs.

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use tidegate_server::config::json_schema;

/// Print the JSON schema of the configuration file, for editors
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the JSON schema of the configuration file, for editors
    ///
    /// Save it beside the configuration and name it in the first line of the configuration:
    /// `#:schema ./tidegate.schema.json`. Editors that use Taplo (Even Better TOML in VS Code) then
    /// complete keys, show their documentation and underline mistakes.
    Schema,
}

/// Prints the requested description of the configuration file.
pub fn run(args: &Args) -> ExitCode {
    let Command::Schema = args.command;
    // A reader that has closed the pipe (`| head -1`) needs no more output.
    let _ = writeln!(anstream::stdout(), "{:#}", json_schema());
    ExitCode::SUCCESS
}
