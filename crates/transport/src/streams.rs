//! A wrapper of a core that carries the core's stream messages on connections.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_sip::{Message, connection_target};
use tidegate_world::{
    CloseCause, Connect, ConnectionId, Core, Failure, Flow, Handoff, HandoffInput, Load, Pool,
    QueryAnswer, QueryId, Received, ShardIndex, Timestamp, Transmit, delegate,
};

use crate::connection::is_request;
use crate::connections::ConnectionTable;
use crate::limits::{ConnectionCounters, ConnectionLimits};
use crate::unsent::{Unsent, WhyUnsent, cause_of};

/// A ping, which is answered with a [`PONG`] (RFC 5626 §4.4.1).
const PING: &[u8] = b"\r\n\r\n";
const PONG: &[u8] = b"\r\n";

/// A core together with the connections that carry its messages over streams. Datagrams pass
/// unchanged.
///
/// # The core's view
///
/// The core sends a message on a stream with a flow that has the address of one of its listeners.
/// If the flow names no connection, the message uses the connection to the remote end, which is
/// opened if there is none. If the flow names a connection, the message uses that connection. If
/// that connection has ended, a message that [may reconnect](Transmit::may_reconnect) uses the
/// connection to the remote end. A response then uses a connection to the address in its Via. Any
/// other message is not sent. The flow of a message offered to the core has the address of a
/// listener, and the id of the connection on which the message came.
///
/// The core learns of an unsent message by [`on_failed`](Core::on_failed), with the beginning of
/// the message. If the peer reads too slowly, a request that begins [new
/// work](Transmit::is_new_work) fails at once and does not wait. If a connection ends on which
/// requests of the core were sent, the core gets [`on_failed`](Core::on_failed) with the flow of the
/// connection and an empty quote, because these requests may get no response.
///
/// A core may reserve a connection for certain messages. For example, a user agent can open one
/// connection for each call. The core opens the connection by [`poll_connect`](Core::poll_connect),
/// and then puts its id into the flows of these messages. The messages wait until the connection is
/// open. The core gets [`on_connected`](Core::on_connected) when this connection opens, and may
/// close it. The core gets [`on_closed`](Core::on_closed) when the connection has ended or could
/// not be opened.
///
/// # Several shards
///
/// Each shard has its own connections. If the flow of a message names a connection of another
/// shard, the message is [handed off](Core::poll_handoff), and that shard sends it. If that shard
/// cannot send the message, it reports this to its own core. When a connection ends, its shard
/// reports this to all other shards if they have sent requests on it.
pub struct Streams<C> {
    core: C,
    connections: ConnectionTable,
    datagrams: VecDeque<Transmit>,
    handoffs: VecDeque<Handoff>,
    pool: Pool,
}

impl<C: Core> Streams<C> {
    /// Wraps `core`, and carries its stream messages on connections. Pongs are written into buffers
    /// of `pool`.
    pub fn new(core: C, limits: ConnectionLimits, pool: Pool) -> Self {
        Self::counting(core, limits, pool, Arc::default())
    }

    /// Wraps `core` as [`new`](Self::new) does, and counts its connections in `counters`.
    pub fn counting(
        core: C,
        limits: ConnectionLimits,
        pool: Pool,
        counters: Arc<ConnectionCounters>,
    ) -> Self {
        let connections = ConnectionTable::new(limits, counters);
        let (datagrams, handoffs) = (VecDeque::new(), VecDeque::new());
        Self { core, connections, datagrams, handoffs, pool }
    }

    /// Assigns the core to `shard` of a process with several shards. By default, the core is the
    /// only shard of its process.
    #[must_use]
    pub fn in_shard(self, shard: ShardIndex) -> Self {
        Self { connections: self.connections.in_shard(shard), ..self }
    }

    /// Returns the wrapped core.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Returns the wrapped core and drops the connections.
    pub fn into_core(self) -> C {
        self.core
    }

    /// Returns the connection table.
    pub fn connections(&self) -> &ConnectionTable {
        &self.connections
    }

