//! Metrics of connections, counted by the driver and by the table of connections.

use tidegate_io::Counters;
use tidegate_transport::ConnectionCounters;

use super::{ShardCounters, seconds};
use crate::metrics::{Family, Number, Samples, Unit};

/// Adds the metrics of the connections of one shard.
pub(super) fn add(samples: &mut Samples, shard: &str, counters: &ShardCounters) {
    let Counters { stream_garbled, stream_slow, stream_held_full, stream_cut_off, .. } =
        &*counters.io;
    let ConnectionCounters { accepted, opened, failed, idle, evicted, stalled, excess, .. } =
        &*counters.connections;
    let ConnectionCounters { overflow, backed_up, .. } = &*counters.connections;
    for (by, counter) in [("peer", accepted), ("tidegate", opened)] {
        samples.push(&BEGUN, &[("shard", shard), ("by", by)], counter.get());
    }
    for (cause, counter) in [
        ("garbled", stream_garbled),
        ("slow", stream_slow),
        ("memory", stream_held_full),
        ("cut_off", stream_cut_off),
        ("idle", idle),
        ("evicted", evicted),
        ("stalled", stalled),
    ] {
        samples.push(&CLOSED, &[("shard", shard), ("cause", cause)], counter.get());
    }
    let io = &*counters.io;
    for (cause, counter) in [
        ("limit", excess),
        ("unreachable", failed),
        ("late", &io.stream_accepts_late),
        ("lost", &io.stream_accepts_failed),
    ] {
        samples.push(&FAILED, &[("shard", shard), ("cause", cause)], counter.get());
    }
    let completed = [("completed", &io.tls_handshakes)].into_iter();
    for (outcome, counter) in completed.chain(io.tls_failures()) {
        samples.push(&HANDSHAKES, &[("shard", shard), ("outcome", outcome)], counter.get());
    }
    samples.push(&HANDSHAKE_CPU, &[("shard", shard)], seconds(&io.handshake_cpu_ns));
    let completed = [("completed", &io.websocket_handshakes)].into_iter();
    for (outcome, counter) in completed.chain(io.websocket_failures()) {
        samples.push(&UPGRADES, &[("shard", shard), ("outcome", outcome)], counter.get());
    }
    for (cause, counter) in [("full", overflow), ("backed_up", backed_up)] {
        samples.push(&OVERFLOW, &[("shard", shard), ("cause", cause)], counter.get());
    }
    samples.push_each(&DRIVER, &[("shard", shard)], &*counters.io);
    samples.push_each(&TABLE, &[("shard", shard)], &*counters.connections);
}

static BEGUN: Family = Family::counter(
    "connections_begun",
    "Connections that began. by=peer: accepted, before the handshake of TLS or of a WebSocket. \
     by=tidegate: opened and usable",
);
static CLOSED: Family = Family::counter(
    "connections_closed",
    "Connections that Tidegate closed, by cause. garbled: a message was not SIP, or too long. \
     slow: a message was not complete within `message_seconds`, or the first one within \
     `first_seconds`. memory: incomplete or unread messages took too much memory. cut_off: the \
     peer did not read the last messages in time. idle: no message began within `idle_seconds` or \
     `first_seconds`. evicted: Tidegate needed the place for another connection, and `opened_max` \
     was nearly reached. stalled: the peer did not read 64 KiB within `stall_seconds`. Such a \
     connection counts as cut_off too if the peer does not read while the connection is being \
     closed",
);
static FAILED: Family = Family::counter(
    "connections_failed",
    "Connections that did not begin, by cause. limit: `accepted_max`, `per_source_max` or \
     `opened_max` was reached. unreachable: Tidegate could not open the connection. late: the \
     connection waited too long to be accepted, because Tidegate was overloaded. lost: the \
     connection failed while Tidegate accepted it",
);

static HANDSHAKES: Family = Family::counter(
    "tls_handshakes",
    "TLS handshakes, by outcome. completed: the handshake succeeded. protocol: the peer does not \
     use TLS, or there is no common version or cipher suite. certificate: the certificate of the \
     peer is missing or not accepted. expired: the certificate of the peer is not valid now. \
     rejected: the peer ended the handshake with an alert. slow: the handshake was not complete in \
     time. closed: the peer ended the connection",
);

static HANDSHAKE_CPU: Family = Family::counter(
    "handshake_cpu",
    "CPU time spent on the handshakes of TLS and of WebSockets. While messages wait, it is at most \
     a quarter of the CPU time of the shard",
)
.in_unit(Unit::Seconds);

static UPGRADES: Family = Family::counter(
    "websocket_handshakes",
    "WebSocket handshakes, by outcome. completed: the handshake succeeded. protocol: the request is \
     not a WebSocket handshake. subprotocol: the peer does not offer `sip`. origin: the page of the \
     peer is not in `origins`. slow: the handshake was not complete in time. closed: the peer ended \
     the connection",
);

static OVERFLOW: Family = Family::counter(
    "stream_overflow",
    "Messages not sent because too many wait, by cause. full: there was no room for the message \
     among those that wait for its connection (`waiting_max_kb`) or for all connections \
     (`memory_max_mb`). backed_up: the message was a new call or another request that begins new \
     work, and the peer has read too slowly for 100 ms",
);

static DRIVER: [Number<Counters>; 7] = [
    Number::gauge("connections", "Connections that exist", |c| c.stream_connections.get().into()),
    Number::counter("stream_received", "Messages received on connections", |c| {
        c.stream_received.get().into()
    }),
    Number::counter(
        "stream_received_size",
        "Total length of the messages received on connections",
        |c: &Counters| c.stream_received_bytes.get().into(),
    )
    .in_unit(Unit::Bytes),
    Number::counter(
        "stream_sent",
        "Messages given to connections. If a connection ends, its peer may not get the last ones",
        |c| c.stream_sent.get().into(),
    ),
    Number::counter(
        "stream_sent_size",
        "Total length of the messages sent on connections",
        |c: &Counters| c.stream_sent_bytes.get().into(),
    )
    .in_unit(Unit::Bytes),
    Number::counter(
        "stream_unconnected",
        "Messages that left the queue of their connection, but were not sent because the connection \
         had just ended. tidegate_stream_unsent_total does not include them",
        |c| c.stream_unconnected.get().into(),
    ),
    Number::counter(
        "accept_pauses",
        "Pauses in accepting connections because the system had no file descriptor or memory left",
        |c| c.stream_accepts_paused.get().into(),
    ),
];

static TABLE: [Number<ConnectionCounters>; 4] = [
    Number::gauge(
        "stream_waiting",
        "Total length of the messages that wait for a connection to open or for a slow peer",
        |c: &ConnectionCounters| c.waiting_bytes.get().into(),
    )
    .in_unit(Unit::Bytes),
    Number::counter(
        "stream_returned",
        "Messages whose connection ended, or could not be opened, while they waited for it. A \
         response is then sent on another connection if possible",
        |c| c.returned.get().into(),
    ),
    Number::counter(
        "stream_unsent",
        "Messages over TCP, TLS and WebSockets that could not be sent, because their connection \
         ended, too many messages waited, or there was no connection",
        |c| c.unsent.get().into(),
    ),
    Number::counter(
        "pongs_saved",
        "Keep-alives not answered because other data waited for the peer or the connection was \
         being closed",
        |c| c.pongs_saved.get().into(),
    ),
];
