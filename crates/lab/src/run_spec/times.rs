//! The times of a run: its deadline, and the ends of its measurement and of its load.

use std::time::Duration;

use super::RunSpec;
use crate::world_kind::Kind;

/// Maximum number of samples of a run until the end of its measured time.
const SAMPLES_MAX: u32 = 10_000;

impl RunSpec {
    /// Returns the longest set-up delay of a call that counts as goodput.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.conditions.deadline_ms / 1e3)
    }

    /// Returns the time after the start at which the last measured call may begin.
    pub fn measured_until(&self) -> Duration {
        self.warm_up + self.measured
    }

    /// Returns the time after the start at which the load ends.
    ///
    /// The load goes on after the measured time, until the deadline of the last measured call.
    /// Otherwise the calls of the last seconds would meet a server that is no longer loaded, and
    /// more of them would be set up than under a load that goes on.
    pub fn load_until(&self) -> Duration {
        self.measured_until() + self.deadline()
    }

    /// Returns the interval of samples of servers and callers.
    pub fn sample(&self) -> Duration {
        let asked = self.sample_asked.unwrap_or(match self.world {
            Kind::Sim => Duration::from_millis(100),
            Kind::Real => Duration::from_millis(250),
        });
        asked.max(self.measured_until() / SAMPLES_MAX)
    }
}
