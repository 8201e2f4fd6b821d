//! A core whose flows over streams are carried by connections.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tidegate_sip::{Message, connection_target};
use tidegate_world::{
    CloseCause, Connect, ConnectionId, Core, Failure, Flow, Load, Pool, QueryAnswer, QueryId,
    Received, Timestamp, Transmit, delegate,
};

use crate::connections::ConnectionTable;
use crate::limits::ConnectionLimits;
use crate::unsent::{Unsent, WhyUnsent, cause_of};

/// A ping and its answer (RFC 5626 §4.4.1).
const PING: &[u8] = b"\r\n\r\n";
const PONG: &[u8] = b"\r\n";

/// A core, and the connections that its flows over streams travel on. Datagrams pass as they are.
///
/// # What the core sees
///
/// It sends a message on a stream by a flow with the address of one of its listeners. If that names
/// a connection, the message goes there or nowhere; else on the connection that leads to the remote
/// end, which is opened if there is none. What it is offered has the address of a listener too, and
/// the connection on which it came.
///
/// What cannot be sent it is told by [`on_failed`](Core::on_failed), with the beginning of the
/// message. When a connection ends on which messages may have been lost, it is told the flow, with
/// an empty quote. It has no part in opening and closing.
pub struct Streams<C> {
    core: C,
    connections: ConnectionTable,
    datagrams: VecDeque<Transmit>,
    pool: Pool,
}

impl<C: Core> Streams<C> {
    /// Puts connections around a core. Pongs are written into buffers of `pool`.
    pub fn new(core: C, limits: ConnectionLimits, pool: Pool) -> Self {
        let (connections, datagrams) = (ConnectionTable::new(limits), VecDeque::new());
        Self { core, connections, datagrams, pool }
    }

    /// Returns the core within.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Returns the core within.
    pub fn core_mut(&mut self) -> &mut C {
        &mut self.core
    }

    /// Returns the core within, without its connections.
    pub fn into_core(self) -> C {
        self.core
    }

    /// Returns the connections.
    pub fn connections(&self) -> &ConnectionTable {
        &self.connections
    }

    /// Takes what the core wants sent, until it wants nothing more.
    fn settle(&mut self, now: Timestamp) {
        loop {
            while let Some(transmit) = self.core.poll_transmit() {
                self.send(now, transmit);
            }
            let Some(unsent) = self.connections.poll_unsent() else { return };
            self.on_unsent(now, unsent);
        }
    }

    fn send(&mut self, now: Timestamp, transmit: Transmit) {
        if !transmit.flow.transport.is_reliable() {
            self.datagrams.push_back(transmit);
        } else if let Err(unsent) = self.connections.send(now, transmit) {
            self.on_unsent(now, unsent);
        }
    }

    /// Tells the core what was not sent, unless another connection takes it.
    ///
    /// RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a connection
    /// to the IP address in the "received" parameter, if present, using the port in the "sent-by"
    /// value, or the default port for that transport, if no port is specified."
    ///
    /// Who closes its connections early has us open others: those take no more than half of the
    /// places, so that requests find one.
    fn on_unsent(&mut self, now: Timestamp, unsent: Unsent) {
        let Unsent { transmit, why } = unsent;
        let has_ended = matches!(why, WhyUnsent::Gone | WhyUnsent::Closed(_));
        let named = transmit.flow.connection;
        let other = || listener_of_peer(&transmit.bytes);
        if has_ended
            && named.is_some()
            && !self.connections.is_scarce()
            && let Some(remote) = other()
        {
            let flow = Flow { remote, connection: None, ..transmit.flow };
            if let Err(unsent) = self.connections.send(now, Transmit { flow, ..transmit }) {
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

    /// Takes in what came on a connection. Returns what the core is to be offered.
    fn receive(&mut self, now: Timestamp, mut received: Received) -> Option<Received> {
        let id = received.flow.connection?;
        if &received.bytes[..] == PING {
            self.connections.on_ping(now, id, self.pool.copy(PONG));
            return None;
        }
        if !self.connections.on_received(now, id) || &received.bytes[..] == PONG {
            return None;
        }
        received.flow.local = self.connections.local(id)?;
        Some(received)
    }
}

/// Returns where a connection can be opened for a response; `None` for a request.
fn listener_of_peer(bytes: &[u8]) -> Option<SocketAddr> {
    let response = Message::parse_head(bytes).ok().filter(|message| !message.is_request())?;
    connection_target(&response.top_via().ok()?)
}

#[deny(clippy::missing_trait_methods)]
impl<C: Core> Core for Streams<C> {
    fn offer(&mut self, now: Timestamp, received: Received) {
        let received = match received.flow.transport.is_reliable() {
            true => self.receive(now, received),
            false => Some(received),
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

    fn on_connected(&mut self, now: Timestamp, flow: Flow) {
        self.connections.on_connected(now, flow);
    }

    fn on_closed(&mut self, now: Timestamp, id: ConnectionId, cause: CloseCause) {
        if let Some(flow) = self.connections.on_closed(id, cause) {
            self.core.on_failed(now, Failure::new(flow, cause_of(cause), b""));
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

    fn on_order(&mut self, now: Timestamp, order: &[u8]) {
        self.core.on_order(now, order);
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
        self.core.is_drained() && self.connections.waiting_bytes() == 0
    }

    delegate!(self.core, only poll_crossing, poll_query, poll_shedding, last_work);
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
