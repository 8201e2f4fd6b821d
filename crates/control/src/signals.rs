//! What one server can see of itself.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Backlog, Costs, Mix, Sessions, Sojourn};

/// Kinds of new work that are admitted separately, each by a throttle of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bucket {
    /// What begins a session, and brings more work after it.
    Session,
    /// A request that stands alone.
    Single,
    /// What begins a session and goes before all others, up to a rate of its own.
    Priority,
}

pub(crate) const BUCKETS: usize = 3;

impl Bucket {
    /// All of them.
    pub const ALL: [Self; BUCKETS] = [Self::Session, Self::Single, Self::Priority];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Single => "single",
            Self::Priority => "priority",
        }
    }
}

/// New work of one bucket since the start. Always
/// `offered = admitted + refused + (undecided, which wait for service)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Messages that ask for it, repetitions included.
    pub arrived: u64,
    /// Pieces of work, each counted once.
    pub offered: u64,
    /// Pieces that entered the queue.
    pub entered: u64,
    /// Pieces that were taken from the queue to be served.
    pub taken: u64,
    /// Pieces that were admitted.
    pub admitted: u64,
    /// Pieces that were refused.
    pub refused: u64,
    /// Pieces that had been admitted, and were refused when their turn came: they had waited too
    /// long. What is judged only then is among the refused.
    pub stale: u64,
    /// Repetitions of what was decided, or waits.
    pub repeated: u64,
}

/// The queue in which new sessions wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// What waits there. In a queue that all messages share, all of them.
    pub waiting: usize,
    /// How many can wait there.
    pub room: usize,
    /// What may be released and was not, when the release has a rate: above 1 the processor
    /// is slower than the release.
    pub credit: f64,
    /// The longest that a new session waited in a receive buffer before it was looked at,
    /// of those that arrived since the last tick.
    pub lag: Duration,
}

/// A message whose service has begun, or is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// It asked for new work.
    pub is_new: bool,
    /// From its arrival to the start of its service.
    pub sojourn: Duration,
    /// How long its service took; zero until that is known.
    pub cost: Duration,
}

/// Occupied time of the processor, as last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// When it was read.
    pub at: Timestamp,
    /// Occupied time since the start.
    pub occupied: Duration,
}

impl Reading {
    /// Occupancy between an earlier reading and this, 0 to 1; `None` if no time has passed.
    pub fn occupancy_since(self, earlier: Self) -> Option<f64> {
        let passed = self.at.since(earlier.at);
        let occupied = self.occupied.saturating_sub(earlier.occupied);
        (!passed.is_zero()).then(|| (occupied.as_secs_f64() / passed.as_secs_f64()).min(1.0))
    }
}

/// What one server can see of itself. Counts are since the start: a law keeps the values it
/// wants the difference to.
#[derive(Debug, Default)]
pub struct Signals {
    /// Messages of all kinds that have arrived.
    pub messages: u64,
    /// Messages of all kinds that were not admitted, the repetitions of refused ones among them.
    pub messages_refused: u64,
    /// Those of them that nobody behind had room for, with their repetitions. What a law admits makes
    /// no difference to them.
    pub messages_full: u64,
    /// New work, by bucket.
    pub(crate) flows: [Flow; BUCKETS],
    pub(crate) in_progress: [u64; BUCKETS],
    /// The processor.
    pub processor: Reading,
    /// Fill of the fullest receive buffer, 0 to 1.
    pub socket_fill: f64,
    /// The queue of new sessions.
    pub queue: Queue,
    /// Time from arrival to the start of service.
    pub sojourn: Sojourn,
    /// At the start of a service and at its completion: that message. Not every completion is
    /// seen: what a message took is known only if another is served right after it.
    pub service: Service,
    /// What a message of each class costs.
    pub costs: Costs,
    /// What arrives, by class.
    pub mix: Mix,
    /// What is known of whole sessions.
    pub sessions: Sessions,
    /// Messages that wait, by what is known of them.
    pub backlog: Backlog,
}

impl Signals {
    /// New work of one bucket.
    pub fn flow(&self, bucket: Bucket) -> &Flow {
        &self.flows[bucket as usize]
    }

    /// Pieces of new work of one bucket that are in progress: they entered the queue, and were
    /// not taken from it yet.
    pub fn in_progress(&self, bucket: Bucket) -> u64 {
        self.in_progress[bucket as usize]
    }

    /// Whole sessions in what waits, also of those that have begun.
    pub fn sessions_waiting(&self) -> f64 {
        self.sessions.waiting(&self.backlog, self.mix.share_of_new())
    }

    pub(crate) fn flow_mut(&mut self, bucket: Bucket) -> &mut Flow {
        &mut self.flows[bucket as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_is_the_occupied_share_of_the_time_between_two_readings() {
        let reading = |at_ms: u64, occupied_ms| Reading {
            at: Timestamp::from_nanos(at_ms * 1_000_000),
            occupied: Duration::from_millis(occupied_ms),
        };
        let first = reading(100, 40);
        assert_eq!(reading(120, 45).occupancy_since(first), Some(0.25));
        assert_eq!(reading(100, 40).occupancy_since(first), None);
        // Two clocks never agree to the last nanosecond.
        assert_eq!(reading(110, 51).occupancy_since(first), Some(1.0));
    }
}
