//! `tidegate-lab reproduce`: the claims of the papers, in simulated time.

// The command shows how long it took.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write, stderr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use tidegate::trouble::Trouble;
use tidegate_lab::progress::{Bar, Lines};
use tidegate_lab::reproduce::{self, Claim, Claims, Finding, Page, Reproduction, Stale};
use tidegate_lab::runs::Observer;
use tidegate_lab::store::Programs;
use tidegate_lab::worlds::Simulated;

use crate::history::History;
use crate::run::cores;
use crate::signals::cancelled_by_signal;

/// The name of the commit in reproduction.json if there is no git history.
const UNKNOWN: &str = "unknown commit";

/// Run the claims of the papers in simulated time and give a verdict on each
///
/// The verdict is that the claim is reproduced, partly reproduced, or not reproduced. The file of
/// the claim in the directory `claims` contains the rule for the verdict, and the known verdict.
/// The command writes the results into reproduction.json and reproduction.md in the directory of
/// `--docs`. It does not write them if the sources or the scenarios have changes that are not
/// committed, because nobody could repeat these runs. Exit status: 0 if every verdict is the known
/// one, 1 if not or if a signal stopped the command, 2 if a claim or a scenario is wrong. With
/// `--check`: 0 if the page and its rows are up to date, 1 if not.
#[derive(clap::Args)]
pub struct Args {
    /// Do only short runs with one seed, for the claims whose verdict these runs can show. Do not
    /// write reproduction.md and reproduction.json
    #[arg(long)]
    quick: bool,

    /// Run only the claim with the name ID. If no claim has this name, run all claims whose names
    /// begin with ID, such as 001. The record names the last commit as the source of the program,
    /// so build the program first (`make programs`)
    #[arg(long, value_name = "ID")]
    row: Option<String>,

    /// Run nothing. Only check that reproduction.md has the recorded results, that the rules still
    /// give the recorded verdicts, and that no row is stale. A row is stale if its scenario or rule
    /// has changed since its runs, or if its commit is not in the history. Warn if the program has
    /// changed since the runs of a row
    #[arg(long, conflicts_with_all = ["quick", "row"])]
    check: bool,

    /// With `--check`: also exit with 1 if the program has changed since the runs of a row
    #[arg(long, requires = "check")]
    strict: bool,

    /// Directory of the scenarios. It contains the directory `claims`
    #[arg(long, value_name = "DIR", default_value = "scenarios")]
    dir: PathBuf,

    /// Directory of reproduction.md and reproduction.json
    #[arg(long, value_name = "DIR", default_value = "docs")]
    docs: PathBuf,

    /// Directory for the results of the runs
    #[arg(long, value_name = "DIR", default_value = "out/reproduce")]
    out: PathBuf,

