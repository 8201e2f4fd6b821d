//! Opens, accepts and evicts connections, within the limits of a table.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tidegate_world::{Connect, ConnectionId, Flow, Timestamp};

use super::ConnectionTable;
use crate::connection::{Connection, ConnectionState, Target, Use};
use crate::limits::ConnectionLimits;
use crate::unsent::WhyUnsent;

/// The table keeps 1/16 of the maximum number of opened connections free, but at least one, as long
/// as there are idle connections to close. A driver takes time to close a connection, so the table
/// makes room in advance.
const SPARE_PART: usize = 16;

/// When at most 1/8 of the permitted accepted connections is left, [`per_remote_max`] lowers the
/// limit on the connections of one source.
const LAST_PART: usize = 8;

impl ConnectionTable {
    /// Opens a connection with an id that the owner of the table has chosen. Only messages with
    /// this id in their flow use the connection. Returns false if the id is in use, or if the limit
    /// on opened connections is reached.
    pub fn open(&mut self, now: Timestamp, connect: Connect) -> bool {
        let Connect { id, transport, local, remote } = connect;
        debug_assert!(id.is_opened() && transport.is_reliable(), "{connect:?}");
        if self.connections.contains_key(&id) || !self.has_room_for_one(now) {
            return false;
        }
        self.begin(now, id, Target { transport, local, remote }, true);
        true
    }

    /// Returns the connection to the remote end of a flow that names no connection. Opens one if
    /// there is none. Fails if a limit on opened connections is reached, or if the transport is
    /// WebSocket and there is no connection.
    pub(super) fn find_or_open(
        &mut self,
        now: Timestamp,
        flow: Flow,
        by: Use,
    ) -> Result<ConnectionId, WhyUnsent> {
        let target = Target::of(flow);
        if let Some(id) = self.find(&target, by) {
            return Ok(id);
        }
        // RFC 7118 §5.3: "SIP responses can only be sent over the existing WebSocket connection".
        // The table does not open WebSocket connections for requests either.
        if target.transport.is_websocket() {
            return Err(WhyUnsent::Gone);
        }
        if !self.has_room_for_one(now) || !self.has_room_for(now, flow, by) {
            return Err(WhyUnsent::TooMany);
        }
        let id = self.free_id();
        self.begin(now, id, target, false);
        self.by_target.insert(target, id);
        self.limited.add(now, id, by);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.serves = by;
            connection.opens_for_response = by == Use::Response;
        }
        Ok(id)
    }

    /// Returns the connection to `target` for a message of the kind `by` whose flow names no
    /// connection.
    ///
    /// RFC 3261 §18.1.1: "If a request is destined to an IP address, port, and transport to which
    /// an existing connection is open, it is RECOMMENDED that this connection be used".
    ///
    /// A peer that has connected from the address of `target` may be another host behind the same
    /// address translation. So only requests to strangers use accepted connections. Requests to
    /// back ends and trusted sources do not.
    pub(super) fn find(&self, target: &Target, by: Use) -> Option<ConnectionId> {
        let opened = self.by_target.get(target).copied();
        opened.or_else(|| self.find_accepted(target).filter(|_| by == Use::Stranger))
    }

    /// Returns the connection that the peer at the address of `target` has opened to the listener
    /// of `target`, over the same transport. Before the first message of the peer, the handshake of
    /// TLS or of a WebSocket may not be complete.
    fn find_accepted(&self, target: &Target) -> Option<ConnectionId> {
        let is_it = |id: &ConnectionId| {
            self.connections.get(id).is_some_and(|connection| {
                connection.has_spoken
                    && connection.flow.transport == target.transport
                    && is_at(target.local, connection.listener)
            })
        };
        // If a peer uses its port again, the end of its previous connection may not be known yet.
        self.accepted.of_peer(target.remote).filter(is_it).last()
    }

    /// Returns whether one more connection may be opened for this use. If the limit on connections
    /// for responses and to strangers is reached, first tries to close an unused one. If it returns
    /// true, [`LimitedConnections`](super::LimitedConnections) has counted the new connection.
    fn has_room_for(&mut self, now: Timestamp, flow: Flow, by: Use) -> bool {
        if by == Use::Any {
            return true;
        }
        let max = self.limits.limited_max();
        let has_place = self.limited.has_place(by, max) || self.evict_limited(now, by);
        let has_room = has_place && self.limited.admit(flow.remote, by, max);
        if !has_room {
            self.counters.excess.add(1);
        }
        has_room
    }

    /// Returns whether one more connection may be opened. If the limit is nearly reached, first
    /// closes an idle connection, if there is one.
    fn has_room_for_one(&mut self, now: Timestamp) -> bool {
        self.make_room(now);
        let has_room = self.opened < self.limits.opened_max;
        if !has_room {
            self.counters.excess.add(1);
        }
        has_room
    }

    fn begin(&mut self, now: Timestamp, id: ConnectionId, target: Target, is_named: bool) {
        let Target { transport, local, remote } = target;
        let flow = Flow::connected(transport, local, remote, id);
        let mut connection = Connection::new(now, flow, ConnectionState::Connecting);
        connection.target = Some(Box::new(target));
        connection.is_named = is_named;
        self.opened += 1;
        self.recency.add(now, id);
        self.connections.insert(id, connection);
        self.connects.push_back(Connect { id, transport, local, remote });
        self.arm(id);
    }

    /// Closes one connection if the limit on opened connections is nearly reached. Prefers an
    /// unused connection for responses or to a stranger. If there is none, closes the least
    /// recently used opened connection, unless it was used within
    /// [`yields_after`](crate::ConnectionLimits::yields_after).
    fn make_room(&mut self, now: Timestamp) {
        let spare = (self.limits.opened_max / SPARE_PART).max(1);
        if self.recency.len() + 1 + spare <= self.limits.opened_max {
            return;
        }
        if !self.evict_limited(now, Use::Any) {
            let Self { limits, connections, recency, .. } = self;
            let last_use = |id| last_use(connections, now, id);
            let oldest = recency.oldest(now, limits.yields_after, last_use);
            self.evict(oldest);
        }
    }

    /// Closes an unused connection for responses or to a stranger, to make room for a message of
    /// the kind `by`. For a response, never closes a connection to a stranger. Returns whether a
    /// connection was closed.
    fn evict_limited(&mut self, now: Timestamp, by: Use) -> bool {
        let Self { limits, connections, limited, .. } = self;
        let last_use = |id| last_use(connections, now, id);
        let oldest = limited.oldest(now, by, limits.yields_after, last_use);
        self.evict(oldest)
    }

    /// Closes the connection `id` to make room for another one. Returns false if `id` is `None`.
    fn evict(&mut self, id: Option<ConnectionId>) -> bool {
        if let Some(id) = id {
            self.counters.evicted.add(1);
            self.close(id);
        }
        id.is_some()
    }

    /// Adds a connection that the driver has accepted, or tells the driver to close it if there are
    /// too many accepted connections.
    pub(super) fn accept(&mut self, now: Timestamp, id: ConnectionId, flow: Flow) {
        let accepted = self.connections.len() - self.opened;
        let free = self.limits.accepted_max.saturating_sub(accepted);
        let (each_max, site_max) = per_remote_max(&self.limits, free);
        if !self.remotes.admit(flow.remote, each_max, site_max) {
            self.counters.excess.add(1);
            // The table keeps no state of this connection.
            self.closes.push_back(id);
            return;
        }
        self.connections.insert(id, Connection::new(now, flow, ConnectionState::Open));
        self.accepted.add(flow.remote, id);
        self.counters.accepted.add(1);
        self.arm(id);
    }

    /// Returns an unused id. The search ends, because only `opened_max` ids are in use, and a shard
    /// has many more: 2^31 divided by the number of shards.
    fn free_id(&mut self) -> ConnectionId {
        while self.connections.contains_key(&self.next_id) {
            self.next_id = self.next_id.next_of(self.shard);
        }
        let id = self.next_id;
        self.next_id = id.next_of(self.shard);
        id
    }
}

