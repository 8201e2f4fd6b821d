//! Why a process cannot start.

use std::fmt;

/// Something outside the configuration that must be put right before the process
/// can start.
#[derive(Debug, PartialEq, Eq)]
pub struct StartError {
    /// The file or address it is about.
    pub place: String,
    /// What is wrong with it.
    pub what: String,
    /// What would put it right.
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
