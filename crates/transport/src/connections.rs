//! A table of the connections of one shard. It assigns messages to connections, and queues messages
//! that must wait.

mod accepted;
mod limited;
mod places;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_world::{
    Buffer, CloseCause, Connect, ConnectionId, Flow, ShardIndex, Timers, Timestamp, Transmit,
};

use self::accepted::AcceptedConnections;
use self::limited::LimitedConnections;
use crate::connection::{Connection, ConnectionState, Target, Use, is_request, is_response};
use crate::limits::{ConnectionCounters, ConnectionLimits};
use crate::recency::Recency;
use crate::remotes::Remotes;
use crate::unsent::{Unsent, WhyUnsent};
use crate::waiting_bytes::WaitingBytes;

/// A table of connections, found by id and by target.
///
/// A message on a flow that names a connection uses that connection or is not sent. Otherwise it
/// uses the connection to the remote end, and the table opens one if there is none. A request to a
/// stranger also uses a connection that the stranger has opened from the remote address. While a
/// connection opens, or its peer does not read, its messages wait in order and within limits. A
/// request that begins [new work](Transmit::is_new_work) does not wait for a peer that reads too
/// slowly, and may not use the last quarter of a queue. The owner may also open a connection under
/// an id that it chooses ([`open`](Self::open)). This is a named connection.
///
/// The owner passes on the driver's reports about connections. Then it drains
/// [`poll_transmit`](Self::poll_transmit), [`poll_connect`](Self::poll_connect) and
/// [`poll_close`](Self::poll_close) for the driver, and [`poll_unsent`](Self::poll_unsent) for
/// itself.
pub struct ConnectionTable {
    limits: ConnectionLimits,
    counters: Arc<ConnectionCounters>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Ids of the connections that have a target, by target.
    by_target: BTreeMap<Target, ConnectionId>,
    accepted: AcceptedConnections,
    remotes: Remotes,
    opened: usize,
    /// The opened connections that are not being closed, in the order of their last use.
    recency: Recency,
    /// The opened connections for responses and to strangers.
    limited: LimitedConnections,
    bytes: WaitingBytes,
    shard: ShardIndex,
    next_id: ConnectionId,
    timers: Timers<ConnectionId>,
    transmits: VecDeque<Transmit>,
    connects: VecDeque<Connect>,
    closes: VecDeque<ConnectionId>,
    unsent: VecDeque<Unsent>,
}

impl ConnectionTable {
    /// Creates an empty table that counts in `counters`.
    pub fn new(limits: ConnectionLimits, counters: Arc<ConnectionCounters>) -> Self {
        Self {
            limits,
            counters,
            connections: BTreeMap::new(),
            by_target: BTreeMap::new(),
            accepted: AcceptedConnections::default(),
            remotes: Remotes::default(),
            opened: 0,
            recency: Recency::default(),
            limited: LimitedConnections::default(),
            bytes: WaitingBytes::default(),
            shard: ShardIndex::ALONE,
            next_id: ConnectionId::FIRST_OPENED,
            timers: Timers::new(),
            transmits: VecDeque::new(),
            connects: VecDeque::new(),
            closes: VecDeque::new(),
            unsent: VecDeque::new(),
        }
    }

    /// Assigns the table to `shard` of a process with several shards. From then on, each connection
    /// that the table opens gets an id of this shard.
    #[must_use]
    pub fn in_shard(self, shard: ShardIndex) -> Self {
        Self { shard, next_id: ConnectionId::first_opened(shard), ..self }
    }

    /// Returns the shard that has the connections.
    pub fn shard(&self) -> ShardIndex {
        self.shard
    }

