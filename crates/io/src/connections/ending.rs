//! The end of a connection whose peer sends nothing more, and of all connections, when the shard
//! ends.

use tidegate_world::{CloseCause, ConnectionId, Timestamp};

use super::Connections;

impl Connections {
    /// Ends a connection from which nothing more arrives.
    ///
    /// If an accepted connection has bytes left to send, and its peer may still read them, the
    /// connection ends when they are sent. A connection that the core has opened ends at once,
    /// because the peer could answer none of the requests that the core would send on it meanwhile.
    pub(super) fn finish(&mut self, now: Timestamp, id: ConnectionId, cause: CloseCause) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let held_before = connection.held();
        if id.is_opened() || !connection.finish(cause) {
            return self.end(id, cause);
        }
        self.held = self.held + connection.held() - held_before;
        self.send(now, id);
        self.wait_for_close(now, id);
    }

    /// Stops accepting connections, and closes each connection once all messages handed to it are
    /// sent. If a socket does not take all bytes now, further calls of `poll` send the remaining
    /// bytes.
    pub(crate) fn close_all(&mut self, now: Timestamp) {
        self.is_ending = true;
        for listener in &self.listeners {
            // A listener that the shard has left is no longer watched.
            let _ = self.watcher.remove_listener(listener);
        }
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for id in ids {
            self.close(id);
        }
        self.flush(now);
    }

    /// Counts the remaining connections as cut off, because the shard no longer waits until all
    /// their bytes are sent.
    pub(crate) fn give_up(&self) {
        self.counters.stream_cut_off.add(self.connections.len() as u64);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}
