//! One connection: its state, its window and its queue.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::{Flow, STREAM_WINDOW, Timestamp, Transmit, Transport};

use super::limits::ConnectionLimits;

/// Where a request can be sent: what a connection is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) transport: Transport,
    /// The listener on whose behalf it is sent.
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

impl Target {
    pub(super) fn of(flow: Flow) -> Self {
        Self { transport: flow.transport, local: flow.local, remote: flow.remote }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// It is being opened; what is to be sent waits.
    Connecting,
    /// It takes what is sent.
    Open,
    /// As much was handed out as may be; what is to be sent waits.
    BackedUp,
    /// It is being closed, and takes nothing.
    Closing,
}

/// A connection that the table knows of.
#[derive(Debug)]
pub(super) struct Connection {
    /// The flow, with the name of the connection. While it is being opened the local end is the
    /// listener's.
    pub(super) flow: Flow,
    /// The target under which it is found: always if it was opened, as an alias if it was accepted.
    pub(super) target: Option<Target>,
    pub(super) state: ConnectionState,
    /// When something was last sent or received on it, or when it got into its state.
    pub(super) since: Timestamp,
    /// When its timer is set for.
    pub(super) armed: Timestamp,
    /// Something has arrived on it.
    pub(super) has_spoken: bool,
    /// Bytes handed out since the driver had none of them left.
    handed_out: usize,
    waiting: VecDeque<Transmit>,
    waiting_bytes: usize,
}

impl Connection {
    pub(super) fn new(now: Timestamp, flow: Flow, state: ConnectionState) -> Self {
        Self {
            flow,
            target: None,
            state,
            since: now,
            armed: Timestamp::NEVER,
            has_spoken: false,
            handed_out: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Returns whether something waits.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the bytes that wait.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns whether a message of this length may wait.
    pub(super) fn has_room(&self, bytes: usize, limits: &ConnectionLimits) -> bool {
        self.waiting.len() < limits.waiting_max
            && self.waiting_bytes + bytes <= limits.waiting_bytes_max
    }

    /// Puts a message behind those that wait.
    pub(super) fn push(&mut self, transmit: Transmit) {
        self.waiting_bytes += transmit.bytes.len();
        self.waiting.push_back(transmit);
    }

    /// Takes the next message that waits, if the window is open, with the flow on which it is
    /// sent.
    pub(super) fn hand_out(&mut self, now: Timestamp) -> Option<Transmit> {
        if self.state != ConnectionState::Open {
            return None;
        }
        let transmit = self.waiting.pop_front()?;
        self.waiting_bytes -= transmit.bytes.len();
        self.since = now;
        self.handed_out += transmit.bytes.len();
        if self.handed_out >= STREAM_WINDOW {
            self.state = ConnectionState::BackedUp;
        }
        Some(Transmit { flow: self.flow, ..transmit })
    }

    /// Opens the window again. Returns whether the connection is open.
    pub(super) fn reopen(&mut self, now: Timestamp) -> bool {
        self.handed_out = 0;
        if self.state == ConnectionState::BackedUp {
            (self.state, self.since) = (ConnectionState::Open, now);
        }
        self.state == ConnectionState::Open
    }

    /// Takes all that waits, as it was given.
    pub(super) fn give_up(&mut self) -> VecDeque<Transmit> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Returns when it has been in its state for too long.
    pub(super) fn deadline(&self, limits: &ConnectionLimits) -> Timestamp {
        let limit = match self.state {
            ConnectionState::Connecting => limits.connect,
            ConnectionState::BackedUp => limits.stall,
            ConnectionState::Open if self.flow_is_silent() => limits.first,
            ConnectionState::Open => limits.idle,
            // The driver says when it is closed.
            ConnectionState::Closing => Duration::MAX,
        };
        self.since + limit
    }

    fn flow_is_silent(&self) -> bool {
        let accepted = self.flow.connection.is_some_and(|id| !id.is_opened());
        accepted && !self.has_spoken
    }
}
