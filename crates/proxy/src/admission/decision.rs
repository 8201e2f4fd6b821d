//! The decision on a message, made on arrival or when the message leaves its queue.

use tidegate_control::Reason;
use tidegate_sip::Malformed;
use tidegate_world::{Received, Transmit};

use crate::message::class::Class;
use crate::message::request::RequestHashes;
use crate::rejection::DropReason;

/// A decision on a message. The packet is boxed because a decision is moved from stage to stage.
pub(crate) enum Decision {
    /// The message waits in a queue.
    Queued,
    /// The message is to be served.
    Serve(Box<Received>, Admitted),
    Drop(DropReason),
    /// The message requests new work and is rejected. Contains the response, or `None` if no
    /// response is sent.
    Refuse(Reason, Option<Box<Transmit>>),
    /// The message belongs to existing work and is rejected. Contains the response, or `None` if no
    /// response is sent.
    Shed(Option<Box<Transmit>>),
    /// The message requires that one of its resource priorities be understood, and none is.
    NotUnderstood(Box<Received>),
    /// The message is a STUN message, not a SIP message.
    Stun(Box<Received>),
    /// The message is a malformed request.
    Malformed(Box<Received>, Malformed),
}

/// Properties of an admitted message that are used while the message is served.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admitted {
    /// Fingerprint that the message shares with its retransmissions. `None` if the message is not
    /// new work.
    pub(crate) fingerprint: Option<u64>,
    /// True if the message is a retransmission of a request that was served and counted.
    pub(crate) is_again: bool,
    /// True if the message has priority.
    pub(crate) has_priority: bool,
    /// True if the message claims to belong to a call or transaction that was not found on arrival.
    pub(crate) is_unverified: bool,
    /// True if the message has been parked for the maximum time.
    pub(crate) is_overdue: bool,
    /// Hashes of the branch and the Call-ID, if they were computed on arrival.
    pub(crate) hashes: Option<RequestHashes>,
}

/// State of reading a message for a decision. Recorded because reading takes processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The message was not read for this decision: it was read before, or is never read.
    NotNow,
    /// The message was read for this decision for the first time, so it counts as received.
    Now,
    /// The message was read for this decision, after another shard had read it and handed it off.
    Again,
}

impl Read {
    /// Returns the value for a message that this shard reads for the current decision.
    pub(crate) fn now(received: &Received) -> Self {
        if received.handoffs == 0 { Self::Now } else { Self::Again }
    }
}

/// A decision on a message, with the class of the message.
pub(crate) struct Decided {
    /// Class of the message. `None` if the message was not classified.
    pub(crate) class: Option<Class>,
    /// State of reading the message for this decision.
    pub(crate) read: Read,
    pub(crate) decision: Decision,
}
