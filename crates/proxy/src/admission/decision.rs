//! Decision on a message, on arrival or at the head of its queue.

use tidegate_control::Reason;
use tidegate_sip::Malformed;
use tidegate_world::{Received, Transmit};

use crate::message::class::Class;
use crate::message::request::RequestHashes;
use crate::rejection::DropReason;

/// Decision on a message. It is moved from stage to stage, so packets are boxed.
pub(crate) enum Decision {
    /// The message waits in a queue.
    Queued,
    /// The message is to be served.
    Serve(Box<Received>, Admitted),
    /// The message is dropped.
    Drop(DropReason),
    /// The message requests new work and is rejected with this response, or without one.
    Refuse(Reason, Option<Box<Transmit>>),
    /// The message belongs to existing work and is rejected with this response, or without one.
    Shed(Option<Box<Transmit>>),
    /// The message requires a resource priority, and none of its values is understood.
    NotUnderstood(Box<Received>),
    /// The message is not SIP but STUN.
    Stun(Box<Received>),
    /// The message is a malformed request.
    Malformed(Box<Received>, Malformed),
}

/// Facts about a message that is to be served.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admitted {
    /// Fingerprint that the message shares with its retransmissions, if it is new work.
    pub(crate) fingerprint: Option<u64>,
    /// True if the message retransmits work that was counted before.
    pub(crate) is_again: bool,
    /// True if the message has priority.
    pub(crate) has_priority: bool,
    /// True if the message claims to belong to a call or transaction, and none was found on
    /// arrival.
    pub(crate) is_unverified: bool,
    /// True if the message has been parked for the maximum time.
    pub(crate) is_overdue: bool,
    /// Hashes of the request, if they were computed on arrival.
    pub(crate) hashes: Option<RequestHashes>,
}

/// A record of whether a message was read for a decision. Reading takes processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The message was read for an earlier decision, or never.
    NotNow,
    /// The message was read for the first time, so it counts as received.
    Now,
    /// The message was read after another shard had read it and handed it off.
    Again,
}

impl Read {
    /// Returns the value for a message that is read now.
    pub(crate) fn now(received: &Received) -> Self {
        if received.handoffs == 0 { Self::Now } else { Self::Again }
    }
}

/// A decision on a message, with the class of the message.
pub(crate) struct Decided {
    /// Class of the message, if known.
    pub(crate) class: Option<Class>,
    /// The reading of the message for this decision, if there was one.
    pub(crate) read: Read,
    pub(crate) decision: Decision,
}
