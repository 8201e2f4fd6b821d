//! Lets a driver accept and open connections.

use std::io;
use std::sync::Arc;

use super::Drive;
use crate::connections::Connections;
use crate::{StreamLimits, StreamListener, TlsPeers, WebSocketClient};

impl Drive {
    /// Lets the driver accept connections at `listeners`, and open connections for the core, with
    /// TLS to `tls_peers`. Without listeners, the driver does neither. The core may not open
    /// WebSockets.
    ///
    /// # Errors
    /// Returns the errors of `epoll_create(2)` and `epoll_ctl(2)`.
    pub fn with_streams(
        self,
        listeners: Vec<StreamListener>,
        limits: StreamLimits,
        tls_peers: TlsPeers,
    ) -> io::Result<Self> {
        if listeners.is_empty() {
            return Ok(self);
        }
        self.with_connections(listeners, limits, tls_peers, None)
    }

    /// Makes the driver a WebSocket client: it accepts no connections, and its core may open
    /// WebSockets with the request of `client`.
    ///
    /// # Errors
    /// Returns the errors of `epoll_create(2)` and `epoll_ctl(2)`.
    pub fn with_websockets(
        self,
        client: WebSocketClient,
        limits: StreamLimits,
        tls_peers: TlsPeers,
    ) -> io::Result<Self> {
        self.with_connections(Vec::new(), limits, tls_peers, Some(client))
    }

    fn with_connections(
        mut self,
        listeners: Vec<StreamListener>,
        limits: StreamLimits,
        tls_peers: TlsPeers,
        client: Option<WebSocketClient>,
    ) -> io::Result<Self> {
        let (counters, pool) = (Arc::clone(&self.counters), self.pool.clone());
        let shard = self.handoffs.queues().shard();
        let connections =
            Connections::new(shard, listeners, limits, tls_peers, client, counters, pool)?;
        self.machine.set_connections(connections);
        Ok(self)
    }
}
