//! Errors that keep a process from starting.

use std::fmt;

/// An error outside the configuration that must be corrected before the process can start.
#[derive(Debug, PartialEq, Eq)]
pub struct StartError {
    /// The file or address that the error concerns.
    pub place: String,
    /// The problem with it, as a phrase.
    pub what: String,
    /// The remedy, as a command to the operator.
    pub remedy: String,
}

impl StartError {
    pub(crate) fn new(
        place: impl fmt::Display,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { place: place.to_string(), what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  help: {}", self.place, self.what, self.remedy)
    }
}

impl std::error::Error for StartError {}
