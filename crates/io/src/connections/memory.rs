//! The limit on the memory that peers can take.

use std::collections::{BTreeSet, HashMap};

use tidegate_world::{CloseCause, ConnectionId, STREAM_WINDOW, Timestamp};

use super::Connections;
use crate::connection::{Connection, READ, State};

/// Number of bytes of a memory that a connection may take without being closed to free the memory.
/// If half of its share is less, the number is at most half of its share.
pub(super) const SMALL: usize = 2048;

/// The number of bytes that a connection may take grows only if it can grow at least by this
/// factor. So it does not change all the time while connections come and go.
const LARGER: usize = 4;

/// The accepted connections that take more than a small part of a memory. Each entry has the time
/// since which its connection takes some of this memory. An entry may be outdated. It stays until
/// it is the oldest, or until most entries are outdated.
#[derive(Debug, Default)]
pub(super) struct Takers(BTreeSet<(Timestamp, ConnectionId)>);

impl Takers {
    /// Adds a connection, which is one of `count` connections. `takes` returns whether an entry is
    /// not outdated.
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

    /// Returns the connection that has taken more than a small part of the memory for the longest
    /// time.
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
    /// Limits the memory for messages and handshakes that have arrived in part, after a connection
    /// has read some bytes.
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

    /// Returns the memory divided by the number of connections.
    fn share(&self) -> usize {
        self.limits.held_max / self.connections.len().max(1)
    }

    /// Returns the number of bytes that a connection may take without being closed to free the
    /// memory. It is at most half of a share. So while the memory is full, the connections that
    /// take more than this number take at least half of the memory.
    ///
    /// With more connections, the number becomes smaller. Then connections that were not listed
    /// before may take more than the number, and may never read or send again. So this function
    /// lists all connections again. The number is a power of two, so this rarely happens.
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

/// Counts the memory of the messages that are left to send on a connection, and updates the
/// `total`. A connection that the core has opened counts as 0, because only the window of the core
/// limits it.
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

/// Returns whether a connection has had something to send since `since`, and has more than `small`
/// bytes now.
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

/// Returns whether a connection [holds](holds) a message or a handshake that has been incomplete
/// since `since`.
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
