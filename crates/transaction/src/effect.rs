//! What the holder of a machine is to do after a transition.

/// A response has reached a client transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Arrival {
    /// It goes to the transaction user.
    Deliver,
    /// It goes to the transaction user, and an ACK goes back.
    DeliverAndAcknowledge,
    /// It repeats one that was delivered: an ACK goes back, and nothing else happens.
    Acknowledge,
    /// Nothing happens.
    Absorb,
}

/// Timers of a machine were due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Firing {
    /// None that anybody else notices.
    Silent,
    /// A client sends its request again, a server its last response.
    Resend,
    /// A client has had no final response, a server of an INVITE no ACK: it has ended.
    TimedOut,
}

/// A request has reached its server transaction again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Repetition {
    /// The last response is sent again, if there is one.
    Resend,
    /// Nothing happens.
    Absorb,
}

/// The transaction user has a response for a server transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Dispatch {
    /// It is sent.
    Send,
    /// It is not: a final response has been given, or RFC 4320 §4 forbids this one. The
    /// transaction goes on as it says, and the holder keeps the response it has for repetitions.
    Discard,
}

/// An ACK has reached the server transaction of an INVITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Acknowledgement {
    /// It is for the transaction user: the final response was a 2xx.
    Deliver,
    /// It ends here.
    Absorb,
}