/// Returns whether a connection to the address `local` was accepted by the listener at `listener`,
/// which may be the wildcard address.
fn is_at(listener: SocketAddr, local: SocketAddr) -> bool {
    let covers = listener.ip().is_unspecified()
        && listener.is_ipv4() == local.is_ipv4()
        && listener.port() == local.port();
    listener == local || covers
}

/// Returns the time at which a connection was last used. It is `now` if the connection is not open
/// (for example backed up), or if messages wait for it.
fn last_use(
    connections: &BTreeMap<ConnectionId, Connection>,
    now: Timestamp,
    id: ConnectionId,
) -> Timestamp {
    match connections.get(&id) {
        Some(unused) if unused.state == ConnectionState::Open && !unused.is_waited_for() => {
            unused.since
        }
        _ => now,
    }
}

/// Returns the numbers of accepted connections that one source, and one site, may have while the
/// table has room for `free` more accepted connections. See [`Remotes`](crate::remotes::Remotes).
///
/// If only the [last part](LAST_PART) of the room is left, one site may have at most `free`
/// connections. Otherwise a few sites could fill the table and keep out all others, including back
/// ends. If `per_remote_max` is close to `accepted_max`, the last part is the difference of the
/// two. An operator sets such limits if all browsers come from the address of a reverse proxy.
fn per_remote_max(limits: &ConnectionLimits, free: usize) -> (usize, usize) {
    let ConnectionLimits { accepted_max, per_remote_max, .. } = *limits;
    let last = (accepted_max / LAST_PART).min(accepted_max.saturating_sub(per_remote_max));
    (per_remote_max, if free > last { usize::MAX } else { free })
}
