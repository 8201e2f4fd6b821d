//! Client transactions for any method.

use tidegate_world::Timestamp;

use crate::{Arrival, Firing, InviteClient, OtherClient, Timing};

/// A client transaction of any method (RFC 3261 §17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The transaction of an INVITE.
    Invite(InviteClient),
    /// The transaction of any request other than INVITE and ACK.
    Other(OtherClient),
}

impl Client {
    /// Starts the transaction of an INVITE that is sent now.
    pub fn invite(now: Timestamp, timing: &Timing) -> Self {
        Self::Invite(InviteClient::start(now, timing))
    }

    /// Starts the transaction of a request other than INVITE and ACK that is sent now.
    pub fn other(now: Timestamp, timing: &Timing) -> Self {
        Self::Other(OtherClient::start(now, timing))
    }

    /// Handles a response with this status.
    pub fn on_response(self, now: Timestamp, timing: &Timing, status: u16) -> (Self, Arrival) {
        match self {
            Self::Invite(client) => {
                let (client, arrival) = client.on_response(now, timing, status);
                (Self::Invite(client), arrival)
            }
            Self::Other(client) => {
                let (client, arrival) = client.on_response(now, timing, status);
                (Self::Other(client), arrival)
            }
        }
    }

    /// Fires the timers that have expired by `now`.
    pub fn on_timer(self, now: Timestamp, timing: &Timing) -> (Self, Firing) {
        match self {
            Self::Invite(client) => {
                let (client, firing) = client.on_timer(now, timing);
                (Self::Invite(client), firing)
            }
            Self::Other(client) => {
                let (client, firing) = client.on_timer(now, timing);
                (Self::Other(client), firing)
            }
        }
    }

    /// Ends the transaction because the transport cannot deliver the request (RFC 3261 §17.1.4) or
    /// the transaction user abandons the request.
    ///
    /// RFC 3261 §17.1.4: "The client transaction SHOULD inform the TU that a transport failure has
    /// occurred, and the client transaction SHOULD transition directly to the "Terminated" state."
    pub fn end(self) -> Self {
        match self {
            Self::Invite(_) => Self::Invite(InviteClient::Terminated),
            Self::Other(_) => Self::Other(OtherClient::Terminated),
        }
    }

    /// Stops the retransmissions of the request. The transaction continues to wait for responses.
    pub fn hush(self) -> Self {
        match self {
            Self::Invite(InviteClient::Calling { give_up, .. }) => {
                Self::Invite(InviteClient::Calling { resend: None, give_up })
            }
            Self::Other(OtherClient::Trying { give_up, .. }) => {
                Self::Other(OtherClient::Trying { resend: None, give_up })
            }
            Self::Other(OtherClient::Proceeding { give_up, .. }) => {
                Self::Other(OtherClient::Proceeding { resend: None, give_up })
            }
            other => other,
        }
    }

    /// Returns the time at which [`on_timer`](Self::on_timer) is due, or `None` if no timer runs.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Invite(client) => client.deadline(),
            Self::Other(client) => client.deadline(),
        }
    }

    /// Returns whether a final response is still expected.
    pub fn is_pending(&self) -> bool {
        match self {
            Self::Invite(client) => client.is_pending(),
            Self::Other(client) => client.is_pending(),
        }
    }

    /// Returns whether no response has come at all.
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self,
            Self::Invite(InviteClient::Calling { .. }) | Self::Other(OtherClient::Trying { .. })
        )
    }

    /// Returns whether the transaction has ended.
    pub fn is_terminated(&self) -> bool {
        matches!(
            self,
            Self::Invite(InviteClient::Terminated) | Self::Other(OtherClient::Terminated)
        )
    }
}
