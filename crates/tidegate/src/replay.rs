//! `tidegate replay`: a recording once more, exactly, or under another law.

mod dump;
mod law;
mod report;

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tidegate_lab::costs_file;
use tidegate_lab::counterfactual::{self, Answer, NoAnswer, Observer, Question};
use tidegate_lab::replay::{self, Replayed};
use tidegate_server::config::{Config, Diagnostics};
use tidegate_server::recording::{Passing, Recording};

use crate::WRONG_USE;
use crate::json;
use crate::load::parse_millis;
use crate::trouble::Trouble;
use dump::Dump;
use law::Setting;

/// Feed a recording to the proxy once more, and compare what it sends
///
/// Exit status: 0 if every packet is alike, or if the recording lacks something, so that nothing
/// can be compared; 1 if a packet differs; 2 if the recording cannot be read.
#[derive(clap::Args)]
pub struct Args {
    /// The file that `tidegate run --record` wrote
    file: PathBuf,

    /// Then simulate the recorded calls under the law NAME; may be given more than once
    #[arg(long = "law", value_name = "NAME")]
    laws: Vec<String>,

    /// A parameter of a law to simulate, such as pi.t_q=0.01
    #[arg(long = "param", value_name = "LAW.NAME=VALUE", requires = "laws")]
    params: Vec<Setting>,

    /// What messages cost in the simulation, from a file that `tidegate lab calibrate` wrote,
    /// instead of the recorded [emulate]
    #[arg(long, value_name = "FILE", requires = "laws")]
    costs: Option<PathBuf>,

    /// A simulated call counts as set up in time within MS milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "500")]
    deadline: Duration,

    /// Write all figures to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write every packet that passes to FILE, as text
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

/// Replays, compares, and says what came of it.
pub fn run(args: &Args) -> ExitCode {
    match try_run(args) {
        Ok(code) => code,
        Err(Wrong::Trouble(trouble)) => trouble.exit("tidegate replay"),
        Err(Wrong::Diagnostics(diagnostics)) => {
            let _ = write!(anstream::stderr(), "{}", diagnostics.render(stderr().is_terminal()));
            ExitCode::from(WRONG_USE)
        }
    }
}

enum Wrong {
    Trouble(Trouble),
    Diagnostics(Diagnostics),
}

impl From<Trouble> for Wrong {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<Diagnostics> for Wrong {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Diagnostics(diagnostics)
    }
}

fn try_run(args: &Args) -> Result<ExitCode, Wrong> {
    let laws = law::choose(&args.laws, &args.params).map_err(Trouble::usage)?;
    let costs = args.costs.as_deref().map(costs_file::load).transpose()?;
    let unreadable = |error| Trouble::usage(format!("{}: {error}", args.file.display()));
    let recording = Recording::open(&args.file).map_err(unreadable)?;
    let config = replay::configuration(recording.head())?;
    // A long recording takes minutes: what is missing is said before.
    if !laws.is_empty() && costs.is_none() && config.emulate.is_none() {
        return Err(Trouble::usage(NoAnswer::Costs).into());
    }
    if !laws.is_empty() && config.has_names() {
        return Err(Trouble::usage(NoAnswer::Names).into());
    }

    let mut dump = args.dump.as_deref().map(Dump::create).transpose()?;
    // Nothing is watched that nobody asks for: it takes memory for every call.
    let mut observer = (!laws.is_empty()).then(Observer::default);
    let replayed = replay::replay(&recording, &config, |passing| {
        if let Some(dump) = &mut dump {
            dump.write(&passing);
        }
        match (&mut observer, passing) {
            (Some(observer), Passing::In(entry)) => observer.see(&entry),
            (Some(observer), Passing::Out(now, path, bytes)) => observer.see_sent(now, path, bytes),
            (None, _) => {}
        }
    })
    .map_err(unreadable)?;
    dump.map(Dump::finish).transpose()?;

    let report = report::Report::new(&recording, &config, &replayed);
    // A reader that has gone away has seen what it wanted.
    let _ = write!(anstream::stdout(), "{report}");
    let mut figures = report.to_json();
    if let Some(observer) = &observer {
        let question = Question { costs, deadline: args.deadline, laws };
        let answer = simulate(&question, &recording, &config, observer, &replayed)?;
        let _ = write!(
            anstream::stdout(),
            "\n{}\n{}",
            answer.scene,
            counterfactual::render(&answer.rows)
        );
        figures["rows"] = json!(answer.rows);
    }
    if let Some(file) = &args.json {
        json::write(file, &figures)?;
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn simulate(
    question: &Question,
    recording: &Recording,
    config: &Config,
    observer: &Observer,
    replayed: &Replayed,
) -> Result<Answer, Trouble> {
    counterfactual::answer(question, recording, config, observer, replayed.end())
        .map_err(Trouble::usage)
}
