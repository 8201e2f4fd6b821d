//! `[connections]`.

use std::time::Duration;

use tidegate_proxy::SHARDS_MAX;

use crate::config::diagnostic::Report;
use crate::config::keys::table;
use crate::config::shape::{As, Whole, seconds};

table! {
    /// Connections with callers and back ends over TCP, TLS and WebSockets. Tidegate closes a
    /// connection if its bytes are not SIP, if a message is longer than 65,535 bytes, if its header
    /// is longer than 32 KiB, or if one of the times below is over. Other connections are not
    /// affected.
    pub static CONNECTIONS: "[connections]" 0..=1, Restart, [] => Connections, ConnectionsDraft;

    /// The largest number of connections that peers may open. Each connection needs a file
    /// descriptor. Tidegate does not start if the process is not allowed enough of them (`ulimit
    /// -n`, `LimitNOFILE` of systemd).
    accepted_max: usize = Whole(SHARDS_MAX as usize..=1_000_000), Default("8192");
    /// The largest number of connections that one IPv4 address or one IPv6 /64 network may open. An
    /// IPv6 /56 network may open twice, and a /48 network four times as many. The value may not
    /// exceed `accepted_max`. Write more than seven eighths of `accepted_max` only if all peers have
    /// one address, such as that of a reverse proxy: one source can then take the places of all
    /// others.
    per_source_max: usize | None = Whole(SHARDS_MAX as usize..=1_000_000),
        Means("1,024, or an eighth of `accepted_max` if that is less");
    /// The largest number of connections that Tidegate opens to back ends and callers. This limit
    /// is separate from `accepted_max`, so that no peer can keep Tidegate from its back ends. At
    /// most half of these connections go to peers that are neither back ends nor in `trust`.
    opened_max: usize = Whole(SHARDS_MAX as usize..=1_000_000), Default("4096");
    /// The number of connections that Tidegate accepts at each address before it continues with
    /// other work. Further connections wait in the kernel.
    accepts_per_turn: usize = Whole(1..=1024), Default("32");
    /// The number of TLS and WebSocket handshakes that Tidegate serves before it continues with
    /// other work. A TLS handshake costs as much processor time as several calls. Further
    /// handshakes wait. While messages wait too, handshakes take at most a quarter of the processor
    /// time.
    handshakes_per_turn: usize = Whole(1..=1024), Default("8");
    /// Seconds in which a peer must complete the handshakes of TLS and of a WebSocket together, on
    /// an accepted connection.
    handshake("handshake_seconds"): Duration = seconds(1..=3600), Default("10");
    /// Seconds in which Tidegate must open a connection, including the TLS handshake. Messages for
    /// the connection wait during this time.
    connect("connect_seconds"): Duration = seconds(1..=60), Default("4");
    /// Seconds within which the first message must arrive on an accepted connection. A keep-alive
    /// does not count. Raise this value if web pages open a WebSocket long before their users call.
    first("first_seconds"): Duration = seconds(1..=3600), Default("30");
    /// Seconds in which a message must arrive completely after its first byte.
    message("message_seconds"): Duration = seconds(1..=3600), Default("30");
    /// Seconds without any message in either direction after which Tidegate closes a connection. A
    /// keep-alive of the peer (RFC 5626 §4.4.1, a ping of a WebSocket) counts as a message. There
    /// is one exception: on a connection that Tidegate has opened to a peer that is neither a back
    /// end nor in `trust`, keep-alives do not count. If a call rings for longer than this without a
    /// message or a keep-alive, Tidegate closes the connection of the caller. Over TLS or a
    /// WebSocket, the caller then gets no response. With a value of 222 or more, a connection lasts
    /// at least as long as any transaction, as RFC 3261 §18 recommends.
    idle("idle_seconds"): Duration = seconds(32..=604_800), Default("3600");
    /// Seconds in which a peer must read what Tidegate is sending to it, once this is 64 KiB or
    /// more. Otherwise Tidegate closes the connection.
    stall("stall_seconds"): Duration = seconds(1..=3600), Default("30");
    /// Kilobytes of messages that may wait for one connection, besides the 64 KiB that Tidegate is
    /// sending. A further message counts as a message that could not be delivered.
    waiting_max("waiting_max_kb"): usize = As {
        of: Whole(64..=65_536_usize),
        read: |kb| kb << 10,
        write: |bytes| bytes >> 10,
    }, Default("512");
    /// Megabytes of messages that may wait for all connections together. Messages for connections
    /// that peers have opened take at most half of this memory. Two further limits have the same
    /// value: one for messages that have arrived in part, and one for messages that Tidegate is
    /// sending to peers that do not read.
    memory_max("memory_max_mb"): usize = As {
        of: Whole(16..=65_536_usize),
        read: |mb| mb << 20,
        write: |bytes| bytes >> 20,
    }, Default("64");
}

impl ConnectionsDraft {
    /// Reports a limit for one source above the limit for all sources together.
    pub(in crate::config) fn check(&self, report: &mut Report) {
        let (Some(all), Some(each)) = (&self.accepted_max, &self.per_source_max) else { return };
        let (most, own) = (all.get_ref(), each.get_ref());
        if own > most {
            report.clash(
                "`per_source_max` is more than `accepted_max`",
                (each.span(), "one source cannot open so many connections"),
                (all.span(), &format!("all sources together may open {most}")),
                format!("write at most {most}, or leave out `per_source_max`"),
            );
        }
    }
}

impl Connections {
    /// Returns the largest number of connections that one source may open.
    pub(crate) fn per_source_max(&self) -> usize {
        // A few sources must not take the places of all others.
        self.per_source_max.unwrap_or_else(|| (self.accepted_max / 8).min(1024))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;

    #[test]
    fn one_source_may_have_an_eighth_of_few_connections() {
        let per_source_max = |keys: &str| {
            let text = format!(
                "[[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:5060\"\n[[pool]]\n\
                 name = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n[connections]\n{keys}"
            );
            let config = Config::parse(Path::new("t.toml"), text.as_bytes());
            config.unwrap_or_else(|wrong| panic!("{wrong}")).connections.per_source_max()
        };
        assert_eq!(per_source_max(""), 1024);
        assert_eq!(per_source_max("accepted_max = 1000\n"), 125);
        assert_eq!(per_source_max("accepted_max = 1000\nper_source_max = 1000\n"), 1000);
    }
}
