//! The environment of a drive: a clock, input, output, and sleep.

use std::io;
use std::time::Duration;

use tidegate_world::{
    CloseCause, Connect, ConnectionId, Failure, Flow, Received, Shedding, Timestamp, Transmit,
};

use crate::Waker;

/// The environment of a [`Drive`](crate::Drive). [`Sockets`](crate::Sockets) is the real
/// environment. Another implementation can run the same turns in simulated time.
pub trait Machine {
    /// The output of the machine, for packets and connections.
    type Outlet: Outlet;

    /// Returns the time. It never goes back.
    fn now(&self) -> Timestamp;

    /// Returns the CPU time of the thread that runs the drive.
    fn cpu(&self) -> Duration;

    /// Tells the machine that a turn of the shard begins. `is_behind` is true if the last turn left
    /// messages to serve.
    fn begin_turn(&mut self, is_behind: bool);

    /// Receives up to `limit` datagrams of one kind that have arrived. Passes each to `offer`, with
    /// the time at which it was read. Returns the number of datagrams. If it equals the limit, more
    /// datagrams may wait.
    ///
    /// # Errors
    /// Returns only errors that neither a peer nor a shortage of memory can cause.
    fn receive(
        &mut self,
        kind: Kind,
        ready: Ready,
        limit: usize,
        offer: impl FnMut(&mut Self::Outlet, Timestamp, Received),
    ) -> io::Result<usize>;

    /// Passes to `tell` up to `limit` failed deliveries that the network has reported. Returns
    /// whether more reports may wait.
    ///
    /// # Errors
    /// Returns only errors that neither a peer nor a shortage of memory can cause.
    fn reports(
        &mut self,
        ready: Ready,
        limit: usize,
        tell: impl FnMut(&mut Self::Outlet, Failure),
    ) -> io::Result<bool>;

    /// Passes on at most `limit` events on connections. A machine without connections has no
    /// events.
    ///
    /// # Errors
    /// Returns only errors that neither a peer nor a shortage of memory can cause.
    fn stream_events(
        &mut self,
        _ready: Ready,
        _limit: usize,
        _tell: impl FnMut(&mut Self::Outlet, Timestamp, StreamEvent),
    ) -> io::Result<StreamTurn> {
        Ok(StreamTurn::default())
    }

    /// Returns the time at which connections need a turn even if nothing arrives.
    fn streams_due(&self) -> Timestamp {
        Timestamp::NEVER
    }

    /// Returns the output of the machine.
    fn outlet(&mut self) -> &mut Self::Outlet;

    /// Sends all packets that were posted.
    fn flush(&mut self);

    /// Returns the number of send failures not yet reported to the core.
    fn failures(&self) -> usize;

    /// Takes the oldest send failure that waits for the core.
    fn take_failure(&mut self) -> Option<Failure>;

    /// Counts the datagrams that the kernel has dropped at the sockets. Returns the state of the
    /// receive buffers.
    fn read_drop_counters(&mut self) -> Buffers;

    /// Stops receiving new datagrams and connections at the addresses that other processes share.
    /// Returns whether there are such addresses. Datagrams that have arrived, and messages on
    /// existing connections, can still be received.
    fn leave(&mut self) -> bool {
        false
    }

    /// Closes all connections, because the shard ends. Waits at most for the time `patience` until
    /// the operating system has taken all messages that were posted on the connections.
    fn close_streams(&mut self, _patience: Duration) {}

    /// Sets which datagrams are dropped before they are received. These datagrams are counted as
    /// filtered.
    fn shed(&mut self, shedding: &Shedding);

    /// Pauses for this time, even if datagrams arrive.
    fn pause(&mut self, time: Duration);

    /// Sleeps until a datagram arrives, `waker` wakes the thread, or `timeout` has passed. Returns
    /// the sockets to check, and whether `waker` has woken the thread.
    fn sleep(&mut self, waker: &Waker, timeout: Option<Duration>) -> (io::Result<Ready>, bool);
}

/// The state of the receive buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Buffers {
    /// The fill level of the fullest receive buffer, from 0 (empty) to 1 (full).
    pub fill: f32,
    /// Number of datagrams since the start that were lost because a buffer for new work was full.
    pub overflow: u64,
    /// True if the kernel has refused the requested [shedding](Machine::shed) within the last
    /// second.
    pub is_shed_refused: bool,
}

/// The output of a [`Machine`]: sends packets, and opens and closes connections.
pub trait Outlet {
    /// Queues a packet, which the next [flush](Machine::flush) sends.
    fn post(&mut self, transmit: Transmit);

    /// Opens a connection. On a machine without connections, a core never asks for one.
    fn connect(&mut self, connect: Connect) {
        unreachable!("{connect:?} on a machine without connections");
    }

    /// Closes a connection once all messages posted on it are sent.
    fn close(&mut self, id: ConnectionId) {
        unreachable!("{id:?} on a machine without connections");
    }
}

/// A summary of the events on connections in one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTurn {
    /// Number of events on connections in this turn.
    pub events: usize,
    /// True if a limit was reached, so that more events or steps of handshakes may wait.
    pub is_limited: bool,
}

/// An event on a connection. Each kind of event is passed to one input of the core, such as
/// `Connected` to [`on_connected`](tidegate_world::Core::on_connected), and `Received` to
/// [`offer`](tidegate_world::Core::offer).
#[derive(Debug)]
pub enum StreamEvent {
    /// A connection is open.
    Connected(Flow),
    /// A message, a ping or a pong has arrived.
    Received(Received),
    /// The operating system has taken all bytes to send on a connection.
    Writable(ConnectionId),
    /// A connection has ended.
    Closed(ConnectionId, CloseCause),
}

/// The kinds of messages that sockets receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Messages of all kinds that have no socket of their own.
    Ordinary,
    /// INVITEs and REGISTERs.
    Invite,
    /// Responses.
    Response,
}

/// The sockets that may have something to read, one bit for each socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub(crate) readable: u64,
    pub(crate) reporting: u64,
    pub(crate) streams: bool,
}

impl Ready {
    /// No socket.
    pub const NONE: Self = Self { readable: 0, reporting: 0, streams: false };
    /// It is unknown which sockets are ready. Every socket may have a datagram, and every
    /// connection may have an event. ICMP reports show as errors of other system calls.
    pub const UNKNOWN: Self = Self { readable: u64::MAX, reporting: 0, streams: true };

    /// Returns the same sockets, and assumes that every socket may have ICMP reports.
    pub(crate) fn and_reports(self) -> Self {
        Self { reporting: u64::MAX, ..self }
    }
}
