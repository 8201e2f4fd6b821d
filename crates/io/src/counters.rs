//! The counters of a shard.

use tidegate_world::Counter;

use crate::unsent::Unsent;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters of one shard since its start, readable while the shard runs. Each counter
        /// is exact. Counters that are read together may be from different turns.
        #[derive(Debug, Default)]
        #[repr(align(128))] // Shards write in parallel: no shared cache line.
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: Counter,)+
            /// Targets of datagrams that could not be sent, until another thread takes them.
            pub unsent: Unsent,
        }

        impl Counters {
            /// Returns the name, meaning and value of each counter, in the order of declaration.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+).trim_ascii_start(), self.$name.get())),+]
                    .into_iter()
            }
        }
    };
}

counters! {
    /// Datagrams received from the sockets for messages that have no socket of their own.
    received_ordinary,
    /// Datagrams received from the sockets for new work.
    received_invite,
    /// Datagrams received from the sockets for responses.
    received_response,
    /// Bytes received, without UDP and IP headers.
    received_bytes,
    /// Datagrams received that were longer than an ordinary buffer.
    received_large,
    /// Datagrams dropped because no buffer could hold them whole.
    received_cut,
    /// Datagrams that the kernel dropped at the sockets, nearly always because a receive buffer was
    /// full.
    overflow,
    /// Datagrams that the kernel dropped at the request of the core.
    filtered,
    /// Failed attempts to tell the kernel which datagrams to drop. The kernel then drops none at the
    /// request of the core, and there is a new attempt a second later.
    shed_errors,
    /// Failed attempts to stop receiving at a shared address at the start of a drain.
    leave_errors,
    /// Receive calls that failed, other than by an ICMP report.
    receive_errors,
    /// Datagrams sent.
    sent,
    /// Bytes sent, without UDP and IP headers.
    sent_bytes,
    /// Batches sent: several datagrams to one destination, passed to the kernel as one packet.
    sent_gso_batches,
    /// Datagrams sent in batches. They are included in `sent`.
    sent_in_gso_batches,
    /// Bytes of white space added to datagrams so that they could join a batch. They are included
    /// in `sent_bytes`.
    sent_padding,
    /// Datagrams not sent because the send buffer or the device's queue stayed full.
    send_full,
    /// Datagrams not sent because they were larger than the path allows.
    send_too_large,
    /// Datagrams not sent because the network or the host was unreachable.
    send_unreachable,
    /// Datagrams not sent because of another error, such as one caused by a firewall.
    send_refused,
    /// Datagrams not sent because no listener has their source address.
    send_homeless,
    /// Connections that exist.
    stream_connections,
    /// Messages received on connections, keep-alives among them.
    stream_received,
    /// Bytes of messages received on connections.
    stream_received_bytes,
    /// Messages handed to connections.
    stream_sent,
    /// Bytes of messages handed to connections.
    stream_sent_bytes,
    /// Messages not sent because their connection had ended.
    stream_unconnected,
    /// Connections closed because their bytes could not be cut into messages.
    stream_garbled,
    /// Connections closed because a message did not arrive completely in time, or because the first
    /// message had begun and was not complete in the core's time limit for it.
    stream_slow,
    /// Connections closed because incomplete messages and handshakes, or messages that peers do not
    /// read, used all the memory for them.
    stream_held_full,
    /// Connections closed although some bytes were not sent.
    stream_cut_off,
    /// Connections that failed while they were accepted.
    stream_accepts_failed,
    /// Connections closed when they were accepted, because they had waited too long in the kernel's
    /// queue.
    stream_accepts_late,
    /// Pauses in accepting connections because the operating system could not open more.
    stream_accepts_paused,
    /// TLS handshakes completed.
    tls_handshakes,
    /// TLS handshakes that failed because the peer does not speak TLS, or no common version or cipher
    /// suite.
    tls_failed_protocol,
    /// TLS handshakes that failed because the certificate of the peer was missing or not accepted.
    tls_failed_certificate,
    /// TLS handshakes that failed because the certificate of the peer was expired or not yet valid.
    tls_failed_expired,
    /// TLS handshakes that the peer ended with an alert, or after which it sent an alert instead of
    /// its first message.
    tls_failed_rejected,
    /// TLS handshakes that were not completed in time.
    tls_failed_slow,
    /// TLS handshakes during which the peer ended the connection.
    tls_failed_closed,
    /// WebSocket handshakes completed.
    websocket_handshakes,
    /// WebSocket handshakes that failed because the peer sent something other than a valid request
    /// of a handshake, or other than a valid response to our request.
    websocket_failed_protocol,
    /// WebSocket handshakes that failed because the peer did not offer or accept the subprotocol of
    /// SIP.
    websocket_failed_subprotocol,
    /// WebSocket handshakes that failed because the server answered with another status than 101.
    websocket_failed_status,
    /// WebSocket handshakes that failed because the origin of the peer's page is not allowed.
    websocket_failed_origin,
    /// WebSocket handshakes that were not completed in time.
    websocket_failed_slow,
    /// WebSocket handshakes during which the peer ended the connection.
    websocket_failed_closed,
    /// Nanoseconds of CPU time spent on the handshakes of TLS and of WebSockets.
    handshake_cpu_ns,
    /// ICMP reports passed to the core.
    icmp_reports,
    /// Failures not passed to the core because too many came at once.
    failures_lost,
    /// Messages handed to other shards.
    handoffs_out,
    /// Messages taken over from other shards.
    handoffs_in,
    /// Messages not handed off, because the queue of the other shard was full, because the other
    /// shard has ended, or because there is no such shard. Those of connections go back to the core.
    /// All others are lost.
    handoffs_lost,
    /// Queries of the core that were sent to a resolver or store.
    queries,
    /// Queries of the core that were not sent, because the queue was full or there was no resolver
    /// or store.
    queries_lost,
    /// Messages that the core has served.
    served,
    /// Turns of the shard's loop.
    turns,
    /// Turns in which the ordinary sockets reached their limit.
    limited_ordinary,
    /// Turns in which the sockets for responses reached their limit.
    limited_responses,
    /// Turns in which the sockets for new work reached their limit.
    limited_invites,
    /// Turns in which connections reached their limit.
    limited_streams,
    /// Turns in which handshakes waited although their number had not reached its limit, because
    /// messages waited too.
    limited_handshakes,
    /// Turns in which handoffs reached their limit.
    limited_handoffs,
    /// Turns whose quantum of service ended while messages waited.
    limited_service,
    /// Wakes from waiting for datagrams, other shards or timers.
    wakes,
    /// Pauses taken to coalesce wakes.
    pauses,
    /// Nanoseconds of wall time not spent waiting.
    busy_ns,
    /// Nanoseconds of wall time spent waiting.
    idle_ns,
}

