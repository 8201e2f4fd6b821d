//! The verdict of the gate on new work.

use crate::{Bucket, Source};

/// The verdict on a message that asks for new work.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The work may be queued with this ticket, and [taken](crate::Gate::on_taken) from the queue
    /// later.
    Admit(Ticket),
    /// The work is rejected.
    Refuse(Reason),
    /// The work is a retransmission and can be dropped. Its original waits, or its original was
    /// served and the queue has no room for the retransmission.
    Absorb,
}

/// A record that the gate issues for a piece of work in the queue. The queue keeps it with the
/// work. Each piece has one ticket, so the gate counts it once, even if the decision on it has been
/// forgotten.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) bucket: Bucket,
    pub(crate) class: u8,
    pub(crate) fingerprint: Option<u64>,
    /// True if the work is a retransmission of served work. The gate does not decide on it again.
    pub(crate) again: bool,
    /// True if the work passes its throttle under any allowance.
    pub(crate) exempt: bool,
    /// The source for fair shares, or `None` if the work is not counted for a source.
    pub(crate) source: Option<Source>,
}

impl Ticket {
    /// Returns the fingerprint of the work, which its retransmissions share, or `None` if it is not
    /// known.
    pub fn fingerprint(&self) -> Option<u64> {
        self.fingerprint
    }

    /// Returns whether the ticket belongs to a retransmission of served work, which was counted
    /// before.
    pub fn is_again(&self) -> bool {
        self.again
    }

    /// Returns the bucket in which the work is counted and waits. Work that asks for priority is in
    /// another bucket than [`Bucket::Priority`] if it may not go ahead of other work.
    pub fn bucket(&self) -> Bucket {
        self.bucket
    }
}

/// The reason why work is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The law does not admit the work.
    Law,
    /// The work is a retransmission of work that was rejected.
    Again,
    /// The rank of the work is below the lowest rank that the law admits.
    Rank,
    /// The work waited in the queue for longer than the law allows.
    Stale,
    /// Earlier copies of the message were probably dropped, and too much other work waits.
    Late,
    /// The queue is full.
    QueueFull,
    /// All possible back ends are at their limits.
    PoolFull,
    /// No possible back end may get new work.
    PoolDown,
    /// The server is stopping.
    Stopping,
    /// The source has used up its share of the admitted work, or of the room in the queue.
    SourceShare,
    /// The source has exceeded the limit that applies to it.
    SourceLimit,
    /// All possible back ends have asked for fewer requests.
    Feedback,
    /// The peer that sent the work has used up its share of this server, and takes no part in
    /// feedback or does not obey it.
    PeerShare,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 13] = [
        Self::Law,
        Self::Again,
        Self::Rank,
        Self::Stale,
        Self::Late,
        Self::QueueFull,
        Self::PoolFull,
        Self::PoolDown,
        Self::Stopping,
        Self::SourceShare,
        Self::SourceLimit,
        Self::Feedback,
        Self::PeerShare,
    ];

    /// Returns the name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Law => "law",
            Self::Again => "again",
            Self::Rank => "rank",
            Self::Stale => "stale",
            Self::Late => "late",
            Self::QueueFull => "queue_full",
            Self::PoolFull => "pool_full",
            Self::PoolDown => "pool_down",
            Self::Stopping => "stopping",
            Self::SourceShare => "source_share",
            Self::SourceLimit => "source_limit",
            Self::Feedback => "feedback",
            Self::PeerShare => "peer_share",
        }
    }

    /// Returns an explanation of the reason: a sentence for operators.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Law => {
                "The law in force admits only a part of the new work. It rejected this request."
            }
            Self::Again => {
                "The request is a retransmission of a rejected request. It gets the same response."
            }
            Self::Rank => {
                "The random rank of the call is below the lowest rank that the law \
                           admits."
            }
            Self::Stale => {
                "The request was admitted, but then it waited in the queue for longer than the law \
                 allows."
            }
            Self::Late => {
                "The kernel dropped INVITEs and REGISTERs until a moment ago, and probably earlier \
                 copies of this request. So this request is late, and would take the place of one \
                 that is in time."
            }
            Self::QueueFull => {
                "The queue of new calls is full, or has as many calls as the law allows."
            }
            Self::PoolFull => {
                "Every back end that could serve the request is at its limits: `calls_max`, \
                 `cps_max` or the learned limit."
            }
            Self::PoolDown => {
                "Every back end that could serve the request is down, drained, in maintenance, or \
                 paused by its own Retry-After."
            }
            Self::Stopping => "The process is stopping and admits no new calls.",
            Self::SourceShare => {
                "The source of the request has used up its share of the admitted work or of the \
                 room in the queue."
            }
            Self::SourceLimit => {
                "The source of the request has exceeded the limit that is \
                                  configured for it."
            }
            Self::Feedback => {
                "Every back end that could serve the request has asked for fewer requests (RFC \
                 7339)."
            }
            Self::PeerShare => {
                "The server that sent the request has used up its share of this server, and it \
                 does not take part in feedback (RFC 7339) or does not obey feedback."
            }
        }
    }
}
