//! Lists every law and every policy with its parameters, as JSON.

use serde_json::{Value, json};
use tidegate_control::Values;
use tidegate_control::registry::LAWS;
use tidegate_world::param::Entry;
use tidegate_world::{Counter, Kind, Param, Range, Registry};

/// Returns all entries of a registry, each with its parameters, as JSON.
pub fn all<K: Kind>(registry: &Registry<K>) -> Value {
    let entry = |entry: &&Entry<K>| {
        json!({
            "name": entry.name,
            "summary": entry.summary,
            "source": entry.source,
            "doc": entry.doc,
            "params": entry.params.iter().map(|known| param(known)).collect::<Value>(),
        })
    };
    registry.iter().map(entry).collect()
}

fn param(param: &Param) -> Value {
    json!({
        "name": param.name,
        "unit": param.unit,
        "default": param.default,
        "min": param.range.bounds().start(),
        "max": param.range.bounds().end(),
        "whole": matches!(param.range, Range::Whole(..)),
        "doc": param.doc,
    })
}

/// Returns a law with the values of its parameters, as JSON.
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

/// Returns the name of a law. `place` contains the position of the law in [`LAWS`], counted from 1.
/// Returns `None` if `place` is 0.
pub(crate) fn name_at(place: &Counter) -> Option<&'static str> {
    let index = usize::try_from(place.get()).ok()?.checked_sub(1)?;
    LAWS.get(index).map(|entry| entry.name)
}
