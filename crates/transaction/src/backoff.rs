//! The schedule of the retransmissions of a message.

use std::num::NonZeroU8;
use std::time::Duration;

use tidegate_world::Timestamp;

use crate::Timing;

const TWO: NonZeroU8 = NonZeroU8::new(2).unwrap();

/// A schedule of retransmissions. The first interval is T1. Each later one is twice as long, up to
/// a limit that the caller sets, or has the length that the caller sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The time of the next retransmission.
    at: Timestamp,
    /// The length of the interval that ends at `at`, in units of T1, before any upper limit is
    /// applied. The value saturates at 255: every transaction ends after 64·T1, so no longer
    /// interval is needed.
    interval: NonZeroU8,
}

impl Backoff {
    /// Starts the schedule of a message that is sent now. Returns `None` over a reliable transport.
    ///
    /// RFC 3261 §17.1.1.2: "If a reliable transport is being used, the client transaction SHOULD
    /// NOT start timer A (Timer A controls request retransmissions)."
    pub fn start(now: Timestamp, timing: &Timing) -> Option<Self> {
        (!timing.reliable).then(|| Self { at: now + timing.t1, interval: NonZeroU8::MIN })
    }

    /// Returns the time of the next retransmission.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Advances the schedule after a retransmission: the interval doubles, up to `interval_max`.
    ///
    /// RFC 3261 §17.1.1.2: "Whatever the value of T1, the exponential backoffs on retransmissions
    /// described in this section MUST be used."
    pub fn double(self, now: Timestamp, timing: &Timing, interval_max: Duration) -> Self {
        let interval = self.interval.saturating_mul(TWO);
        let next = (timing.t1 * u32::from(interval.get())).min(interval_max);
        Self { interval, ..self.again(now, next) }
    }

    /// Advances the schedule after a retransmission by `interval`. The interval counts from the
    /// time at which the retransmission was due, so that a late retransmission does not delay the
    /// later ones.
    pub(crate) fn again(self, now: Timestamp, interval: Duration) -> Self {
        let at = self.at + interval;
        // If several retransmissions were missed, only one of them is sent late.
        let at = if at > now { at } else { now + interval };
        Self { at, ..self }
    }
}
