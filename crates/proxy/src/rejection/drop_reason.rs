//! The reasons for dropping a message.

/// The reason why a message was dropped without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The message is not SIP, lacks the parts that a response needs, is an ACK that does not
    /// follow the grammar, or is a request whose responses would go to port 0.
    Malformed,
    /// A keep-alive (RFC 5626 §3.5.1), which needs no answer over UDP.
    Keepalive,
    /// The queue of the message's class was full, or too many long messages waited.
    QueueFull,
    /// A retransmission, while the original waits, or after it was served if the queue is full.
    Absorbed,
    /// A response with a Via or a branch that we did not make.
    ForeignResponse,
    /// A response to a transaction that has ended or never existed.
    StrayResponse,
    /// A response that its transaction has already received.
    RepeatedResponse,
    /// A response that cannot be forwarded: it has no Via below ours, or one without an address.
    LostResponse,
    /// An ACK to a reply of ours. Such an ACK is not forwarded.
    OwnAck,
    /// An ACK of an unknown call.
    UnknownAck,
    /// An ACK that is rejected for another reason than its grammar or an unknown call. It is
    /// dropped, because an ACK gets no response.
    RejectedAck,
    /// The response would be longer than a datagram after our changes.
    TooLong,
    /// The source is banned.
    Banned,
    /// An in-dialog request with the route token of an unknown back end, while the names of some
    /// back ends have not been resolved yet. The token may name one of these.
    Unresolved,
    /// The message claims to belong to a call or transaction, but could not be verified, and the
    /// queue for such messages was full.
    Unverified,
    /// The message exceeds the rate limit of its call.
    CallFlood,
    /// A STUN message that is not a valid binding request, or a binding request whose response
    /// would be too long for an unverified address or would go to port 0.
    Stun,
    /// An INVITE or a REGISTER over a stream, dropped because rejections would take too much of the
    /// processor.
    Thinned,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 18] = [
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
        Self::RejectedAck,
        Self::TooLong,
        Self::Banned,
        Self::Unresolved,
        Self::Unverified,
        Self::CallFlood,
        Self::Stun,
        Self::Thinned,
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
            Self::RejectedAck => "rejected_ack",
            Self::TooLong => "too_long",
            Self::Banned => "banned",
            Self::Unresolved => "unresolved",
            Self::Unverified => "unverified",
            Self::CallFlood => "call_flood",
            Self::Stun => "stun",
            Self::Thinned => "thinned",
        }
    }
}
