//! The kinds of worlds in which runs take place.

use serde::{Deserialize, Serialize};

/// The kind of world in which a run takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Simulated time. The outcome of a run depends only on its inputs.
    Sim,
    /// Real sockets and the clock of this machine.
    Real,
}

impl Kind {
    /// Returns the name of the kind in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Real => "real",
        }
    }

    /// Returns the name of the kind in reports.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sim => "simulated time",
            Self::Real => "real sockets",
        }
    }
}
