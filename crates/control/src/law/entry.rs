//! One law as it is chosen and configured: its name, its documentation and its parameters.

use std::fmt;

use tidegate_world::{Param, Tunable, Wrong};

use super::Law;

/// The values of a law's parameters, each within its bounds.
pub type Values = tidegate_world::Values<Entry>;

/// A law, as one chooses it.
pub struct Entry {
    /// Its name in configurations.
    pub name: &'static str,
    /// A phrase that says how the law decides.
    pub summary: &'static str,
    /// Where it comes from: papers by number (000 to 004) and section.
    pub source: &'static str,
    /// The full description, in Markdown.
    pub doc: &'static str,
    /// Its parameters.
    pub params: &'static [&'static Param],
    /// Checks values that are each within their bounds; an error says what must hold.
    pub check: fn(&Values) -> Result<(), &'static str>,
    /// The law with these values, which were checked.
    pub build: fn(&Values) -> Box<dyn Law>,
}

impl Entry {
    /// The default of every parameter.
    pub fn defaults(&'static self) -> Values {
        Values::defaults(self)
    }

    /// The defaults, but for what is `given` by name.
    ///
    /// # Errors
    /// With the first value that is [`Wrong`].
    pub fn values(&'static self, given: &[(&str, f64)]) -> Result<Values, Wrong> {
        Values::given(self, given)
    }
}

impl Tunable for Entry {
    fn name(&self) -> &'static str {
        self.name
    }

    fn params(&self) -> &'static [&'static Param] {
        self.params
    }

    fn check(&self, values: &Values) -> Result<(), &'static str> {
        (self.check)(values)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}
