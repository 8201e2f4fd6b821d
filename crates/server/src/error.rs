//! Errors that keep a process from starting.

use std::fmt;

/// The instruction to the operator if a thread, pipe or socket cannot be opened because of the
/// limits of the process.
pub const RAISE_LIMITS: &str = "raise the limits of threads and open files (`ulimit -u` and \
                                `ulimit -n`, `TasksMax` and `LimitNOFILE` of systemd)";

/// An error outside the configuration that keeps a process from starting.
#[derive(Debug, PartialEq, Eq)]
pub struct StartError {
    /// The file or address that the error concerns.
    pub place: String,
    /// The problem with the file or address, as a phrase.
    pub what: String,
    /// The remedy, as an instruction to the operator.
    pub remedy: String,
    /// True if every further start will fail too, until somebody changes a file or an argument.
    /// False if a later start may succeed, for example because another program releases an address.
    pub is_lasting: bool,
}

impl StartError {
    pub(crate) fn new(
        place: impl fmt::Display,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let place = place.to_string();
        Self { place, what: what.into(), remedy: remedy.into(), is_lasting: false }
    }

    /// Marks the error as [lasting](Self::is_lasting).
    pub(crate) fn lasting(self) -> Self {
        Self { is_lasting: true, ..self }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  help: {}", self.place, self.what, self.remedy)
    }
}

impl std::error::Error for StartError {}
