//! Every law with its parameters, for programs.

use serde_json::{Value, json};
use tidegate_control::registry::LAWS;
use tidegate_control::{Entry, Values};
use tidegate_world::{Counter, Param};

/// Returns all laws.
pub fn all() -> Value {
    LAWS.iter().copied().map(law).collect()
}

fn law(law: &'static Entry) -> Value {
    json!({
        "name": law.name,
        "summary": law.summary,
        "source": law.source,
        "doc": law.doc,
        "params": params(law.params),
    })
}

/// Returns the parameters of a law or a policy.
pub(crate) fn params(params: &[&Param]) -> Value {
    params.iter().map(|known| param(known)).collect()
}

fn param(param: &Param) -> Value {
    json!({
        "name": param.name,
        "unit": param.unit,
        "default": param.default,
        "min": param.min,
        "max": param.max,
        "doc": param.doc,
    })
}

/// Returns a law with the values of its parameters.
pub(crate) fn with_values(values: &Values) -> Value {
    let with_value = |(known, value): (&Param, f64)| {
        let mut of = param(known);
        of["value"] = value.into();
        of
    };
    let entry = values.entry();
    json!({
        "name": entry.name,
        "summary": entry.summary,
        "params": values.each().map(|(known, value)| with_value((known, value))).collect::<Value>(),
    })
}

/// Returns the name of the law at this index of the registry, from 1.
pub(crate) fn name_at(place: &Counter) -> Option<&'static str> {
    let index = usize::try_from(place.get()).ok()?.checked_sub(1)?;
    LAWS.get(index).map(|entry: &&Entry| entry.name)
}