    /// Sends a message on a stream, now or as soon as its connection accepts it.
    ///
    /// RFC 3261 §18.1.1: "If a request is destined to an IP address, port, and transport to which
    /// an existing connection is open, it is RECOMMENDED that this connection be used".
    ///
    /// RFC 3261 §18.2.2: "If the "sent-protocol" is a reliable transport protocol such as TCP or
    /// SCTP, or TLS over those, the response MUST be sent using the existing connection to the
    /// source of the original request that created the transaction, if that connection is still
    /// open."
    ///
    /// RFC 3261 §18.1.1: "Therefore, the client transport MUST be prepared to receive the response
    /// on the same connection used to send the request."
    ///
    /// A response whose flow names no connection is one whose own connection has ended or is not
    /// known. RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a
    /// connection to the IP address in the "received" parameter, if present, using the port in the
    /// "sent-by" value, or the default port for that transport, if no port is specified."
    ///
    /// At most half of the opened connections are for such responses and for requests [to
    /// strangers](Transmit::is_to_stranger), and at most half of these are for responses. When the
    /// table needs room, it closes connections for responses first. Otherwise peers that close
    /// their connections early, and strangers that name very many addresses in their Contacts,
    /// could use up all connections that the proxy needs for its back ends.
    ///
    /// # Errors
    /// Returns the message and the [reason](WhyUnsent) if it can neither be sent nor wait. A
    /// message that waits may still fail. Then [`poll_unsent`](Self::poll_unsent) returns it.
    pub fn send(&mut self, now: Timestamp, transmit: Transmit) -> Result<(), Unsent> {
        let by = match transmit.flow.connection {
            None if is_response(&transmit.bytes) => Use::Response,
            _ if transmit.is_to_stranger => Use::Stranger,
            _ => Use::Any,
        };
        self.send_as(now, transmit, by)
    }

    fn send_as(&mut self, now: Timestamp, transmit: Transmit, by: Use) -> Result<(), Unsent> {
        debug_assert!(transmit.flow.transport.is_reliable(), "a datagram needs no connection");
        let found = match transmit.flow.connection {
            Some(id) => {
                let found = self.connections.get(&id).filter(|c| c.leads_to(transmit.flow.remote));
                found.map(|_| id).ok_or(WhyUnsent::Gone)
            }
            None => self.find_or_open(now, transmit.flow, by),
        };
        let id = match found {
            Ok(id) => id,
            Err(why) => return Err(Unsent { transmit, why }),
        };
        let connection = self.connections.get_mut(&id).expect("it was found");
        // A request waits for its response, so its connection is no longer among the first to be
        // closed to make room. A response that names its connection does not protect it: otherwise
        // a peer could protect connections opened for responses by sending requests on them.
        if by > connection.serves
            && (transmit.flow.connection.is_none() || is_request(&transmit.bytes))
        {
            self.limited.promote(now, connection, id, by, self.limits.limited_max());
        }
        let bytes = transmit.bytes.len();
        let goes_at_once = connection.state == ConnectionState::Open && !connection.is_waited_for();
        if goes_at_once {
            self.transmits.push_back(connection.hand_out_now(now, transmit));
            self.arm(id);
            return Ok(());
        }
        // The queue of a slow peer must keep room for messages that finish work, such as BYE. If a
        // BYE is lost, its call continues at the peer.
        let limits = if transmit.is_new_work { self.limits.for_new_work() } else { self.limits };
        let fits = self.bytes.has_room(id, bytes, &limits) && connection.has_room(bytes, &limits);
        if transmit.is_new_work
            && connection.state == ConnectionState::BackedUp
            && (!fits || connection.is_blocked(now))
        {
            self.counters.backed_up.add(1);
            return Err(Unsent { transmit, why: WhyUnsent::BackedUp });
        }
        if !fits {
            self.counters.overflow.add(1);
            return Err(Unsent { transmit, why: WhyUnsent::NoRoom });
        }
        connection.push(transmit);
        self.bytes.add(id, bytes);
        self.hand_out(now, id);
        Ok(())
    }

    /// Records that a connection is open
    /// ([`Core::on_connected`](tidegate_world::Core::on_connected)).
    pub fn on_connected(&mut self, now: Timestamp, flow: Flow) {
        let Some(id) = flow.connection else { return };
        match self.connections.get_mut(&id) {
            // The table is already closing the connection.
            Some(connection) if connection.state != ConnectionState::Connecting => {}
            Some(connection) => {
                if std::mem::take(&mut connection.opens_for_response) {
                    self.limited.forget_opening(connection.flow.remote);
                }
                connection.flow = flow;
                (connection.state, connection.since) = (ConnectionState::Open, now);
                self.counters.opened.add(1);
                self.hand_out(now, id);
            }
            None if id.is_opened() => {}
            None => self.accept(now, id, flow),
        }
    }

