//! `tidegate-lab calibrate`: the cost of messages on this machine.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_lab::calibrate::{self, Calibration, Parameters, Quota};
use tidegate_proxy::{Class, Mode};

use crate::number::number_in;
use tidegate::json;
use tidegate::trouble::Trouble;

/// Measure the cost of messages on this machine, for simulations that predict its performance
///
/// The command writes the costs to a file, as the table [emulate] of the configuration.
/// `tidegate-lab run --costs` and `tidegate replay --costs` read this file. Stop other programs
/// while the command runs.
#[derive(clap::Args)]
pub struct Args {
    /// Mode of the measured server
    #[arg(long, value_enum, default_value_t = Kept::Transaction)]
    mode: Kept,

    /// The quota of the simulated server, as a share of a core, such as 0.2 [default: no quota]
    #[arg(long, value_name = "F", value_parser = number_in(0.001..=1.0))]
    quota: Option<f64>,

    /// The period of the quota in milliseconds. In `cpu.max` it is the second number, in
    /// microseconds
    #[arg(long, value_name = "MS", value_parser = number_in(1.0..=1000.0), default_value = "100", requires = "quota")]
    period_ms: f64,

    /// The time between two ticks of the kernel's clock in milliseconds: 1000 / CONFIG_HZ. At a
    /// tick the kernel throttles a busy server that has used up its quota
    #[arg(long, value_name = "MS", value_parser = number_in(0.0..=100.0), default_value = "4", requires = "quota")]
    tick_ms: f64,

    /// Duration of each run in seconds. A round has eight runs
    #[arg(long, value_name = "S", value_parser = number_in(0.5..=60.0), default_value = "2")]
    seconds: f64,

    /// Number of rounds. The result is the median of all rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), default_value_t = 3)]
    rounds: u32,

    /// Seed of the first round
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write the costs to FILE
    #[arg(long, value_name = "FILE", default_value = "costs.toml")]
    out: PathBuf,

    /// Write all results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The mode of the measured proxy: with or without transactions.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Kept {
    /// With transactions (RFC 3261 §16)
    Transaction,
    /// Without transactions, but with the call table
    Stateless,
}

impl From<Kept> for Mode {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Transaction => Self::Transaction,
            Kept::Stateless => Self::Stateless,
        }
    }
}

/// Measures the costs, prints them, and writes them to files.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let parameters = Parameters {
        mode: args.mode.into(),
        seconds: args.seconds,
        rounds: args.rounds,
        quota: args.quota.map(|share| {
            let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
            let runtime = ms(share * args.period_ms);
            Quota { period: ms(args.period_ms), runtime, tick: ms(args.tick_ms) }
        }),
        seed: args.seed,
    };
    // The measurement takes a while, so the command first checks that the file can be written.
    let unwritten = |error| format!("{}: {error}", args.out.display());
    let touched = fs::OpenOptions::new().append(true).create(true).open(&args.out);
    touched.map_err(|error| Trouble::usage(unwritten(error)))?;
    let on_run = |round: u32, act: &str, us: f64| {
        let _ = writeln!(anstream::stderr(), "round {round}: {act} costs {us:.2} µs");
    };
    let calibration = calibrate::measure(&parameters, &on_run).map_err(Trouble::failure)?;
    let _ = write!(anstream::stdout(), "{}", show(&calibration));
    fs::write(&args.out, calibration.file()).map_err(|error| Trouble::failure(unwritten(error)))?;
    if let Some(file) = &args.json {
        json::write(file, &figures(&calibration)?)?;
    }
    let _ = writeln!(anstream::stdout(), "costs: {}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

fn show(calibration: &Calibration) -> String {
    let mut text = format!(
        "\n{calibration}\n\n{:.2} µs to receive a message; the other costs of a message of each \
         class:\nµs           examine    serve   reject\n",
        calibration.receive_us()
    );
    for class in Class::ALL {
        let [offer, serve, reject] = calibration.of(class);
        text += &format!("{:<12}{offer:>8.2} {serve:>8.2} {reject:>8.2}\n", class.name());
    }
    text
}

fn figures(calibration: &Calibration) -> Result<Value, Trouble> {
    let mut figures = serde_json::to_value(calibration).map_err(Trouble::failure)?;
    let costs = |class: &Class| {
        let [offer, serve, reject] = calibration.of(*class);
        let of_class = json!({ "offer_us": offer, "serve_us": serve, "reject_us": reject });
        (class.name().to_owned(), of_class)
    };
    figures["receive_us"] = calibration.receive_us().into();
    figures["classes"] = Class::ALL.iter().map(costs).collect();
    Ok(figures)
}
