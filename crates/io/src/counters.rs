//! The counters of a shard.

use tidegate_world::Counter;

use crate::tls_errors::TlsErrors;
use crate::unsent::Unsent;

/// The counters of one shard since its start, readable while the shard runs. Each counter is exact.
/// Counters that are read together may be from different turns.
#[derive(Debug, Default)]
#[repr(align(128))] // Shards write in parallel: no shared cache line.
pub struct Counters {
    /// Datagrams received from the sockets for messages that have no socket of their own.
    pub received_ordinary: Counter,
    /// Datagrams received from the sockets for new work.
    pub received_invite: Counter,
    /// Datagrams received from the sockets for responses.
    pub received_response: Counter,
    /// Datagrams received that were longer than an ordinary buffer.
    pub received_large: Counter,
    /// Datagrams dropped because no buffer could hold them whole.
    pub received_cut: Counter,
    /// Datagrams that the kernel dropped at the sockets, nearly always because a receive buffer was
    /// full.
    pub overflow: Counter,
    /// Datagrams that the kernel dropped at the request of the core.
    pub filtered: Counter,
    /// Failed attempts to tell the kernel which datagrams to drop at a listener. Each listener
    /// counts. After a failure the kernel drops no datagrams at the request of the core. The driver
    /// tries again a second later, or earlier if the core starts or stops to ask that shares or
    /// marks drop datagrams.
    pub shed_errors: Counter,
    /// Failed attempts to stop receiving at a shared address at the start of a drain.
    pub leave_errors: Counter,
    /// Receive calls that failed, other than by an ICMP report.
    pub receive_errors: Counter,
    /// Datagrams sent.
    pub sent: Counter,
    /// Batches sent: several datagrams to one destination, passed to the kernel as one packet.
    pub sent_gso_batches: Counter,
    /// Datagrams sent in batches. They are included in `sent`.
    pub sent_in_gso_batches: Counter,
    /// Bytes of white space added to datagrams so that they could join a batch.
    pub sent_padding: Counter,
    /// Datagrams not sent because the send buffer or the device's queue stayed full.
    pub send_full: Counter,
    /// Datagrams not sent because they were larger than the path allows.
    pub send_too_large: Counter,
    /// Datagrams not sent because the network or the host was unreachable.
    pub send_unreachable: Counter,
    /// Datagrams not sent because of another error, such as one caused by a firewall.
    pub send_refused: Counter,
    /// Datagrams not sent because no listener has their source address.
    pub send_homeless: Counter,
    /// Connections that exist.
    pub stream_connections: Counter,
    /// Messages received on connections, keep-alives among them.
    pub stream_received: Counter,
    /// Bytes of messages received on connections.
    pub stream_received_bytes: Counter,
    /// Messages handed to connections.
    pub stream_sent: Counter,
    /// Bytes of messages handed to connections.
    pub stream_sent_bytes: Counter,
    /// Messages not sent because their connection had ended.
    pub stream_unconnected: Counter,
    /// Connections closed because their bytes could not be cut into messages.
    pub stream_garbled: Counter,
    /// Connections closed because a message did not arrive completely in time, or because the first
    /// message had begun and was not complete in the core's time limit for it.
    pub stream_slow: Counter,
    /// Connections closed because incomplete messages and handshakes, or messages that peers do not
    /// read, used all the memory for them.
    pub stream_held_full: Counter,
    /// Connections closed although some bytes were not sent.
    pub stream_cut_off: Counter,
    /// Connections that failed while they were accepted.
    pub stream_accepts_failed: Counter,
    /// Connections closed when they were accepted, because they had waited too long in the kernel's
    /// queue.
    pub stream_accepts_late: Counter,
    /// Pauses in accepting connections because the operating system could not open more.
    pub stream_accepts_paused: Counter,
    /// TLS handshakes completed.
    pub tls_handshakes: Counter,
    /// TLS handshakes that failed because the peer does not speak TLS, or no common version or cipher
    /// suite.
    pub tls_failed_protocol: Counter,
    /// TLS handshakes that failed because the certificate of the peer was missing or not accepted.
    pub tls_failed_certificate: Counter,
    /// TLS handshakes that failed because the certificate of the peer was expired or not yet valid.
    pub tls_failed_expired: Counter,
    /// TLS handshakes that the peer ended with an alert, or after which it sent an alert instead of
    /// its first message.
    pub tls_failed_rejected: Counter,
    /// TLS handshakes that were not completed in time.
    pub tls_failed_slow: Counter,
    /// TLS handshakes during which the peer ended the connection.
    pub tls_failed_closed: Counter,
    /// WebSocket handshakes completed.
    pub websocket_handshakes: Counter,
    /// WebSocket handshakes that failed because the peer sent something other than a valid request
    /// of a handshake, or other than a valid response to our request.
    pub websocket_failed_protocol: Counter,
    /// WebSocket handshakes that failed because the peer did not offer or accept the subprotocol of
    /// SIP.
    pub websocket_failed_subprotocol: Counter,
    /// WebSocket handshakes that failed because the server answered with another status than 101.
    pub websocket_failed_status: Counter,
    /// WebSocket handshakes that failed because the origin of the peer's page is not allowed.
    pub websocket_failed_origin: Counter,
    /// WebSocket handshakes that were not completed in time.
    pub websocket_failed_slow: Counter,
    /// WebSocket handshakes during which the peer ended the connection.
    pub websocket_failed_closed: Counter,
    /// Nanoseconds of CPU time spent on the handshakes of TLS and of WebSockets.
    pub handshake_cpu_ns: Counter,
    /// ICMP reports passed to the core.
    pub icmp_reports: Counter,
    /// Send failures of datagrams that were not passed to the core, because too many came at once.
    pub failures_lost: Counter,
    /// Messages handed to other shards.
    pub handoffs_out: Counter,
    /// Messages not handed off, because the queue of the other shard was full, because the other
    /// shard has ended, or because there is no such shard. Messages that arrived on a connection go
    /// back to the core, and up to a limit also messages that were to leave on one. All others are
    /// lost.
    pub handoffs_lost: Counter,
    /// Queries of the core that were sent to a resolver or store.
    pub queries: Counter,
    /// Queries of the core that were not sent, because the queue was full or there was no resolver
    /// or store.
    pub queries_lost: Counter,
    /// Messages that the core has served.
    pub served: Counter,
    /// Turns of the shard's loop.
    pub turns: Counter,
    /// Turns in which the ordinary sockets reached their limit.
    pub limited_ordinary: Counter,
    /// Turns in which the sockets for responses reached their limit.
    pub limited_responses: Counter,
    /// Turns in which the sockets for new work reached their limit.
    pub limited_invites: Counter,
    /// Turns in which connections reached their limit.
    pub limited_streams: Counter,
    /// Turns in which handshakes waited although their number had not reached its limit, because
    /// messages waited too.
    pub limited_handshakes: Counter,
    /// Turns in which handoffs reached their limit.
    pub limited_handoffs: Counter,
    /// Turns that used up their quantum of service while messages still waited.
    pub limited_service: Counter,
    /// Wakes from waiting for datagrams, other shards or timers.
    pub wakes: Counter,
    /// Pauses taken to coalesce wakes.
    pub pauses: Counter,
    /// Nanoseconds of wall time not spent waiting.
    pub busy_ns: Counter,
    /// Nanoseconds of wall time spent waiting.
    pub idle_ns: Counter,
    /// Targets of datagrams that could not be sent, until another thread takes them.
    pub unsent: Unsent,
    /// The outcomes of the last TLS handshakes on connections that the core opened.
    pub tls_errors: TlsErrors,
}

