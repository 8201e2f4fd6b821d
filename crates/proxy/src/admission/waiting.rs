//! Waiting messages and the queue classes in which they wait.

use tidegate_control::Ticket;
use tidegate_world::{Received, unit_enum};

use crate::message::class::Class;
use crate::message::request::RequestHashes;

unit_enum! {
    /// The queue classes, in the order in which they are served. [`Invites`](Self::Invites),
    /// [`Registrations`](Self::Registrations) and [`Others`](Self::Others) take turns, and INVITEs
    /// have three turns of five.
    ///
    /// Several kinds of messages ([`Class`]) share one queue class if they must stay in order: a
    /// 200 must not overtake its 180, nor a BYE its ACK.
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
        /// Messages that claim to belong to a call or transaction, although the proxy found none.
        Unverified,
    }
}

impl QueueClass {
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
    /// Ticket that the gate has issued, if the message requests new work.
    pub(crate) ticket: Option<Ticket>,
    /// Keyed hash of the INVITE that the message cancels, if that INVITE has not been served.
    pub(crate) cancels: Option<u64>,
    pub(crate) queue_class: QueueClass,
    /// Hashes of the branch and the Call-ID, if they were computed on arrival.
    pub(crate) hashes: Option<RequestHashes>,
}
