//! Bounds of connections, and what is counted of them.

use std::time::Duration;

use tidegate_world::Counter;

/// Bounds of a [`ConnectionTable`](crate::ConnectionTable).
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections that were opened, those that are being opened or closed among them.
    pub opened_max: usize,
    /// Connections that were accepted. Opened ones count apart, so that no peer can keep the
    /// proxy from reaching its back ends.
    pub accepted_max: usize,
    /// Connections that were accepted of one remote address; of IPv6 of one network of 64 bits.
    pub per_remote_max: usize,
    /// Messages that wait for one connection.
    pub waiting_max: usize,
    /// Bytes that wait for one connection.
    pub waiting_bytes_max: usize,
    /// Bytes that wait for all connections together. Those that were accepted take half of it at the
    /// most, so that there is always room for messages to back ends.
    pub total_bytes_max: usize,
    /// Time in which a connection opens, or fails.
    pub connect: Duration,
    /// Time in which something arrives on a connection that was accepted.
    pub first: Duration,
    /// Time for which a connection is kept on which nothing is sent or received.
    ///
    /// RFC 3261 §18: "it is RECOMMENDED that connections be kept open for some
    /// implementation-defined duration after the last message was sent or received".
    pub idle: Duration,
    /// Time after which a connection that was opened gives way to another one, if nothing was sent
    /// or received on it meanwhile.
    pub yields_after: Duration,
    /// Time for which a peer may take nothing of what is sent to it.
    pub stall: Duration,
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
            // Longer than Timer C: no response is waited for any more (RFC 3261 §16.6 item 11).
            yields_after: Duration::from_secs(240),
            stall: Duration::from_secs(30),
        }
    }
}

/// Counts of a [`ConnectionTable`](crate::ConnectionTable).
#[derive(Debug, Default)]
pub struct ConnectionCounters {
    /// Connections that opened because the proxy wanted them.
    pub opened: Counter,
    /// Connections that were accepted.
    pub accepted: Counter,
    /// Connections that could not be opened.
    pub failed: Counter,
    /// Connections that were not accepted, or not opened, because there were as many as may be.
    pub excess: Counter,
    /// Connections closed because nothing was sent or received on them for long.
    pub idle: Counter,
    /// Connections closed because others were to be opened, and nothing was sent or received on them
    /// for a while.
    pub evicted: Counter,
    /// Connections closed because the peer took nothing for long.
    pub stalled: Counter,
    /// Messages for which a queue had no room.
    pub overflow: Counter,
    /// Messages that waited for a connection that failed or closed.
    pub returned: Counter,
    /// Messages that could not be sent, of which the core was told.
    pub unsent: Counter,
    /// Bytes that wait for connections now.
    pub waiting_bytes: Counter,
    /// Pings that were not answered, for a pong waits already.
    pub pongs_saved: Counter,
}
