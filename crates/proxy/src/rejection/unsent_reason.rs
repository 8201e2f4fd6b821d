//! The reasons for rejecting a request that could not be sent on a stream.

use tidegate_world::{Cause, unit_enum};

use super::reply_reason::ReplyReason;

unit_enum! {
    /// The reason why a request could not be sent on a stream.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum UnsentReason {
        /// The connection has failed or could not be opened, or a limit is reached, such as that on
        /// connections.
        Failed,
        /// The peer reads its connection too slowly.
        BackedUp,
        /// The request had to leave on a certain connection, such as that of a phone, and this
        /// connection no longer exists.
        FlowGone,
    }
}

impl UnsentReason {
    /// Returns the reason for a failure whose cause the transport has reported.
    pub(crate) fn of(cause: Cause) -> Self {
        match cause {
            Cause::BackedUp => Self::BackedUp,
            Cause::Gone => Self::FlowGone,
            _ => Self::Failed,
        }
    }

    /// Returns the status of the response to a request that could not be sent.
    ///
    /// RFC 3261 §16.9: "If the transport layer notifies a proxy of an error when it tries to forward
    /// a request (see Section 18.4), the proxy MUST behave as if the forwarded request received a
    /// 503 (Service Unavailable) response."
    ///
    /// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
    /// response to the request."
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Failed | Self::BackedUp => 503,
            Self::FlowGone => 430,
        }
    }

    /// Returns the reason of the response to a request that could not be sent.
    pub(crate) fn reply_reason(self) -> ReplyReason {
        match self {
            Self::Failed => ReplyReason::Failed,
            Self::BackedUp => ReplyReason::BackedUp,
            Self::FlowGone => ReplyReason::FlowGone,
        }
    }
}
