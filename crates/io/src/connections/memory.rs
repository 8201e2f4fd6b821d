//! The limits on the memory that peers can take with incomplete or unread messages.

use std::collections::{BTreeSet, HashMap};

use tidegate_world::{CloseCause, ConnectionId, STREAM_WINDOW, Timestamp};

use super::Connections;
use crate::connection::{Connection, READ, State};

/// Number of bytes that a connection may take without being closed to free memory. If this number
/// exceeds half of the connection's share of the memory, the largest power of two that is at most
/// half of the share applies instead.
pub(super) const SMALL: usize = 2048;

/// Minimum factor by which the field `small` of [`Connections`] grows. Smaller growth is ignored,
/// so that the number does not change all the time while connections come and go.
const LARGER: usize = 4;

/// The accepted connections that take more than `small` bytes of one kind of memory: for incomplete
/// messages, or for unsent messages. Each entry has the time since which the connection has taken
/// memory. An outdated entry is removed when it is the oldest, or when most entries are outdated.
#[derive(Debug, Default)]
pub(super) struct Takers(BTreeSet<(Timestamp, ConnectionId)>);

impl Takers {
    /// Adds a connection. `count` is the number of all connections. `takes` returns whether an
    /// entry is still valid.
    fn add(
        &mut self,
        since: Timestamp,
        id: ConnectionId,
        count: usize,
        takes: impl Fn(Timestamp, ConnectionId) -> bool,
    ) {
        self.0.insert((since, id));
        if self.0.len() > 2 * count + 64 {
            self.0.retain(|&(since, id)| takes(since, id));
        }
    }

    /// Returns the connection that has taken memory for the longest time. `takes` returns whether
    /// an entry is still valid.
    fn oldest(&mut self, takes: impl Fn(Timestamp, ConnectionId) -> bool) -> Option<ConnectionId> {
        while let Some(&(since, id)) = self.0.first() {
            if takes(since, id) {
                return Some(id);
            }
            self.0.pop_first();
        }
        None
    }
}

impl Connections {
    /// Limits the memory for incomplete messages and handshakes, after a connection has read some
    /// bytes.
    ///
    /// If the memory is full, closes the connections whose messages or handshakes have been
    /// incomplete for the longest time, until as many bytes are free as one system call reads. So a
    /// peer that fills the memory and completes nothing loses its own connections, even if each of
    /// them takes no more than its share.
    pub(super) fn limit_held(&mut self, id: ConnectionId) {
        let (max, share, small) = (self.limits.held_max, self.share(), self.small());
        let Some(connection) = self.connections.get(&id) else { return };
        let (since, held) = (connection.since, connection.held());
        // Peers must not cost a connection that the core has opened, for example to a back end.
        if !id.is_opened() && holds(connection, small) {
            let Self { connections, holding, .. } = self;
            let count = connections.len();
            holding.add(since, id, count, |since, id| is_holder(connections, small, since, id));
        }
        let mut freed = 0;
        while self.held > max && freed < READ {
            let Self { connections, holding, .. } = self;
            let oldest = holding.oldest(|since, id| is_holder(connections, small, since, id));
            let Some(oldest) = oldest else { break };
            let before = self.held;
            self.end_for_memory(oldest, CloseCause::Garbled);
            freed += before - self.held;
        }
        if self.held > max && freed == 0 && held > share {
            self.end_for_memory(id, CloseCause::Garbled);
        }
    }

    /// Limits the memory for messages that peers do not read, after a connection could not send all
    /// of its bytes.
    ///
    /// If the memory is full, closes the connections that have had something left to send for the
    /// longest time, until as many bytes are free as the core hands out at once.
    pub(super) fn limit_unsent(&mut self, id: ConnectionId) {
        let (max, small) = (self.limits.held_max, self.small());
        let Some(connection) = self.connections.get(&id) else { return };
        if connection.unsent > small {
            let since = connection.unsent_since;
            let Self { connections, unread, .. } = self;
            let count = connections.len();
            unread.add(since, id, count, |since, id| has_unread(connections, small, since, id));
        }
        let mut freed = 0;
        while self.unsent > max && freed < STREAM_WINDOW {
            let Self { connections, unread, .. } = self;
            let oldest = unread.oldest(|since, id| has_unread(connections, small, since, id));
            let Some(oldest) = oldest else { break };
            let before = self.unsent;
            self.end_for_memory(oldest, CloseCause::Other);
            freed += before - self.unsent;
        }
    }

    /// Returns the share of one connection: the maximum memory divided by the number of
    /// connections.
    fn share(&self) -> usize {
        self.limits.held_max / self.connections.len().max(1)
    }

    /// Returns the number of bytes that a connection may take without being closed to free memory.
    /// The number is at most half of the [`share`](Self::share), so that while the memory is full,
    /// at least half of it belongs to connections that take more than this number.
    ///
    /// With more connections, the number becomes smaller. Then a connection that is not listed in
    /// [`Takers`] may take more than the new number, without ever reading or sending again. So this
    /// function lists all connections again. That rarely happens, because the number is a power of
    /// two.
    fn small(&mut self) -> usize {
        let half = SMALL.min(self.share() / 2);
        let small = half.checked_ilog2().map_or(0, |bits| 1 << bits);
        if small < self.small {
            for (&id, connection) in &self.connections {
                if !id.is_opened() && holds(connection, small) {
                    self.holding.0.insert((connection.since, id));
                }
                if connection.unsent > small {
                    self.unread.0.insert((connection.unsent_since, id));
                }
            }
        }
        if small < self.small || small >= LARGER * self.small {
            self.small = small;
        }
        self.small
    }

    fn end_for_memory(&mut self, id: ConnectionId, cause: CloseCause) {
        self.counters.stream_held_full.add(1);
        self.end(id, cause);
    }
}

/// Counts the memory of the unsent messages of a connection, and updates the `total` of all
/// connections. A connection that the core has opened counts as 0, because it is limited only by
/// the core's [`STREAM_WINDOW`].
pub(super) fn count_unsent(
    total: &mut usize,
    now: Timestamp,
    id: ConnectionId,
    connection: &mut Connection,
) {
    let unsent = if id.is_opened() { 0 } else { connection.unsent_bytes() };
    *total = *total + unsent - std::mem::replace(&mut connection.unsent, unsent);
    connection.unsent_since = match unsent {
        0 => Timestamp::NEVER,
        _ => connection.unsent_since.min(now),
    };
}

/// Returns whether a connection has had unsent bytes since `since`, and has more than `small` of
/// them now.
fn has_unread(
    connections: &HashMap<ConnectionId, Connection>,
    small: usize,
    since: Timestamp,
    id: ConnectionId,
) -> bool {
    connections.get(&id).is_some_and(|found| found.unsent_since == since && found.unsent > small)
}

/// Returns whether a connection waits for the rest of a message or of a handshake, and holds more
/// than `small` bytes.
fn holds(connection: &Connection, small: usize) -> bool {
    let waits = match connection.state {
        State::Open | State::Handshaking => connection.since != Timestamp::NEVER,
        State::Opening | State::Closing => false,
    };
    waits && connection.held() > small
}

/// Returns whether a connection [`holds`] more than `small` bytes of a message or a handshake
/// that has been incomplete since `since`.
fn is_holder(
    connections: &HashMap<ConnectionId, Connection>,
    small: usize,
    since: Timestamp,
    id: ConnectionId,
) -> bool {
    connections
        .get(&id)
        .is_some_and(|connection| connection.since == since && holds(connection, small))
}
