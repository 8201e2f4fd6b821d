//! Determines whether messages of all sources are dropped, or only those of heavy sources.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::LOAD_WEIGHT;
use super::period::Period;

/// After an overflow, at most this part of the messages that were read before may pass.
const BACK: f64 = 0.9;

/// Replaces [`BACK`] while only messages of heavy sources are dropped, and other sources send too.
/// The other sources do not cause the overflow, but it also loses their messages, so it must end
/// soon.
const BACK_IF_TARGETED: f64 = 0.5;

/// With [`BACK_IF_TARGETED`], at least this part of the messages that were served may pass.
const PASSING_PER_SERVED: f64 = 0.75;

/// If the sources that are not heavy send less than this part of the messages that were read, as
/// many messages may pass as were served. The calls of the heavy sources are then worth more than
/// an earlier end of the overflow.
const FEW: f64 = 0.02;

/// If more than this part of a period was idle, the overflow of the period came from a standstill
/// of the process, not from a flood. Such an overflow is soon forgotten.
const STANDSTILL: f64 = 0.5;

/// Messages a second above which the sources that are not heavy count as sending too.
const OTHERS_CPS: f64 = 5.0;

/// Number of periods in a row in which dropping only the messages of heavy sources must fail,
/// before the dropped share applies to all sources.
const FAILED_MAX: u32 = 3;

/// Time for which messages of all sources are dropped, if it was not enough to drop only messages
/// of heavy sources.
const ALL_FOR: Duration = Duration::from_secs(10);

/// The sources whose messages are dropped: all sources, or only heavy ones.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// True if only messages of heavy sources are dropped.
    is_heavy_only: bool,
    /// Average of the messages a second that came from sources whose messages are not dropped.
    others_cps: f64,
    /// Number of periods in a row in which dropping only the messages of heavy sources was not
    /// enough.
    failed: u32,
    /// Until this time, messages of all sources are dropped, not only messages of heavy sources.
    all_until: Timestamp,
}

impl Target {
    /// Creates a target that includes all sources.
    pub(super) fn new() -> Self {
        Self { is_heavy_only: false, others_cps: 0.0, failed: 0, all_until: Timestamp::ZERO }
    }

    /// Sets whether only messages of heavy sources are dropped.
    pub(super) fn set(&mut self, is_heavy_only: bool) {
        self.is_heavy_only = is_heavy_only;
    }

    /// Returns whether the ladder may now limit its drops to the messages of heavy sources. For a
    /// time after this was not enough, it may not.
    pub(super) fn may_be_heavy_only(&self, now: Timestamp) -> bool {
        now >= self.all_until
    }

    /// Updates the rate of messages from the other sources with the counts of a period.
    pub(super) fn measure(&mut self, period: &Period) {
        self.others_cps += LOAD_WEIGHT * (period.others() - self.others_cps);
    }

    /// Makes the ladder drop messages of all sources for a time, if the messages of the sources
    /// that are not heavy were too many in several periods in a row. They are too many in two
    /// cases: they exceed the `can_pass` messages a second that can be served or rejected, or
    /// buffers overflow and they are more than the messages of heavy sources.
    /// [Spared](super::Tally::spared) messages are neither judged nor subtracted from `can_pass`.
    /// Otherwise a stranger could send many of them, and so have the messages of all sources
    /// dropped.
    pub(super) fn judge(
        &mut self,
        now: Timestamp,
        period: &Period,
        overflows: bool,
        can_pass: f64,
    ) {
        let others = (period.others() - period.spared).max(0.0);
        let is_most = others > period.asked - period.others();
        let fails = self.is_heavy_only && (others > can_pass || overflows && is_most);
        self.failed = if fails { self.failed + 1 } else { 0 };
        if self.failed >= FAILED_MAX {
            (self.failed, self.all_until) = (0, now + ALL_FOR);
        }
    }

    /// Returns the number of messages a second that may pass after a period in which a buffer
    /// overflowed.
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
