//! What the gate says of new work.

use crate::Bucket;

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
}

impl Ticket {
    /// What the work's repetitions have in common with it, if that is known.
    pub fn fingerprint(&self) -> Option<u64> {
        self.fingerprint
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
    /// The server is stopping.
    Stopping,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Law, Self::Again, Self::Rank, Self::Stale, Self::QueueFull, Self::Stopping];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Law => "law",
            Self::Again => "again",
            Self::Rank => "rank",
            Self::Stale => "stale",
            Self::QueueFull => "queue_full",
            Self::Stopping => "stopping",
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
            Self::Stopping => "The process is stopping, and begins nothing new.",
        }
    }
}
