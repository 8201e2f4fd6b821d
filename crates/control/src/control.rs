//! What a law decides.

use crate::signals::{BUCKETS, Bucket};

/// How much of some new work is admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowance {
    /// All of it.
    Open,
    /// This share of it, 0 to 1.
    Fraction(f64),
    /// None of it.
    Closed,
}

impl Allowance {
    /// The share that is admitted, 0 to 1.
    pub fn fraction(self) -> f64 {
        match self {
            Self::Open => 1.0,
            Self::Fraction(fraction) => fraction,
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

/// What holds for the queue in which new sessions wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueControl {
    /// Sessions that may wait; more are refused. The server's own limit holds as well.
    pub waiting_max: usize,
    /// How it is emptied.
    pub release: Release,
}

/// All that a law decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    admit: [Allowance; BUCKETS],
    /// The queue of new sessions.
    pub queue: QueueControl,
}

impl Control {
    /// Admits everything.
    pub const OPEN: Self = Self {
        admit: [Allowance::Open; BUCKETS],
        queue: QueueControl { waiting_max: usize::MAX, release: Release::Open },
    };

    /// What is admitted of the work in `bucket`.
    pub fn admit(&self, bucket: Bucket) -> Allowance {
        self.admit[bucket as usize]
    }

    /// Admits this much of the work in every bucket.
    pub fn admit_of_all(&mut self, allowance: Allowance) {
        self.admit = [allowance; BUCKETS];
    }
}
