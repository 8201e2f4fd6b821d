//! A minimum and a maximum, written as one list.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::diagnostic::Report;
use super::knob::{Shape, Written};
use super::shape::{List, Whole};

/// A minimum and a maximum in seconds, written as a list of two numbers.
pub(crate) struct Bounds(pub RangeInclusive<u32>);

impl Bounds {
    fn list(&self) -> List<Whole<u32>> {
        List { of: Whole(self.0.clone()), count_max: 2 }
    }
}

impl Shape for Bounds {
    type Value = (u32, u32);

    fn describe(&self) -> String {
        self.list().describe()
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<(u32, u32)> {
        match self.list().read(key, value, report)?[..] {
            [least, most] if least <= most => Some((least, most)),
            _ => {
                let title = format!("`{key}` is not valid");
                let label = "not a minimum and a maximum in seconds";
                let help = "write two numbers in order, such as `[5, 15]`";
                report.error(value.span(), title, label, help);
                None
            }
        }
    }

    fn write(&self, (least, most): &(u32, u32)) -> String {
        format!("[{least}, {most}]")
    }

    fn schema(&self) -> Value {
        let mut schema = self.list().schema();
        schema["minItems"] = json!(2);
        schema
    }
}
