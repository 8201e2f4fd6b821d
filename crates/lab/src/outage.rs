//! The course of an outage: the work that waits when the cause of the overload (the trigger) ends,
//! and the time until the goodput recovers.

use serde::{Deserialize, Serialize};

/// Numbers that describe an outage, over the whole run unless a field says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Time at which the trigger ended, in seconds after the start of the load.
    pub trigger_ended_s: f64,
    /// Work that waited when the trigger ended, in seconds of work at full capacity. It includes
    /// the calls of people who wait for an answer or to call again. It also includes the REGISTERs
    /// of devices whose last REGISTER failed or that lost their registration.
    pub backlog_s: f64,
    /// The part of `backlog_s` that the calls take. Goodput can be back before the devices are
    /// registered, so `backlog_s` may contain much more work than the goodput needs.
    pub backlog_calls_s: f64,
    /// Seconds from the end of the trigger until the goodput has recovered, or `None` if it has not
    /// recovered at the end of the run. The goodput has recovered when, from then on, in every
    /// period of 5 s, the calls set up in time are at least 95 % of the first attempts or of the
    /// capacity, whichever is smaller.
    pub recovered_s: Option<f64>,
    /// Seconds from the end of the trigger to the time from which at least 99 % of the devices stay
    /// registered until the end of the run. `None` if there are no devices or no such time.
    pub registered_s: Option<f64>,
    /// Number of calls set up in time divided by the number of first attempts, both in the last 30
    /// s of the load.
    pub goodput_end: f64,
    /// The share of devices that are registered at the end of the run, or `None` if there are no
    /// devices.
    pub registered_end: Option<f64>,
    /// Emergency calls offered after the warm-up.
    pub emergency: u64,
    /// Emergency calls set up in time.
    pub emergency_in_time: u64,
}

impl Outage {
    /// Returns the fraction of the emergency calls that were set up in time, 0 to 1, or `None` if
    /// no emergency calls were offered.
    pub(crate) fn emergency_part(&self) -> Option<f64> {
        (self.emergency > 0).then(|| self.emergency_in_time as f64 / self.emergency as f64)
    }

    /// Returns the time limit for the recovery of goodput, in seconds: 1.1 times the backlog.
    /// During this time new calls arrive too, so the servers cannot serve the whole backlog. But
    /// goodput can recover while a part of the backlog still waits.
    pub fn limit_s(&self) -> f64 {
        1.1 * self.backlog_s
    }
}
