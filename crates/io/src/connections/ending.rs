//! The end of all connections, when the shard ends.

use rustix::event::epoll;
use tidegate_world::Timestamp;

use super::Connections;

impl Connections {
    /// Closes all connections, each after everything that was handed out on it is sent. No more are
    /// accepted. Further calls of `poll` send what the sockets do not take now.
    pub(crate) fn close_all(&mut self, now: Timestamp) {
        (self.has_left, self.is_ending) = (true, true);
        for listener in &self.listeners {
            // A listener that the shard has left is no longer watched.
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for id in ids {
            self.close(id);
        }
        self.flush(now);
    }

    /// Returns whether there are no connections.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}
