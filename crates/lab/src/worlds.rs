//! Where points are run: in simulated time, or on real sockets of this machine. Callers,
//! answerers and the server are the same code in both.

mod agents;
mod counted;
mod loopback;
mod simulated;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::point::Point;

pub(crate) use agents::{lasts, load};
pub use loopback::Loopback;
pub use simulated::{Simulated, Speed};

/// The kind of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Simulated time. What comes of a point depends on its inputs and on nothing else.
    Sim,
    /// Real sockets and the clock of this machine.
    Real,
}

impl Kind {
    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Real => "real",
        }
    }

    /// What people call it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sim => "simulated time",
            Self::Real => "real sockets",
        }
    }
}

/// Where points are run.
pub trait World: Sync {
    /// Which kind it is.
    fn kind(&self) -> Kind;

    /// Runs `point`, leaving files of interest in `folder`. Gives up soon after `cancelled`
    /// becomes true.
    ///
    /// # Errors
    /// With what went wrong, in a sentence.
    fn run(&self, point: &Point, folder: &Path, cancelled: &AtomicBool) -> Result<Outcome, String>;
}