    /// Passes the outputs of the core to the connection table, and reports unsent messages to the
    /// core, until neither has anything left to pass on.
    fn settle(&mut self, now: Timestamp) {
        loop {
            // Connections come first, because messages may name them.
            while let Some(connect) = self.core.poll_connect() {
                if !self.connections.open(now, connect) {
                    self.core.on_closed(now, connect.id, CloseCause::Other);
                }
            }
            while let Some(transmit) = self.core.poll_transmit() {
                self.send(now, transmit);
            }
            while let Some(id) = self.core.poll_close() {
                self.connections.close(id);
            }
            let Some(unsent) = self.connections.poll_unsent() else { return };
            self.on_unsent(now, unsent);
        }
    }

    fn send(&mut self, now: Timestamp, transmit: Transmit) {
        let own = self.connections.shard();
        let elsewhere = |id: &ConnectionId| id.shard(own) != own.get();
        if !transmit.flow.transport.is_reliable() {
            self.datagrams.push_back(transmit);
        } else if let Some(id) = transmit.flow.connection.filter(elsewhere) {
            // The other shard must not reject the message because the peer reads slowly: it would
            // need another handoff to report this failure. So the message counts as one that is not
            // new work, and waits.
            let input = HandoffInput::Transmit(Transmit { is_new_work: false, ..transmit });
            self.handoffs.push_back(Handoff { shard: id.shard(own), input });
        } else if let Err(unsent) = self.connections.send(now, transmit) {
            self.on_unsent(now, unsent);
        }
    }

    /// Reports an unsent message to the core. If the connection of a response has ended, first
    /// tries to send the response on a connection to the address in its Via. If the connection of a
    /// message that [may reconnect](Transmit::may_reconnect) no longer exists, first tries to send
    /// the message on another connection.
    ///
    /// RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a connection
    /// to the IP address in the "received" parameter, if present, using the port in the "sent-by"
    /// value, or the default port for that transport, if no port is specified."
    fn on_unsent(&mut self, now: Timestamp, unsent: Unsent) {
        let Unsent { transmit, why } = unsent;
        if why == WhyUnsent::Gone && transmit.may_reconnect {
            let flow = Flow { connection: None, ..transmit.flow };
            let again = Transmit { flow, may_reconnect: false, ..transmit };
            if let Err(unsent) = self.connections.send(now, again) {
                self.fail(now, &unsent);
            }
            return;
        }
        let has_ended = matches!(why, WhyUnsent::Gone | WhyUnsent::Closed(_));
        if has_ended
            && transmit.flow.connection.is_some()
            && let Some(remote) = listener_of_peer(&transmit.bytes)
        {
            let flow = Flow { remote, connection: None, ..transmit.flow };
            let response = Transmit { flow, ..transmit };
            if let Err(unsent) = self.connections.send(now, response) {
                self.fail(now, &unsent);
            }
            return;
        }
        self.fail(now, &Unsent { transmit, why });
    }

    fn fail(&mut self, now: Timestamp, unsent: &Unsent) {
        self.connections.counters().unsent.add(1);
        self.core.on_failed(now, unsent.failure());
    }

    /// Handles a message or keep-alive from a connection. Returns the message to offer to the core,
    /// if there is one.
    ///
    /// RFC 5626 §5.4: "When a server receives a double CRLF sequence between SIP messages on a
    /// connection-oriented transport such as TCP or SCTP, it MUST immediately respond with a single
    /// CRLF over the same connection."
    fn receive(
        &mut self,
        now: Timestamp,
        id: ConnectionId,
        mut received: Received,
    ) -> Option<Received> {
        if &received.bytes[..] == PING {
            self.connections.on_ping(now, id, self.pool.copy(PONG));
            return None;
        }
        if &received.bytes[..] == PONG {
            self.connections.on_keep_alive(now, id);
            return None;
        }
        if !self.connections.on_received(now, id) {
            return None;
        }
        received.flow.local = self.connections.local(id)?;
        Some(received)
    }
}

/// Returns the address to which a connection can be opened for this response, or `None` if the
/// message is a request or its Via has no usable address.
fn listener_of_peer(bytes: &[u8]) -> Option<SocketAddr> {
    let response = Message::parse_head(bytes).ok().filter(|message| !message.is_request())?;
    connection_target(&response.top_via().ok()?)
}

