//! Errors of commands.

use std::fmt::{self, Display};
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;

use tidegate_server::RAISE_LIMITS;
use tidegate_server::config::Diagnostics;

use crate::WRONG_USE;

/// Reason why a command failed.
#[derive(Debug)]
pub struct Trouble {
    what: What,
    status: u8,
}

#[derive(Debug)]
enum What {
    Text(String),
    Diagnostics(Diagnostics),
}

impl Trouble {
    /// Creates an error with exit status 2: the usage or a file is wrong, or the command cannot
    /// begin.
    pub fn usage(what: impl Display) -> Self {
        Self { what: What::Text(what.to_string()), status: WRONG_USE }
    }

    /// Creates an error with exit status 1: the command was used correctly, but failed.
    pub fn failure(what: impl Display) -> Self {
        Self { what: What::Text(what.to_string()), status: 1 }
    }

    /// Creates the error for signals that cannot be caught, with the remedy.
    pub fn uncaught_signals(error: impl Display) -> Self {
        Self::failure(format!("cannot catch signals: {error}; {RAISE_LIMITS}"))
    }

    /// Prints the error, and returns the exit status. The name of `command` stands before the
    /// error, except before errors in a configuration file.
    pub fn exit(&self, command: &str) -> ExitCode {
        // A closed standard error does not change the status.
        let _ = match &self.what {
            What::Text(text) => writeln!(anstream::stderr(), "{command}: {text}"),
            What::Diagnostics(diagnostics) => {
                write!(anstream::stderr(), "{}", diagnostics.render(stderr().is_terminal()))
            }
        };
        ExitCode::from(self.status)
    }
}

impl Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Text(text) => f.write_str(text),
            What::Diagnostics(diagnostics) => f.write_str(&diagnostics.render(false)),
        }
    }
}

impl From<Diagnostics> for Trouble {
    fn from(diagnostics: Diagnostics) -> Self {
        Self { what: What::Diagnostics(diagnostics), status: WRONG_USE }
    }
}
