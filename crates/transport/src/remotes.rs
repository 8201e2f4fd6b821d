//! The number of connections per remote address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tidegate_world::source_of;

/// Counts of connections per remote address (for IPv6, per /64 network).
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    counts: BTreeMap<u128, usize>,
}

impl Remotes {
    /// Counts one more connection with this remote address. Returns `false`, and does not count the
    /// connection, if the remote address already has `each_max` connections.
    pub(crate) fn admit(&mut self, remote: SocketAddr, each_max: usize) -> bool {
        let source = source_of(remote.ip());
        let count = self.counts.get(&source).copied().unwrap_or(0);
        if count >= each_max {
            return false;
        }
        self.counts.insert(source, count + 1);
        true
    }

    pub(crate) fn forget(&mut self, remote: SocketAddr) {
        let source = source_of(remote.ip());
        let count = self.counts.get(&source).copied().unwrap_or(0);
        if count > 1 {
            self.counts.insert(source, count - 1);
        } else {
            self.counts.remove(&source);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
