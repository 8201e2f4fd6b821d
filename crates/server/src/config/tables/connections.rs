//! `[connections]`.

use std::time::Duration;

use tidegate_proxy::SHARDS_MAX;

use crate::config::keys::table;
use crate::config::shape::{As, Whole, seconds};

table! {
    /// Connections with callers and back ends: TCP, TLS and WebSockets. A connection that a peer misuses is closed,
    /// and no other connection with it: its bytes are not SIP, a message is longer than 65,535
    /// bytes, or a time below is over.
    pub static CONNECTIONS: "[connections]" 0..=1, Restart, [] => Connections, ConnectionsDraft;

    /// Connections that peers may open. Each needs a file descriptor; Tidegate does not start if the
    /// process may not have enough of them (`ulimit -n`, `LimitNOFILE` of systemd).
    accepted_max: usize = Whole(SHARDS_MAX as usize..=1_000_000), Default("8192");
    /// Connections that one address may open; for IPv6, one /64 network.
    per_source_max: usize = Whole(SHARDS_MAX as usize..=1_000_000), Default("1024");
    /// Connections that Tidegate opens to back ends and callers. They are counted separately, so
    /// that no peer can keep Tidegate from its back ends.
    opened_max: usize = Whole(SHARDS_MAX as usize..=1_000_000), Default("4096");
    /// Connections that Tidegate accepts at each address before it goes on with other work. The
    /// others wait in the kernel.
    accepts_per_turn: usize = Whole(1..=1024), Default("32");
    /// TLS and WebSocket handshakes that Tidegate serves before it goes on with other work: one of TLS
    /// costs as much time as several calls. The others wait.
    handshakes_per_turn: usize = Whole(1..=1024), Default("8");
    /// Seconds for the handshakes of TLS and of a WebSocket, together, on an accepted connection.
    handshake("handshake_seconds"): Duration = seconds(1..=3600), Default("10");
    /// Seconds for opening a connection, with its TLS handshake. Messages for it wait meanwhile.
    connect("connect_seconds"): Duration = seconds(1..=60), Default("4");
    /// Seconds within which the first message must arrive on an accepted connection.
    first("first_seconds"): Duration = seconds(1..=3600), Default("30");
    /// Seconds for a message to arrive completely once it has begun.
    message("message_seconds"): Duration = seconds(1..=3600), Default("30");
    /// Seconds without any message in either direction after which a connection is closed. A
    /// keep-alive of the peer (RFC 5626 §4.4.1, a ping of a WebSocket) is a message.
    idle("idle_seconds"): Duration = seconds(32..=604_800), Default("3600");
    /// Seconds for which a peer may not read what Tidegate sends it, while more waits.
    stall("stall_seconds"): Duration = seconds(1..=3600), Default("30");
    /// Kilobytes of messages that may wait for one connection, beyond the 64 KiB that are being
    /// sent. A further message counts as one that could not be delivered.
    waiting_max("waiting_max_kb"): usize = As {
        of: Whole(64..=65_536_usize),
        read: |kb| kb << 10,
        write: |bytes| bytes >> 10,
    }, Default("512");
    /// Megabytes of messages that may wait for all connections, and the same for messages that have
    /// arrived in part.
    memory_max("memory_max_mb"): usize = As {
        of: Whole(16..=65_536_usize),
        read: |mb| mb << 20,
        write: |bytes| bytes >> 20,
    }, Default("64");
}
