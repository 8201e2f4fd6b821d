//! The liveness of a back end: a state machine in one 64-bit word.
//!
//! ```text
//! Up(errors)  ─── `limit` failures in a row ────────────────────► Down(until)
//! Up(errors)  ─── the transport reports that nothing listens ───► Down(until)
//! Down(until) ─── without probes: `until` reached, or an answer ► Up(errors)
//! Down(until) ─── with probes: `rise` answered probes in a row ─► Up(errors)
//! ```

use std::time::Duration;

use tidegate_world::Timestamp;

/// Maximum of the thresholds `fall` and `rise`.
pub const COUNT_MAX: u32 = 15;

const COUNT_BITS: u32 = 4;
const TIME_BITS: u32 = 64 - 1 - COUNT_BITS;
/// The latest time that the word can store, eighteen years after time zero. This value means
/// "never".
const LATEST: u64 = (1 << TIME_BITS) - 1;

/// The liveness of a back end, as requests and probes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// The back end answers.
    Up {
        /// Time at which the back end came up, in nanoseconds since the program started, or zero if
        /// it was never down.
        since: u64,
        /// Number of consecutive failures since the last answer.
        errors: u32,
    },
    /// The back end does not answer.
    Down {
        /// Time at which the back end counts as up even without an answer, in nanoseconds since the
        /// program started.
        until: u64,
        /// Number of consecutive probes that were answered.
        good: u32,
    },
}

impl Liveness {
    /// The initial state: up.
    pub(crate) const COLD: Self = Self::Up { since: 0, errors: 0 };

    pub const fn pack(self) -> u64 {
        let (kind, count, time) = match self {
            Self::Up { since, errors } => (0, errors, since),
            Self::Down { until, good } => (1, good, until),
        };
        let count = if count > COUNT_MAX { COUNT_MAX } else { count };
        let time = if time > LATEST { LATEST } else { time };
        time << (1 + COUNT_BITS) | (count as u64) << 1 | kind
    }

    pub const fn unpack(word: u64) -> Self {
        let count = (word >> 1) as u32 & COUNT_MAX;
        let time = word >> (1 + COUNT_BITS);
        match word & 1 {
            0 => Self::Up { since: time, errors: count },
            _ => Self::Down { until: time, good: count },
        }
    }

    pub fn is_up(self, now: Timestamp) -> bool {
        match self {
            Self::Up { .. } => true,
            Self::Down { until, .. } => until < LATEST && until <= now.as_nanos(),
        }
    }

    /// Returns the time at which the back end counts as up without an answer, or `None` if only an
    /// answer brings it back.
    pub(crate) fn up_by_itself_at(self) -> Option<Timestamp> {
        match self {
            Self::Up { .. } => Some(Timestamp::ZERO),
            Self::Down { until, .. } => (until < LATEST).then(|| Timestamp::from_nanos(until)),
        }
    }

    pub fn is_suspect(self) -> bool {
        matches!(self, Self::Up { errors: 1.., .. })
    }

    /// Returns the time at which the back end last came up, or zero if it was never down, or is
    /// down at `now`.
    pub(crate) fn up_since(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Up { since, .. } => Timestamp::from_nanos(since),
            Self::Down { until, .. } if self.is_up(now) => Timestamp::from_nanos(until),
            Self::Down { .. } => Timestamp::ZERO,
        }
    }

    /// Returns the state after an answered request. If the back end is down until it answers
    /// probes, the state does not change.
    pub fn on_answered(self, now: Timestamp) -> Self {
        match self {
            Self::Up { since, .. } => Self::Up { since, errors: 0 },
            Self::Down { until: LATEST.., .. } => self,
            Self::Down { until, .. } => Self::Up { since: until.min(now.as_nanos()), errors: 0 },
        }
    }

    /// Returns the state after an unanswered request or probe. After `limit` consecutive unanswered
    /// requests or probes, the back end is down for `pause`. If a back end is up only because its
    /// pause ended, the first failure takes it down again.
    pub(crate) fn on_unanswered(self, now: Timestamp, limit: u32, pause: Duration) -> Self {
        match self {
            Self::Up { since, errors } if errors + 1 < limit.min(COUNT_MAX) => {
                Self::Up { since, errors: errors + 1 }
            }
            _ => self.on_failed(now, pause),
        }
    }

    /// Returns the state after the transport reports that nothing listens at the address: down for
    /// `pause`.
    pub fn on_failed(self, now: Timestamp, pause: Duration) -> Self {
        let until = (now + pause).as_nanos().min(LATEST);
        match self {
            // A back end that waits for probes continues to wait.
            Self::Down { until: LATEST.., .. } => Self::Down { until: LATEST, good: 0 },
            _ => Self::Down { until, good: 0 },
        }
    }

    /// Returns the state after an answered probe. After `rise` consecutive answered probes, the
    /// back end is up.
    pub fn on_probe_answered(self, now: Timestamp, rise: u32) -> Self {
        match self {
            Self::Up { since, .. } => Self::Up { since, errors: 0 },
            Self::Down { until, good } if good + 1 >= rise => {
                Self::Up { since: until.min(now.as_nanos()), errors: 0 }
            }
            Self::Down { until, good } => Self::Down { until, good: good + 1 },
        }
    }

    /// Returns the state after probes are switched off. Failed probes no longer count. A back end
    /// that only an answered probe could bring up is now down until `until`.
    pub fn on_unprobed(self, until: Timestamp) -> Self {
        match self {
            Self::Up { since, .. } => Self::Up { since, errors: 0 },
            Self::Down { until: LATEST.., .. } => {
                Self::Down { until: until.as_nanos().min(LATEST - 1), good: 0 }
            }
            Self::Down { .. } => self,
        }
    }
}
