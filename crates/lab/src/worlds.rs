//! The worlds in which runs take place: simulated time, or real sockets on this machine. Callers,
//! answerers and servers run the same code in both worlds.

mod agents;
mod counted;
mod loopback;
mod outage;
mod possible;
mod simulated;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::outcome::Outcome;
use crate::run_spec::RunSpec;

pub use crate::world_kind::Kind;
pub(crate) use agents::{lasts, load, mean_load};
pub use loopback::Loopback;
pub(crate) use possible::possible_cps;
pub use simulated::{Simulated, Speed};

/// A world in which runs take place.
pub trait World: Sync {
    /// Returns the kind of the world.
    fn kind(&self) -> Kind;

    /// Makes the run `run` and writes files about it into `folder`. Stops soon after `cancelled`
    /// becomes true.
    ///
    /// # Errors
    /// Returns a sentence that describes the error.
    fn run(&self, run: &RunSpec, folder: &Path, cancelled: &AtomicBool) -> Result<Outcome, String>;
}

/// A world in which a function makes each run. So a test needs no simulation.
pub struct Computed<F>(Kind, F);

impl<F> Computed<F>
where
    F: Fn(&RunSpec, &Path, &AtomicBool) -> Result<Outcome, String> + Sync,
{
    /// Creates a world of this kind. The arguments of `run` are those of [`World::run`].
    pub const fn new(kind: Kind, run: F) -> Self {
        Self(kind, run)
    }
}

impl<F> World for Computed<F>
where
    F: Fn(&RunSpec, &Path, &AtomicBool) -> Result<Outcome, String> + Sync,
{
    fn kind(&self) -> Kind {
        self.0
    }

    fn run(&self, run: &RunSpec, folder: &Path, cancelled: &AtomicBool) -> Result<Outcome, String> {
        (self.1)(run, folder, cancelled)
    }
}
