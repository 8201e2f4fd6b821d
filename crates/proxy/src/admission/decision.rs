//! The decision whether a message is queued, served, rejected or dropped. It is made when the
//! message arrives, or when it is at the head of its queue.

use tidegate_control::Reason;
use tidegate_sip::Malformed;
use tidegate_world::{Received, Transmit};

use crate::message::admitted::Admitted;
use crate::message::class::Class;
use crate::rejection::DropReason;

/// The decision on a message. Packets in a decision are boxed, so that it is cheap to move.
pub(crate) enum Decision {
    Queued,
    Serve(Box<Received>, Admitted),
    Drop(DropReason),
    /// The message requests new work and is not admitted. The fields are the reason, and the
    /// response to send, if any.
    Reject(Reason, Option<Box<Transmit>>),
    /// The message belongs to an existing call or transaction and is not admitted. The field is the
    /// response to send, if any.
    Shed(Option<Box<Transmit>>),
    /// The message requires a resource priority (RFC 4412), and the proxy knows none of its values.
    NotUnderstood(Box<Received>),
    /// The message is a STUN message, not a SIP message.
    Stun(Box<Received>),
    Malformed(Box<Received>, Malformed),
}

/// An indication of whether the message was read for this decision. Only then does the decision
/// include the work of reading ([`Work::offered`](tidegate_world::Work)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The message was not read for this decision. It was read before, or never.
    NotNow,
    /// The message was read for this decision for the first time, so it counts as received.
    Now,
    /// The message was read by this shard, after another shard had read it and handed it off.
    Again,
}

impl Read {
    /// Returns how a message that is read for this decision was read: [`Again`](Self::Again) if
    /// another shard handed it off, otherwise [`Now`](Self::Now).
    pub(crate) fn of(received: &Received) -> Self {
        if received.handoffs == 0 { Self::Now } else { Self::Again }
    }
}

/// A decision on a message, with the class of the message.
pub(crate) struct Decided {
    /// Class of the message. `None` if the message was not classified.
    pub(crate) class: Option<Class>,
    pub(crate) read: Read,
    pub(crate) decision: Decision,
}

impl Decided {
    /// Returns a decision that was made without reading the message.
    pub(crate) fn unread(decision: Decision) -> Self {
        Self { class: None, read: Read::NotNow, decision }
    }
}
