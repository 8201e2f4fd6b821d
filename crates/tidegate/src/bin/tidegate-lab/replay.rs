//! `tidegate-lab replay`: a recording, replayed exactly and then simulated under other laws.

mod law;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tidegate::replay::{self, Source};
use tidegate::trouble::Trouble;
use tidegate_lab::costs_file;
use tidegate_lab::counterfactual::{self, NoAnswer, Observer, Question};
use tidegate_server::recording::Passing;

use crate::load::parse_millis;
use law::Setting;

/// Replay a recording, and simulate the recorded calls under other laws
///
/// The exit status is 0 if every packet of the replay is the same as in the recording, or if the
/// recording is incomplete and cannot be compared. It is 1 if a packet differs, or if the file of
/// `--json` or `--dump` cannot be written. It is 2 if the recording cannot be read, or if its calls
/// cannot be simulated.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    replay: replay::Args,

    /// Simulate the recorded calls under the law NAME. May be given several times
    #[arg(long = "law", value_name = "NAME")]
    laws: Vec<String>,

    /// A parameter of a law to simulate, such as pi.t_q=0.01
    #[arg(long = "param", value_name = "LAW.NAME=VALUE", requires = "laws")]
    params: Vec<Setting>,

    /// The costs of messages in the simulation, from a file that `tidegate-lab calibrate` wrote,
    /// instead of the table [emulate] in the recorded configuration
    #[arg(long, value_name = "FILE", requires = "laws")]
    costs: Option<PathBuf>,

    /// A simulated call counts as set up in time if its 200 arrives within MS milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "500")]
    deadline: Duration,
}

/// Replays the recording, simulates its calls under the laws, and prints the results.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let laws = law::choose(&args.laws, &args.params).map_err(Trouble::usage)?;
    let costs = args.costs.as_deref().map(costs_file::load).transpose()?;
    let source = Source::open(&args.replay)?;
    // The replay of a long recording takes minutes, so the command first checks that the simulation
    // is possible.
    if !laws.is_empty() && costs.is_none() && source.config.emulate.is_none() {
        return Err(Trouble::usage(NoAnswer::Costs));
    }
    if !laws.is_empty() && source.config.has_names() {
        return Err(Trouble::usage(NoAnswer::Names));
    }

    // The observer keeps an entry for each call, so it exists only if laws are simulated.
    let mut observer = (!laws.is_empty()).then(Observer::default);
    let mut compared = source.replay(|passing| match (&mut observer, passing) {
        (Some(observer), Passing::In(entry)) => observer.see(&entry),
        (Some(observer), Passing::Out(now, path, bytes)) => observer.see_sent(now, path, bytes),
        (None, _) => {}
    })?;
    if let Some(observer) = &observer {
        let question = Question { costs, deadline: args.deadline, laws };
        let end = compared.replayed.end();
        let answer =
            counterfactual::answer(&question, &source.recording, &source.config, observer, end)
                .map_err(Trouble::usage)?;
        let rows = counterfactual::render(&answer.rows);
        // A reader that has closed the pipe needs no more output.
        let _ = write!(anstream::stdout(), "\n{}\n{rows}", answer.scene);
        compared.figures["rows"] = json!(answer.rows);
    }
    source.finish(&compared)
}
