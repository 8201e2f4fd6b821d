//! `tidegate-lab list`: scenarios, laws and policies.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate::trouble::Trouble;
use tidegate_lab::{catalogue, list};

use crate::run::cores;

/// List scenarios, laws with their parameters, or balancing policies
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    what: Listed,

    /// Directory of the scenarios
    #[arg(long, value_name = "DIR", default_value = "scenarios")]
    dir: PathBuf,

    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Listed {
    /// Scenarios, with their number of runs and duration
    Scenarios,
    /// Overload control laws
    Laws,
    /// Balancing policies
    Policies,
}

/// Prints the requested list.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let text = match (args.what, args.json) {
        (Listed::Scenarios, as_json) => {
            let entries = catalogue::scenarios(&args.dir)
                .map_err(|error| Trouble::usage(format!("{}: {error}", args.dir.display())))?;
            if as_json {
                format!("{:#}\n", catalogue::json(&entries))
            } else {
                catalogue::text(&entries, cores().get())
            }
        }
        (Listed::Laws, false) => list::laws(),
        (Listed::Laws, true) => format!("{:#}\n", list::laws_json()),
        (Listed::Policies, false) => list::policies(),
        (Listed::Policies, true) => format!("{:#}\n", list::policies_json()),
    };
    // A reader that has closed the pipe needs no more output.
    let _ = write!(anstream::stdout(), "{text}");
    Ok(ExitCode::SUCCESS)
}
