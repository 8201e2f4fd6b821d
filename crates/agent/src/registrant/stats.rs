//! The counts of a registrant.

use std::time::Duration;

use serde::Serialize;
use tidegate_world::Timestamp;

use crate::caller::Failures;
use crate::delays::Delays;

/// The registrations of a run that were due after its warm-up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MeasuredRegistrations {
    /// Registrations that were due.
    pub offered: u64,
    /// Registrations answered with 2xx.
    pub registered: u64,
    /// Registrations answered with 2xx within [`deadline`](crate::RegistrantConfig::deadline) of
    /// their intended time.
    pub registered_in_time: u64,
    /// Registrations answered with 503.
    pub rejected: u64,
    /// Number of retransmitted REGISTERs.
    pub repeated: u64,
    /// Delays from the intended time of a registration to the arrival of the 2xx.
    pub delay: Delays,
}

/// Counts of a registrant. At all times, `offered = begun + not_begun` and `begun = registered +
/// failed + open`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RegistrantStats {
    /// Registrations that have become due.
    pub offered: u64,
    /// Registrations whose REGISTER was sent.
    pub begun: u64,
    /// Registrations that were not started, because the user still waited for the response to its
    /// last REGISTER, or because too many REGISTERs waited for responses.
    pub not_begun: u64,
    /// Registrations in `not_begun` that were not started because
    /// [`open_max`](crate::RegistrantConfig::open_max) REGISTERs waited for responses.
    pub overflowed: u64,
    /// REGISTERs without a final response yet.
    pub open: u64,
    /// Registrations answered with 2xx.
    pub registered: u64,
    /// Registrations answered with 2xx within
    /// [`deadline`](crate::RegistrantConfig::deadline) of their intended time.
    pub registered_in_time: u64,
    /// Registrations that failed.
    pub failed: Failures,
    /// REGISTERs retransmitted by timer E.
    pub repeated: u64,
    /// The shortest expiry that the registrar granted, in seconds, or `None` if no 2xx stated one.
    pub granted_s_min: Option<u32>,
    /// The longest expiry that the registrar granted, in seconds, or `None` if no 2xx stated one.
    pub granted_s_max: Option<u32>,
    /// Registrations answered with a 2xx that does not state the expiry of the binding.
    pub granted_unknown: u64,
    /// Delays from the intended time of a registration to the arrival of the 2xx.
    pub delay: Delays,
    /// Delays from the intended time of a registration to its actual start.
    pub lateness: Delays,
    /// Counts of the registrations that were due after the warm-up.
    pub measured: MeasuredRegistrations,
    /// Keep-alives sent.
    pub pings: u64,
    /// Connections that ended, or could not be opened, although we had not closed them.
    pub connections_ended: u64,
    /// Messages that are not responses to a REGISTER of this registrant.
    pub unexpected: u64,
    /// Responses to a REGISTER that had already got its final response, or had failed.
    pub late: u64,
    /// Packets that are not SIP.
    pub malformed: u64,
    /// Messages whose delivery the transport reported as failed.
    pub undelivered: u64,
    /// Earliest time at which the first registration may start.
    #[serde(skip)]
    pub start: Timestamp,
    /// Intended time of the last registration that was due.
    #[serde(skip)]
    pub last_intended: Timestamp,
    /// Time at which the last registration was started.
    #[serde(skip)]
    pub last_begun: Timestamp,
}

/// Delay that at most 1 % of the registrations may exceed.
const LATENESS_MAX: Duration = Duration::from_millis(5);

impl RegistrantStats {
    /// Returns the reason why the registrant was too slow to offer its load, or `None` if it was
    /// fast enough. A registration that was not started because its user still waited for a
    /// response does not count.
    pub(crate) fn too_slow(&self) -> Option<&'static str> {
        let missing = self.overflowed as f64 / self.offered.max(1) as f64;
        let intended = self.last_intended.since(self.start);
        let begun = self.last_begun.since(self.start);
        if self.lateness.quantile(0.99) > LATENESS_MAX {
            Some("1 % of the registrations began more than 5 ms late")
        } else if missing > 0.01 {
            Some(
                "more than 1 % of the registrations did not begin: too many were open (--open-max)",
            )
        } else if begun > intended.mul_f64(1.01) + LATENESS_MAX {
            Some("the last registrations began too late")
        } else {
            None
        }
    }

    /// Records that a 2xx of the registrar grants this expiry, in seconds.
    pub(crate) fn granted(&mut self, seconds: u32) {
        let least = self.granted_s_min.map_or(seconds, |least| least.min(seconds));
        let most = self.granted_s_max.map_or(seconds, |most| most.max(seconds));
        (self.granted_s_min, self.granted_s_max) = (Some(least), Some(most));
    }
}