#[deny(clippy::missing_trait_methods)]
impl<C: Core> Core for Streams<C> {
    fn offer(&mut self, now: Timestamp, received: Received) {
        let own = self.connections.shard();
        let is_ours = |id: ConnectionId| id.shard(own) == own.get();
        let received = match received.flow.connection {
            Some(id) if is_ours(id) => self.receive(now, id, received),
            // A datagram, or a message that another shard has received.
            _ => Some(received),
        };
        if let Some(received) = received {
            self.core.offer(now, received);
            self.settle(now);
        }
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        let has_served = self.core.serve(now);
        self.settle(now);
        has_served
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.connections.handle_timeout(now);
        self.core.handle_timeout(now);
        self.settle(now);
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.core.on_failed(now, failure);
        self.settle(now);
    }

    fn on_transmit(&mut self, now: Timestamp, transmit: Transmit) {
        // Only the sender of a request waits for an answer. So only a request makes it necessary to
        // report the end of the connection to other shards.
        let (flow, is_request) = (transmit.flow, is_request(&transmit.bytes));
        if let Err(unsent) = self.connections.send(now, transmit) {
            self.on_unsent(now, unsent);
        }
        if is_request {
            self.connections.serve_others(flow);
        }
        self.settle(now);
    }

    fn on_connected(&mut self, now: Timestamp, flow: Flow) {
        self.connections.on_connected(now, flow);
        if let Some(id) = flow.connection.filter(|&id| self.connections.is_named(id)) {
            let local = self.connections.local(id).unwrap_or(flow.local);
            self.core.on_connected(now, Flow { local, ..flow });
            self.settle(now);
        }
    }

    fn on_closed(&mut self, now: Timestamp, id: ConnectionId, cause: CloseCause) {
        let is_named = self.connections.is_named(id);
        let flow = self.connections.on_closed(id, cause);
        // When the core itself closes a connection, the driver first sends all messages. So the
        // core needs no report of lost messages.
        let is_wanted = is_named && cause == CloseCause::Asked;
        if let Some((flow, true)) = flow {
            let failure = Failure::new(flow, cause_of(cause), b"");
            let input = || HandoffInput::Failure(failure.clone());
            let others = self.connections.shard().others();
            self.handoffs.extend(others.map(|shard| Handoff { shard, input: input() }));
        }
        if let Some((flow, _)) = flow.filter(|_| !is_wanted) {
            self.core.on_failed(now, Failure::new(flow, cause_of(cause), b""));
        }
        if is_named {
            self.core.on_closed(now, id, cause);
        }
        self.settle(now);
    }

    fn on_writable(&mut self, now: Timestamp, id: ConnectionId) {
        self.connections.on_writable(now, id);
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        self.core.on_load(now, load);
        self.settle(now);
    }

    fn on_command(&mut self, now: Timestamp, command: &[u8]) {
        self.core.on_command(now, command);
        self.settle(now);
    }

    fn on_answer(&mut self, now: Timestamp, id: QueryId, answer: QueryAnswer) {
        self.core.on_answer(now, id, answer);
        self.settle(now);
    }

    fn on_drain(&mut self, now: Timestamp) {
        self.core.on_drain(now);
        self.settle(now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.datagrams.pop_front().or_else(|| self.connections.poll_transmit())
    }

    fn poll_handoff(&mut self) -> Option<Handoff> {
        self.handoffs.pop_front().or_else(|| self.core.poll_handoff())
    }

    fn poll_connect(&mut self) -> Option<Connect> {
        self.connections.poll_connect()
    }

    fn poll_close(&mut self) -> Option<ConnectionId> {
        self.connections.poll_close()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        [self.core.poll_timeout(), self.connections.poll_timeout()].into_iter().flatten().min()
    }

    fn is_drained(&self) -> bool {
        let waits = self.connections.waiting_bytes() > 0 || !self.handoffs.is_empty();
        self.core.is_drained() && !waits
    }

    delegate!(self.core, only poll_query, poll_shedding, last_work);
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
