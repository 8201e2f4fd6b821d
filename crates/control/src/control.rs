//! The decisions of a law.

use std::time::Duration;

use crate::signals::{BUCKETS, Bucket};

/// The amount of new work that is admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowance {
    /// All new work.
    Open,
    /// This share of the new work, 0 to 1.
    Fraction(f64),
    /// At most this number of pieces of new work a second.
    Rate(f64),
    /// At most this number of waiting pieces. A piece waits from the moment when it enters the
    /// queue until its service begins. If the gate judges a piece when it is taken from the queue,
    /// the piece passes if fewer than this number of other pieces still wait.
    Window(f64),
    /// No new work.
    Closed,
}

impl Allowance {
    /// Returns the admitted share, 0 to 1, if `rate` pieces arrive a second and none waits.
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

/// The release of work from the queue of new work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Release {
    /// Work is released whenever the processor has nothing more urgent.
    Open,
    /// Work is released at most at this rate, in pieces a second.
    Rate(f64),
}

/// The order in which the queue is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// The piece that has waited longest is first.
    Fifo,
    /// The newest piece is first, because its caller is the least likely to have hung up.
    Lifo,
}

/// The control of the queue of new sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueControl {
    /// Maximum number of sessions that wait. Further sessions are rejected. The server's own limit
    /// applies as well.
    pub waiting_max: usize,
    /// The rate at which sessions are released from the queue.
    pub release: Release,
    /// The order in which the queue is served.
    pub order: QueueOrder,
    /// True if waiting sessions take turns with messages of existing calls. Otherwise messages of
    /// existing calls are served before sessions, except for a few.
    pub takes_turns: bool,
    /// A session is released only while fewer INVITEs than this number [wait for an
    /// answer](crate::Answers). This has no effect if the gate judges work when it is taken from the
    /// queue, or if all messages wait in one queue.
    pub unanswered_max: f64,
    /// Maximum wait of a session, or `None` for no limit. A session that has waited longer is
    /// rejected when its turn comes.
    pub wait_max: Option<Duration>,
}

/// All decisions of a law.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    admit: [Allowance; BUCKETS],
    /// The queue of new sessions.
    pub queue: QueueControl,
    /// The lowest rank that is admitted, 0 to 1. Each new session has a random rank, uniformly
    /// distributed, which its repetitions have too. The gate rejects sessions with a lower rank, so
    /// the floor is also the rejected share.
    pub rank_floor: f64,
    /// If true, the gate admits the next message that it judges, regardless of the allowance. This
    /// is the message that has just arrived or, if all messages wait in one queue and are judged
    /// when they are served, the next message that is served.
    pub admit_next: bool,
}

impl Control {
    /// A control that admits everything.
    pub const OPEN: Self = Self {
        admit: [Allowance::Open; BUCKETS],
        queue: QueueControl {
            waiting_max: usize::MAX,
            release: Release::Open,
            order: QueueOrder::Fifo,
            takes_turns: false,
            unanswered_max: f64::INFINITY,
            wait_max: None,
        },
        rank_floor: 0.0,
        admit_next: false,
    };

    /// Returns whether work of `bucket` that is taken from the queue after `sojourn` has waited too
    /// long.
    ///
    /// Only a session can wait too long, because its caller waits for it. The client of another
    /// request accepts a response until 64·T1 have passed (RFC 3261 §17.1.2.2, Timer F), and the
    /// gate absorbs its retransmissions. So serving the request late is better than rejecting it.
    pub(crate) fn makes_stale(&self, bucket: Bucket, sojourn: Duration) -> bool {
        bucket == Bucket::Session && self.queue.wait_max.is_some_and(|max| sojourn > max)
    }

    /// Returns the allowance for the work in `bucket`.
    pub fn admit(&self, bucket: Bucket) -> Allowance {
        self.admit[bucket as usize]
    }

    /// Sets the allowance for the work in `bucket`.
    pub(crate) fn set_admit(&mut self, bucket: Bucket, allowance: Allowance) {
        self.admit[bucket as usize] = allowance;
    }

    /// Admits `rate` sessions a second. `offered` is the number of sessions a second that ask for
    /// admission. The admitted share of the single requests is `rate`/`offered`, but at most 1. So
    /// single requests are limited only while sessions are limited too.
    pub(crate) fn admit_sessions_at(&mut self, rate: f64, offered: f64) {
        let allowance = Allowance::Rate(rate);
        self.set_admit(Bucket::Session, allowance);
        self.set_admit(Bucket::Single, Allowance::Fraction(allowance.fraction(offered)));
    }

    /// Sets the same allowance for the work in every bucket.
    pub fn admit_of_all(&mut self, allowance: Allowance) {
        self.admit = [allowance; BUCKETS];
    }
}
