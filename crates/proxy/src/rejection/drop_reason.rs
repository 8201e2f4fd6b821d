//! The reasons for which messages are dropped.

/// Why a message was dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Not SIP, and nothing in it that could be answered.
    Malformed,
    /// A keepalive (RFC 5626 §3.5.1), which over UDP needs no answer.
    Keepalive,
    /// The queue of its class was full.
    QueueFull,
    /// It repeats a request that waits for service.
    Absorbed,
    /// A response whose branch we did not make.
    ForeignResponse,
    /// A response to a transaction that is no longer, or never was.
    StrayResponse,
    /// A response that its transaction has had.
    RepeatedResponse,
    /// A response that leads nowhere: no Via below ours, or one without address.
    LostResponse,
    /// An ACK to a reply that we made, which ends there.
    OwnAck,
    /// An ACK that belongs to no call we know.
    UnknownAck,
    /// Longer than a datagram once our headers are in it.
    TooLong,
    /// Its sender is banned.
    Banned,
    /// Within a call whose back end may be one that has no address yet.
    Unresolved,
    /// It claims to belong to a call and was not found to, and the queue of such was full.
    Unverified,
    /// Beyond what may pass within one call.
    CallFlood,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 15] = [
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
    ];

    /// Its name in metrics.
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
        }
    }
}
