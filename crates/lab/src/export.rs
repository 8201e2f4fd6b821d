//! Writes results for other programs: a CSV with a row for each run, and a JSON with everything.

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
use crate::summary::Row;
use crate::verdict::Verdict;
use crate::worlds::Kind;

/// Returns a CSV with a row for each run.
///
/// # Errors
/// Returns an error of the CSV writer. No error occurs, because the writer writes to memory.
pub fn csv(results: &[(&RunSpec, &Outcome)]) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let swept: Vec<&str> = results
        .first()
        .map_or_else(Vec::new, |(run, _)| run.swept.iter().map(|(axis, _)| axis.name()).collect());
    let measured = [
        "seed",
        "capacity_cps",
        "offered_cps",
        "bound",
        "goodput_cps",
        "goodput_of_bound",
        "refused",
        "retransmission_ratio",
        "p50_ms",
        "p90_ms",
        "p99_ms",
        "max_ms",
        "handled",
        "bye_p50_ms",
        "bye_p99_ms",
        "recovery_s",
        "persons",
        "persons_served",
        "redials",
        "backlog_s",
        "recovered_s",
        "goodput_end",
        "registered_end",
        "caller_load",
        "answerer_load",
        "drops",
        "too_slow",
        "attempts",
        "tidegate_cpu_s",
    ];
    let head = ["world", "variant", "law", "decide", "queue"];
    writer.write_record(head.iter().chain(&swept).chain(&["repetition"]).chain(&measured))?;
    for (run, outcome) in results {
        writer.write_record(record(run, outcome))?;
    }
    writer.into_inner().map_err(|error| error.into_error())
}

fn record(run: &RunSpec, outcome: &Outcome) -> Vec<String> {
    let variant = &run.variant;
    let capacity = run.capacity_cps();
    let bound = run.bound(outcome.offered_cps() / capacity);
    let share = outcome.goodput_cps() / capacity / bound;
    let delay = |value: fn(&crate::outcome::Quantiles) -> f64| {
        outcome.set_up_delay.as_ref().map(value).map_or_else(String::new, |ms| ms.to_string())
    };
    let bye = |value: fn(&crate::outcome::Quantiles) -> f64| {
        outcome.bye_delay.as_ref().map(value).map_or_else(String::new, |ms| ms.to_string())
    };
    let of_outage = |figure: fn(&Outage) -> Option<f64>| {
        outcome.outage.as_ref().and_then(figure).map_or_else(String::new, |n| n.to_string())
    };
    let mut record = vec![
        run.world.name().to_owned(),
        variant.label.clone(),
        variant.overload.gate.law.entry().name.to_owned(),
        variant.decide().to_owned(),
        variant.queue().to_owned(),
    ];
    record.extend(run.swept.iter().map(|(_, value)| value.to_string()));
    let generator = &outcome.generator;
    record.extend([
        (run.repetition + 1).to_string(),
        run.seed.to_string(),
        capacity.to_string(),
        outcome.offered_cps().to_string(),
        bound.to_string(),
        outcome.goodput_cps().to_string(),
        if bound > 0.0 { share.to_string() } else { String::new() },
        outcome.refused_part().to_string(),
        outcome.retransmission_ratio().to_string(),
        delay(|d| d.p50_ms),
        delay(|d| d.p90_ms),
        delay(|d| d.p99_ms),
        delay(|d| d.max_ms),
        outcome.handled_part().to_string(),
        bye(|d| d.p50_ms),
        bye(|d| d.p99_ms),
        outcome.recovery_s.map_or_else(String::new, |s| s.to_string()),
        outcome.persons.to_string(),
        outcome.persons_served.to_string(),
        outcome.redials().to_string(),
        of_outage(|outage| Some(outage.backlog_s)),
        of_outage(|outage| outage.recovered_s),
        of_outage(|outage| Some(outage.goodput_end)),
        of_outage(|outage| outage.registered_end),
        generator.caller_load.to_string(),
        generator.answerer_load.to_string(),
        generator.drops.to_string(),
        generator.too_slow.is_some().to_string(),
        outcome.attempts.to_string(),
        outcome.tidegate_cpu_s.to_string(),
    ]);
    record
}

/// Returns the content of `results.json` for a scenario that was run in `world`. `program` is the
/// hash of the programs that made the runs. Runs without an outcome are listed under `failed`, with
/// their errors.
pub fn json(
    scenario: &Scenario,
    world: Kind,
    program: &str,
    machine: Option<&Machine>,
    results: &[Run],
    rows: &[Row],
    verdicts: &[Verdict],
) -> Value {
    let capacity = Capacity::under(&scenario.conditions);
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
        "capacity_cps": capacity.cps,
        "call_s": capacity.call.as_secs_f64(),
        "deadline_ms": scenario.conditions.deadline_ms,
        "rows": rows.iter().map(row).collect::<Value>(),
        "conditions": verdicts,
        "points": results.iter().filter_map(point).collect::<Value>(),
        "failed": results.iter().filter_map(failed).collect::<Value>(),
    })
}

fn row(row: &Row) -> Value {
    json!({
        "variant": row.variant.name(),
        "label": row.variant.label,
        "panel": plots::way(row),
        "swept": named(&row.swept),
        "load": row.load,
        "mean_load": row.mean_load,
        "bound": row.bound,
        "runs": row.runs,
        "goodput": row.goodput,
        "goodput_of_bound": row.of_bound,
        "retransmission_ratio": row.resent,
        "refused": row.refused,
        "p50_ms": row.p50_ms,
        "p99_ms": row.p99_ms,
        "recovery_s": row.recovery_s,
        "recovered": row.recovered,
        "outage": row.outage,
        "generator_load": row.generator_load,
        "drops": row.drops,
        "too_slow": row.too_slow,
    })
}

fn named(swept: &[(Axis, f64)]) -> Value {
    swept.iter().map(|(axis, value)| (axis.name().to_owned(), json!(value))).collect()
}
