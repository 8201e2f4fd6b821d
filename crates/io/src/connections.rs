//! The connections of a shard: accepted, opened, read, written and closed without blocking.
//!
//! One `epoll` descriptor reports the events of all connections and listeners ([`Watcher`]), so
//! that the shard polls only this descriptor in addition to its UDP sockets. A shard without
//! connections has no `epoll` descriptor.

mod accepting;
mod budget;
mod deadlines;
mod ending;
mod memory;
mod opening;
mod queues;
mod watcher;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::event::epoll;
use tidegate_world::{
    CloseCause, ConnectionId, Pool, Received, ShardIndex, Timers, Timestamp, Transmit,
};

use self::accepting::Late;
use self::budget::HandshakeBudget;
use self::memory::{SMALL, Takers, count_unsent};
use self::queues::{HandshakeQueue, ReadQueue};
use self::watcher::{EVENTS, Set, Watched, Watcher};
use crate::connection::{Connection, PING, PONG, READ, Sent, State, Step, Turn};
use crate::machine::StreamEvent;
use crate::stream_group::StreamListener;
use crate::tls::HandshakeFailure;
use crate::tls_errors::{ENDED, TIMED_OUT};
use crate::{Counters, StreamLimits, TlsPeers, WebSocketClient};

/// Maximum number of messages that a connection passes to the core before the next connection is
/// read. One system call can read more messages of a peer than a turn of the shard handles.
const MESSAGES: u32 = 16;

pub(crate) struct Connections {
    watcher: Watcher,
    listeners: Vec<StreamListener>,
    /// For each listener, the period in which all accepted connections had waited too long in the
    /// kernel's queue.
    late: Vec<Late>,
    connections: HashMap<ConnectionId, Connection>,
    shard: ShardIndex,
    next_id: ConnectionId,
    /// Connections that may have something to read.
    readable: ReadQueue,
    /// Connections whose handshake may have something to read.
    shaking: HandshakeQueue,
    handshake_budget: HandshakeBudget,
    /// Connections with something to send.
    dirty: Vec<ConnectionId>,
    /// Events to report to the core.
    events: VecDeque<StreamEvent>,
    /// Buffer for the events that the kernel reports.
    polled: Vec<epoll::Event>,
    timers: Timers<ConnectionId>,
    /// The time before which no connection is accepted.
    accepts_from: Timestamp,
    /// Time of the last poll that reported all events.
    polled_at: Timestamp,
    /// Time of the last poll that reported all events, without the present poll. A connection that
    /// the present poll reports had nothing to read at that time.
    quiet_until: Timestamp,
    /// True if the shard no longer accepts connections at the addresses that it shares with other
    /// processes.
    has_left: bool,
    /// True if the shard ends and closes all connections.
    is_ending: bool,
    /// Number of bytes that all connections have read and not passed on yet.
    held: usize,
    /// Accepted connections that hold more than `small` bytes of incomplete messages or handshakes.
    holding: Takers,
    /// Memory of the messages that the sockets of accepted connections have not taken, in bytes.
    unsent: usize,
    /// Accepted connections whose unsent messages take more than `small` bytes.
    unread: Takers,
    /// Number of bytes of `held` or of `unsent` up to which a connection is not closed to free
    /// memory.
    small: usize,
    spare: Vec<u8>,
    limits: StreamLimits,
    tls_peers: TlsPeers,
    /// The request that opens WebSockets, or `None` if the core may open none.
    websocket_client: Option<WebSocketClient>,
    counters: Arc<Counters>,
    pool: Pool,
}

