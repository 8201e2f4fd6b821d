//! Judges a claim: evaluates its expressions on the runs, and applies its rule to the medians.

use std::collections::BTreeMap;
use std::fmt;

use minijinja::{Environment, UndefinedBehavior, Value};
use serde::{Deserialize, Serialize};

use super::claims::{Claim, Grade};
use super::expression::Evaluator;
use super::measure::NEVER;
use super::origin::Origin;
use crate::spread::Spread;

/// Maximum number of decimals of a value in a text.
const DECIMALS_MAX: usize = 5;

/// The verdict on a claim, with the values on which the verdict is based.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the claim.
    pub id: String,
    /// The verdict that the rule gives.
    pub verdict: Grade,
    /// Number of seeds with which the claim's set-up was run.
    pub seeds: usize,
    /// The values of the claim's expressions over all seeds, by name of the expression.
    pub values: BTreeMap<String, Range>,
    /// Hashes of the claim's rule and scenarios. Old records lack this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

impl Finding {
    /// Returns the result of `claim` in words.
    ///
    /// # Errors
    /// Returns an error if the claim's template for the text is invalid.
    pub fn shown(&self, claim: &Claim) -> Result<String, String> {
        shown(claim, &self.values)
    }
}

/// The median, the minimum and the maximum of a value over all seeds. With five seeds, the true
/// median lies between the minimum and the maximum with a probability of 94 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The median.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Range {
    /// Returns the range that contains only `value`.
    fn only(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = match self.median.abs() {
            100.0.. => 0,
            10.0..100.0 => 1,
            _ => 2,
        };
        // A rule such as `>= 0.9999` can tell values apart that all round to 1.00.
        if text(self.min, digits) == "1.00" && text(self.max, digits) == "1.00" {
            let pairs = [(self.min, self.median), (self.median, self.max)];
            let hidden =
                |digits| pairs.iter().any(|&(a, b)| a < b && text(a, digits) == text(b, digits));
            while digits < DECIMALS_MAX && hidden(digits) {
                digits += 1;
            }
        }
        let [median, min, max] = [self.median, self.min, self.max].map(|value| text(value, digits));
        if min == max { write!(f, "{median}") } else { write!(f, "{median} [{min}, {max}]") }
    }
}

/// Formats `value` with `digits` decimals. If `value` is at least half of [`NEVER`], returns `∞`.
fn text(value: f64, digits: usize) -> String {
    // The median of an even number of runs can be the mean of a time and of [`NEVER`].
    if value >= NEVER / 2.0 {
        return "∞".to_owned();
    }
    let text = format!("{value:.digits$}");
    // A negative number that rounds to 0 is shown without its sign.
    match text.strip_prefix('-') {
        Some(rest) if !rest.contains(|digit| ('1'..='9').contains(&digit)) => rest.to_owned(),
        _ => text,
    }
}

/// Evaluates the expressions of `claim`, and judges the claim by their values. `origin` is stored
/// in the finding.
///
/// # Errors
/// Returns an error if a value is not finite, because NaN could fulfil a rule.
pub(super) fn judge(
    claim: &Claim,
    evaluator: &Evaluator,
    origin: Origin,
) -> Result<Finding, String> {
    let mut values = BTreeMap::new();
    let mut seeds = 0;
    for (name, expression) in &claim.values {
        let each = evaluator.values(claim, expression)?;
        if let Some(wrong) = each.iter().find(|value| !value.is_finite()) {
            return Err(format!(
                "{}: `{expression}` is {wrong} for a seed, because the runs lack the results that \
                 it uses",
                claim.id
            ));
        }
        seeds = each.len();
        let Some(Spread { median, min, max, .. }) = Spread::of(each) else {
            return Err(format!("{}: `{name}` has no runs", claim.id));
        };
        values.insert(name.clone(), Range { median, min, max });
    }
    let verdict = grade(claim, &values)?;
    Ok(Finding { id: claim.id.clone(), verdict, seeds, values, origin: Some(origin) })
}

/// Applies the rule of `claim` to `values`, and returns the verdict.
pub(super) fn grade(claim: &Claim, values: &BTreeMap<String, Range>) -> Result<Grade, String> {
    if holds(claim, &claim.reproduced, values)? {
        return Ok(Grade::Reproduced);
    }
    Ok(match &claim.partly {
        Some(rule) if holds(claim, rule, values)? => Grade::Partly,
        _ => Grade::Not,
    })
}

