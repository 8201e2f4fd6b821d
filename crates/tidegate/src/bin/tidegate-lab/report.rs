//! `tidegate-lab report`: one page with the results in one or several folders.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate::trouble::Trouble;
use tidegate_lab::report::Report;

use crate::run::check_highlight;

/// Write one page with the results of one or several runs
///
/// The page is a single HTML file that loads nothing else. Results of one scenario from simulated
/// time and from real sockets share the same charts. The command prints the differences between
/// simulated time and real sockets, and draws them in worlds-goodput.svg and
/// worlds-set-up-delay.svg (and .png) beside the page.
#[derive(clap::Args)]
pub struct Args {
    /// Result directories of `tidegate-lab run`, such as out/lab/overload-local
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,

    /// Names of curves that always get a colour, separated by commas. A figure has eight colours.
    /// If it has more curves, the remaining colours go to the curve `none` and to the curves with
    /// the best goodput at loads above the capacity
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    highlight: Vec<String>,

    /// File of the page [default: report.html in the first directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Writes the page with the results.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let report = Report::read(&args.folders, &args.highlight).map_err(Trouble::usage)?;
    check_highlight(&args.highlight, &report.labels())?;
    let out = args.out.clone().unwrap_or_else(|| args.folders[0].join("report.html"));
    write(&report, &out)
        .map_err(|error| Trouble::failure(format!("{}: {error}", out.display())))?;
    Ok(ExitCode::SUCCESS)
}

fn write(report: &Report, out: &Path) -> io::Result<()> {
    let folder = out.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)?;
    fs::write(out, report.html())?;
    let comparisons = report.comparisons();
    let mut text = String::new();
    for comparison in &comparisons {
        text += &format!("{}\n", comparison.text());
        // Without a prefix, the figures of several comparisons would have the same file names.
        let prefix = if comparisons.len() > 1 { prefix(&comparison.name) } else { String::new() };
        for (name, figure) in comparison.figures() {
            fs::write(folder.join(format!("{prefix}{name}.svg")), figure.svg())?;
            fs::write(folder.join(format!("{prefix}{name}.png")), figure.png())?;
        }
    }
    // A reader that has closed the pipe needs no more output.
    let _ = writeln!(anstream::stdout(), "{text}report: {}", out.display());
    Ok(())
}

/// Returns the prefix of the file names of a scenario. The name of the scenario comes from a
/// results file, so characters that could lead into another folder are replaced.
fn prefix(scenario: &str) -> String {
    let kept = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    scenario.chars().map(kept).chain(['-']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_name_cannot_leave_the_folder_of_results() {
        assert_eq!(prefix("load-1.5"), "load-1.5-");
        assert_eq!(prefix("../../etc/x"), ".._.._etc_x-");
        assert_eq!(prefix("/etc/x\0"), "_etc_x_-");
    }
}
