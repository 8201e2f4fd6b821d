//! A number for every class of message.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate_proxy::Class;
use tidegate_world::Work;
use toml::de::DeValue;

use super::diagnostic::{Report, nearest, quoted, suggestion};
use super::knob::{Shape, Written};
use super::shape::Real;

/// A time in microseconds: one number for all classes of message, or a table by class.
pub(crate) struct ByClass;

/// The bounds of a time in microseconds. The maximum is an hour, which is more than any message
/// needs.
const NUMBER: Real = Real(0.0..=3_600_000_000.0);

/// The key whose value applies to every message class without a key of its own.
const DEFAULT: &str = "default";

impl Shape for ByClass {
    type Value = [Duration; Work::CLASSES_MAX];

    fn describe(&self) -> String {
        "a number of microseconds, or a table such as `{ default = 100, invite = 120 }`".to_owned()
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<Self::Value> {
        let named = match value.get_ref() {
            DeValue::Table(named) if !named.is_empty() => named,
            DeValue::Integer(_) | DeValue::Float(_) => {
                return NUMBER.read(key, value, report).map(|us| [micros(us); Work::CLASSES_MAX]);
            }
            _ => {
                let title = format!("`{key}` has the wrong type");
                let help = format!("write {}", self.describe());
                report.error(value.span(), title, "neither a number nor a table of numbers", help);
                return None;
            }
        };
        let mut costs = [Duration::ZERO; Work::CLASSES_MAX];
        if let Some(value) = named.get(DEFAULT) {
            costs = [micros(NUMBER.read(DEFAULT, value, report)?); Work::CLASSES_MAX];
        }
        let mut right = true;
        for (name, value) in named.iter().filter(|(name, _)| &**name.get_ref() != DEFAULT) {
            let known = Class::ALL.into_iter().find(|class| class.name() == &**name.get_ref());
            let Some(class) = known else {
                report_unknown(key, name.get_ref(), name.span(), report);
                right = false;
                continue;
            };
            match NUMBER.read(class.name(), value, report) {
                Some(us) => costs[class as usize] = micros(us),
                None => right = false,
            }
        }
        right.then_some(costs)
    }

    fn write(&self, value: &Self::Value) -> String {
        let us = |cost: Duration| cost.as_nanos() as f64 / 1e3;
        let costs = Class::ALL.map(|class| (class.name(), value[class as usize]));
        let with = |cost: Duration| costs.iter().filter(|(_, other)| *other == cost).count();
        // The most frequent cost becomes the default, so that only classes with another cost need a
        // key of their own.
        let default = costs.map(|(_, cost)| cost).into_iter().max_by_key(|cost| with(*cost));
        let default = default.unwrap_or_default();
        let named = costs.iter().filter(|(_, cost)| *cost != default);
        let named: String = named.map(|(name, cost)| format!(", {name} = {}", us(*cost))).collect();
        match named.is_empty() {
            true => us(default).to_string(),
            false => format!("{{ {DEFAULT} = {}{named} }}", us(default)),
        }
    }

    fn schema(&self) -> Value {
        let names = Class::ALL.map(Class::name).into_iter().chain([DEFAULT]);
        let properties: Map<_, _> = names.map(|name| (name.to_owned(), NUMBER.schema())).collect();
        let table = json!({
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
            "minProperties": 1,
        });
        json!({ "anyOf": [NUMBER.schema(), table] })
    }
}

fn report_unknown(key: &str, name: &str, span: std::ops::Range<usize>, report: &mut Report) {
    let names = || Class::ALL.map(Class::name).into_iter().chain([DEFAULT]);
    let help = suggestion(nearest(name, names()), names());
    let title = format!("`{key}` has an unknown class {}", quoted(name));
    report.error(span, title, "not a class of messages", help);
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let value = DeValue::parse(text).unwrap();
        let read = ByClass.read("serve_us", &value, &mut Report::default()).unwrap();
        ByClass.write(&read)
    }

    #[test]
    fn a_class_is_written_if_its_cost_differs_from_the_default() {
        assert_eq!(written("700"), "700");
        assert_eq!(
            written("{ default = 700, invite = 0.125 }"),
            "{ default = 700, invite = 0.125 }"
        );
        assert_eq!(written("{ bye = 3, invite = 5 }"), "{ default = 0, bye = 3, invite = 5 }");
    }
}
