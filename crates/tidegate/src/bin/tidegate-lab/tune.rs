//! `tidegate-lab tune`: find good parameters of a law by simulation.

use std::fs;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use tidegate::json;
use tidegate::trouble::Trouble;
use tidegate_control::Values;
use tidegate_control::registry::{self, Param};
use tidegate_lab::scenario::Scenario;
use tidegate_lab::store::Store;
use tidegate_lab::tune::{self, Bench, Objective, Parameters, Settings, Step, Tuned};

use crate::run::{World, Worlds, cores};
use crate::signals::cancelled_by_signal;

/// Search for the parameters of a law that fit a scenario best
///
/// The search method is extremum seeking. The search changes the parameters a little, and then
/// moves them towards better results. At the end it compares the found parameters with those at the
/// start, in runs with seeds that the search has not used. Exit status: 0 if the result is not
/// worse than the start, 1 if it is worse, 2 if the search could not run. The result counts as
/// worse if the goodput is lower by more than 0.5 % of the bound, which is the most goodput that
/// any law could reach at this load. With `--objective delay` it counts as worse if the delay is
/// longer by more than 2 %.
#[derive(clap::Args)]
pub struct Args {
    /// The scenario file. The search uses its loads, its seeds and its variant with the law
    scenario: PathBuf,

    /// Name of the law
    #[arg(long, value_name = "NAME")]
    law: String,

    /// A parameter to change in the search. May be given several times [default: all parameters
    /// with a value above 0, except switches (0 or 1)]
    #[arg(long = "param", value_name = "NAME")]
    params: Vec<String>,

    /// Value of a parameter at the start, instead of its default. This may also be a parameter that
    /// the search does not change. May be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_from)]
    from: Vec<(String, f64)>,

    /// Objective of the search
    #[arg(long, value_enum, default_value_t = Wanted::Goodput)]
    objective: Wanted,

    /// Number of steps of the search
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: u32,

    /// Size of the small changes of a parameter, as a natural logarithm: 0.15 is about 15 %
    #[arg(long, value_name = "A", default_value_t = Settings::default().amplitude, value_parser = parse_positive)]
    amplitude: f64,

    /// Size of a step: a greater value moves parameters further for the same measured improvement
    #[arg(long, value_name = "G", default_value_t = Settings::default().gain, value_parser = parse_positive)]
    gain: f64,

    /// The world of the runs: simulated time or real sockets
    #[arg(long, value_enum, default_value_t = World::Sim)]
    world: World,

    /// Directory of the results [default: out/tune/NAME-LAW]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Number of runs at the same time [default: number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Wanted {
    /// Goodput as a fraction of the bound, averaged over the loads
    Goodput,
    /// The set-up delay that 1 % of the calls exceed, as a multiple of the deadline, averaged over
    /// the loads
    Delay,
}

/// Runs the search, prints the steps and the result, and writes them and a figure to files.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let scenario = Scenario::load(&args.scenario)?;
    let name = format!("{}-{}", scenario.name, args.law);
    let parameters = parameters(args, scenario).map_err(Trouble::usage)?;
    let out = args.out.clone().unwrap_or_else(|| ["out", "tune", &name].iter().collect());
    let worlds = Worlds::new(args.world)?;
    let unmade = |error| Trouble::usage(format!("{}: {error}", out.display()));
    let store = Store::open(&out.join("points"), &worlds.programs).map_err(unmade)?;
    let cancelled = cancelled_by_signal()?;
    let bench = Bench {
        world: worlds.world(),
        store: &store,
        jobs: args.jobs.unwrap_or_else(cores).get(),
        cancelled: &cancelled,
    };
    print_head(&parameters, bench.world.kind().name());
    let on_step = |number: u32, step: &Step| {
        let tried = parameters.sought.iter().zip(&step.tried);
        let tried: Vec<_> = tried.map(|(p, value)| format!("{} {value:.4}", p.name)).collect();
        let _ =
            writeln!(anstream::stdout(), "{number:>4}  {:.4}  {}", step.value, tried.join("  "));
    };
    let tuned = tune::tune(&parameters, &bench, &on_step).map_err(Trouble::failure)?;
    write(&parameters, &tuned, &out)?;
    print(&parameters, &tuned, &out);
    Ok(if is_no_worse(parameters.objective, &tuned) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn parameters(args: &Args, scenario: Scenario) -> Result<Parameters, String> {
    let entry = registry::find(&args.law)
        .ok_or_else(|| format!("unknown law `{}`; see `tidegate-lab list laws`", args.law))?;
    let from: Vec<(&str, f64)> = args.from.iter().map(|(name, v)| (name.as_str(), *v)).collect();
    let start = entry.values(&from).map_err(|wrong| format!("--from: {wrong}"))?;
    let named = |name: &String| -> Result<&'static Param, String> {
        let param = start.each().find(|(param, _)| param.name == *name);
        let (param, value) = param.ok_or_else(|| {
            format!("law `{}` has no parameter `{name}`; see `tidegate-lab list laws`", args.law)
        })?;
        let from_zero = format!(
            "`{name}` starts at {value}, and must start above 0; set another start with --from"
        );
        if value > 0.0 { Ok(param) } else { Err(from_zero) }
    };
    let sought = match args.params.is_empty() {
        true => Parameters::tunable(&start),
        false => args.params.iter().map(named).collect::<Result<_, _>>()?,
    };
    if let Some((_, name)) =
        args.params.iter().enumerate().find(|(at, name)| args.params[..*at].contains(name))
    {
        return Err(format!("--param {name} is given twice"));
    }
    if sought.is_empty() {
        return Err(format!(
            "law `{}` has no parameter to search: it has no parameters at all, or each is a switch \
             or starts at 0; to search one that starts at 0, set another start with --from",
            args.law
        ));
    }
    let objective = match args.objective {
        Wanted::Goodput => Objective::Goodput,
        Wanted::Delay => Objective::Delay,
    };
    let settings = Settings { amplitude: args.amplitude, gain: args.gain, ..Settings::default() };
    Ok(Parameters { scenario, start, sought, objective, steps: args.steps, settings })
}

