//! Checks that the swept loads of peaks can decide a claim.
//!
//! The measured peak is a swept load, but never the highest one: beyond it there must be a load that
//! is not handled. With too few loads, or with loads far from the numbers of the paper, the rule of
//! a claim can give only one verdict.

use std::collections::BTreeMap;

use super::claims::{Claim, Grade};
use super::expression::{self, Use};
use super::judge::{self, Range};
use crate::run_spec::runs;
use crate::scenario::Scenario;
use crate::worlds::Kind;

/// A relative difference of peaks that can be due to rounding. For example, the capacity is computed
/// from costs in µs, so it is not exactly the capacity in the paper.
const ROUNDING: f64 = 1e-6;

/// Checks the values of `claim` that are peaks. `scenario` returns the scenario of a set-up.
///
/// # Errors
/// Returns a sentence that names the claim.
pub(super) fn check<'s>(
    claim: &Claim,
    scenario: impl Fn(&str) -> Option<&'s Scenario>,
) -> Result<(), String> {
    let mut sweeps: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
    for (name, expression) in &claim.values {
        let peaks = expression::peaks(claim, expression)?;
        if !peaks.is_empty() {
            sweeps.insert(name, swept(&peaks, &scenario));
        }
    }
    if sweeps.is_empty() {
        return Ok(());
    }

    // The peaks that these sweeps would find for the servers of the paper.
    let paper = claim.paper.iter().map(|(name, value)| (name.clone(), Range::only(*value)));
    let mut found: BTreeMap<String, Range> = paper.collect();
    for (name, loads) in &sweeps {
        let wrong = |paper: f64| {
            format!(
                "{}: the number of the paper for `{name}`, {paper}, is not between the lowest and \
                 the highest swept load",
                claim.id
            )
        };
        let number = found.get_mut(*name).ok_or_else(|| wrong(f64::NAN))?;
        let paper = number.median;
        let peaks = possible(loads).iter().rev();
        let below = peaks.copied().find(|peak| *peak <= paper * (1.0 + ROUNDING));
        let is_below_highest = loads.last().is_some_and(|highest| paper < *highest);
        *number = Range::only(below.filter(|_| is_below_highest).ok_or_else(|| wrong(paper))?);
    }
    let verdict = judge::grade(claim, &found)?;
    if verdict != Grade::Reproduced {
        return Err(format!(
            "{}: there are too few swept loads: with the peaks that they would give for the servers \
             of the paper, the verdict is `{}`",
            claim.id,
            verdict.word()
        ));
    }

    for (name, loads) in &sweeps {
        for peak in possible(loads) {
            let graded = |factor: f64| {
                let mut values = found.clone();
                values.insert((*name).clone(), Range::only(*peak));
                let of_sweeps = values.iter_mut().filter(|(name, _)| sweeps.contains_key(name));
                of_sweeps.for_each(|(_, value)| *value = Range::only(value.median * factor));
                judge::grade(claim, &values)
            };
            if graded(1.0 - ROUNDING)? != graded(1.0 + ROUNDING)? {
                return Err(format!(
                    "{}: rounding decides the verdict if `{name}` is {peak}, because a limit in the \
                     rule is a swept load",
                    claim.id
                ));
            }
        }
    }
    Ok(())
}

/// Returns the swept loads of these peaks in ascending order, in the unit of the measure.
fn swept<'s>(peaks: &[Use], scenario: impl Fn(&str) -> Option<&'s Scenario>) -> Vec<f64> {
    let mut loads = Vec::new();
    for (measure, need) in peaks {
        let runs = scenario(&need.setup).map(|scenario| runs(scenario, Kind::Sim));
        let runs = runs.into_iter().flatten().filter(|run| need.includes(run));
        loads.extend(runs.map(|run| match measure.name {
            "peak_cps" => run.rate_cps(),
            _ => run.conditions.load,
        }));
    }
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
}

/// Returns the loads that can be a peak: all except the highest one.
fn possible(loads: &[f64]) -> &[f64] {
    &loads[..loads.len().saturating_sub(1)]
}
