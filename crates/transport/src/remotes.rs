//! The number of connections per remote address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tidegate_world::{SOURCE_PREFIXES, networks_of};

/// Counts of connections per remote address. For IPv6, these are counts per /64 network, and per
/// /56 and /48 network around it.
///
/// RFC 6177 §2: a site may have a whole /56 or /48, and use all networks in it.
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    counts: BTreeMap<u128, usize>,
}

impl Remotes {
    /// Counts one more connection with this remote address. Returns `false`, and does not count the
    /// connection, if the remote address already has `each_max` connections, or if a network around
    /// it has `each_max` times the number in [`SOURCE_PREFIXES`]. No network may have more than
    /// `site_max` connections.
    pub(crate) fn admit(&mut self, remote: SocketAddr, each_max: usize, site_max: usize) -> bool {
        let mut networks = networks_of(remote.ip()).zip(SOURCE_PREFIXES);
        let has_room = networks.all(|(network, (_, times))| {
            let max = each_max.saturating_mul(times as usize).min(site_max);
            self.counts.get(&network).copied().unwrap_or(0) < max
        });
        if has_room {
            for network in networks_of(remote.ip()) {
                *self.counts.entry(network).or_insert(0) += 1;
            }
        }
        has_room
    }

    pub(crate) fn forget(&mut self, remote: SocketAddr) {
        for network in networks_of(remote.ip()) {
            let count = self.counts.get(&network).copied().unwrap_or(0);
            if count > 1 {
                self.counts.insert(network, count - 1);
            } else {
                self.counts.remove(&network);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
