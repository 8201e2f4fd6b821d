//! The end of all connections, when the shard ends.

use tidegate_world::Timestamp;

use super::Connections;

impl Connections {
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