/// Checks that the rule of `claim` accepts the values of the paper, and rejects each set of wrong
/// values in `planted`.
///
/// # Errors
/// Returns a sentence that describes the wrong verdict of the rule.
pub(super) fn check(claim: &Claim) -> Result<(), String> {
    let paper = claim.paper.iter().map(|(name, value)| (name.clone(), Range::only(*value)));
    let values: BTreeMap<String, Range> = paper.collect();
    if !values.keys().eq(claim.values.keys()) {
        return Err(format!("{}: `paper` must have a number for each of `values`", claim.id));
    }
    let verdict = grade(claim, &values)?;
    if verdict != Grade::Reproduced {
        return Err(format!(
            "{}: with the numbers of the paper the rule gives `{}`, but it must give `reproduced`",
            claim.id,
            verdict.name()
        ));
    }
    if claim.planted.is_empty() {
        return Err(format!("{}: `planted` has no wrong numbers", claim.id));
    }
    for set in &claim.planted {
        let mut wrong = values.clone();
        for (name, value) in set {
            let Some(planted) = wrong.get_mut(name) else {
                return Err(format!(
                    "{}: `planted` has `{name}`, which is not one of `values`",
                    claim.id
                ));
            };
            *planted = Range::only(*value);
        }
        if grade(claim, &wrong)? == Grade::Reproduced {
            return Err(format!(
                "{}: the rule also gives `reproduced` with the wrong numbers in `planted`: {set:?}",
                claim.id
            ));
        }
    }
    shown(claim, &values).map(|_| ())
}

/// Returns the result of `claim` in words, with `values` inserted.
pub(super) fn shown(claim: &Claim, values: &BTreeMap<String, Range>) -> Result<String, String> {
    let texts: BTreeMap<String, String> =
        values.iter().map(|(name, range)| (name.clone(), range.to_string())).collect();
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let text = environment.render_str(&claim.shows, Value::from(texts));
    text.map_err(|error| format!("{}: `{}`: {error}", claim.id, claim.shows))
}

/// Returns whether the condition `rule` holds. In the condition, the name of a value stands for its
/// median over all runs. `lowest` and `highest` contain the minimum and the maximum of each value.
fn holds(claim: &Claim, rule: &str, values: &BTreeMap<String, Range>) -> Result<bool, String> {
    let all = |of: fn(&Range) -> f64| -> BTreeMap<String, Value> {
        values.iter().map(|(name, range)| (name.clone(), Value::from(of(range)))).collect()
    };
    let mut context = all(|range| range.median);
    context.insert("lowest".to_owned(), Value::from(all(|range| range.min)));
    context.insert("highest".to_owned(), Value::from(all(|range| range.max)));
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_function("within", |value: f64, least: f64, most: f64| {
        (least..=most).contains(&value)
    });
    let wrong = |error: minijinja::Error| format!("{}: `{rule}`: {error}", claim.id);
    let compiled = environment.compile_expression(rule).map_err(wrong)?;
    let result = compiled.eval(Value::from(context)).map_err(wrong)?;
    bool::try_from(result).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_three_digits_and_ends_only_if_they_differ() {
        let range = |median, min, max| Range { median, min, max }.to_string();
        assert_eq!(range(0.945, 0.941, 0.9512), "0.94 [0.94, 0.95]");
        assert_eq!(range(0.941, 0.939, 0.943), "0.94");
        assert_eq!(range(-12.34, -13.0, -12.0), "-12.3 [-13.0, -12.0]");
        assert_eq!(range(-0.001, -0.02, 0.0), "0.00 [-0.02, 0.00]");
        assert_eq!(range(2376.2, 2375.8, 2400.0), "2376 [2376, 2400]");
        assert_eq!(range(54.0, 53.96, NEVER), "54.0 [54.0, ∞]");
        assert_eq!(range(f64::midpoint(54.0, NEVER), 54.0, NEVER), "∞ [54, ∞]");
        assert_eq!(range(NEVER, NEVER, NEVER), "∞");
    }

    #[test]
    fn a_range_around_1_has_as_many_decimals_as_tell_its_values_apart() {
        let range = |median, min, max| Range { median, min, max }.to_string();
        assert_eq!(range(1.0, 0.99661, 1.0), "1.000 [0.997, 1.000]");
        assert_eq!(range(0.99976, 0.99941, 1.0), "0.9998 [0.9994, 1.0000]");
        assert_eq!(range(0.99998, 0.99997, 0.99999), "0.99998 [0.99997, 0.99999]");
        assert_eq!(range(1.0, 0.999_999, 1.0), "1.00000");
        assert_eq!(range(1.0, 1.0, 1.0), "1.00");
        assert_eq!(range(1.0, 0.98, 1.0), "1.00 [0.98, 1.00]");
    }
}
