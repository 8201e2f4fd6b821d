//! The kinds of values that keys can have: numbers within bounds, words from a set, texts with a
//! grammar, and lists.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use super::diagnostic::Report;
use super::knob::{Shape, Written};

mod choice;
mod list;

pub use choice::{Choice, Named, NamedOr};
pub use list::{List, NotEmpty, OneOrMore};

/// An integer type into which [`Whole`] reads a value.
pub trait Number: Copy + TryFrom<u64> + TryInto<u64> + 'static {}

impl<T: Copy + TryFrom<u64> + TryInto<u64> + 'static> Number for T {}

/// An integer within bounds.
pub struct Whole<T = u64>(pub RangeInclusive<T>);

impl<T: Number> Whole<T> {
    fn bounds(&self) -> (u64, u64) {
        let number = |n: T| n.try_into().ok().expect("no bound is below zero");
        (number(*self.0.start()), number(*self.0.end()))
    }
}

impl<T: Number> Shape for Whole<T> {
    type Value = T;

    fn describe(&self) -> String {
        let (least, most) = self.bounds();
        format!("an integer from {} to {}", grouped(least), grouped(most))
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<T> {
        let DeValue::Integer(written) = value.get_ref() else {
            return wrong_type(self, key, value, report);
        };
        let (least, most) = self.bounds();
        let label = match integer(written) {
            n if n < i128::from(least) => format!("less than {}", grouped(least)),
            n if n <= i128::from(most) => return u64::try_from(n).ok()?.try_into().ok(),
            _ => format!("more than {}", grouped(most)),
        };
        out_of_bounds(self, key, value, label, report)
    }

    fn write(&self, value: &T) -> String {
        (*value).try_into().ok().map_or_else(String::new, |n: u64| n.to_string())
    }

    fn schema(&self) -> Value {
        let (least, most) = self.bounds();
        json!({ "type": "integer", "minimum": least, "maximum": most })
    }
}

/// A number that represents another type, such as a time or a size.
pub struct As<S: Shape, T> {
    /// The shape of the number.
    pub of: S,
    /// Converts the number to the value.
    pub read: fn(S::Value) -> T,
    /// Converts the value to the number.
    pub write: fn(&T) -> S::Value,
}

impl<S: Shape, T: 'static> Shape for As<S, T> {
    type Value = T;

    fn describe(&self) -> String {
        self.of.describe()
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<T> {
        self.of.read(key, value, report).map(self.read)
    }

    fn write(&self, value: &T) -> String {
        self.of.write(&(self.write)(value))
    }

    fn schema(&self) -> Value {
        self.of.schema()
    }
}

/// Returns the [`Shape`] of a key whose value is a time in whole seconds within `bounds`.
pub const fn seconds(bounds: RangeInclusive<u64>) -> As<Whole, Duration> {
    As { of: Whole(bounds), read: Duration::from_secs, write: Duration::as_secs }
}

/// Returns the [`Shape`] of a key whose value is a time in whole milliseconds within `bounds`.
pub const fn millis(bounds: RangeInclusive<u64>) -> As<Whole, Duration> {
    As { of: Whole(bounds), read: Duration::from_millis, write: |time| time.as_millis() as u64 }
}

/// Returns the [`Shape`] of a key whose value is a time in whole microseconds within `bounds`.
pub const fn micros(bounds: RangeInclusive<u64>) -> As<Whole, Duration> {
    As { of: Whole(bounds), read: Duration::from_micros, write: |time| time.as_micros() as u64 }
}

/// Returns the [`Shape`] of a key whose value is a time in seconds within `bounds`, with or without
/// fractions.
pub const fn real_seconds(bounds: RangeInclusive<f64>) -> As<Real, Duration> {
    As { of: Real(bounds), read: Duration::from_secs_f64, write: Duration::as_secs_f64 }
}

/// Returns the [`Shape`] of a key whose value is a time in milliseconds within `bounds`, with or
/// without fractions.
pub const fn real_millis(bounds: RangeInclusive<f64>) -> As<Real, Duration> {
    As {
        of: Real(bounds),
        read: |ms| Duration::from_secs_f64(ms / 1e3),
        write: |time| time.as_nanos() as f64 / 1e6,
    }
}

/// A number within bounds, with or without fractions.
pub struct Real(pub RangeInclusive<f64>);

impl Shape for Real {
    type Value = f64;

