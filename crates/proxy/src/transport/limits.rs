//! Bounds of connections, and what is counted of them.

use std::time::Duration;

use tidegate_world::Counter;

/// Bounds of a [`ConnectionTable`](super::connections::ConnectionTable).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Connections that were opened, those that are being opened or closed among them.
    pub(crate) opened_max: usize,
    /// Connections that were accepted. Opened ones count apart, so that no peer can keep the
    /// proxy from reaching its back ends.
    pub(crate) accepted_max: usize,
    /// Connections, of both kinds together, with one remote address; of IPv6 with one network of
    /// 64 bits.
    pub(crate) per_remote_max: usize,
    /// Messages that wait for one connection.
    pub(crate) waiting_max: usize,
    /// Bytes that wait for one connection.
    pub(crate) waiting_bytes_max: usize,
    /// Bytes that wait for all connections together.
    pub(crate) total_bytes_max: usize,
    /// Time in which a connection opens, or fails.
    pub(crate) connect: Duration,
    /// Time in which something arrives on a connection that was accepted.
    pub(crate) first: Duration,
    /// Time for which a connection is kept on which nothing is sent or received.
    ///
    /// RFC 3261 §18: "it is RECOMMENDED that connections be kept open for some
    /// implementation-defined duration after the last message was sent or received".
    pub(crate) idle: Duration,
    /// Time for which a peer may take nothing of what is sent to it.
    pub(crate) stall: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            opened_max: 4096,
            accepted_max: 65_536,
            per_remote_max: 1024,
            waiting_max: 256,
            waiting_bytes_max: 512 * 1024,
            total_bytes_max: 64 << 20,
            connect: Duration::from_secs(4),
            first: Duration::from_secs(30),
            idle: Duration::from_secs(3600),
            stall: Duration::from_secs(30),
        }
    }
}

/// Counts of a [`ConnectionTable`](super::connections::ConnectionTable).
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    /// Connections that opened because the proxy wanted them.
    pub(crate) opened: Counter,
    /// Connections that were accepted.
    pub(crate) accepted: Counter,
    /// Connections that could not be opened.
    pub(crate) failed: Counter,
    /// Connections that were not accepted, or not opened, because there were as many as may be.
    pub(crate) excess: Counter,
    /// Connections closed because nothing was sent or received on them for long.
    pub(crate) idle: Counter,
    /// Connections closed because the peer took nothing for long.
    pub(crate) stalled: Counter,
    /// Messages for which a queue had no room.
    pub(crate) overflow: Counter,
    /// Messages that waited for a connection that failed or closed.
    pub(crate) returned: Counter,
    /// Pings that were not answered, for a pong waits already.
    pub(crate) pongs_saved: Counter,
}
