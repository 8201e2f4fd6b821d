//! Why a command could not be carried out.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use crate::WRONG_USE;

/// Why a command could not be carried out to its end.
pub struct Trouble {
    what: String,
    status: u8,
}

impl Trouble {
    /// What was asked for cannot be.
    pub fn usage(what: impl Display) -> Self {
        Self { what: what.to_string(), status: WRONG_USE }
    }

    /// It could be, and went wrong.
    pub fn failure(what: impl Display) -> Self {
        Self { what: what.to_string(), status: 1 }
    }

    /// Says it in the name of `command`, and returns the status to end with.
    pub fn exit(&self, command: &str) -> ExitCode {
        let _ = writeln!(anstream::stderr(), "{command}: {}", self.what);
        ExitCode::from(self.status)
    }
}
