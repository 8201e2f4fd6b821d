//! The verdict of the gate on new work.

use tidegate_world::unit_enum;

use crate::{Bucket, Source};

/// The verdict on a message that asks for new work.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The work may be queued with this ticket, and [taken](crate::Gate::on_taken) from the queue
    /// later.
    Admit(Ticket),
    /// The work is rejected.
    Reject(Reason),
    /// The work is a retransmission and can be dropped. Its original waits or was dropped, or its
    /// original was served and the queue has no room for the retransmission.
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
    /// True if the work passes the throttle of the shadow law under any allowance.
    pub(crate) shadow_exempt: bool,
    /// The source for fair shares, or `None` if the work is not counted for a source.
    pub(crate) source: Option<Source>,
    /// True if another gate has counted the work ([`Sender::is_handed_off`](crate::Sender)).
    pub(crate) is_handed_off: bool,
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

/// Defines an enum like [`unit_enum!`], with a function `doc` that returns the documentation of each
/// variant.
macro_rules! documented_enum {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $Enum:ident {
            $($(#[doc = $doc:literal])+ $Variant:ident = $name:literal,)+
        }
    ) => {
        unit_enum! {
            $(#[$attribute])*
            $vis enum $Enum {
                $($(#[doc = $doc])+ $Variant = $name,)+
            }
        }

        impl $Enum {
            /// Returns the documentation of the variant: a sentence for operators.
            $vis const fn doc(self) -> &'static str {
                match self {
                    $(Self::$Variant => const { concat!($($doc),+).trim_ascii_start() },)+
                }
            }
        }
    };
}

documented_enum! {
    /// The reason why work is rejected. Metrics use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Reason {
        /// The law in force admits only a part of the new work. It rejected this request.
        Law = "law",
        /// The request is a retransmission of a rejected request. It gets the same response.
        Again = "again",
        /// The random rank of the call is below the lowest rank that the law admits.
        Rank = "rank",
        /// The request was admitted, but then it waited in the queue for longer than the law
        /// allows.
        Stale = "stale",
        /// The kernel dropped INVITEs and REGISTERs until a moment ago, and probably earlier copies
        /// of this request. So this request is late, and would take the place of one that is in
        /// time.
        Late = "late",
        /// The queue of new calls is full, or has as many calls as the law allows.
        QueueFull = "queue_full",
        /// Every back end that could serve the request is at its limits: `calls_max`, `cps_max` or
        /// the learned limit.
        PoolFull = "pool_full",
        /// The back ends are nearly at their limits. They keep their last room for sources below
        /// their share, and the source of the request is above its share.
        PoolShare = "pool_share",
        /// Every back end that could serve the request is down, drained, in maintenance, or paused
        /// by its own Retry-After.
        PoolDown = "pool_down",
        /// The process is stopping and admits no new calls.
        Stopping = "stopping",
        /// The source of the request has used up its share of the admitted work or of the room in
        /// the queue.
        SourceShare = "source_share",
        /// The source of the request has exceeded the limit that is configured for it.
        SourceLimit = "source_limit",
        /// Every back end that could serve the request has asked for fewer requests (RFC 7339).
        Feedback = "feedback",
        /// The server that sent the request has used up its share of this server, and it does not
        /// take part in feedback (RFC 7339) or does not obey feedback.
        PeerShare = "peer_share",
    }
}

impl Reason {
    /// Returns whether a limit of the source or of the back ends was reached, so the rejection says
    /// nothing about the load of this server.
    pub(crate) fn is_of_limit(self) -> bool {
        matches!(self, Self::SourceLimit | Self::PoolFull | Self::PoolShare)
    }
}
