//! The kinds of worlds for runs.

use serde::{Deserialize, Serialize};

/// The kind of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Simulated time. The outcome of a run depends only on its inputs.
    Sim,
    /// Real sockets and the clock of this machine.
    Real,
}

impl Kind {
    /// Returns its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Real => "real",
        }
    }

    /// Returns its name in reports that people read.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sim => "simulated time",
            Self::Real => "real sockets",
        }
    }
}
