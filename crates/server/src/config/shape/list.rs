//! Keys whose value is a list.

use serde_json::{Value, json};
use toml::de::DeValue;

use super::wrong_type;
use crate::config::diagnostic::Report;
use crate::config::knob::{Shape, Written};

/// A list whose values all have the same type and bounds.
pub struct List<S> {
    /// The type and bounds of a value.
    pub of: S,
    /// The maximum number of values.
    pub count_max: usize,
}

impl<S: Shape> Shape for List<S> {
    type Value = Vec<S::Value>;

    fn describe(&self) -> String {
        format!("a list in which each entry is {}", self.of.describe())
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<Self::Value> {
        let DeValue::Array(items) = value.get_ref() else {
            if let DeValue::String(written) = value.get_ref() {
                let help = format!("write `{key} = [{written:?}]`");
                report.error(value.span(), format!("`{key}` needs a list"), "a string", help);
                return None;
            }
            return wrong_type(self, key, value, report);
        };
        if items.len() > self.count_max {
            report.error(
                value.span(),
                format!("`{key}` is too long"),
                format!("{} entries", items.len()),
                format!("write at most {} entries", self.count_max),
            );
            return None;
        }
        // Read every entry before giving up, so that all errors are reported.
        let read: Vec<_> = items.iter().map(|item| self.of.read(key, item, report)).collect();
        read.into_iter().collect()
    }

    fn write(&self, value: &Self::Value) -> String {
        let items: Vec<_> = value.iter().map(|item| self.of.write(item)).collect();
        format!("[{}]", items.join(", "))
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "maxItems": self.count_max, "items": self.of.schema() })
    }
}

/// A list of at least one value.
pub struct NotEmpty<S>(pub List<S>);

impl<S: Shape> Shape for NotEmpty<S> {
    type Value = Vec<S::Value>;

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<Self::Value> {
        if matches!(value.get_ref(), DeValue::Array(items) if items.is_empty()) {
            let help = "write at least one value";
            report.error(value.span(), format!("`{key}` is empty"), "", help);
            return None;
        }
        self.0.read(key, value, report)
    }

    fn write(&self, value: &Self::Value) -> String {
        self.0.write(value)
    }

    fn schema(&self) -> Value {
        let mut schema = self.0.schema();
        schema["minItems"] = json!(1);
        schema
    }
}

/// A list of at least one value. A single value needs no brackets.
pub struct OneOrMore<S>(pub List<S>);

impl<S: Shape> Shape for OneOrMore<S> {
    type Value = Vec<S::Value>;

    fn describe(&self) -> String {
        format!("{}, or a list of them", self.0.of.describe())
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<Self::Value> {
        match value.get_ref() {
            DeValue::Array(items) if items.is_empty() => {
                let help = format!("write {}", self.describe());
                report.error(value.span(), format!("`{key}` is empty"), "", help);
                None
            }
            DeValue::Array(_) => self.0.read(key, value, report),
            _ => Some(vec![self.0.of.read(key, value, report)?]),
        }
    }

    fn write(&self, value: &Self::Value) -> String {
        self.0.write(value)
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [self.0.of.schema(), self.0.schema()] })
    }
}
