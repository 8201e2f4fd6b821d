//! The kinds of worlds in which runs take place.

use serde::{Deserialize, Serialize};
use tidegate_world::unit_enum;

unit_enum! {
    /// The kind of world in which a run takes place. Files and the command line use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Kind {
        /// Simulated time. The outcome of a run depends only on its inputs.
        Sim = "sim",
        /// Real sockets and the clock of this machine.
        Real = "real",
    }
}

impl Kind {
    /// Returns the name of the kind in reports.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sim => "simulated time",
            Self::Real => "real sockets",
        }
    }
}