    fn describe(&self) -> String {
        format!("a number from {} to {}", self.0.start(), self.0.end())
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<f64> {
        let number = match value.get_ref() {
            DeValue::Integer(written) => Some(integer(written) as f64),
            DeValue::Float(written) => written.as_str().replace('_', "").parse().ok(),
            _ => return wrong_type(self, key, value, report),
        };
        let label = match number {
            Some(number) if self.0.contains(&number) => return Some(number),
            Some(number) if number < *self.0.start() => format!("less than {}", self.0.start()),
            Some(number) if number > *self.0.end() => format!("more than {}", self.0.end()),
            // TOML has the float `nan`.
            _ => {
                let help = format!("write {}", self.describe());
                report.error(value.span(), format!("`{key}` is not valid"), "not a number", help);
                return None;
            }
        };
        out_of_bounds(self, key, value, label, report)
    }

    fn write(&self, value: &f64) -> String {
        value.to_string()
    }

    fn schema(&self) -> Value {
        json!({ "type": "number", "minimum": self.0.start(), "maximum": self.0.end() })
    }
}

/// True or false.
pub struct Flag;

impl Shape for Flag {
    type Value = bool;

    fn describe(&self) -> String {
        "`true` or `false`".to_owned()
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => wrong_type(self, key, value, report),
        }
    }

    fn write(&self, value: &bool) -> String {
        value.to_string()
    }

    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }
}

/// An integer of at least 1. The error message for 0 contains a special remedy.
pub(crate) struct Positive {
    /// The maximum valid value.
    pub most: u32,
    /// The remedy if the value is 0.
    pub zero: &'static str,
}

impl Shape for Positive {
    type Value = u32;

    fn describe(&self) -> String {
        Whole(1..=self.most).describe()
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<u32> {
        if let DeValue::Integer(written) = value.get_ref()
            && integer(written) == 0
        {
            let title = format!("`{key}` is out of bounds");
            report.error(value.span(), title, "less than 1", self.zero);
            return None;
        }
        Whole(1..=self.most).read(key, value, report)
    }

    fn write(&self, value: &u32) -> String {
        value.to_string()
    }

    fn schema(&self) -> Value {
        Whole(1..=self.most).schema()
    }
}

/// A text with its own grammar.
pub struct Text<T> {
    /// Describes a valid text, in words that can follow "write".
    pub what: &'static str,
    /// Reads the text, or returns a few words about the error in it.
    pub parse: fn(&str) -> Result<T, Wrong>,
    /// Returns the text that [`parse`](Self::parse) reads as this value.
    pub write: fn(&T) -> String,
}

impl<T: ToString> Text<T> {
    /// Creates the shape of a text that `parse` reads and that `Display` writes.
    pub const fn new(what: &'static str, parse: fn(&str) -> Result<T, Wrong>) -> Self {
        Self { what, parse, write: T::to_string }
    }
}

/// The reason why a text is invalid.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The label beside the underlined text, such as `no port`.
    pub label: String,
    /// The remedy for this text. `None` if the general description of a valid text suffices.
    pub help: Option<String>,
}

impl Wrong {
    /// Returns the reason `label` with the remedy `help`, which is specific to the text.
    pub fn with_help(label: impl Into<String>, help: impl Into<String>) -> Self {
        Self { label: label.into(), help: Some(help.into()) }
    }
}

impl From<&str> for Wrong {
    fn from(label: &str) -> Self {
        Self { label: label.to_owned(), help: None }
    }
}

impl From<String> for Wrong {
    fn from(label: String) -> Self {
        Self { label, help: None }
    }
}

