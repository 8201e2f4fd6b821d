//! One item for each thing that can be configured: its name, what it means, its
//! default and its bounds. The reader, the diagnostics and `docs/configuration.md`
//! all take them from here.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::diagnostic::Report;

/// A key of a table, and everything there is to say about it.
pub struct Knob<S> {
    /// As it is written in a file.
    pub name: &'static str,
    /// What its values are.
    pub shape: S,
    /// What holds when it is not given.
    pub absent: Absent,
    /// What it means, in Markdown.
    pub doc: &'static str,
}

impl<S: Shape> Knob<S> {
    /// Returns the value of an absent key; `None` if it has no default.
    pub fn default(&self) -> Option<S::Value> {
        let Absent::Default(text) = self.absent else { return None };
        let value = DeValue::parse(text).expect("a default is TOML: tested for every key");
        self.shape.read(self.name, &value, &mut Report::default())
    }
}

/// What holds when a key is not given.
#[derive(Clone, Copy, Debug)]
pub enum Absent {
    /// It must be given.
    Required,
    /// This value, as TOML text: it is read by the code that reads the file.
    Default(&'static str),
    /// What happens instead, in Markdown.
    Means(&'static str),
}

/// How a value is written, and how it is read.
pub trait Shape {
    /// What is read.
    type Value: 'static;

    /// What a right value looks like, to follow "write": `an integer from 1 to 64`.
    fn describe(&self) -> String;

    /// The value of the key `key`; `None` when it was wrong and reported.
    fn read(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        report: &mut Report,
    ) -> Option<Self::Value>;

    /// The value as TOML, such that [`read`](Self::read) returns it.
    fn write(&self, value: &Self::Value) -> String;

    /// The JSON schema of right values, as far as one can say it.
    fn schema(&self) -> Value;
}

/// A table of the configuration file.
pub struct Table {
    /// As it is written in a file: `[server]`, `[[pool.backend]]`.
    pub header: &'static str,
    /// The key it has in the table above it.
    pub name: &'static str,
    /// How many there may be in the table above it.
    pub count: RangeInclusive<usize>,
    /// What it holds, in Markdown.
    pub doc: &'static str,
    /// Its keys.
    pub knobs: fn() -> Vec<&'static dyn Documented>,
    /// The tables in it.
    pub tables: &'static [&'static Table],
    /// Its keys depend on something else: whoever reads it reports those that are wrong.
    pub has_free_keys: bool,
}

impl Table {
    /// Whether it is written `[[…]]`.
    pub fn is_repeated(&self) -> bool {
        self.header.starts_with("[[")
    }

    /// The keys that must be given, as one writes them.
    pub fn required(&self) -> String {
        let knobs = (self.knobs)();
        let required = knobs.iter().filter(|knob| matches!(knob.absent(), Absent::Required));
        let written: Vec<_> = required.map(|knob| format!("`{} = …`", knob.name())).collect();
        written.join(" and ")
    }

    /// Every key the table understands.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let knobs = (self.knobs)().into_iter().map(|knob| knob.name());
        knobs.chain(self.tables.iter().map(|table| table.name))
    }
}

/// When a running process applies a changed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// At a reload, for everything from then on.
    Live,
    /// At a reload, for calls that begin after it.
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

/// A knob without its type, as documentation and tests see it.
pub trait Documented: Sync {
    /// As it is written in a file.
    fn name(&self) -> &'static str;
    /// What a right value looks like.
    fn describe(&self) -> String;
    /// What holds when it is not given.
    fn absent(&self) -> Absent;
    /// What it means, in Markdown.
    fn doc(&self) -> &'static str;
    /// The JSON schema of its values.
    fn schema(&self) -> Value;
    /// When a running process applies another value, if it reads it again at all.
    fn reload(&self) -> Option<Reload> {
        None
    }
    /// Whether `value` would be accepted.
    #[cfg(test)]
    fn accepts(&self, value: &Spanned<DeValue<'_>>) -> bool;
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
    fn accepts(&self, value: &Spanned<DeValue<'_>>) -> bool {
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