impl Connections {
    /// Creates the connections of `shard` with these listeners. Without a `websocket_client`, the
    /// core opens no WebSockets.
    ///
    /// # Errors
    /// Returns the errors of `epoll_create(2)` and `epoll_ctl(2)`.
    pub(crate) fn new(
        shard: ShardIndex,
        listeners: Vec<StreamListener>,
        limits: StreamLimits,
        tls_peers: TlsPeers,
        websocket_client: Option<WebSocketClient>,
        counters: Arc<Counters>,
        pool: Pool,
    ) -> io::Result<Self> {
        Ok(Self {
            watcher: Watcher::new(&listeners)?,
            late: vec![Late::default(); listeners.len()],
            listeners,
            connections: HashMap::new(),
            shard,
            next_id: ConnectionId::first_accepted(shard),
            readable: ReadQueue::default(),
            shaking: HandshakeQueue::default(),
            handshake_budget: HandshakeBudget::default(),
            dirty: Vec::new(),
            events: VecDeque::new(),
            polled: Vec::with_capacity(EVENTS),
            timers: Timers::new(),
            accepts_from: Timestamp::ZERO,
            polled_at: Timestamp::ZERO,
            quiet_until: Timestamp::ZERO,
            has_left: false,
            is_ending: false,
            held: 0,
            holding: Takers::default(),
            unsent: 0,
            unread: Takers::default(),
            small: SMALL,
            spare: Vec::with_capacity(READ),
            limits,
            tls_peers,
            websocket_client,
            counters,
            pool,
        })
    }

    /// Sets whether messages wait for service. While messages wait, handshakes get only a limited
    /// part of the processor time.
    pub(crate) fn set_behind(&mut self, is_behind: bool) {
        self.handshake_budget.set_behind(is_behind);
    }

