//! One connection: its state, its window and its queue.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::{Flow, STREAM_WINDOW, Timestamp, Transmit, Transport};

use crate::limits::ConnectionLimits;

/// Where a request can be sent: what a connection is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) transport: Transport,
    /// The listener on whose behalf it is sent.
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Target {
    pub(crate) fn of(flow: Flow) -> Self {
        Self { transport: flow.transport, local: flow.local, remote: flow.remote }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
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
pub(crate) struct Connection {
    /// The flow, with the name of the connection. While it is being opened the local end is the
    /// listener's.
    pub(crate) flow: Flow,
    /// The target under which it is found: always if it was opened, as an alias if it was accepted.
    pub(crate) target: Option<Target>,
    pub(crate) state: ConnectionState,
    /// When something was last sent or received on it, or when it got into its state.
    pub(crate) since: Timestamp,
    /// When its timer is set for.
    pub(crate) armed: Timestamp,
    /// Something has arrived on it.
    pub(crate) has_spoken: bool,
    /// Something was handed out on it.
    pub(crate) has_carried: bool,
    /// Bytes handed out since the driver had none of them left.
    handed_out: usize,
    waiting: VecDeque<Transmit>,
    waiting_bytes: usize,
}

impl Connection {
    pub(crate) fn new(now: Timestamp, flow: Flow, state: ConnectionState) -> Self {
        Self {
            flow,
            target: None,
            state,
            since: now,
            armed: Timestamp::NEVER,
            has_spoken: false,
            has_carried: false,
            handed_out: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Returns the address of the listener that it belongs to: the end of an opened one has a port
    /// of its own.
    pub(crate) fn listener(&self) -> SocketAddr {
        self.target.map_or(self.flow.local, |target| target.local)
    }

    /// Returns whether something waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the bytes that wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns whether a message of this length may wait.
    pub(crate) fn has_room(&self, bytes: usize, limits: &ConnectionLimits) -> bool {
        self.waiting.len() < limits.waiting_max
            && self.waiting_bytes + bytes <= limits.waiting_bytes_max
    }

    /// Puts a message behind those that wait.
    pub(crate) fn push(&mut self, transmit: Transmit) {
        self.waiting_bytes += transmit.bytes.len();
        self.waiting.push_back(transmit);
    }

    /// Takes the next message that waits, if the window is open, with the flow on which it is
    /// sent.
    pub(crate) fn hand_out(&mut self, now: Timestamp) -> Option<Transmit> {
        if self.state != ConnectionState::Open {
            return None;
        }
        let transmit = self.waiting.pop_front()?;
        self.waiting_bytes -= transmit.bytes.len();
        self.since = now;
        self.has_carried = true;
        self.handed_out += transmit.bytes.len();
        if self.handed_out >= STREAM_WINDOW {
            self.state = ConnectionState::BackedUp;
        }
        Some(Transmit { flow: self.flow, ..transmit })
    }

    /// Opens the window again. Returns whether the connection is open.
    pub(crate) fn reopen(&mut self, now: Timestamp) -> bool {
        self.handed_out = 0;
        if self.state == ConnectionState::BackedUp {
            (self.state, self.since) = (ConnectionState::Open, now);
        }
        self.state == ConnectionState::Open
    }

    /// Takes all that waits, as it was given.
    pub(crate) fn give_up(&mut self) -> VecDeque<Transmit> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Returns when it has been in its state for too long.
    pub(crate) fn deadline(&self, limits: &ConnectionLimits) -> Timestamp {
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
