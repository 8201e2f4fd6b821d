//! A server transaction, by its method.

use tidegate_world::Timestamp;

use crate::{Acknowledgement, Dispatch, Firing, InviteServer, OtherServer, Repetition, Timing};

/// A server transaction. RFC 3261 §17.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Of an INVITE.
    Invite(InviteServer),
    /// Of any other request but ACK.
    Other(OtherServer),
}

impl Server {
    /// An INVITE has come now.
    pub fn invite() -> Self {
        Self::Invite(InviteServer::start())
    }

    /// Another request has come now.
    pub fn other() -> Self {
        Self::Other(OtherServer::start())
    }

    /// The request has come again.
    pub fn on_repeated(self) -> Repetition {
        match self {
            Self::Invite(server) => server.on_repeated(),
            Self::Other(server) => server.on_repeated(),
        }
    }

    /// The transaction user has a response with this status.
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

    /// An ACK has come. One that matches a transaction without INVITE is nobody's.
    pub fn on_ack(self, now: Timestamp, timing: &Timing) -> (Self, Acknowledgement) {
        match self {
            Self::Invite(server) => {
                let (server, acknowledgement) = server.on_ack(now, timing);
                (Self::Invite(server), acknowledgement)
            }
            Self::Other(_) => (self, Acknowledgement::Absorb),
        }
    }

    /// Time has passed: what is due by `now` happens.
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

    /// Its user gives it up.
    pub fn end(self) -> Self {
        match self {
            Self::Invite(_) => Self::Invite(InviteServer::Terminated),
            Self::Other(_) => Self::Other(OtherServer::Terminated),
        }
    }

    /// When [`on_timer`](Self::on_timer) is next needed.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Invite(server) => server.deadline(),
            Self::Other(server) => server.deadline(),
        }
    }

    /// True until a final response was sent.
    pub fn is_pending(&self) -> bool {
        match self {
            Self::Invite(server) => server.is_pending(),
            Self::Other(server) => server.is_pending(),
        }
    }

    /// True while an ACK to a final response is awaited.
    pub fn awaits_ack(&self) -> bool {
        matches!(self, Self::Invite(InviteServer::Completed { .. }))
    }

    /// True once it is over.
    pub fn is_terminated(&self) -> bool {
        matches!(
            self,
            Self::Invite(InviteServer::Terminated) | Self::Other(OtherServer::Terminated)
        )
    }
}