fn is_no_worse(objective: Objective, tuned: &Tuned) -> bool {
    match objective {
        Objective::Goodput => tuned.after.median >= tuned.before.median - 0.005,
        Objective::Delay => tuned.after.median <= tuned.before.median * 1.02,
    }
}

fn print_head(parameters: &Parameters, world: &str) {
    let names: Vec<&str> = parameters.sought.iter().map(|param| param.name).collect();
    let _ = writeln!(
        anstream::stdout(),
        "{}, {world}: tuning {} of `{}` in {} steps; objective: {}",
        parameters.scenario.title,
        names.join(", "),
        parameters.start.entry().name,
        parameters.steps,
        parameters.objective.title(),
    );
}

fn print(parameters: &Parameters, tuned: &Tuned, out: &Path) {
    let mut text = "\n             start      found\n".to_owned();
    for param in &parameters.sought {
        let [start, found] = [&parameters.start, &tuned.found].map(|values| values.of(param));
        text += &format!("{:<10}{start:>8.4} {found:>10.4}  {}\n", param.name, param.unit);
    }
    text += &format!("{}, with other seeds: min / median / max\n", parameters.objective.title());
    for (name, spread) in [("start", tuned.before), ("found", tuned.after)] {
        let (min, median, max) = (spread.min, spread.median, spread.max);
        text += &format!("  {name}  {min:.4} / {median:.4} / {max:.4}\n");
    }
    text += &format!("the steps of the search and the figure are in {}\n", out.display());
    let _ = write!(anstream::stdout(), "{text}");
}

fn write(parameters: &Parameters, tuned: &Tuned, out: &Path) -> Result<(), Trouble> {
    let unwritten = |error| Trouble::failure(format!("{}: {error}", out.display()));
    let names: Vec<&str> = parameters.sought.iter().map(|param| param.name).collect();
    let mut csv = format!("step,value,{}", names.join(","));
    csv.extend(names.iter().map(|name| format!(",estimate_{name}")));
    csv.push('\n');
    for (number, step) in (1..).zip(&tuned.path) {
        let numbers = step.tried.iter().chain(&step.estimate).map(f64::to_string);
        csv += &format!("{number},{},{}\n", step.value, numbers.collect::<Vec<_>>().join(","));
    }
    fs::write(out.join("path.csv"), csv).map_err(unwritten)?;
    let values = |values: &Values| -> serde_json::Value {
        values.each().map(|(param, value)| (param.name.to_owned(), json!(value))).collect()
    };
    let result = json!({
        "scenario": parameters.scenario.name,
        "law": parameters.start.entry().name,
        "sought": names,
        "objective": parameters.objective,
        "start": values(&parameters.start),
        "found": values(&tuned.found),
        "before": tuned.before,
        "after": tuned.after,
        "path": tuned.path,
    });
    json::write(&out.join("tuned.json"), &result)?;
    let figure = tune::picture(parameters, &tuned.path);
    fs::write(out.join("tuning.svg"), figure.svg()).map_err(unwritten)?;
    fs::write(out.join("tuning.png"), figure.png()).map_err(unwritten)
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "not a number above 0".to_owned())
}

fn parse_from(text: &str) -> Result<(String, f64), String> {
    let wanted = "not of the form NAME=VALUE, such as k_pc=5";
    let (name, value) = text.split_once('=').ok_or(wanted)?;
    Ok((name.to_owned(), value.parse().map_err(|_| wanted)?))
}
