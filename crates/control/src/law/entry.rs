//! An entry of the registry: the name, documentation and parameters of one law.

use std::fmt;

use tidegate_world::{Param, Tunable, Wrong};

use super::Law;

/// The values of a law's parameters, each within its bounds.
pub type Values = tidegate_world::Values<Entry>;

/// A law in the registry.
pub struct Entry {
    /// Name in configurations.
    pub name: &'static str,
    /// A phrase that says how the law decides.
    pub summary: &'static str,
    /// Source: papers by number (000 to 004) and section.
    pub source: &'static str,
    /// The full description, in Markdown.
    pub doc: &'static str,
    /// Parameters.
    pub params: &'static [&'static Param],
    /// Checks values that are each within their bounds; the error says what must hold.
    pub check: fn(&Values) -> Result<(), &'static str>,
    /// Builds the law with checked values.
    pub build: fn(&Values) -> Box<dyn Law>,
}

impl Entry {
    /// Returns the default of every parameter.
    pub fn defaults(&'static self) -> Values {
        Values::defaults(self)
    }

    /// Returns the defaults, overridden by the `given` values.
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
