//! Keys and tables of the configuration: the name, meaning, default and bounds of each. The reader,
//! the diagnostics and `docs/configuration.md` all use these items.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::diagnostic::Report;

/// A value as it is written in a file, with its place in the file.
pub type Written<'a> = Spanned<DeValue<'a>>;

/// A key of a table and its documentation.
pub struct Knob<S> {
    /// The name of the key in the file.
    pub name: &'static str,
    /// The kind of values that the key can have.
    pub shape: S,
    /// The meaning of a missing key.
    pub absent: Absent,
    /// The meaning of the key, in Markdown.
    pub doc: &'static str,
}

impl<S: Shape> Knob<S> {
    /// Returns the default of the key, or `None` if the key has no default.
    pub fn default(&self) -> Option<S::Value> {
        let Absent::Default(text) = self.absent else { return None };
        let value = DeValue::parse(text).expect("a default is TOML: tested for every key");
        self.shape.read(self.name, &value, &mut Report::default())
    }
}

/// The meaning of a missing key.
#[derive(Clone, Copy, Debug)]
pub enum Absent {
    /// The key is required.
    Required,
    /// The key has this default, as TOML text that is read like the text in the file.
    Default(&'static str),
    /// The behaviour without the key, in Markdown.
    Means(&'static str),
}

/// A kind of value, which defines how the value is read, written and described.
pub trait Shape {
    /// The Rust type of a value.
    type Value: 'static;

    /// Describes a valid value in words that can follow "write", such as `an integer from 1 to 64`.
    fn describe(&self) -> String;

    /// Reads the value of the key `key`. Reports an invalid value and returns `None`.
    fn read(&self, key: &str, value: &Written<'_>, report: &mut Report) -> Option<Self::Value>;

    /// Returns the value as TOML that [`read`](Self::read) reads back.
    fn write(&self, value: &Self::Value) -> String;

    /// Returns the JSON schema of valid values. It is as exact as JSON Schema allows.
    fn schema(&self) -> Value;
}

/// A table of the configuration file.
pub struct Table {
    /// The header in the file: `[server]`, `[[pool.backend]]`.
    pub header: &'static str,
    /// The key of this table in the table above it.
    pub name: &'static str,
    /// The number of times that this table may occur in the table that contains it.
    pub count: RangeInclusive<usize>,
    /// The purpose of the table, in Markdown.
    pub doc: &'static str,
    /// The keys of the table.
    pub knobs: fn() -> Vec<&'static dyn Documented>,
    /// The tables inside this one.
    pub tables: &'static [&'static Table],
    /// True if the names of the keys depend on a value in the file, such as the law. The code that
    /// reads these keys then reports unknown keys.
    pub has_free_keys: bool,
}

impl Table {
    /// A table without keys that may occur once. Other tables give only the fields that differ.
    pub const EMPTY: Self = Self {
        header: "",
        name: "",
        count: 0..=1,
        doc: "",
        knobs: Vec::new,
        tables: &[],
        has_free_keys: false,
    };

    /// Returns whether the header is written `[[…]]`.
    pub fn is_repeated(&self) -> bool {
        self.header.starts_with("[[")
    }

    /// Returns the required keys as text for an error message.
    pub fn required(&self) -> String {
        let knobs = (self.knobs)();
        let required = knobs.iter().filter(|knob| matches!(knob.absent(), Absent::Required));
        let written: Vec<_> = required.map(|knob| format!("`{} = …`", knob.name())).collect();
        written.join(" and ")
    }

    /// Returns the names of all keys of the table and of the tables inside it.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let knobs = (self.knobs)().into_iter().map(|knob| knob.name());
        knobs.chain(self.tables.iter().map(|table| table.name))
    }
}

/// The time at which a running process applies a changed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// At a reload, also for calls that began before the reload.
    Live,
    /// At a reload, for calls that begin after the reload.
    NewCalls,
    /// At the next start.
    Restart,
}

impl fmt::Display for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "at a reload",
            Self::NewCalls => "at a reload, for new calls",
            Self::Restart => "at a restart",
        })
    }
}

/// A key of a configuration table. The trait hides the type of the key's values, so that
/// documentation and tests can treat all keys alike.
pub trait Documented: Sync {
    /// Returns the name of the key in the file.
    fn name(&self) -> &'static str;
    /// Describes a valid value.
    fn describe(&self) -> String;
    /// Returns the meaning of a missing key.
    fn absent(&self) -> Absent;
    /// Returns the meaning of the key, in Markdown.
    fn doc(&self) -> &'static str;
    /// Returns the JSON schema of valid values.
    fn schema(&self) -> Value;
    /// Returns when a changed value of the configuration applies, or `None` if the key belongs to
    /// another file, such as a scenario.
    fn reload(&self) -> Option<Reload> {
        None
    }
    /// Returns whether `value` is valid for the key.
    #[cfg(test)]
    fn accepts(&self, value: &Written<'_>) -> bool;
}

impl<S: Shape + Sync> Documented for Knob<S> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn describe(&self) -> String {
        self.shape.describe()
    }
    fn absent(&self) -> Absent {
        self.absent
    }
    fn doc(&self) -> &'static str {
        self.doc.trim_start()
    }
    fn schema(&self) -> Value {
        self.shape.schema()
    }
    #[cfg(test)]
    fn accepts(&self, value: &Written<'_>) -> bool {
        self.shape.read(self.name, value, &mut Report::default()).is_some()
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required => f.write_str("required"),
            Self::Default(text) => write!(f, "`{text}`"),
            Self::Means(what) => f.write_str(what),
        }
    }
}
