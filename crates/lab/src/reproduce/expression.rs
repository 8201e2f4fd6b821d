//! Evaluates expressions of measures (functions of a run's results), such as `cps('sired') /
//! cps('basic')`.
//!
//! A measure takes a variant, or a list of variants, and named arguments. `setup` and the swept
//! conditions select the run. `source`, `from_s` and `to_s` select a part of the run. Every named
//! argument except `setup` is a number or a list of numbers, as in
//! `goodput('pi', load=[1, 2])|min`. If the variant or a named argument is a list, the result is a
//! list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, context};

use super::claims::Claim;
use super::measure::{MEASURES, Measure, Of, Part};
use super::points::Points;

/// A selection of runs whose results a measure in an expression uses.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Need {
    pub setup: String,
    /// Label or name of the variant.
    pub variant: String,
    /// The values of the swept conditions that the expression names. All other swept conditions may
    /// have any value.
    pub swept: BTreeMap<String, f64>,
    /// Number of the run, from 0, among the runs that differ only in their seed.
    pub repetition: u32,
    /// The part of the run to which the measure applies.
    pub part: Part,
}

/// Evaluates expressions on the results of all set-ups.
pub(super) struct Evaluator {
    environment: Environment<'static>,
    points: Arc<Points>,
}

impl Evaluator {
    /// Creates an evaluator of expressions on the results in `points`.
    pub(super) fn new(points: Points) -> Self {
        let points = Arc::new(points);
        let runs = Arc::clone(&points);
        let environment = environment(move |measure, need| answer(&runs, measure, need));
        Self { environment, points }
    }

    /// Returns the values of `expression`, which belongs to `claim`: one value for each seed.
    pub(super) fn values(&self, claim: &Claim, expression: &str) -> Result<Vec<f64>, String> {
        let seeds = self.points.seeds(&claim.setup);
        (0..seeds).map(|seed| evaluate(&self.environment, claim, expression, seed)).collect()
    }
}

/// Returns the runs that the expressions of `claim` use, for the first seed only.
///
/// # Errors
/// Returns an error if an expression of the claim is invalid.
pub(super) fn needs(claim: &Claim) -> Result<Vec<Need>, String> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&found);
    let environment = environment(move |_, need| {
        noted.lock().expect("no thread panics while it holds it").push(need.clone());
        Ok(1.0)
    });
    for expression in claim.values.values() {
        evaluate(&environment, claim, expression, 0)?;
    }
    drop(environment);
    Ok(Arc::into_inner(found).and_then(|noted| noted.into_inner().ok()).unwrap_or_default())
}

fn evaluate(
    environment: &Environment<'_>,
    claim: &Claim,
    expression: &str,
    repetition: u32,
) -> Result<f64, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: `{expression}`: {error}", claim.id);
    let compiled = environment.compile_expression(expression).map_err(|error| wrong(&error))?;
    let value = compiled
        .eval(context! { setup => &claim.setup, repetition => repetition })
        .map_err(|error| wrong(&error))?;
    f64::try_from(value).map_err(|error| wrong(&error))
}

/// Returns an environment in which each measure is a function. The function calls `answer` for the
/// value of the measure in a run.
fn environment(
    answer: impl Fn(&Measure, &Need) -> Result<f64, Error> + Send + Sync + 'static,
) -> Environment<'static> {
    let answer = Arc::new(answer);
    let mut environment = Environment::new();
    for measure in &MEASURES {
        let answer = Arc::clone(&answer);
        let function = move |state: &State<'_, '_>, variant: Value, named: Kwargs| {
            let mut values = Vec::new();
            let (needs, is_list) = asked(state, &variant, &named)?;
            let is_part = matches!(measure.of, Of::Part(_));
            if is_part && !measure.is_of_one_source() && named.args().any(|name| name == "source") {
                let text = format!(
                    "`{}` counts the callers of all servers, without `source`",
                    measure.name
                );
                return Err(Error::new(ErrorKind::InvalidOperation, text));
            }
            if !is_part && needs.iter().any(|need| need.part != Part::default()) {
                let text = format!(
                    "`{}` applies to a whole run, without `source`, `from_s` and `to_s`",
                    measure.name
                );
                return Err(Error::new(ErrorKind::InvalidOperation, text));
            }
            for need in &needs {
                values.push(answer(measure, need)?);
            }
            Ok::<Value, Error>(if is_list { Value::from(values) } else { Value::from(values[0]) })
        };
        environment.add_function(measure.name, function);
    }
    environment
}

/// Returns the runs that the arguments of a measure select, and whether the result of the measure
/// is a list.
fn asked(
    state: &State<'_, '_>,
    variant: &Value,
    named: &Kwargs,
) -> Result<(Vec<Need>, bool), Error> {
    let context = |name: &str| state.lookup(name).unwrap_or_default();
    let setup: Option<String> = named.get("setup")?;
    let (variants, mut is_list) = listed(variant)?;
    let first = Need {
        setup: setup.unwrap_or_else(|| context("setup").to_string()),
        variant: String::new(),
        swept: BTreeMap::new(),
        repetition: u32::try_from(context("repetition"))?,
        part: Part::default(),
    };
    let with_variant = |variant: &Value| Need { variant: variant.to_string(), ..first.clone() };
    let mut needs: Vec<Need> = variants.iter().map(with_variant).collect();
    for name in named.args().map(str::to_owned).collect::<Vec<_>>() {
        if name == "setup" {
            continue;
        }
        let (values, several) = listed(&named.get(&name)?)?;
        is_list |= several;
        let values = values.into_iter().map(f64::try_from).collect::<Result<Vec<_>, _>>()?;
        let with = |need: &Need| {
            let each = values.iter().map(|value| {
                let mut need = need.clone();
                match need.part.value_mut(&name) {
                    Some(of_part) => *of_part = *value,
                    None => _ = need.swept.insert(name.clone(), *value),
                }
                need
            });
            each.collect::<Vec<_>>()
        };
        needs = needs.iter().flat_map(with).collect();
    }
    if needs.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "a list in the expression is empty"));
    }
    Ok((needs, is_list))
}

/// Returns the elements of `value` if it is a list, or else `value` as a list of one element. The
/// second result is true if `value` is a list.
fn listed(value: &Value) -> Result<(Vec<Value>, bool), Error> {
    match value.kind() {
        ValueKind::Seq => Ok((value.try_iter()?.collect(), true)),
        _ => Ok((vec![value.clone()], false)),
    }
}

fn answer(points: &Points, measure: &Measure, need: &Need) -> Result<f64, Error> {
    let found = points.of(&need.setup, &need.variant, &need.swept, need.repetition);
    let wrong = |count: &str| {
        let Need { setup, variant, swept, .. } = need;
        let text = format!("{count} in `{setup}` for `{variant}` with {swept:?}");
        Error::new(ErrorKind::InvalidOperation, text)
    };
    let value = match (&measure.of, &found[..]) {
        (_, []) => return Err(wrong("no run")),
        (Of::All(of), points) => of(points),
        (Of::One(of), [point]) => of(point),
        (Of::Part(of), [point]) => of(point, &need.part),
        (Of::One(_) | Of::Part(_), _) => return Err(wrong("several runs")),
    };
    // An expression orders NaN and infinity like numbers, so a filter such as `min` could hide
    // them.
    match value.is_finite() {
        true => Ok(value),
        false => Err(wrong(&format!("`{}` has no value", measure.name))),
    }
}
