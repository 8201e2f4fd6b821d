//! Where points are run: in simulated time, or on real sockets of this machine. Callers,
//! answerers and the server are the same code in both.

mod agents;
mod counted;
mod loopback;
mod simulated;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::outcome::Outcome;
use crate::run_spec::RunSpec;

pub use crate::world_kind::Kind;
pub(crate) use agents::{lasts, load};
pub use loopback::Loopback;
pub use simulated::{Simulated, Speed};

/// Where points are run.
pub trait World: Sync {
    /// Which kind it is.
    fn kind(&self) -> Kind;

    /// Runs `run`, leaving files of interest in `folder`. Gives up soon after `cancelled`
    /// becomes true.
    ///
    /// # Errors
    /// With what went wrong, in a sentence.
    fn run(&self, run: &RunSpec, folder: &Path, cancelled: &AtomicBool) -> Result<Outcome, String>;
}
