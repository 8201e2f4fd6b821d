//! The categories of requests that a restriction treats differently (RFC 7339 §5.10.1).

/// The category of a request that is to be sent to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// It begins a session.
    Session,
    /// It stands alone: a registration, a message.
    Single,
    /// It begins a session and goes before others: an emergency, a call with priority.
    Priority,
    /// It belongs to a session that has begun.
    Ongoing,
    /// It has no response to be rejected with, or ends work: ACK, CANCEL. It is always sent to a
    /// server that answers, and counted, so that others make room for it.
    Required,
}

impl Category {
    /// Returns whether it is in the first category, which is reduced before the second.
    // RFC 7339 §5.10.1: "A SIP client SHOULD honor the local policy for prioritizing SIP requests such
    // as policies based on message type, e.g., INVITEs versus requests associated with existing
    // sessions." "A SIP client SHOULD honor the local policy for prioritizing SIP requests relating to
    // emergency calls as identified by the SOS URN". "A SIP client SHOULD honor the local policy for
    // prioritizing SIP requests based on the content of the Resource-Priority header". "A local policy
    // can be expected to combine both the SIP request type and the prioritization markings, and it
    // SHOULD be honored when overload conditions prevail."
    pub const fn is_reducible(self) -> bool {
        matches!(self, Self::Session | Self::Single)
    }

    /// Returns whether it begins a session: a receiver shares sessions among its peers.
    pub const fn begins_session(self) -> bool {
        matches!(self, Self::Session | Self::Priority)
    }

    /// Returns whether it asks for new work, and so counts in a window.
    pub const fn is_new(self) -> bool {
        matches!(self, Self::Session | Self::Single | Self::Priority)
    }
}
