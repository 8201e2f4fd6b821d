//! The times of a run: its deadline, its sampling interval, and the ends of its measurement and
//! load.

use std::time::Duration;

use super::RunSpec;
use crate::world_kind::Kind;

/// Maximum number of samples from the start of a run until the end of its measured time.
const SAMPLES_MAX: u32 = 10_000;

impl RunSpec {
    /// Returns the longest set-up delay of a call that counts as goodput.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.conditions.deadline_ms / 1e3)
    }

    /// Returns the end of the measured time, as the time after the start of the run.
    pub fn measured_until(&self) -> Duration {
        self.warm_up + self.measured
    }

    /// Returns the end of the load, as the time after the start of the run.
    ///
    /// The load continues after the measured time, until the deadline of the last measured call. If
    /// the load ended earlier, the last measured calls would meet an idle server, and more of them
    /// than usual would be set up.
    pub(crate) fn load_until(&self) -> Duration {
        self.measured_until() + self.deadline()
    }

    /// Returns the interval between samples of servers and callers.
    pub fn sample(&self) -> Duration {
        let asked = self.sample_asked.unwrap_or(match self.world {
            Kind::Sim => Duration::from_millis(100),
            Kind::Real => Duration::from_millis(250),
        });
        asked.max(self.measured_until() / SAMPLES_MAX)
    }
}
