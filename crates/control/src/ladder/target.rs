//! Determines whether the share applies to all sources, or only to the heavy ones.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::period::Period;
use super::{LEFT, LOAD_WEIGHT};

/// The part of the messages that were read that may pass after an overflow.
const BACK: f64 = 0.9;

/// Replaces [`BACK`] while the share applies only to heavy sources, and others send too. The others
/// do not cause the overflow, but it also loses their messages, so it must end soon.
const BACK_IF_TARGETED: f64 = 0.5;

/// The part of the messages that were served that may pass at least, with [`BACK_IF_TARGETED`].
const PASSING_PER_SERVED: f64 = 0.75;

/// The others are few if they send less than this part of the messages that were read. Then all
/// messages that were served may pass: to end the overflow sooner is worth less than the calls of
/// the heavy sources.
const FEW: f64 = 0.02;

/// The idle part of a period above which an overflow comes from a standstill and not from a flood. It
/// is then forgotten soon.
const STANDSTILL: f64 = 0.5;

/// Messages a second from which on other sources count as sending too.
const OTHERS_CPS: f64 = 5.0;

/// Number of periods in a row in which dropping only the messages of heavy sources must fail, before
/// the share applies to all sources.
const FAILED_MAX: u32 = 3;

/// Time for which the share then applies to all sources.
const ALL_FOR: Duration = Duration::from_secs(10);

/// The sources to which the share applies.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// True if the share applies only to heavy sources.
    is_heavy_only: bool,
    /// Average of the messages a second that came from the other sources.
    others_cps: f64,
    /// Number of periods in a row in which the messages of the other sources were too many.
    failed: u32,
    /// The share must apply to all sources before this time.
    all_until: Timestamp,
}

impl Target {
    /// Creates a target that includes all sources.
    pub(super) fn new() -> Self {
        Self { is_heavy_only: false, others_cps: 0.0, failed: 0, all_until: Timestamp::ZERO }
    }

    /// Sets whether the share applies only to heavy sources.
    pub(super) fn set(&mut self, is_heavy_only: bool) {
        self.is_heavy_only = is_heavy_only;
    }

    /// Returns whether the share may apply only to heavy sources.
    pub(super) fn may_be_heavy_only(&self, now: Timestamp) -> bool {
        now >= self.all_until
    }

    /// Takes a period into account.
    pub(super) fn measure(&mut self, period: &Period) {
        self.others_cps += LOAD_WEIGHT * (period.others() - self.others_cps);
    }

    /// Makes the share apply to all sources for a time, if the messages of the others alone were
    /// too many in several periods in a row. `can_pass` is the number of messages a second that can
    /// be served or rejected. The others are too many if they exceed the part of `can_pass` that
    /// spared messages leave, or if buffers overflow and they are more than the messages of heavy
    /// sources. Spared messages themselves do not count, because the share cannot drop them.
    pub(super) fn judge(
        &mut self,
        now: Timestamp,
        period: &Period,
        overflows: bool,
        can_pass: f64,
    ) {
        let others = (period.others() - period.spared).max(0.0);
        let left = (can_pass - period.spared).max(LEFT * can_pass);
        let is_most = others > period.asked - period.others();
        let fails = self.is_heavy_only && (others > left || overflows && is_most);
        self.failed = if fails { self.failed + 1 } else { 0 };
        if self.failed >= FAILED_MAX {
            (self.failed, self.all_until) = (0, now + ALL_FOR);
        }
    }

    /// Returns the number of messages a second that may pass after a period with an overflow.
    pub(super) fn passing_after_overflow(&self, period: &Period) -> f64 {
        if self.loses_others(period) {
            let are_few = self.others_cps < FEW * period.asked;
            let served = if are_few { 1.0 } else { PASSING_PER_SERVED } * period.taken;
            (BACK_IF_TARGETED * period.asked).max(served).min(BACK * period.asked)
        } else {
            BACK * period.asked
        }
    }

    /// Returns whether an overflow in this period also loses messages of sources that do not cause
    /// it.
    pub(super) fn loses_others(&self, period: &Period) -> bool {
        self.is_heavy_only && self.others_cps > OTHERS_CPS && period.idle < STANDSTILL
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
