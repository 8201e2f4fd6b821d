//! Devices that keep a registration: their configuration and counts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_world::add_fields;

use crate::delays::Delays;

/// A population of devices, all behind the caller's address. At the start, each device is
/// registered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DevicesConfig {
    /// Number of devices, up to [`COUNT_MAX`](Self::COUNT_MAX).
    pub count: u32,
    /// Time from the 2xx to a REGISTER until the device refreshes its registration. The first
    /// refreshes are uniformly distributed over this time. So `count / refresh` devices register a
    /// second on average.
    pub refresh: Duration,
    /// Wait of a device after a failed attempt to register.
    pub back_off: BackOff,
    /// True if a device waits at least as long as the Retry-After of a rejection says.
    pub obeys_retry_after: bool,
    /// An event at which devices lose their registrations, or `None`.
    pub loss: Option<RegistrationLoss>,
}

/// The wait of a device after a failed attempt to register.
///
/// RFC 5626 §4.5: "W = min( max-time, (base-time * (2 ^ consecutive-failures)))", and "the retry
/// delay time is computed by selecting a uniform random time between 50 and 100% of the upper-bound
/// wait time". In the RFC, the base is 30 s, the maximum is 1800 s, and the jitter is 0.5. Other
/// values describe devices that follow another rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackOff {
    /// Half the longest wait after the first failure. Each further failure doubles the longest
    /// wait.
    pub base: Duration,
    /// The longest wait after any number of failures.
    pub max: Duration,
    /// The random part of a wait, 0 to 1. A wait is between `1 - jitter` and 1 times its upper
    /// bound.
    pub jitter: f64,
}

/// An event at which devices lose their registrations and register again: an avalanche.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegistrationLoss {
    /// Time of the loss, counted from the start of the run.
    pub at: Duration,
    /// The share of devices that lose their registration, 0..1.
    pub share: f64,
    /// Time after the event within which the devices send their first REGISTER, uniformly
    /// distributed. If zero, all devices send it at once.
    pub within: Duration,
}

impl DevicesConfig {
    /// Maximum number of devices of one caller.
    pub const COUNT_MAX: u32 = 1_000_000;

    pub(super) fn is_valid(&self) -> bool {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        self.count <= Self::COUNT_MAX
            && !self.refresh.is_zero()
            && !self.back_off.base.is_zero()
            && !self.back_off.max.is_zero()
            && is_share(self.back_off.jitter)
            && self.loss.is_none_or(|loss| is_share(loss.share))
    }
}

impl BackOff {
    /// Returns the wait after this number of consecutive failures. `unit` is a random number from 0
    /// to 1.
    pub(super) fn wait(&self, failures: u32, unit: f64) -> Duration {
        let doubled = 2u32.checked_pow(failures).and_then(|factor| self.base.checked_mul(factor));
        let bound = doubled.map_or(self.max, |wait| wait.min(self.max));
        bound.mul_f64(1.0 - self.jitter * unit)
    }
}

/// Counts of devices. At all times, `attempts` is the sum of `accepted`, `timeouts`, `open` and all
/// numbers in `rejected`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct DeviceStats {
    /// Number of devices.
    pub devices: u64,
    /// Devices that have not lost their registration since their last attempt, which succeeded. A
    /// device whose refresh failed does not count, although the registrar keeps its binding for
    /// nearly another refresh interval.
    pub registered: u64,
    /// Registrations lost in the [`RegistrationLoss`].
    pub lost: u64,
    /// Attempts to register, without retransmissions of the REGISTER.
    pub attempts: u64,
    /// REGISTERs retransmitted, by timer E.
    pub repeated: u64,
    /// Attempts answered with 2xx.
    pub accepted: u64,
    /// Attempts rejected, by status.
    pub rejected: BTreeMap<u16, u64>,
    /// Attempts without a final response in 64·T1 (timer F).
    pub timeouts: u64,
    /// Attempts that have got no final response yet.
    pub open: u64,
    /// Responses that belong to no open attempt.
    pub late: u64,
    /// Times from the loss of a registration, or from a failed refresh, to the 2xx of the next
    /// successful attempt.
    pub delay: Delays,
}

impl DeviceStats {
    pub(super) fn merge(&mut self, other: &Self) {
        add_fields! { self += other {
            devices, registered, lost, attempts, repeated, accepted, timeouts, open, late;
            merge delay; but rejected
        } }
        for (&status, count) in &other.rejected {
            *self.rejected.entry(status).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 5626 Appendix A has these waits if all flows are unusable: "1 30-60 s", "2 1-2 min", "3
    // 2-4 min", "6 15-30 min".
    #[test]
    fn waits_are_those_of_rfc_5626() {
        let s = Duration::from_secs;
        let back_off = BackOff { base: s(30), max: s(1800), jitter: 0.5 };
        for (failures, longest) in [(1, 60), (2, 120), (3, 240), (6, 1800), (40, 1800)] {
            assert_eq!(back_off.wait(failures, 0.0), s(longest), "{failures}");
            assert_eq!(back_off.wait(failures, 1.0), s(longest / 2), "{failures}");
        }
        let constant = BackOff { base: s(5), max: s(5), jitter: 0.0 };
        assert_eq!([1, 9].map(|failures| constant.wait(failures, 0.7)), [s(5); 2]);
    }
}
