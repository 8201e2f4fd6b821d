//! What becomes of a message, as it is decided at the door or when its turn has come.

use tidegate_control::Reason;
use tidegate_sip::Malformed;
use tidegate_world::{Received, Transmit};

use crate::message::class::Class;
use crate::rejection::DropReason;

/// What becomes of a message.
pub(crate) enum Decision {
    /// It waits to be served.
    Queued,
    /// It is to be served.
    Serve(Received, Admitted),
    /// It is gone.
    Drop(DropReason),
    /// It asks for new work and is not admitted, and this is to be sent.
    Refuse(Reason, Option<Transmit>),
    /// It belongs to work that was begun and is not admitted, and this is to be sent.
    Shed(Option<Transmit>),
    /// It asks for something to be understood that is not.
    NotUnderstood(Received),
    /// It is a request that breaks the grammar.
    Malformed(Received, Malformed),
}

/// What is known of a message that is to be served.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admitted {
    /// What its repetitions have in common with it, if it is new work.
    pub(crate) fingerprint: Option<u64>,
    /// It goes before others.
    pub(crate) has_priority: bool,
    /// It claims to belong to a call, and was not found to at the door.
    pub(crate) is_unverified: bool,
    /// It has waited for a name as long as it may.
    pub(crate) is_overdue: bool,
}

/// A message's fate.
pub(crate) struct Decided {
    /// Its class, if that is known.
    pub(crate) class: Option<Class>,
    /// It was read now, and not before.
    pub(crate) read: bool,
    pub(crate) decision: Decision,
}