    /// Records that a connection has ended ([`Core::on_closed`](tidegate_world::Core::on_closed)).
    /// Messages that were handed out on it may be lost.
    ///
    /// Returns the flow of the connection, with the address of the listener as the local address,
    /// and whether other shards have sent requests on the connection. Returns `None` if the
    /// connection is unknown, or if no request on it was ever handed to the driver, so that no
    /// request waits for a response on it.
    ///
    /// The table counts a connection as [idle](ConnectionCounters::idle) if it has closed the
    /// connection because no message arrived in time. If the driver reports
    /// [`TimedOut`](CloseCause::TimedOut) for it, a message had begun to arrive. Then the driver
    /// counts the connection, and the table does not.
    pub fn on_closed(&mut self, id: ConnectionId, cause: CloseCause) -> Option<(Flow, bool)> {
        let state = self.connections.get(&id)?.state;
        if state == ConnectionState::Connecting {
            self.counters.failed.add(1);
        }
        if state == ConnectionState::Closing {
            // The id may be reused before the driver takes the request to close this connection.
            self.closes.retain(|closing| *closing != id);
        }
        self.give_up(id, cause);
        let connection = self.connections.remove(&id)?;
        if connection.is_idle && cause != CloseCause::TimedOut {
            self.counters.idle.add(1);
        }
        self.opened -= usize::from(id.is_opened());
        self.forget_use(id, connection.flow.remote);
        if connection.opens_for_response {
            self.limited.forget_opening(connection.flow.remote);
        }
        if !id.is_opened() {
            self.remotes.forget(connection.flow.remote);
        }
        let flow = Flow { local: connection.listener, ..connection.flow };
        connection.has_carried_request.then_some((flow, connection.serves_others))
    }

    /// Records that other shards send requests on the connection that `flow` names or, if it no
    /// longer exists, on another connection to the remote end of `flow`.
    pub(crate) fn serve_others(&mut self, flow: Flow) {
        let named = flow.connection.filter(|id| self.connections.contains_key(id));
        let used = named.or_else(|| self.find(&Target::of(flow), Use::Stranger));
        if let Some(connection) = used.and_then(|id| self.connections.get_mut(&id)) {
            connection.serves_others = true;
        }
    }

    /// Records that the driver has sent all bytes on a connection, so that more can follow
    /// ([`Core::on_writable`](tidegate_world::Core::on_writable)).
    pub fn on_writable(&mut self, now: Timestamp, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.reopen(now)
        {
            self.hand_out(now, id);
        }
    }

    /// Records that a message has arrived on a connection. Returns whether the connection exists
    /// and its opening is complete. Returns true for a connection that is being closed, because its
    /// peer does not know this yet.
    pub fn on_received(&mut self, now: Timestamp, id: ConnectionId) -> bool {
        self.connections.get_mut(&id).is_some_and(|connection| connection.receive(now, true))
    }

    /// Records that a keep-alive has arrived on a connection. Returns whether the connection exists
    /// and its opening is complete. An accepted connection on which only keep-alives arrive is
    /// closed as early as one on which nothing arrives ([`first`](ConnectionLimits::first)).
    pub(crate) fn on_keep_alive(&mut self, now: Timestamp, id: ConnectionId) -> bool {
        self.connections.get_mut(&id).is_some_and(|connection| connection.receive(now, false))
    }

    /// Answers a ping (RFC 5626 §4.4.1) with `pong`. Sends no answer if the connection is backed up
    /// or is being closed. On a backed-up connection, other data is on its way to the peer, and any
    /// data shows the peer that the flow works.
    pub(crate) fn on_ping(&mut self, now: Timestamp, id: ConnectionId, pong: Buffer) {
        if !self.on_keep_alive(now, id) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state != ConnectionState::Open {
            self.counters.pongs_saved.add(1);
            return;
        }
        let pong = Transmit::new(connection.flow, pong);
        self.transmits.push_back(connection.hand_out_pong(now, pong));
        self.arm(id);
    }

    /// Tells the driver to close a connection. The driver first sends the messages that it already
    /// has. [`poll_unsent`](Self::poll_unsent) returns the messages that still wait in the queue of
    /// the table.
    pub fn close(&mut self, id: ConnectionId) {
        self.close_because(id, CloseCause::Asked);
    }

