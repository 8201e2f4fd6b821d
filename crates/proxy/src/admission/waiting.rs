//! Waiting messages and the queue classes in which they wait.

use tidegate_control::Ticket;
use tidegate_world::Received;

use crate::message::class::Class;
use crate::message::request::RequestHashes;

/// The queue classes, in the order in which they are served. [`Invites`](Self::Invites),
/// [`Registrations`](Self::Registrations) and [`Others`](Self::Others) take turns.
///
/// Messages whose mutual order matters are in one class: a 200 must not overtake its 180, and a BYE
/// must not overtake its ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueClass {
    Responses,
    /// Requests that belong to a call.
    InProgress,
    /// New INVITEs with priority, each with its CANCEL.
    Priority,
    /// New INVITEs without priority, each with its CANCEL.
    Invites,
    Registrations,
    /// Other new requests.
    Others,
    /// Messages that claim to belong to a call or transaction but belong to none.
    Unverified,
}

impl QueueClass {
    pub(super) const ALL: [Self; 7] = [
        Self::Responses,
        Self::InProgress,
        Self::Priority,
        Self::Invites,
        Self::Registrations,
        Self::Others,
        Self::Unverified,
    ];

    /// Index of the first of the queues that take turns: those of new work without priority.
    pub(super) const NEW_WORK: usize = Self::Invites as usize;
    pub(super) const NEW_WORK_QUEUES: usize = Self::Unverified as usize - Self::NEW_WORK;

    pub(crate) fn of(class: Class) -> Self {
        match class {
            Class::Final | Class::Provisional => Self::Responses,
            Class::Ack | Class::Bye | Class::Cancel | Class::InDialog => Self::InProgress,
            Class::Invite => Self::Invites,
            Class::Register => Self::Registrations,
            Class::Other => Self::Others,
        }
    }
}

/// A classified message that waits in a queue.
pub(crate) struct Waiting {
    pub(crate) received: Box<Received>,
    pub(crate) class: Class,
    /// Ticket with which the gate admitted the message. `None` if the message is not new work.
    pub(crate) ticket: Option<Ticket>,
    /// Fingerprint of the INVITE that this CANCEL cancels. `None` if that INVITE has been served,
    /// or if the message is not a CANCEL.
    pub(crate) cancels: Option<u64>,
    pub(crate) queue_class: QueueClass,
    /// Hashes of the branch and the Call-ID, if they were computed on arrival.
    pub(crate) hashes: Option<RequestHashes>,
}
