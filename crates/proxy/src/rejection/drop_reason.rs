//! The reasons for dropping a message.

/// The reason why a message was dropped without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Not SIP, and without the parts that a response needs.
    Malformed,
    /// A keepalive (RFC 5626 §3.5.1), which needs no answer over UDP.
    Keepalive,
    /// The queue of its class was full.
    QueueFull,
    /// A retransmission of a request that waits for service.
    Absorbed,
    /// A response with a branch that we did not make.
    ForeignResponse,
    /// A response to a transaction that has ended or never existed.
    StrayResponse,
    /// A response that its transaction has already received.
    RepeatedResponse,
    /// A response that cannot be forwarded: no Via below ours, or one without an address.
    LostResponse,
    /// An ACK to a reply of ours; it is not forwarded.
    OwnAck,
    /// An ACK of an unknown call.
    UnknownAck,
    /// Longer than a datagram after our headers are added.
    TooLong,
    /// Its source is banned.
    Banned,
    /// In-dialog, for a back end that may have no address yet.
    Unresolved,
    /// Claimed to be in-dialog, could not be verified, and the queue for such messages was full.
    Unverified,
    /// Above the message limit of one call.
    CallFlood,
    /// A STUN message that is no binding request.
    Stun,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 16] = [
        Self::Malformed,
        Self::Keepalive,
        Self::QueueFull,
        Self::Absorbed,
        Self::ForeignResponse,
        Self::StrayResponse,
        Self::RepeatedResponse,
        Self::LostResponse,
        Self::OwnAck,
        Self::UnknownAck,
        Self::TooLong,
        Self::Banned,
        Self::Unresolved,
        Self::Unverified,
        Self::CallFlood,
        Self::Stun,
    ];

    /// Returns the name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Keepalive => "keepalive",
            Self::QueueFull => "queue_full",
            Self::Absorbed => "absorbed",
            Self::ForeignResponse => "foreign_response",
            Self::StrayResponse => "stray_response",
            Self::RepeatedResponse => "repeated_response",
            Self::LostResponse => "lost_response",
            Self::OwnAck => "own_ack",
            Self::UnknownAck => "unknown_ack",
            Self::TooLong => "too_long",
            Self::Banned => "banned",
            Self::Unresolved => "unresolved",
            Self::Unverified => "unverified",
            Self::CallFlood => "call_flood",
            Self::Stun => "stun",
        }
    }
}
