//! Server transactions for any method.

use tidegate_world::Timestamp;

use crate::{Acknowledgement, Dispatch, Firing, InviteServer, OtherServer, Repetition, Timing};

/// A server transaction of any method (RFC 3261 §17.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The transaction of an INVITE.
    Invite(InviteServer),
    /// The transaction of any request other than INVITE and ACK.
    Other(OtherServer),
}

impl Server {
    /// Starts the transaction of an INVITE that arrives now.
    pub fn invite() -> Self {
        Self::Invite(InviteServer::start())
    }

    /// Starts the transaction of a request other than INVITE and ACK that arrives now.
    pub fn other() -> Self {
        Self::Other(OtherServer::start())
    }

    /// Handles a retransmission of the request.
    pub fn on_repeated(self) -> Repetition {
        match self {
            Self::Invite(server) => server.on_repeated(),
            Self::Other(server) => server.on_repeated(),
        }
    }

    /// Handles a response with this status from the transaction user.
    pub fn on_sending(self, now: Timestamp, timing: &Timing, status: u16) -> (Self, Dispatch) {
        match self {
            Self::Invite(server) => {
                let (server, dispatch) = server.on_sending(now, timing, status);
                (Self::Invite(server), dispatch)
            }
            Self::Other(server) => {
                let (server, dispatch) = server.on_sending(now, timing, status);
                (Self::Other(server), dispatch)
            }
        }
    }

    /// Handles an ACK. If the transaction is not that of an INVITE, the ACK is absorbed.
    pub fn on_ack(self, now: Timestamp, timing: &Timing) -> (Self, Acknowledgement) {
        match self {
            Self::Invite(server) => {
                let (server, acknowledgement) = server.on_ack(now, timing);
                (Self::Invite(server), acknowledgement)
            }
            Self::Other(_) => (self, Acknowledgement::Absorb),
        }
    }

    /// Fires the timers that have expired by `now`.
    pub fn on_timer(self, now: Timestamp, timing: &Timing) -> (Self, Firing) {
        match self {
            Self::Invite(server) => {
                let (server, firing) = server.on_timer(now, timing);
                (Self::Invite(server), firing)
            }
            Self::Other(server) => {
                let (server, firing) = server.on_timer(now);
                (Self::Other(server), firing)
            }
        }
    }

    /// Ends the transaction because the transaction user abandons it.
    pub fn end(self) -> Self {
        match self {
            Self::Invite(_) => Self::Invite(InviteServer::Terminated),
            Self::Other(_) => Self::Other(OtherServer::Terminated),
        }
    }

    /// Returns the time at which [`on_timer`](Self::on_timer) is due, or `None` if no timer runs.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Invite(server) => server.deadline(),
            Self::Other(server) => server.deadline(),
        }
    }

    /// Returns whether a final response may still be sent.
    pub fn is_pending(&self) -> bool {
        match self {
            Self::Invite(server) => server.is_pending(),
            Self::Other(server) => server.is_pending(),
        }
    }

    /// Returns whether the transaction waits for the ACK to a final response other than a 2xx.
    pub fn awaits_ack(&self) -> bool {
        matches!(self, Self::Invite(InviteServer::Completed { .. }))
    }

    /// Returns whether the transaction has ended.
    pub fn is_terminated(&self) -> bool {
        matches!(
            self,
            Self::Invite(InviteServer::Terminated) | Self::Other(OtherServer::Terminated)
        )
    }
}
