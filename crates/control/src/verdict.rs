//! What the gate says of new work.

use crate::{Bucket, Source};

/// What becomes of a message that asks for new work.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be queued, with this ticket, to be [taken](crate::Gate::on_taken) from there.
    Admit(Ticket),
    /// It is to be refused.
    Refuse(Reason),
    /// It repeats what waits already, and can be forgotten.
    Absorb,
}

/// What the queue keeps with a piece of work, for the gate: there is one for each, so that
/// each is counted once, whatever has been forgotten meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) bucket: Bucket,
    pub(crate) class: u8,
    pub(crate) fingerprint: Option<u64>,
    /// It repeats what has been served, which is not judged again.
    pub(crate) again: bool,
    /// It passes its throttle in any case.
    pub(crate) exempt: bool,
    /// Who is to have a fair share.
    pub(crate) source: Option<Source>,
}

impl Ticket {
    /// What the work's repetitions have in common with it, if that is known.
    pub fn fingerprint(&self) -> Option<u64> {
        self.fingerprint
    }

    /// The bucket in which it is counted, and where it is to wait: what claims priority may have
    /// been admitted without.
    pub fn bucket(&self) -> Bucket {
        self.bucket
    }
}

/// Why work is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The law does not admit it.
    Law,
    /// It was refused before.
    Again,
    /// Its rank is below the law's floor.
    Rank,
    /// It has waited in the queue for longer than the law allows.
    Stale,
    /// There is no room in the queue.
    QueueFull,
    /// All back ends that it could go to are at their limits.
    PoolFull,
    /// No back end that it could go to may be given anything new.
    PoolDown,
    /// The server is stopping.
    Stopping,
    /// Its source has had its share of what is admitted, or of the room in the queue.
    SourceShare,
    /// Its source has gone beyond the limit that is set for it.
    SourceLimit,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Law,
        Self::Again,
        Self::Rank,
        Self::Stale,
        Self::QueueFull,
        Self::PoolFull,
        Self::PoolDown,
        Self::Stopping,
        Self::SourceShare,
        Self::SourceLimit,
    ];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Law => "law",
            Self::Again => "again",
            Self::Rank => "rank",
            Self::Stale => "stale",
            Self::QueueFull => "queue_full",
            Self::PoolFull => "pool_full",
            Self::PoolDown => "pool_down",
            Self::Stopping => "stopping",
            Self::SourceShare => "source_share",
            Self::SourceLimit => "source_limit",
        }
    }

    /// What it means: a sentence, for people.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Law => {
                "The law in force admits only a part of the new work, and this was not in it."
            }
            Self::Again => "It repeats a request that was refused, and gets the same answer.",
            Self::Rank => "Its rank, drawn at random, lies below the floor that the law has set.",
            Self::Stale => {
                "It was admitted and waited in the queue for longer than the law allows."
            }
            Self::QueueFull => {
                "As many new calls wait as the queue has room for, or as the law lets wait."
            }
            Self::PoolFull => {
                "Every back end that it could go to has as many calls, or is given as many new ones a \
                 second, as its limits let it have."
            }
            Self::PoolDown => {
                "Every back end that it could go to is down, drained, in maintenance, or has asked \
                 for a pause."
            }
            Self::Stopping => "The process is stopping, and begins nothing new.",
            Self::SourceShare => {
                "Its source has had its share of what is admitted, or of the room in the queue."
            }
            Self::SourceLimit => "Its source has gone beyond the limit that is set for it.",
        }
    }
}
