//! Formats results for other programs: CSV with a row for each run, and JSON with all results.

use std::io;

use serde_json::{Value, json};

use crate::cost::Capacity;
use crate::machine::Machine;
use crate::outage::Outage;
use crate::outcome::Outcome;
use crate::plots;
use crate::run_spec::RunSpec;
use crate::runs::Run;
use crate::scenario::{Axis, Scenario};
use crate::summary::{Row, capacity_cps};
use crate::verdict::Verdict;
use crate::worlds::Kind;

/// A column of the CSV: its name, and the function that formats its value for a run.
type Column = (&'static str, fn(&RunSpec, &Outcome) -> String);

/// The columns before the swept conditions.
static VARIANT: [Column; 5] = [
    ("world", |run, _| run.world.name().to_owned()),
    ("variant", |run, _| run.variant.label.clone()),
    ("law", |run, _| run.variant.overload.gate.law.entry().name.to_owned()),
    ("decide", |run, _| run.variant.decide().to_owned()),
    ("queue", |run, _| run.variant.queue().to_owned()),
];

/// The columns after the swept conditions.
static MEASURED: [Column; 30] = [
    ("repetition", |run, _| (run.repetition + 1).to_string()),
    ("seed", |run, _| run.seed.to_string()),
    ("capacity_cps", |run, _| run.capacity_cps().to_string()),
    ("offered_cps", |_, outcome| outcome.offered_cps().to_string()),
    ("bound", |run, outcome| outcome.bound(run).to_string()),
    ("goodput_cps", |_, outcome| outcome.goodput_cps().to_string()),
    ("goodput_of_bound", |run, outcome| or_empty(outcome.goodput_of_bound(run))),
    ("rejected", |_, outcome| outcome.rejected_part().to_string()),
    ("retransmission_ratio", |_, outcome| outcome.retransmission_ratio().to_string()),
    ("p50_ms", |_, outcome| or_empty(outcome.set_up_delay.map(|delay| delay.p50_ms))),
    ("p90_ms", |_, outcome| or_empty(outcome.set_up_delay.map(|delay| delay.p90_ms))),
    ("p99_ms", |_, outcome| or_empty(outcome.set_up_delay.map(|delay| delay.p99_ms))),
    ("max_ms", |_, outcome| or_empty(outcome.set_up_delay.map(|delay| delay.max_ms))),
    ("handled", |_, outcome| outcome.handled_part().to_string()),
    ("bye_p50_ms", |_, outcome| or_empty(outcome.bye_delay.map(|delay| delay.p50_ms))),
    ("bye_p99_ms", |_, outcome| or_empty(outcome.bye_delay.map(|delay| delay.p99_ms))),
    ("recovery_s", |_, outcome| or_empty(outcome.recovery_s)),
    ("persons", |_, outcome| outcome.persons.to_string()),
    ("persons_served", |_, outcome| outcome.persons_served.to_string()),
    ("redials", |_, outcome| outcome.redials().to_string()),
    ("backlog_s", |_, outcome| of_outage(outcome, |outage| Some(outage.backlog_s))),
    ("recovered_s", |_, outcome| of_outage(outcome, |outage| outage.recovered_s)),
    ("goodput_end", |_, outcome| of_outage(outcome, |outage| Some(outage.goodput_end))),
    ("registered_end", |_, outcome| of_outage(outcome, |outage| outage.registered_end)),
    ("caller_load", |_, outcome| outcome.generator.caller_load.to_string()),
    ("answerer_load", |_, outcome| outcome.generator.answerer_load.to_string()),
    ("drops", |_, outcome| outcome.generator.drops.to_string()),
    ("too_slow", |_, outcome| outcome.generator.too_slow.is_some().to_string()),
    ("attempts", |_, outcome| outcome.attempts.to_string()),
    ("tidegate_cpu_s", |_, outcome| outcome.tidegate_cpu_s.to_string()),
];

fn of_outage(outcome: &Outcome, figure: fn(&Outage) -> Option<f64>) -> String {
    or_empty(outcome.outage.as_ref().and_then(figure))
}

fn or_empty(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Returns a CSV with a row for each run.
///
/// # Errors
/// Returns an error if the CSV writer fails. It writes to memory, so it should not fail.
pub fn csv(results: &[(&RunSpec, &Outcome)]) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let swept: Vec<&str> = results
        .first()
        .map_or_else(Vec::new, |(run, _)| run.swept.iter().map(|(axis, _)| axis.name()).collect());
    let names = |columns: &'static [Column]| columns.iter().map(|(name, _)| *name);
    writer.write_record(names(&VARIANT).chain(swept).chain(names(&MEASURED)))?;
    for (run, outcome) in results {
        let cell = |(_, shown): &Column| shown(run, outcome);
        let swept = run.swept.iter().map(|(_, value)| value.to_string());
        let (variant, measured) = (VARIANT.iter().map(cell), MEASURED.iter().map(cell));
        writer.write_record(variant.chain(swept).chain(measured))?;
    }
    writer.into_inner().map_err(|error| error.into_error())
}

/// Returns the content of `results.json` for a scenario that was run in `world`. `program` is the
/// hash of the programs that made the runs. The capacity is null if it differs between the runs.
/// Runs without an outcome are listed under `failed`, with their errors.
pub fn json(
    scenario: &Scenario,
    world: Kind,
    program: &str,
    machine: Option<&Machine>,
    results: &[Run],
    rows: &[Row],
    verdicts: &[Verdict],
) -> Value {
    let point = |(run, result): &Run| {
        let outcome = result.as_ref().ok()?;
        Some(json!({
            "variant": run.variant.name(),
            "swept": named(&run.swept),
            "capacity_cps": run.capacity_cps(),
            "repetition": run.repetition + 1,
            "seed": run.seed,
            "folder": format!("points/{}", run.id(program)),
            "outcome": outcome,
        }))
    };
    let failed = |(run, result): &Run| {
        let error = result.as_ref().err()?;
        Some(json!({
            "variant": run.variant.name(),
            "swept": named(&run.swept),
            "repetition": run.repetition + 1,
            "seed": run.seed,
            "error": error,
        }))
    };
    json!({
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": scenario.schedule.seed,
        "world": world,
        "program": program,
        "machine": machine,
        "capacity_cps": capacity_cps(scenario, rows),
        "call_s": Capacity::under(&scenario.conditions).call.as_secs_f64(),
        "deadline_ms": scenario.conditions.deadline_ms,
        "rows": rows.iter().map(row).collect::<Value>(),
        "conditions": verdicts,
        "points": results.iter().filter_map(point).collect::<Value>(),
        "failed": results.iter().filter_map(failed).collect::<Value>(),
    })
}

fn row(row: &Row) -> Value {
    let mut value = json!(row.figures);
    value["variant"] = json!(row.variant.name());
    value["label"] = json!(row.variant.label);
    value["panel"] = json!(plots::way(row));
    value["swept"] = named(&row.swept);
    value["outage"] = json!(row.outage);
    value
}

fn named(swept: &[(Axis, f64)]) -> Value {
    swept.iter().map(|(axis, value)| (axis.name().to_owned(), json!(value))).collect()
}
