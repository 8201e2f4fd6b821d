//! The accepted connections, found by the address of their peer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use tidegate_world::ConnectionId;

/// The ids of the accepted connections that are not being closed, by the address of the peer.
///
/// RFC 3261 §18: "These connections are indexed by the tuple formed from the address, port, and
/// transport protocol at the far end of the connection." "When the connection is accepted by the
/// transport layer, this index is set to the source IP address, port number, and transport."
#[derive(Debug, Default)]
pub(super) struct AcceptedConnections {
    ids: BTreeSet<(SocketAddr, ConnectionId)>,
}

impl AcceptedConnections {
    pub(super) fn add(&mut self, remote: SocketAddr, id: ConnectionId) {
        self.ids.insert((canonical(remote), id));
    }

    pub(super) fn remove(&mut self, remote: SocketAddr, id: ConnectionId) {
        self.ids.remove(&(canonical(remote), id));
    }

    /// Returns the connections of the peer with exactly this address and port. Usually there is one
    /// for each listener to which the peer has connected.
    pub(super) fn of_peer(&self, remote: SocketAddr) -> impl Iterator<Item = ConnectionId> {
        let remote = canonical(remote);
        let ids = self.ids.range((remote, ConnectionId::FIRST_OPENED)..);
        ids.take_while(move |(of, _)| *of == remote).map(|(_, id)| *id)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// Converts `::ffff:a.b.c.d` of an IPv6 socket to IPv4. Returns other addresses unchanged.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}
