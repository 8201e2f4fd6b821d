//! The actions that the state machine of a transaction requires of its owner.

/// The action for a response that has reached a client transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Arrival {
    /// Pass the response to the transaction user.
    Deliver,
    /// Pass the response to the transaction user and send an ACK.
    DeliverAndAcknowledge,
    /// Only send an ACK, because the response repeats one that was delivered before.
    Acknowledge,
    /// Do nothing with the response.
    Absorb,
}

/// The action for the expired timers of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Firing {
    /// Do nothing: no timer has expired, or the expired timers only change the state.
    Silent,
    /// Retransmit the request of a client transaction, or the last response of a server
    /// transaction.
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
    /// Do not send the response, because a final response has been sent, or because RFC 4320 §4
    /// forbids the response. The transaction changes to the returned state, and the owner keeps the
    /// earlier response for retransmissions.
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
