//! The timers of RFC 3261 table 4, over an unreliable transport.

use std::time::Duration;

use tidegate_world::Timestamp;

pub const T1: Duration = Duration::from_millis(500);
pub const T2: Duration = Duration::from_secs(4);
pub const T4: Duration = Duration::from_secs(5);

/// The duration of timers B, F, H, J, L and M, and of timer D, which is "at least 32 seconds".
pub const T1_64: Duration = Duration::from_secs(32);

/// RFC 3261 §16.6 item 11: "The timer MUST be larger than 3 minutes."
pub const TIMER_C: Duration = Duration::from_secs(190);

/// RFC 4320 §4.1: "the amount of time it takes a client transaction's Timer E to be reset to T2".
pub const TRYING_AFTER: Duration = Duration::from_millis(3500);

/// The time of the next retransmission, and the interval before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    pub at: Timestamp,
    interval: Duration,
}

impl Repetition {
    pub fn from(now: Timestamp) -> Self {
        Self { at: now + T1, interval: T1 }
    }

    /// Returns the retransmission after this one, at most `longest` later.
    pub fn doubled(self, longest: Duration) -> Self {
        self.after((self.interval * 2).min(longest))
    }

    pub fn after(self, interval: Duration) -> Self {
        Self { at: self.at + interval, interval }
    }
}
