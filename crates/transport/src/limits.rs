//! Limits and counters of connections.

use std::time::Duration;

use tidegate_world::Counter;

/// Requests that begin new work may not use the last 1/4 of each queue of waiting messages, and of
/// the memory for all queues.
const KEPT_PART: usize = 4;

/// The limits of a [`ConnectionTable`](crate::ConnectionTable).
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of opened connections, including those that are being opened or closed.
    pub opened_max: usize,
    /// Maximum number of accepted connections. Opened connections are counted separately, so peers
    /// cannot keep the proxy from reaching its back ends.
    pub accepted_max: usize,
    /// Maximum number of accepted connections per remote address (for IPv6, per /64 network). A /56
    /// may have twice, and a /48 four times as many.
    pub per_remote_max: usize,
    /// Maximum number of messages that wait for one connection.
    pub waiting_max: usize,
    /// Maximum number of bytes that wait for one connection.
    pub waiting_bytes_max: usize,
    /// Maximum number of bytes that wait for all connections together. Messages for accepted
    /// connections use at most half of this number, so that there is always room for messages to
    /// back ends.
    pub total_bytes_max: usize,
    /// Time limit for opening a connection.
    pub connect: Duration,
    /// Time within which a message must arrive on a connection after it was accepted. A keep-alive
    /// does not count as a message, because otherwise strangers could hold all permitted
    /// connections with one ping an hour on each.
    pub first: Duration,
    /// Time without messages and keep-alives in either direction after which a connection is
    /// closed. On an opened connection to a peer that is neither a back end nor a trusted source,
    /// keep-alives do not count.
    ///
    /// RFC 3261 §18: "it is RECOMMENDED that connections be kept open for some
    /// implementation-defined duration after the last message was sent or received".
    ///
    /// RFC 3261 §18: "This duration SHOULD at least equal the longest amount of time the element
    /// would need in order to bring a transaction from instantiation to the terminated state." The
    /// default does. The longest time without a message is Timer C plus 64*T1, which is 222 s for a
    /// proxy. An operator may set a shorter time.
    pub idle: Duration,
    /// Time without messages and keep-alives after which an opened connection may be closed to make
    /// room for another one. On a connection to a peer that is neither a back end nor a trusted
    /// source, keep-alives do not count.
    pub yields_after: Duration,
    /// Time after which a connection that is still [backed up](crate::ConnectionState::BackedUp) is
    /// closed.
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
            // Longer than Timer C: no transaction still waits for a response (RFC 3261 §16.6 item
            // 11).
            yields_after: Duration::from_secs(240),
            stall: Duration::from_secs(30),
        }
    }
}

impl ConnectionLimits {
    /// Returns the maximum number of opened connections that are for responses or to strangers.
    pub(crate) fn limited_max(&self) -> usize {
        (self.opened_max / 2).max(1)
    }

    /// Returns these limits with the lower limits on waiting messages that apply to requests that
    /// begin new work.
    pub(crate) fn for_new_work(&self) -> Self {
        let part = |max: usize| max - max / KEPT_PART;
        Self {
            waiting_max: part(self.waiting_max),
            waiting_bytes_max: part(self.waiting_bytes_max),
            total_bytes_max: part(self.total_bytes_max),
            ..*self
        }
    }
}

/// The counters of a [`ConnectionTable`](crate::ConnectionTable).
#[derive(Debug, Default)]
pub struct ConnectionCounters {
    /// Connections that the table opened successfully, on behalf of the core.
    pub opened: Counter,
    /// Connections that were accepted.
    pub accepted: Counter,
    /// Connections that could not be opened.
    pub failed: Counter,
    /// Connections that were not accepted or not opened because a limit on their number was
    /// reached.
    pub excess: Counter,
    /// Connections closed because of [`idle`](ConnectionLimits::idle) or
    /// [`first`](ConnectionLimits::first), unless a message had begun to arrive. A connection is
    /// counted when it ends.
    pub idle: Counter,
    /// Idle connections that were closed to make room for others.
    pub evicted: Counter,
    /// Connections closed because of [`stall`](ConnectionLimits::stall).
    pub stalled: Counter,
    /// Messages that were not sent because there was no room for them: in the queue of their
    /// connection, or in the memory for all waiting messages.
    pub overflow: Counter,
    /// Requests that begin new work and were not sent because the peer of their connection reads too
    /// slowly.
    pub backed_up: Counter,
    /// Messages returned to the owner of the table because their connection failed or was closed
    /// while they waited.
    pub returned: Counter,
    /// Unsent messages that were reported to the core.
    pub unsent: Counter,
    /// Bytes that now wait to be sent on connections.
    pub waiting_bytes: Counter,
    /// Pings that got no pong because the connection was backed up or was being closed.
    pub pongs_saved: Counter,
}
