//! Message classes, which determine the messages that may be rejected under load.

use tidegate_control::Bucket;
use tidegate_sip::{Method, ScanStart};
use tidegate_world::unit_enum;

unit_enum! {
    /// The class of a message. Overload control and the queues treat each class separately. Metrics
    /// use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Class {
        /// A final response.
        Final = "final",
        /// A provisional response.
        Provisional = "provisional",
        /// An ACK.
        Ack = "ack",
        /// A BYE.
        Bye = "bye",
        /// A CANCEL.
        Cancel = "cancel",
        /// A request within a known call, or a retransmission of a known request.
        InDialog = "in_dialog",
        /// An INVITE that belongs to no known call.
        Invite = "invite",
        /// A REGISTER that is not a retransmission of a known request.
        Register = "register",
        /// Any other request that belongs to no known call.
        Other = "other",
    }
}

impl Class {
    /// Returns whether a message of this class asks for new work, which may be rejected.
    pub const fn is_new_work(self) -> bool {
        matches!(self, Self::Invite | Self::Register | Self::Other)
    }

    /// Returns the class of an INVITE or a REGISTER, by its first bytes.
    /// [`Shedding`](tidegate_world::Shedding) drops no other requests.
    pub(crate) fn of_droppable(bytes: &[u8]) -> Self {
        if bytes.starts_with(b"REGI") { Self::Register } else { Self::Invite }
    }

    /// Returns whether requests of this class may be dropped before they are parsed.
    pub(crate) fn is_droppable(self) -> bool {
        matches!(self, Self::Invite | Self::Register)
    }

    /// Returns the bucket of the new work that a message of this class asks for without priority,
    /// or `None` if the message asks for no new work.
    pub(crate) fn bucket(self) -> Option<Bucket> {
        match self {
            Self::Invite => Some(Bucket::Session),
            Self::Register | Self::Other => Some(Bucket::Single),
            _ => None,
        }
    }

    /// Returns the class of a message, if its start line alone determines the class.
    pub(crate) fn of_start(start: &ScanStart<'_>) -> Option<Self> {
        match start {
            ScanStart::Response { status } if *status < 200 => Some(Self::Provisional),
            ScanStart::Response { .. } => Some(Self::Final),
            ScanStart::Request { method, .. } => match method {
                Method::Ack => Some(Self::Ack),
                Method::Bye => Some(Self::Bye),
                Method::Cancel => Some(Self::Cancel),
                _ => None,
            },
        }
    }

    /// Returns the class of a request if its start line alone does not determine the class. `known`
    /// is true if the request belongs to a known call or transaction.
    pub(crate) fn of_request(method: Method, known: bool) -> Self {
        match method {
            // A To-tag alone proves nothing. A request outside our calls counts as new. Otherwise a
            // flood of requests with To-tags would pass every gate.
            _ if known => Self::InDialog,
            Method::Invite => Self::Invite,
            Method::Register => Self::Register,
            _ => Self::Other,
        }
    }
}
