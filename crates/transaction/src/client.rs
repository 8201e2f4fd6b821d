//! A client transaction, by its method.

use tidegate_world::Timestamp;

use crate::{Arrival, Firing, InviteClient, OtherClient, Timing};

/// A client transaction. RFC 3261 §17.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Of an INVITE.
    Invite(InviteClient),
    /// Of any other request but ACK.
    Other(OtherClient),
}

impl Client {
    /// An INVITE is sent now.
    pub fn invite(now: Timestamp, timing: &Timing) -> Self {
        Self::Invite(InviteClient::start(now, timing))
    }

    /// Another request is sent now.
    pub fn other(now: Timestamp, timing: &Timing) -> Self {
        Self::Other(OtherClient::start(now, timing))
    }

    /// A response with this status has come.
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

    /// Time has passed: what is due by `now` happens.
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

    /// The transport cannot deliver the request, or its user gives it up: RFC 3261 §17.1.4.
    pub fn end(self) -> Self {
        match self {
            Self::Invite(_) => Self::Invite(InviteClient::Terminated),
            Self::Other(_) => Self::Other(OtherClient::Terminated),
        }
    }

    /// Sends nothing more by itself, and waits on for whatever comes.
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

    /// When [`on_timer`](Self::on_timer) is next needed.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Invite(client) => client.deadline(),
            Self::Other(client) => client.deadline(),
        }
    }

    /// True until a final response has come, or nothing will any more.
    pub fn is_pending(&self) -> bool {
        match self {
            Self::Invite(client) => client.is_pending(),
            Self::Other(client) => client.is_pending(),
        }
    }

    /// True as long as no response has come at all.
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self,
            Self::Invite(InviteClient::Calling { .. }) | Self::Other(OtherClient::Trying { .. })
        )
    }

    /// True once it is over.
    pub fn is_terminated(&self) -> bool {
        matches!(
            self,
            Self::Invite(InviteClient::Terminated) | Self::Other(OtherClient::Terminated)
        )
    }
}
