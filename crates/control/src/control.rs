//! What a law decides.

use std::time::Duration;

use crate::signals::{BUCKETS, Bucket};

/// How much of some new work is admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowance {
    /// All of it.
    Open,
    /// This share of it, 0 to 1.
    Fraction(f64),
    /// So many pieces a second.
    Rate(f64),
    /// So many pieces in progress at the same time: they entered the queue, and their service
    /// has not begun. Judged as they are taken from it, a piece passes if fewer are behind it.
    Window(f64),
    /// None of it.
    Closed,
}

impl Allowance {
    /// The share that is admitted, 0 to 1, of work that arrives at `rate` pieces a second while
    /// none is in progress.
    pub fn fraction(self, rate: f64) -> f64 {
        match self {
            Self::Open => 1.0,
            Self::Fraction(fraction) => fraction,
            Self::Rate(allowed) if rate > 0.0 => (allowed / rate).clamp(0.0, 1.0),
            Self::Window(window) if window < 1.0 => 0.0,
            Self::Rate(_) | Self::Window(_) => 1.0,
            Self::Closed => 0.0,
        }
    }
}

/// How the queue of new work is emptied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Release {
    /// Whenever the processor has nothing more urgent.
    Open,
    /// At this rate at the most, in pieces of work a second.
    Rate(f64),
}

/// Who is taken first from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Who has waited longest.
    Fifo,
    /// Who has come last: its caller is the most likely to be still there.
    Lifo,
}

/// What holds for the queue in which new sessions wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueControl {
    /// Sessions that may wait; more are refused. The server's own limit holds as well.
    pub waiting_max: usize,
    /// How it is emptied.
    pub release: Release,
    /// Who is taken first.
    pub order: Order,
    /// What has waited longer is refused when its turn comes.
    pub wait_max: Option<Duration>,
}

/// All that a law decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    admit: [Allowance; BUCKETS],
    /// The queue of new sessions.
    pub queue: QueueControl,
    /// New sessions whose rank, 0 to 1, lies below are refused. A session and its repetitions
    /// have one rank; it is drawn, and so the floor is the share that is refused.
    pub rank_floor: f64,
    /// The message that has just arrived passes its throttle whatever the allowance. The gate
    /// takes it back once that is judged; where it is judged only as it is served, from one
    /// queue of all, the next one that is.
    pub admit_next: bool,
}

impl Control {
    /// Admits everything.
    pub const OPEN: Self = Self {
        admit: [Allowance::Open; BUCKETS],
        queue: QueueControl {
            waiting_max: usize::MAX,
            release: Release::Open,
            order: Order::Fifo,
            wait_max: None,
        },
        rank_floor: 0.0,
        admit_next: false,
    };

    /// Whether work that was taken from the queue has waited in it for too long.
    pub(crate) fn makes_stale(&self, bucket: Bucket, sojourn: Duration) -> bool {
        bucket == Bucket::Session && self.queue.wait_max.is_some_and(|max| sojourn > max)
    }

    /// What is admitted of the work in `bucket`.
    pub fn admit(&self, bucket: Bucket) -> Allowance {
        self.admit[bucket as usize]
    }

    /// Admits this much of the work in every bucket.
    pub fn admit_of_all(&mut self, allowance: Allowance) {
        self.admit = [allowance; BUCKETS];
    }
}
