//! The limits of a shard's connections.

use std::time::Duration;

/// The limits on the cost of connections for the driver. The core limits their number and their
/// idle times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum number of connections accepted at each address in one turn. The default is 32.
    /// Further connections wait in the kernel's queue. So each turn has time for other work, even
    /// if very many connections arrive.
    pub accepts: usize,
    /// Maximum time for which a connection waits in the kernel's queue. The default is 200 ms, as
    /// for a message in the gate. If all connections that the shard accepts within 100 ms have
    /// waited longer, the shard closes the connections that have waited too long, because their
    /// peers would get each response too late. It serves a connection nevertheless if its first
    /// message belongs to a call in progress or is an emergency call, except over TLS and
    /// WebSockets. At most half of the `accepts` of a turn are for such exceptions. After a shorter
    /// stall of the process, all connections are served.
    pub accept_wait: Duration,
    /// The time for the handshakes of TLS and of a WebSocket with a peer that opened the
    /// connection. The default is 10 s.
    pub handshake: Duration,
    /// Maximum number of steps of handshakes in one turn. The default is 8. A TLS handshake costs
    /// as much time as several calls, so further handshakes wait. While messages wait too,
    /// handshakes take at most a quarter of the processor time. Handshakes with back ends come
    /// first, then handshakes with peers that have begun.
    pub handshakes: usize,
    /// The time for a message to arrive completely once it has begun. The default is 30 s.
    pub message: Duration,
    /// The time for which a closing connection may still send its unsent bytes. The default is 5 s.
    pub linger: Duration,
    /// Number of bytes of incomplete messages and handshakes that all connections of the shard may
    /// hold. The default is 64 MiB. If they hold more, the shard closes the accepted connections
    /// whose messages or handshakes have been incomplete for the longest time. The same limit
    /// applies separately to messages that the peers of accepted connections do not read. If these
    /// messages take more, the shard closes the connections that have had something left to send
    /// for the longest time. A connection that takes at most 2 KiB is not closed for these reasons.
    /// With very many connections, this exemption is smaller: a power of two that is at most half
    /// of `held_max` divided by the number of connections.
    pub held_max: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            accepts: 32,
            accept_wait: Duration::from_millis(200),
            handshake: Duration::from_secs(10),
            handshakes: 8,
            message: Duration::from_secs(30),
            linger: Duration::from_secs(5),
            held_max: 64 << 20,
        }
    }
}
