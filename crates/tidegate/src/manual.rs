//! Manual pages and shell completions of a program, for `make install` and packages.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, io};

use clap::ValueEnum;
use clap_complete::Shell;

use crate::trouble::Trouble;

/// Write the manual pages and shell completions of this program
#[derive(clap::Args)]
pub struct Args {
    /// The folder to write to. The pages are in its folder man1/, and the completions in its folder
    /// completions/
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the manual pages and shell completions of `program`.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn run(args: &Args, program: clap::Command) -> Result<ExitCode, Trouble> {
    write(args, program)
        .map_err(|error| Trouble::failure(format!("{}: {error}", args.folder.display())))?;
    Ok(ExitCode::SUCCESS)
}

fn write(args: &Args, program: clap::Command) -> io::Result<()> {
    // Each command gets a page, except `help COMMAND`.
    let mut program = program.disable_help_subcommand(true);
    let [pages, completions] = ["man1", "completions"].map(|name| args.folder.join(name));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    let name = program.get_name().to_owned();
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut program, &name, &completions)?;
    }
    clap_mangen::generate_to(program, pages)
}