    /// Closes the connections whose time limit has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.timers.pop(now) {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            if connection.armed != at {
                continue;
            }
            connection.armed = Timestamp::NEVER;
            if connection.deadline(&self.limits) > now {
                self.arm(id);
                continue;
            }
            let cause = match connection.state {
                ConnectionState::Connecting => {
                    self.counters.failed.add(1);
                    CloseCause::TimedOut
                }
                ConnectionState::BackedUp => {
                    self.counters.stalled.add(1);
                    CloseCause::TimedOut
                }
                ConnectionState::Open => {
                    connection.is_idle = true;
                    CloseCause::Asked
                }
                ConnectionState::Closing => continue,
            };
            self.close_because(id, cause);
        }
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is needed next.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Returns the next message for the driver to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the next connection for the driver to open.
    pub fn poll_connect(&mut self) -> Option<Connect> {
        self.connects.pop_front()
    }

    /// Returns the next connection for the driver to close.
    pub fn poll_close(&mut self) -> Option<ConnectionId> {
        self.closes.pop_front()
    }

    /// Returns the next message that waited for a connection and could not be sent.
    pub(crate) fn poll_unsent(&mut self) -> Option<Unsent> {
        self.unsent.pop_front()
    }

    /// Returns the address of the listener for which a connection was opened, or that accepted it.
    /// Returns `None` if the table does not have the connection.
    pub fn local(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.connections.get(&id).map(|connection| connection.listener)
    }

    /// Returns whether the owner opened and named the connection ([`open`](Self::open)).
    pub fn is_named(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.is_named)
    }

    /// Returns the state of the connection with this id, if it exists.
    pub fn state(&self, id: ConnectionId) -> Option<ConnectionState> {
        self.connections.get(&id).map(|connection| connection.state)
    }

    /// Returns the number of connections, including those that are being closed.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Returns the number of bytes that wait for all connections together.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes.total()
    }

    /// Returns the counters of the table.
    pub fn counters(&self) -> &Arc<ConnectionCounters> {
        &self.counters
    }

    /// Hands waiting messages of a connection to the driver until its window is used up.
    fn hand_out(&mut self, now: Timestamp, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut handed_out = 0;
        while let Some(transmit) = connection.hand_out(now) {
            handed_out += transmit.bytes.len();
            self.transmits.push_back(transmit);
        }
        self.bytes.remove(id, handed_out);
        self.counters.waiting_bytes.set(self.bytes.total() as u64);
        self.arm(id);
    }

    fn close_because(&mut self, id: ConnectionId, cause: CloseCause) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state != ConnectionState::Closing {
            connection.state = ConnectionState::Closing;
            let remote = connection.flow.remote;
            self.forget_use(id, remote);
            self.closes.push_back(id);
            self.give_up(id, cause);
        }
    }

    /// Removes a connection from [`recency`](Self::recency), [`limited`](Self::limited) and
    /// [`accepted`](Self::accepted).
    fn forget_use(&mut self, id: ConnectionId, remote: SocketAddr) {
        self.accepted.remove(remote, id);
        self.recency.remove(id);
        self.limited.remove(id, remote);
    }

    /// Returns the waiting messages of a connection to the owner, and ensures that no further
    /// message uses the connection.
    fn give_up(&mut self, id: ConnectionId, cause: CloseCause) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let waiting = connection.waiting_bytes();
        let why = WhyUnsent::Closed(cause);
        for transmit in connection.give_up() {
            self.counters.returned.add(1);
            self.unsent.push_back(Unsent { transmit, why });
        }
        if let Some(target) = connection.target.take()
            && self.by_target.get(&target) == Some(&id)
        {
            self.by_target.remove(&target);
        }
        self.bytes.remove(id, waiting);
        self.counters.waiting_bytes.set(self.bytes.total() as u64);
    }

    /// Sets the timer of a connection to its deadline, unless an earlier timer is set. If the
    /// earlier timer fires before the deadline, [`handle_timeout`](Self::handle_timeout) sets it
    /// again.
    fn arm(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let deadline = connection.deadline(&self.limits);
        if deadline < connection.armed {
            connection.armed = deadline;
            self.timers.push(deadline, id);
            self.forget_stale_timers();
        }
    }

    /// Removes stale timers from the timer queue once they are the majority in it. A timer is stale
    /// if its connection has ended or has armed another timer.
    fn forget_stale_timers(&mut self) {
        let Self { timers, connections, .. } = self;
        if timers.len() > 2 * connections.len() + 64 {
            timers.sweep(|at, id| connections.get(&id).is_some_and(|c| c.armed == at));
        }
    }
}

#[cfg(test)]
#[path = "connections_properties.rs"]
mod properties;
#[cfg(test)]
#[path = "connections_room_tests.rs"]
mod room_tests;
#[cfg(test)]
#[path = "connections_strangers_tests.rs"]
mod strangers_tests;
#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