impl Counters {
    /// Returns the number of datagrams received, of any kind.
    pub fn received(&self) -> u64 {
        self.received_ordinary.get() + self.received_invite.get() + self.received_response.get()
    }

    /// Returns the number of datagrams that were not sent, for any reason.
    pub fn send_dropped(&self) -> u64 {
        self.send_full.get()
            + self.send_too_large.get()
            + self.send_unreachable.get()
            + self.send_refused.get()
            + self.send_homeless.get()
    }

    /// Returns the number of TLS handshakes that failed, for whatever reason.
    pub fn tls_failed(&self) -> u64 {
        self.tls_failed_protocol.get()
            + self.tls_failed_certificate.get()
            + self.tls_failed_expired.get()
            + self.tls_failed_rejected.get()
            + self.tls_failed_slow.get()
            + self.tls_failed_closed.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_comes_with_its_name_and_meaning() {
        let counters = Counters::default();
        counters.overflow.add(3);
        counters.overflow.add(4);
        let (_, meaning, count) = counters.each().find(|(name, ..)| *name == "overflow").unwrap();
        assert_eq!(count, 7);
        assert_eq!(
            meaning,
            "Datagrams that the kernel dropped at the sockets, nearly always because a receive buffer was full.",
        );
    }

    #[test]
    fn sums_include_every_cause() {
        let counters = Counters::default();
        for (i, counter) in [
            &counters.send_full,
            &counters.send_too_large,
            &counters.send_unreachable,
            &counters.send_refused,
            &counters.send_homeless,
        ]
        .into_iter()
        .enumerate()
        {
            counter.add(1 << i);
        }
        assert_eq!(counters.send_dropped(), 0b11111);
        for (i, counter) in [
            &counters.tls_failed_protocol,
            &counters.tls_failed_certificate,
            &counters.tls_failed_expired,
            &counters.tls_failed_rejected,
            &counters.tls_failed_slow,
            &counters.tls_failed_closed,
        ]
        .into_iter()
        .enumerate()
        {
            counter.add(1 << i);
        }
        assert_eq!(counters.tls_failed(), 0b11_1111);
        counters.received_invite.add(2);
        counters.received_ordinary.add(5);
        counters.received_response.add(7);
        assert_eq!(counters.received(), 14);
    }
}
