//! The categories of requests that a restriction treats differently (RFC 7339 §5.10.1).

/// The category of a request that is to be sent to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// The request begins a session.
    Session,
    /// The request belongs to no session, such as a REGISTER or a MESSAGE.
    Single,
    /// The request begins a session and is preferred to others: an emergency call, or a call with
    /// priority.
    Priority,
    /// The request belongs to a session that exists.
    Ongoing,
    /// The request is an ACK, which has no response that could reject it, or a CANCEL, which ends
    /// work. A restriction counts the request but never holds it back. It holds back other requests
    /// instead, as long as there are enough of them.
    Required,
}

impl Category {
    /// Returns whether the request is held back before requests of other categories: it asks for
    /// new work and has no priority.
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

    /// Returns whether the request begins a session.
    pub const fn begins_session(self) -> bool {
        matches!(self, Self::Session | Self::Priority)
    }

    /// Returns whether the request asks for new work: it belongs to no existing session.
    pub const fn is_new(self) -> bool {
        matches!(self, Self::Session | Self::Single | Self::Priority)
    }
}