    /// Number of runs at the same time [default: number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// Runs the claims, prints the verdicts, and writes reproduction.md and reproduction.json.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let claims = Claims::load(&args.dir.join("claims")).map_err(Trouble::usage)?;
    reproduce::check(&claims, &args.dir).map_err(Trouble::usage)?;
    let page = Page::within(&args.docs);
    let history = History::of(&args.dir);
    if args.check {
        return check(&page, &claims, args, history.as_ref());
    }
    let is_dirty = history.as_ref().is_some_and(History::is_dirty);
    if is_dirty && !args.quick {
        say(
            "the sources or the scenarios have changes that are not committed, so reproduction.md and \
             reproduction.json will not be written; commit the changes first if you want to record \
             these results",
        );
    }
    let is_named = |row: &str| claims.all().any(|claim| claim.id == row);
    let in_row = |claim: &Claim, row: &str| match is_named(row) {
        true => claim.id == row,
        false => claim.id.starts_with(row),
    };
    let wanted = |claim: &&Claim| {
        let is_in_row = args.row.as_ref().is_none_or(|row| in_row(claim, row));
        is_in_row && (!args.quick || claim.quick)
    };
    let selected: Vec<&Claim> = claims.all().filter(wanted).collect();
    if selected.is_empty() {
        return Err(Trouble::usage(
            "no claim was selected; `--row` takes the name of a claim or its beginning, and the files in \
             the directory `claims` contain all claims",
        ));
    }
    let programs = Programs::running().map_err(Trouble::failure)?;
    let cancelled = cancelled_by_signal()?;
    let observer: &dyn Observer =
        if stderr().is_terminal() { &Bar::new() } else { &Lines::new(stderr()) };
    let began = Instant::now();
    let reproduction = Reproduction {
        claims: &claims,
        scenarios: &args.dir,
        folder: &args.out.join(if args.quick { "quick" } else { "full" }),
        programs: &programs,
        world: &Simulated::new(),
        jobs: args.jobs.unwrap_or_else(cores).get(),
        quick: args.quick,
        observer,
        cancelled: &cancelled,
    };
    let done = reproduction.perform(&selected).map_err(Trouble::usage)?;
    let findings = done.ok_or_else(|| {
        Trouble::failure("the command was stopped; the results of finished runs are kept")
    })?;
    let mut is_known = true;
    for (claim, finding) in selected.iter().zip(&findings) {
        is_known &= finding.verdict == claim.verdict;
        say(&line(claim, finding).map_err(Trouble::usage)?);
    }
    let count = match findings.len() {
        1 => "1 claim".to_owned(),
        count => format!("{count} claims"),
    };
    say(&format!("{count} in {:.0} s", began.elapsed().as_secs_f64()));
    say(&format!(
        "figures and results: {}, with one directory for each scenario and its changes \
         (`[[setup]]`)",
        reproduction.folder.display()
    ));
    if args.quick {
        // Before the first row is recorded, there is no file reproduction.json.
        let commits = page.commits().unwrap_or_default();
        let _ = warn_of_older(commits, &claims, history.as_ref());
    }
    if !args.quick && !is_dirty {
        let commit = history.map_or_else(|| UNKNOWN.to_owned(), History::into_commit);
        page.update(&claims, &findings, &commit).map_err(Trouble::failure)?;
        say(&format!("page: {}", page.page.display()));
    }
    Ok(if is_known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks reproduction.md and reproduction.json without any run, and names the stale rows.
fn check(
    page: &Page,
    claims: &Claims,
    args: &Args,
    history: Option<&History>,
) -> Result<ExitCode, Trouble> {
    if history.is_none() {
        say("there is no git history here, so the commits of the rows are not checked");
    }
    let has_commit = |commit: &str| history.is_none_or(|history| history.has(commit));
    let stale = page.stale(claims, &args.dir, &has_commit).map_err(Trouble::failure)?;
    for Stale { id, reason } in &stale {
        say(&format!("stale {id}: {reason}"));
    }
    let older = warn_of_older(page.commits().map_err(Trouble::failure)?, claims, history);
    page.check(claims).map_err(Trouble::failure)?;
    if !stale.is_empty() {
        return Err(Trouble::failure(format!(
            "stale rows: {}; run `make programs` and then `tidegate-lab reproduce --row ID` for \
             each of them, or `make reproduce` for all",
            stale.len()
        )));
    }
    match older {
        Some(warning) if args.strict => Err(Trouble::failure(warning)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints warnings about rows that are older than the last change of the program. `recorded` has
/// the commits of the rows in reproduction.json, each with its number of rows. Returns the warning
/// about these rows. A second warning is about the rows that other commands have measured.
fn warn_of_older(
    recorded: BTreeMap<String, usize>,
    claims: &Claims,
    history: Option<&History>,
) -> Option<String> {
    let history = history?;
    let recorded = older(history, recorded, "run `make reproduce`");
    let remedy = "run the commands that measure these rows, and copy the results";
    let measured = older(history, claims.measured_commits(), remedy);
    for warning in recorded.iter().chain(&measured) {
        say(&format!("warning: {warning}"));
    }
    recorded
}

/// Returns a sentence about the rows that are older than the last change of the program, with the
/// remedy, or `None` if there is no such row.
fn older(history: &History, commits: BTreeMap<String, usize>, remedy: &str) -> Option<String> {
    let mut count = 0;
    let mut changed = BTreeSet::new();
    for (commit, rows) in commits {
        let crates = history.changed_crates(&commit);
        if !crates.is_empty() {
            count += rows;
            changed.extend(crates);
        }
    }
    let rows = match count {
        0 => return None,
        1 => "1 row is".to_owned(),
        count => format!("{count} rows are"),
    };
    let changed = changed.into_iter().collect::<Vec<_>>().join(", ");
    Some(format!("{rows} older than the last change of {changed}: {remedy}"))
}

fn line(claim: &Claim, finding: &Finding) -> Result<String, String> {
    let known = match finding.verdict == claim.verdict {
        true => "ok   ".to_owned(),
        false => format!("FAIL (known: {}) ", claim.verdict.name()),
    };
    let (verdict, shown) = (finding.verdict.name(), finding.shown(claim)?);
    Ok(format!("{known}{}  {verdict}: {}: {shown}", claim.id, claim.says))
}

fn say(text: &str) {
    let _ = writeln!(anstream::stdout(), "{text}");
}
