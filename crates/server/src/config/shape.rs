//! The shapes of values: numbers within bounds, words of a set, texts with a
//! grammar, and lists of them.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_world::param::Entry;
use tidegate_world::{Kind, Registry};
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use super::diagnostic::{Report, alternatives, nearest, quoted};
use super::knob::Shape;

/// An integer type of a field.
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

    fn read(&self, key: &str, value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<T> {
        let DeValue::Integer(written) = value.get_ref() else {
            return wrong_type(self, key, value, report);
        };
        let (least, most) = self.bounds();
        let label = match integer(written) {
            Some(n) if n < i128::from(least) => format!("less than {}", grouped(least)),
            Some(n) if n <= i128::from(most) => return u64::try_from(n).ok()?.try_into().ok(),
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

/// A shape whose number stands for something else: a time, a size.
pub struct As<S: Shape, T> {
    /// The number.
    pub of: S,
    /// Its meaning.
    pub read: fn(S::Value) -> T,
    /// The number for a value.
    pub write: fn(&T) -> S::Value,
}

impl<S: Shape, T: 'static> Shape for As<S, T> {
    type Value = T;

    fn describe(&self) -> String {
        self.of.describe()
    }

    fn read(&self, key: &str, value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<T> {
        self.of.read(key, value, report).map(self.read)
    }

    fn write(&self, value: &T) -> String {
        self.of.write(&(self.write)(value))
    }

    fn schema(&self) -> Value {
        self.of.schema()
    }
}

/// A time in whole seconds.
pub const fn seconds(bounds: RangeInclusive<u64>) -> As<Whole, Duration> {
    As { of: Whole(bounds), read: Duration::from_secs, write: Duration::as_secs }
}

/// A time in whole milliseconds.
pub const fn millis(bounds: RangeInclusive<u64>) -> As<Whole, Duration> {
    As { of: Whole(bounds), read: Duration::from_millis, write: |time| time.as_millis() as u64 }
}

/// A time in whole microseconds.
pub const fn micros(bounds: RangeInclusive<u64>) -> As<Whole, Duration> {
    As { of: Whole(bounds), read: Duration::from_micros, write: |time| time.as_micros() as u64 }
}

/// A time in seconds or parts of them.
pub const fn real_seconds(bounds: RangeInclusive<f64>) -> As<Real, Duration> {
    As { of: Real(bounds), read: Duration::from_secs_f64, write: Duration::as_secs_f64 }
}

/// A number within bounds, whole or not.
pub struct Real(pub RangeInclusive<f64>);

impl Shape for Real {
    type Value = f64;

    fn describe(&self) -> String {
        format!("a number from {} to {}", self.0.start(), self.0.end())
    }

    fn read(&self, key: &str, value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<f64> {
        let number = match value.get_ref() {
            DeValue::Integer(written) => integer(written).map(|n| n as f64),
            DeValue::Float(written) => written.as_str().replace('_', "").parse().ok(),
            _ => return wrong_type(self, key, value, report),
        };
        match number {
            Some(number) if self.0.contains(&number) => Some(number),
            Some(number) if number < *self.0.start() => {
                out_of_bounds(self, key, value, format!("less than {}", self.0.start()), report)
            }
            _ => out_of_bounds(self, key, value, format!("more than {}", self.0.end()), report),
        }
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

    fn read(&self, key: &str, value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<bool> {
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

/// One word of a set.
pub struct Choice<T: 'static> {
    /// What is written, and what it means.
    pub words: &'static [(&'static str, T)],
    /// Words that a later version will understand.
    pub reserved: &'static [&'static str],
}

impl<T: Copy + PartialEq> Choice<T> {
    /// The word that is written to choose `value`.
    pub fn word(&self, value: T) -> &'static str {
        let found = self.words.iter().find(|(_, known)| *known == value);
        found.expect("every value can be chosen").0
    }
}

impl<T: Copy + PartialEq> Shape for Choice<T> {
    type Value = T;

    fn describe(&self) -> String {
        one_of(self.words.iter().map(|(name, _)| *name))
    }

    fn read(&self, key: &str, value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<T> {
        let names: Vec<_> = self.words.iter().map(|(name, _)| *name).collect();
        let index = chosen(self, &names, self.reserved, key, value, report)?;
        Some(self.words[index].1)
    }

    fn write(&self, value: &T) -> String {
        format!("\"{}\"", self.word(*value))
    }

    fn schema(&self) -> Value {
        json!({ "enum": self.words.iter().map(|(name, _)| *name).collect::<Vec<_>>() })
    }
}

/// An entry of a registry, by its name.
pub struct Named<K: Kind>(pub &'static Registry<K>);

impl<K: Kind> Shape for Named<K> {
    type Value = &'static Entry<K>;

    fn describe(&self) -> String {
        one_of(self.0.names())
    }

    fn read(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        report: &mut Report,
    ) -> Option<&'static Entry<K>> {
        let names: Vec<_> = self.0.names().collect();
        Some(self.0[chosen(self, &names, &[], key, value, report)?])
    }

    fn write(&self, value: &&'static Entry<K>) -> String {
        format!("\"{}\"", value.name)
    }

    fn schema(&self) -> Value {
        json!({ "enum": self.0.names().collect::<Vec<_>>() })
    }
}

/// An entry of a registry, by its name, or a word that stands for none of them.
pub struct NamedOr<K: Kind>(pub &'static Registry<K>, pub &'static str);

impl<K: Kind> NamedOr<K> {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.names().chain([self.1])
    }
}

impl<K: Kind> Shape for NamedOr<K> {
    type Value = Option<&'static Entry<K>>;

    fn describe(&self) -> String {
        one_of(self.names())
    }

    fn read(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        report: &mut Report,
    ) -> Option<Self::Value> {
        let names: Vec<_> = self.names().collect();
        Some(self.0.get(chosen(self, &names, &[], key, value, report)?).copied())
    }

    fn write(&self, value: &Self::Value) -> String {
        format!("\"{}\"", value.map_or(self.1, |entry| entry.name))
    }

    fn schema(&self) -> Value {
        json!({ "enum": self.names().collect::<Vec<_>>() })
    }
}

/// The words `names`, to follow "write".
fn one_of(names: impl Iterator<Item = &'static str>) -> String {
    alternatives(names.map(|name| format!("\"{name}\"")))
}

/// The index in `names` of the word that `value` is; `None` when it is none of them and was
/// reported.
fn chosen<S: Shape>(
    shape: &S,
    names: &[&'static str],
    reserved: &[&str],
    key: &str,
    value: &Spanned<DeValue<'_>>,
    report: &mut Report,
) -> Option<usize> {
    let DeValue::String(written) = value.get_ref() else {
        wrong_type(shape, key, value, report);
        return None;
    };
    if let Some(index) = names.iter().position(|name| name == written) {
        return Some(index);
    }
    let known_as = |(word, name): &(&str, &'static str)| {
        (names.contains(name) && *word == plain(written)).then_some(*name)
    };
    let elsewhere = ELSEWHERE.iter().find_map(known_as);
    let help = match elsewhere.or_else(|| nearest(written, names.iter().copied())) {
        Some(name) => format!("did you mean `\"{name}\"`?"),
        None => format!("write {}", shape.describe()),
    };
    if reserved.contains(&&**written) {
        report.error(
            value.span(),
            format!("`{key} = \"{written}\"` comes with a later version"),
            "not in this version",
            format!("write {}", shape.describe()),
        );
    } else {
        let title = format!("`{key}` cannot be {}", quoted(written));
        report.error(value.span(), title, "not one of its choices", help);
    }
    None
}

/// What other programs call our words, as [`plain`] has it, and our words.
const ELSEWHERE: [(&str, &str); 21] = [
    ("roundrobin", "rr"),
    ("weightedroundrobin", "rr"),
    ("wrr", "rr"),
    ("serial", "rr"),
    ("leastconn", "cjsq"),
    ("leastconnections", "cjsq"),
    ("leastcalls", "cjsq"),
    ("calls", "cjsq"),
    ("leastrequest", "tjsq"),
    ("leastrequests", "tjsq"),
    ("leastload", "tlwl"),
    ("leastwork", "tlwl"),
    ("random", "p2c"),
    ("random2", "p2c"),
    ("poweroftwo", "p2c"),
    ("leasttime", "peak-ewma"),
    ("leastresponsetime", "peak-ewma"),
    ("ewma", "peak-ewma"),
    ("consistenthash", "rendezvous"),
    ("hashcallid", "hash"),
    ("stateful", "transaction"),
];

/// A word in lower case, without what joins its parts.
fn plain(written: &str) -> String {
    let letters = written.chars().filter(|c| !"-_ .".contains(*c));
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

/// An integer from 1 on, where 0 stands for something that is done in another way.
pub struct Positive {
    /// The largest.
    pub most: u32,
    /// How to do what 0 would mean.
    pub zero: &'static str,
}

impl Shape for Positive {
    type Value = u32;

    fn describe(&self) -> String {
        Whole(1..=self.most).describe()
    }

    fn read(&self, key: &str, value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<u32> {
        if let DeValue::Integer(written) = value.get_ref()
            && integer(written) == Some(0)
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

/// A text with a grammar of its own.
pub struct Text<T> {
    /// What a right one looks like, to follow "write".
    pub what: &'static str,
    /// The value of a right text, or in a few words what is wrong with it.
    pub parse: fn(&str) -> Result<T, Wrong>,
    /// The text of a value.
    pub write: fn(&T) -> String,
}

impl<T: ToString> Text<T> {
    /// A text that `parse` reads and that a value is displayed as.
    pub const fn new(what: &'static str, parse: fn(&str) -> Result<T, Wrong>) -> Self {
        Self { what, parse, write: T::to_string }
    }
}

/// Why a text has not the shape it should have.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// To stand beside the underlined text: `no port`.
    pub label: String,
    /// What would be right, when more is known than the shape.
    pub help: Option<String>,
}

impl Wrong {
    /// A reason whose remedy depends on the text.
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

    fn read(&self, key: &str, value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<T> {
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

/// A list of values of one shape.
pub struct List<S> {
    /// The shape of each.
    pub of: S,
    /// How many there may be.
    pub count_max: usize,
}

impl<S: Shape> Shape for List<S> {
    type Value = Vec<S::Value>;

    fn describe(&self) -> String {
        format!("a list, each {}", self.of.describe())
    }

    fn read(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        report: &mut Report,
    ) -> Option<Self::Value> {
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
                format!("write at most {}", self.count_max),
            );
            return None;
        }
        // Every entry is read before any is given up, so that all errors show.
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

/// A value with its place.
pub struct Placed<S>(pub S);

impl<S: Shape> Shape for Placed<S> {
    type Value = Spanned<S::Value>;

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn read(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        report: &mut Report,
    ) -> Option<Self::Value> {
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
    value: &Spanned<DeValue<'_>>,
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
    value: &Spanned<DeValue<'_>>,
    label: String,
    report: &mut Report,
) -> Option<S::Value> {
    let title = format!("`{key}` is out of bounds");
    report.error(value.span(), title, label, format!("write {}", shape.describe()));
    None
}

/// The integer, unless it is beyond 128 bits.
fn integer(written: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(written.as_str(), written.radix()).ok()
}

/// The number as TOML may write it: `10_000_000`.
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
    use tidegate_balance::registry::POLICIES;

    use super::{ELSEWHERE, grouped, plain};

    #[test]
    fn what_other_programs_call_our_words_leads_to_words_of_ours() {
        let is_policy = |name: &str| POLICIES.iter().any(|policy| policy.name == name);
        for (word, name) in ELSEWHERE {
            assert_eq!(plain(word), word);
            assert!(is_policy(name) || name == "transaction", "{name}");
            assert!(!is_policy(word));
        }
        assert_eq!(plain("Round_Robin"), "roundrobin");
    }

    #[test]
    fn long_numbers_are_grouped() {
        let shown = [0, 4096, 65_536, 500_000, 10_000_000].map(grouped);
        assert_eq!(shown, ["0", "4096", "65_536", "500_000", "10_000_000"]);
    }
}
