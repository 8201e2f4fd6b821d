//! Classes of messages: what may be refused, and what must not.

use tidegate_control::Bucket;
use tidegate_sip::{Method, ScanStart};

/// What a message is to an element that may have to choose among messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A final response.
    Final,
    /// A provisional response.
    Provisional,
    /// An ACK.
    Ack,
    /// A BYE.
    Bye,
    /// A CANCEL.
    Cancel,
    /// A request within a call we know, or a repetition of one.
    InDialog,
    /// An INVITE that begins a call.
    Invite,
    /// A REGISTER.
    Register,
    /// Any other request that belongs to no call.
    Other,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Final,
        Self::Provisional,
        Self::Ack,
        Self::Bye,
        Self::Cancel,
        Self::InDialog,
        Self::Invite,
        Self::Register,
        Self::Other,
    ];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Provisional => "provisional",
            Self::Ack => "ack",
            Self::Bye => "bye",
            Self::Cancel => "cancel",
            Self::InDialog => "in_dialog",
            Self::Invite => "invite",
            Self::Register => "register",
            Self::Other => "other",
        }
    }

    /// Whether it begins work that could be refused.
    pub const fn is_new_work(self) -> bool {
        matches!(self, Self::Invite | Self::Register | Self::Other)
    }

    /// Which new work it asks for; `None` if it belongs to work that was begun.
    pub(crate) fn bucket(self) -> Option<Bucket> {
        match self {
            Self::Invite => Some(Bucket::Session),
            Self::Register | Self::Other => Some(Bucket::Single),
            _ => None,
        }
    }

    /// The class that a start line tells by itself.
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

    /// The class of any other request, by whether its call is one of ours.
    pub(crate) fn of_request(method: Method, known: bool) -> Self {
        match method {
            // A To-tag alone proves nothing: without a call of ours it is new, or a
            // flood with To-tags would walk past every gate.
            _ if known => Self::InDialog,
            Method::Invite => Self::Invite,
            Method::Register => Self::Register,
            _ => Self::Other,
        }
    }
}
