//! The reasons for dropping a message.

use tidegate_world::unit_enum;

unit_enum! {
    /// The reason why a message was dropped without a response. Metrics use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DropReason {
        /// The message is not SIP, lacks the parts that a response needs, is an ACK that does not
        /// follow the grammar, or is a request whose responses would go to port 0.
        Malformed = "malformed",
        /// A keep-alive (RFC 5626 §3.5.1), which needs no answer over UDP.
        Keepalive = "keepalive",
        /// The queue of the message's class was full, or too many long messages waited.
        QueueFull = "queue_full",
        /// A retransmission of a message that waits, or of a message that was served, if the queue
        /// is full.
        Absorbed = "absorbed",
        /// A response with a Via or a branch that Tidegate did not make.
        ForeignResponse = "foreign_response",
        /// A response to a transaction that has ended or never existed.
        StrayResponse = "stray_response",
        /// A response that its transaction has already received.
        RepeatedResponse = "repeated_response",
        /// A response that cannot be forwarded: below the Via of Tidegate, it has no Via, or a Via
        /// without an address.
        LostResponse = "lost_response",
        /// An ACK to a reply. Tidegate does not forward such an ACK.
        OwnAck = "own_ack",
        /// An ACK of an unknown call.
        UnknownAck = "unknown_ack",
        /// An ACK that is rejected for another reason than its grammar or an unknown call. It is
        /// dropped, because an ACK gets no response.
        RejectedAck = "rejected_ack",
        /// The response would be longer than a datagram after the changes of Tidegate.
        TooLong = "too_long",
        /// The source is banned.
        Banned = "banned",
        /// An in-dialog request with the route token of an unknown back end, while the names of
        /// some back ends have not been resolved yet. The token may name one of these.
        Unresolved = "unresolved",
        /// The message claims to belong to a call or transaction, but could not be verified, and the
        /// queue for such messages was full.
        Unverified = "unverified",
        /// The message exceeds the rate limit of its call, or repeats a request more often than a
        /// client does.
        CallFlood = "call_flood",
        /// A STUN message that is not a valid binding request, or a binding request whose response
        /// would go to port 0.
        Stun = "stun",
        /// An INVITE or a REGISTER over a stream, dropped because rejections would take too much of
        /// the processor.
        DropShare = "drop_share",
    }
}