    /// Returns the descriptor that is readable if a connection or a listener has an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.watcher.fd()
    }

    /// Returns the time of the next turn that must take place even if the kernel reports no event.
    pub(crate) fn due(&self) -> Timestamp {
        if !self.events.is_empty() || !self.readable.is_empty() || !self.shaking.is_empty() {
            return Timestamp::ZERO;
        }
        let pause = if self.is_pausing() { self.accepts_from } else { Timestamp::NEVER };
        self.timers.next().unwrap_or(Timestamp::NEVER).min(pause)
    }

    /// Returns whether steps of handshakes wait for the next turn.
    pub(crate) fn has_steps(&self) -> bool {
        !self.shaking.is_empty()
    }

    /// Takes the events of the kernel, accepts connections, performs steps of handshakes, and
    /// closes the connections whose time limit has passed.
    ///
    /// # Errors
    /// Returns the errors of `epoll_wait(2)` and `epoll_ctl(2)` that no peer can cause.
    pub(crate) fn poll(&mut self, now: Timestamp) -> io::Result<()> {
        if self.is_pausing() && self.accepts_from <= now {
            self.accepts_from = Timestamp::ZERO;
            self.watch_listeners(epoll::EventFlags::IN)?;
        }
        self.quiet_until = self.polled_at;
        let has_inner = self.take_polled(now, Set::Outer)?;
        let mut is_complete = self.polled.len() < EVENTS;
        if has_inner {
            self.take_polled(now, Set::Inner)?;
            is_complete &= self.polled.len() < EVENTS;
        }
        if is_complete {
            self.polled_at = now;
        }
        self.shake_hands(now);
        self.end_late(now);
        Ok(())
    }

    /// Handles the kernel's events on the sockets of `set`. Returns whether the inner set may have
    /// events.
    fn take_polled(&mut self, now: Timestamp, set: Set) -> io::Result<bool> {
        let mut polled = std::mem::take(&mut self.polled);
        polled.clear();
        self.watcher.wait(set, &mut polled)?;
        // One system call returns a limited number of events. If it returns that many, the event of
        // the inner descriptor may not be among them.
        let mut has_inner = polled.len() >= EVENTS;
        for event in &polled {
            match Watched::of(event) {
                Watched::Connection(id) => self.on_polled(now, id, event.flags),
                Watched::Listener(index) => _ = self.accept(now, index)?,
                Watched::Inner => has_inner = true,
            }
        }
        self.polled = polled;
        Ok(has_inner)
    }

    /// Returns the next event for the core. `budget` is the number of further events and attempts
    /// to read that are allowed in this turn.
    pub(crate) fn next_event(&mut self, now: Timestamp, budget: &mut usize) -> Option<StreamEvent> {
        while *budget > 0 {
            if let Some(event) = self.events.pop_front() {
                *budget -= 1;
                return Some(event);
            }
            let id = self.readable.front()?;
            // A connection that has ended takes nothing from the budget.
            let Some(connection) = self.connections.get_mut(&id) else {
                self.readable.pop_front();
                continue;
            };
            *budget -= 1;
            let held_before = connection.held();
            // A connection whose turn ends early keeps the messages that it has read. While there
            // is no memory for them, it passes on all of them in one turn.
            let turn = if self.held < self.limits.held_max { MESSAGES } else { u32::MAX };
            let step = match connection.state {
                State::Open => {
                    connection.read(now, self.quiet_until, turn, &self.pool, &mut self.spare)
                }
                State::Opening | State::Handshaking | State::Closing => Step::Nothing,
            };
            self.held = self.held + connection.held() - held_before;
            if connection.has_pong() && !std::mem::replace(&mut connection.is_dirty, true) {
                self.dirty.push(id);
            }
            match step {
                Step::Message(bytes) => {
                    // A keep-alive takes a whole turn. The core has no limit for keep-alives, so a
                    // peer that sends only keep-alives on many connections could delay the messages
                    // of all other peers.
                    let is_keep_alive = matches!(&bytes[..], PING | PONG);
                    connection.turn.messages += if is_keep_alive { MESSAGES } else { 1 };
                    if !connection.has_fragments() {
                        connection.since = Timestamp::NEVER;
                    }
                    self.counters.stream_received.add(1);
                    self.counters.stream_received_bytes.add(bytes.len() as u64);
                    let received = Received::new(connection.arrived, connection.flow, bytes);
                    return Some(StreamEvent::Received(received));
                }
                // The connection gets its next turn after the other connections.
                Step::More => {
                    connection.turn = Turn::default();
                    self.readable.pass_on();
                }
                Step::Nothing => {
                    connection.turn = Turn::default();
                    connection.is_queued = false;
                    self.readable.pop_front();
                    self.wait_for_rest(now, id);
                }
                Step::End(cause) => {
                    if cause == CloseCause::Garbled {
                        self.counters.stream_garbled.add(1);
                    }
                    // An alert instead of the first message concerns the handshake. Browsers, and
                    // servers with TLS 1.3, reject a certificate only when the handshake is
                    // complete.
                    if cause == CloseCause::Insecure && connection.is_silent() {
                        HandshakeFailure::Rejected.counter(&self.counters).add(1);
                        if let Some(alert) = connection.alert().filter(|_| id.is_opened()) {
                            let error = rustls::Error::AlertReceived(alert).to_string();
                            let remote = connection.flow.remote;
                            self.counters.tls_errors.record(now, remote, Some(&error));
                        }
                    }
                    self.finish(now, id, cause);
                }
            }
        }
        None
    }

    /// Queues a message, which the next flush sends on its connection.
    pub(crate) fn post(&mut self, transmit: Transmit) {
        let id = transmit.flow.connection;
        let found = id.and_then(|id| self.connections.get_mut(&id).map(|found| (id, found)));
        let Some((id, connection)) = found.filter(|(_, found)| found.takes_messages()) else {
            self.counters.stream_unconnected.add(1);
            return;
        };
        self.counters.stream_sent.add(1);
        self.counters.stream_sent_bytes.add(transmit.bytes.len() as u64);
        connection.push(transmit.bytes, &self.pool);
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(id);
        }
    }

    /// Closes a connection once all messages handed to it are sent.
    ///
    /// The core closes an accepted connection on which no message arrives in time. If a message has
    /// begun to arrive, the connection counts as too slow (`stream_slow`), as if the driver's time
    /// limit for the rest of a message had passed.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_within_message = connection.state == State::Open
            && !connection.is_silent()
            && !connection.is_between_messages();
        if is_within_message && !id.is_opened() && connection.unsent_bytes() == 0 && !self.is_ending
        {
            self.counters.stream_slow.add(1);
            return self.end(id, CloseCause::TimedOut);
        }
        if matches!(connection.state, State::Opening | State::Handshaking) || connection.is_sent() {
            // The core limits the time for opening a connection.
            let is_late = connection.state == State::Handshaking && id.is_opened();
            if is_late && !self.is_ending {
                connection.late(&self.counters).add(1);
                // The core passes no time. This one is that of the present turn, or a little earlier.
                self.record_tls_error(self.polled_at, id, TIMED_OUT);
            }
            return self.end(id, CloseCause::Asked);
        }
        connection.close(&self.pool);
        connection.since = Timestamp::NEVER;
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(id);
        }
    }

    /// Sends as many bytes as the sockets take.
    pub(crate) fn flush(&mut self, now: Timestamp) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.is_dirty = false;
                // For a full socket, the kernel reports when it has room.
                if connection.waits_for_room {
                    count_unsent(&mut self.unsent, now, id, connection);
                    self.limit_unsent(id);
                } else {
                    self.send(now, id);
                }
                self.wait_for_close(now, id);
            }
        }
        self.dirty = dirty;
    }

    fn insert(&mut self, id: ConnectionId, connection: Connection) {
        self.connections.insert(id, connection);
        self.counters.stream_connections.set(self.connections.len() as u64);
    }

    /// Handles an event of the kernel on a connection.
    fn on_polled(&mut self, now: Timestamp, id: ConnectionId, flags: epoll::EventFlags) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        if connection.state == State::Opening {
            return self.on_opened(now, id);
        }
        // If a client gives up before its first step, its connection ends without a signature.
        if flags.contains(epoll::EventFlags::RDHUP) && connection.waits_for_first_step() {
            HandshakeFailure::Closed.counter(&self.counters).add(1);
            self.record_tls_error(now, id, ENDED);
            return self.end(id, CloseCause::Insecure);
        }
        if flags.contains(epoll::EventFlags::OUT) {
            connection.waits_for_room = false;
            self.send(now, id);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state == State::Closing {
            if failed {
                self.end(id, CloseCause::Reset);
            }
            return;
        }
        if failed || flags.contains(epoll::EventFlags::IN) {
            queue(now, id, connection, &mut self.readable, &mut self.shaking);
        }
    }

    fn send(&mut self, now: Timestamp, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let sent = connection.send();
        count_unsent(&mut self.unsent, now, id, connection);
        match sent {
            Sent::All { .. } if connection.state == State::Closing => {
                let cause = connection.end_cause();
                self.end(id, cause);
            }
            Sent::All { tells } => {
                if tells {
                    self.events.push_back(StreamEvent::Writable(id));
                }
                self.wait_for_room(id, false);
            }
            Sent::Blocked => {
                self.wait_for_room(id, true);
                self.limit_unsent(id);
            }
            // The peer may have sent messages before the connection failed, such as a BYE. They are
            // still read.
            Sent::End(cause) if connection.state == State::Open => {
                connection.stop_sending(cause);
                count_unsent(&mut self.unsent, now, id, connection);
                queue(now, id, connection, &mut self.readable, &mut self.shaking);
                self.wait_for_room(id, false);
            }
            Sent::End(cause) => {
                if connection.state == State::Handshaking {
                    connection.closed(&self.counters).add(1);
                    self.record_tls_error(now, id, ENDED);
                }
                self.end(id, cause);
            }
        }
    }

    /// Sets whether the kernel reports when the socket of a connection takes more bytes.
    fn wait_for_room(&mut self, id: ConnectionId, waits: bool) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.waits_for_room = waits;
        let flags = match (connection.state, waits) {
            (State::Closing, _) => epoll::EventFlags::OUT,
            (_, true) => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            (_, false) => epoll::EventFlags::IN,
        };
        if std::mem::replace(&mut connection.watched, flags) == flags {
            return;
        }
        if self.watcher.modify(id, connection.stream(), flags).is_err() {
            self.end(id, CloseCause::Other);
        }
    }

    /// Ends a connection. The bytes that it holds are lost.
    fn end(&mut self, id: ConnectionId, cause: CloseCause) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        connection.announce_end();
        if self.is_ending {
            connection.part();
        }
        self.held -= connection.held();
        self.unsent -= connection.unsent;
        self.counters.stream_connections.set(self.connections.len() as u64);
        self.events.push_back(StreamEvent::Closed(id, cause));
    }
}

/// Queues a connection that may have bytes to read. These bytes arrived at the time `since`.
fn queue(
    since: Timestamp,
    id: ConnectionId,
    connection: &mut Connection,
    readable: &mut ReadQueue,
    shaking: &mut HandshakeQueue,
) {
    if !std::mem::replace(&mut connection.is_readable, true) {
        connection.readable_since = since;
    }
    if !std::mem::replace(&mut connection.is_queued, true) {
        match connection.state {
            State::Handshaking => shaking.push(id, connection.steps),
            _ => readable.push_back(id),
        }
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
