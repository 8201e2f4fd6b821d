//! When a message is next repeated.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::Timing;

/// Repetitions at intervals that begin at T1 and double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// When it is next due.
    at: Timestamp,
    /// How often the interval has doubled.
    doubled: u8,
}

impl Backoff {
    /// Of a message that is sent now; `None` over a reliable transport.
    pub fn start(now: Timestamp, timing: &Timing) -> Option<Self> {
        (!timing.reliable).then(|| Self { at: now + timing.t1, doubled: 0 })
    }

    /// When the next repetition is due.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// After a repetition: the interval doubles, up to `interval_max`.
    pub fn double(self, now: Timestamp, timing: &Timing, interval_max: Duration) -> Self {
        // 64·T1 ends every transaction: six doublings are all there is time for.
        let doubled = (self.doubled + 1).min(7);
        let interval = (timing.t1 * (1 << doubled)).min(interval_max);
        Self { doubled, ..self.again(now, interval) }
    }

    /// After a repetition: the next comes after `interval`. It counts from the moment this
    /// one was due, so that a late one does not delay all others.
    pub(crate) fn again(self, now: Timestamp, interval: Duration) -> Self {
        let at = self.at + interval;
        // Of several that were missed one is made up for.
        let at = if at > now { at } else { now + interval };
        Self { at, ..self }
    }
}
