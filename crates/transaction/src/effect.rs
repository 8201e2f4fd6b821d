//! The actions that a state machine requires of its holder.

/// The action for a response that has reached a client transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Arrival {
    /// Pass the response to the transaction user.
    Deliver,
    /// Pass the response to the transaction user and send an ACK.
    DeliverAndAcknowledge,
    /// The response repeats a delivered response: only send an ACK.
    Acknowledge,
    /// Do nothing with the response.
    Absorb,
}

/// The action for the expired timers of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Firing {
    /// No timer has expired, or the expired timers have no effect outside the machine.
    Silent,
    /// Retransmit: the request in a client transaction, the last response in a server transaction.
    Resend,
    /// The transaction has ended, because a client got no final response, or the server of an
    /// INVITE got no ACK.
    TimedOut,
}

/// The action for a retransmitted request at its server transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Repetition {
    /// Send the last response again, if there is one.
    Resend,
    /// Do nothing with the retransmission.
    Absorb,
}

/// The action for a response from the transaction user of a server transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Dispatch {
    /// Send the response.
    Send,
    /// Do not send the response: a final response has been sent, or RFC 4320 §4 forbids this one.
    /// The transaction changes to the returned state, and the holder keeps its stored response for
    /// retransmissions.
    Discard,
}

/// The action for an ACK at the server transaction of an INVITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Acknowledgement {
    /// Pass the ACK to the transaction user: the final response was a 2xx.
    Deliver,
    /// Do nothing with the ACK.
    Absorb,
}