impl<T: 'static> Shape for Text<T> {
    type Value = T;

    fn describe(&self) -> String {
        self.what.to_owned()
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<T> {
        let DeValue::String(written) = value.get_ref() else {
            return wrong_type(self, key, value, report);
        };
        match (self.parse)(written) {
            Ok(value) => Some(value),
            Err(Wrong { label, help }) => {
                let help = help.unwrap_or_else(|| format!("write {}", self.describe()));
                report.error(value.span(), format!("`{key}` is not valid"), label, help);
                None
            }
        }
    }

    fn write(&self, value: &T) -> String {
        // A JSON string is a TOML string, except that TOML escapes DEL.
        Value::from((self.write)(value)).to_string().replace('\u{7f}', "\\u007f")
    }

    fn schema(&self) -> Value {
        json!({ "type": "string" })
    }
}

/// A value with its place in the file.
pub struct Placed<S>(pub S);

impl<S: Shape> Shape for Placed<S> {
    type Value = Spanned<S::Value>;

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<Self::Value> {
        Some(Spanned::new(value.span(), self.0.read(key, value, report)?))
    }

    fn write(&self, value: &Self::Value) -> String {
        self.0.write(value.get_ref())
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }
}

fn wrong_type<S: Shape>(
    shape: &S,
    key: &str,
    value: &Written<'_>,
    report: &mut Report,
) -> Option<S::Value> {
    let found = match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    let title = format!("`{key}` has the wrong type");
    report.error(value.span(), title, found, format!("write {}", shape.describe()));
    None
}

fn out_of_bounds<S: Shape>(
    shape: &S,
    key: &str,
    value: &Written<'_>,
    label: String,
    report: &mut Report,
) -> Option<S::Value> {
    let title = format!("`{key}` is out of bounds");
    report.error(value.span(), title, label, format!("write {}", shape.describe()));
    None
}

/// Parses the integer. An integer that `i128` cannot represent becomes the nearest `i128`.
fn integer(written: &DeInteger<'_>) -> i128 {
    let text = written.as_str();
    let nearest = if text.starts_with('-') { i128::MIN } else { i128::MAX };
    i128::from_str_radix(text, written.radix()).unwrap_or(nearest)
}

/// Returns the number with its digits in groups of three, in the form that TOML allows:
/// `10_000_000`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let (head, tail) = digits.split_at((digits.len() - 1) % 3 + 1);
    let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group));
    groups.fold(head.to_owned(), |out, group| out + "_" + &group)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the error that `shape` reports about the invalid value `text`.
    fn error(shape: &impl Shape, text: &str) -> String {
        let (value, mut report) = (DeValue::parse(text).unwrap(), Report::default());
        assert!(shape.read("x", &value, &mut report).is_none(), "{text}");
        report.into_diagnostics(Path::new("f"), text).to_string()
    }

    /// A regression: `nan` and an integer below every 128-bit integer counted as more than the
    /// maximum.
    #[test]
    fn the_error_says_on_which_side_of_the_bounds_a_number_is() {
        let high = "9".repeat(50);
        let low = format!("-{high}");
        let (high, low) = (high.as_str(), low.as_str());
        for (text, label) in [
            ("2", "more than 1"),
            ("inf", "more than 1"),
            ("1e999", "more than 1"),
            (high, "more than 1"),
            ("-0.1", "less than 0"),
            ("-inf", "less than 0"),
            (low, "less than 0"),
            ("nan", "not a number"),
            ("-nan", "not a number"),
        ] {
            let shown = error(&Real(0.0..=1.0), text);
            assert!(shown.contains(&format!("^ {label}\n")), "{shown}");
        }
        for (text, label) in [(high, "more than 9"), (low, "less than 1")] {
            let shown = error(&Whole(1..=9_u64), text);
            assert!(shown.contains(&format!("^ {label}\n")), "{shown}");
        }
    }

    #[test]
    fn long_numbers_are_grouped() {
        let shown = [0, 4096, 65_536, 500_000, 10_000_000].map(grouped);
        assert_eq!(shown, ["0", "4096", "65_536", "500_000", "10_000_000"]);
    }
}
