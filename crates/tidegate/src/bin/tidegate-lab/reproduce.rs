//! `tidegate-lab reproduce`: the claims of the papers, in simulated time.

// The command shows how long it took.
#![allow(clippy::disallowed_methods)]

use std::io::{IsTerminal, Write, stderr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use tidegate::trouble::Trouble;
use tidegate_lab::progress::{Bar, Lines};
use tidegate_lab::reproduce::{self, Claim, Claims, Finding, Page, Reproduction};
use tidegate_lab::runs::Observer;
use tidegate_lab::store::Programs;
use tidegate_lab::worlds::Simulated;

use crate::run::cores;
use crate::signals::cancelled_by_signal;

/// Run the claims of the papers in simulated time and give a verdict on each
///
/// A claim is reproduced, partly reproduced, or not. Its file in the directory `claims` has the
/// rule and the known verdict. The command writes the results into reproduction.json and
/// reproduction.md in the directory of `--docs`. Exit status: 0 if every verdict is the known one,
/// 1 if not, 2 if a claim or a scenario is wrong.
#[derive(clap::Args)]
pub struct Args {
    /// Do only short runs with one seed, for the claims whose verdict these runs can show. Do not
    /// write reproduction.md and reproduction.json
    #[arg(long)]
    quick: bool,

    /// Run only the claim with this name, or all claims whose names begin with it, such as 001
    #[arg(long, value_name = "ID")]
    row: Option<String>,

    /// Run nothing. Only check that reproduction.md has the recorded results, and that the rules
    /// still give the recorded verdicts
    #[arg(long, conflicts_with_all = ["quick", "row"])]
    check: bool,

    /// Directory of the scenarios, with the directory `claims`
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
    if args.check {
        page.check(&claims).map_err(Trouble::failure)?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |claim: &&Claim| {
        (!args.quick || claim.quick)
            && args.row.as_ref().is_none_or(|row| claim.id.starts_with(&**row))
    };
    let selected: Vec<&Claim> = claims.all().filter(wanted).collect();
    if selected.is_empty() {
        return Err(Trouble::usage(
            "no selected claim exists; the files in the directory `claims` contain all claims",
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
    say(&format!("{} claims in {:.0} s", findings.len(), began.elapsed().as_secs_f64()));
    if !args.quick {
        page.update(&claims, &findings, &commit(&args.dir)).map_err(Trouble::failure)?;
        say(&format!("page: {}", page.page.display()));
    }
    Ok(if is_known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(claim: &Claim, finding: &Finding) -> Result<String, String> {
    let known = match finding.verdict == claim.verdict {
        true => "ok   ".to_owned(),
        false => format!("FAIL (known: {}) ", claim.verdict.word()),
    };
    let (verdict, shown) = (finding.verdict.word(), finding.shown(claim)?);
    Ok(format!("{known}{}  {verdict}: {}: {shown}", claim.id, claim.says))
}

fn say(text: &str) {
    let _ = writeln!(anstream::stdout(), "{text}");
}

/// Returns the commit of the sources. The text ends in a mark if the sources were changed since
/// that commit.
fn commit(folder: &Path) -> String {
    let describe = ["describe", "--always", "--dirty", "--exclude=*"];
    let done = Command::new("git").arg("-C").arg(folder).args(describe).output();
    let text = done.ok().filter(|done| done.status.success());
    text.map_or_else(
        || "unknown commit".to_owned(),
        |done| String::from_utf8_lossy(&done.stdout).trim().to_owned(),
    )
}