impl Counters {
    /// Returns the number of datagrams received, of any kind.
    pub fn received(&self) -> u64 {
        self.received_ordinary.get() + self.received_invite.get() + self.received_response.get()
    }

    /// Returns the number of datagrams that were not sent, for any reason.
    pub fn send_dropped(&self) -> u64 {
        self.send_failures().iter().map(|(_, counter)| counter.get()).sum()
    }

    /// Returns the counters of datagrams that were not sent, each with its cause.
    pub fn send_failures(&self) -> [(&'static str, &Counter); 5] {
        [
            ("full", &self.send_full),
            ("too_large", &self.send_too_large),
            ("unreachable", &self.send_unreachable),
            ("refused", &self.send_refused),
            ("no_listener", &self.send_homeless),
        ]
    }

    /// Returns the number of TLS handshakes that failed, for whatever reason.
    pub fn tls_failed(&self) -> u64 {
        self.tls_failures().iter().map(|(_, counter)| counter.get()).sum()
    }

    /// Returns the counters of failed TLS handshakes, each with its cause.
    pub fn tls_failures(&self) -> [(&'static str, &Counter); 6] {
        [
            ("protocol", &self.tls_failed_protocol),
            ("certificate", &self.tls_failed_certificate),
            ("expired", &self.tls_failed_expired),
            ("rejected", &self.tls_failed_rejected),
            ("slow", &self.tls_failed_slow),
            ("closed", &self.tls_failed_closed),
        ]
    }

    /// Returns the counters of failed WebSocket handshakes on accepted connections, each with its
    /// cause. `websocket_failed_status` is not among them, because only the side that opens a
    /// WebSocket counts it.
    pub fn websocket_failures(&self) -> [(&'static str, &Counter); 5] {
        [
            ("protocol", &self.websocket_failed_protocol),
            ("subprotocol", &self.websocket_failed_subprotocol),
            ("origin", &self.websocket_failed_origin),
            ("slow", &self.websocket_failed_slow),
            ("closed", &self.websocket_failed_closed),
        ]
    }
}
