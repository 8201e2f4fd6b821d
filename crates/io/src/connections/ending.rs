//! The end of all connections, when the shard ends.

use tidegate_world::Timestamp;

use super::Connections;

impl Connections {
    /// Closes each connection when everything that was handed out on it has been sent. Accepts no
    /// more connections. If a socket does not take all bytes now, further calls of `poll` send the
    /// rest.
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

    /// Counts the connections that have not sent everything, because the shard does not wait for
    /// them any longer.
    pub(crate) fn give_up(&self) {
        self.counters.stream_cut_off.add(self.connections.len() as u64);
    }

    /// Returns whether there are no connections.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}
