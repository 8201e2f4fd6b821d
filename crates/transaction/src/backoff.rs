//! When a message is next repeated.

use std::num::NonZeroU8;
use std::time::Duration;

use tidegate_world::Timestamp;

use crate::Timing;

const TWO: NonZeroU8 = NonZeroU8::new(2).unwrap();

/// Repetitions at intervals that begin at T1 and double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// When it is next due.
    at: Timestamp,
    /// The interval that ends then, in T1, but for an upper limit. 64·T1 ends every transaction:
    /// where no limit holds, it does not grow further.
    interval: NonZeroU8,
}

impl Backoff {
    /// Of a message that is sent now; `None` over a reliable transport.
    pub fn start(now: Timestamp, timing: &Timing) -> Option<Self> {
        (!timing.reliable).then(|| Self { at: now + timing.t1, interval: NonZeroU8::MIN })
    }

    /// When the next repetition is due.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// After a repetition: the interval doubles, up to `interval_max`.
    pub fn double(self, now: Timestamp, timing: &Timing, interval_max: Duration) -> Self {
        let interval = self.interval.saturating_mul(TWO);
        let next = (timing.t1 * u32::from(interval.get())).min(interval_max);
        Self { interval, ..self.again(now, next) }
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
