//! How many connections there are with each remote address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tidegate_world::source_of;

/// A count of connections for each remote address, or network of 64 bits of IPv6.
#[derive(Debug)]
pub(crate) struct Remotes {
    counts: BTreeMap<u128, usize>,
    each_max: usize,
}

impl Remotes {
    pub(crate) fn new(each_max: usize) -> Self {
        Self { counts: BTreeMap::new(), each_max }
    }

    /// Counts a connection more with this remote end. Returns whether there may be one.
    pub(crate) fn admit(&mut self, remote: SocketAddr) -> bool {
        let source = source_of(remote.ip());
        let count = self.counts.get(&source).copied().unwrap_or(0);
        if count >= self.each_max {
            return false;
        }
        self.counts.insert(source, count + 1);
        true
    }

    /// Counts a connection less.
    pub(crate) fn forget(&mut self, remote: SocketAddr) {
        let source = source_of(remote.ip());
        let count = self.counts.get(&source).copied().unwrap_or(0);
        if count > 1 {
            self.counts.insert(source, count - 1);
        } else {
            self.counts.remove(&source);
        }
    }

    /// Returns whether none is counted.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
