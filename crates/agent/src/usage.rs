//! The resources and connections that a run of an agent used, as its driver counted them.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_world::{Transport, add_fields};

/// The resources that a run used in its own process, as the driver measured them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Usage {
    /// CPU time, user and system, in seconds.
    pub cpu_s: f64,
    /// Duration of the run in seconds.
    pub wall_s: f64,
    /// Datagrams that the kernel dropped because the receive buffers of the agent's sockets were
    /// full.
    pub socket_drops: u64,
    /// Datagrams that could not be sent.
    pub send_drops: u64,
    /// Counts of the connections and of the messages on them, or `None` over UDP.
    pub streams: Option<StreamUsage>,
}

/// Counts of the connections of a run and of the messages on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct StreamUsage {
    /// The transport, by its name in a Via.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
    pub transport: Transport,
    /// Connections that the agent opened.
    pub opened: u64,
    /// Connections that peers opened.
    pub accepted: u64,
    /// Connections that could not be opened.
    pub failed: u64,
    /// Connections that were neither opened nor accepted, because a limit on their number was
    /// reached.
    pub excess: u64,
    /// Completed handshakes of TLS.
    pub handshakes: u64,
    /// Failed handshakes of TLS.
    pub handshakes_failed: u64,
    /// Completed handshakes of WebSockets.
    pub websockets: u64,
    /// Failed WebSocket handshakes.
    pub websockets_failed: WebSocketFailures,
    /// Messages that were passed to connections.
    pub sent: u64,
    /// Bytes of the messages in `sent`, without the bytes that TLS and WebSockets add.
    pub sent_bytes: u64,
    /// Messages received on connections.
    pub received: u64,
    /// Bytes of the messages in `received`, without the bytes that TLS and WebSockets add.
    pub received_bytes: u64,
    /// Messages not sent because the queue of their connection was full.
    pub overflow: u64,
    /// Messages not sent for any reason, such as a missing connection or a full queue.
    pub unsent: u64,
}

/// Failed WebSocket handshakes, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct WebSocketFailures {
    /// The server answered with a status other than 101.
    pub status: u64,
    /// The peer sent something that is not a valid message of a WebSocket handshake, for example a
    /// response without a valid Sec-WebSocket-Accept.
    pub protocol: u64,
    /// The peer does not offer or accept the subprotocol `sip`.
    pub subprotocol: u64,
    /// The peer ended the connection during the handshake.
    pub closed: u64,
    /// The peer that opened the connection did not complete the handshake in time.
    pub slow: u64,
}

impl WebSocketFailures {
    /// Returns the count of each reason, with the name of the reason in reports.
    fn each(&self) -> [(&'static str, u64); 5] {
        [
            ("status other than 101", self.status),
            ("no WebSocket handshake", self.protocol),
            ("no subprotocol sip", self.subprotocol),
            ("connection ended", self.closed),
            ("too slow", self.slow),
        ]
    }

    /// Adds the failures of another run.
    fn merge(&mut self, other: &Self) {
        add_fields! { self += other { status, protocol, subprotocol, closed, slow } }
    }
}

/// Formats the total number of failures, and the number for each reason that occurred.
impl fmt::Display for WebSocketFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.each().map(|(_, count)| count).iter().sum::<u64>())?;
        for (number, (reason, count)) in
            self.each().into_iter().filter(|(_, count)| *count > 0).enumerate()
        {
            write!(f, "{}{reason}: {count}", if number == 0 { " (" } else { ", " })?;
        }
        if *self == Self::default() { Ok(()) } else { f.write_str(")") }
    }
}

impl StreamUsage {
    /// Returns whether a limit of the agent prevented a connection from being opened or a message
    /// from being sent.
    pub(crate) fn is_limited(&self) -> bool {
        self.excess + self.overflow > 0
    }

    /// Adds the connections of another run over the same transport.
    fn merge(&mut self, other: &Self) {
        add_fields! { self += other {
            opened, accepted, failed, excess, handshakes, handshakes_failed, websockets, sent,
            sent_bytes, received, received_bytes, overflow, unsent;
            merge websockets_failed; but transport
        } }
    }
}

fn write_name<S: Serializer>(transport: &Transport, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(transport.name())
}

fn read_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Transport, D::Error> {
    let name = String::deserialize(deserializer)?;
    let found = Transport::ALL.into_iter().find(|transport| transport.name() == name);
    found.ok_or_else(|| D::Error::custom("not a transport"))
}

impl Usage {
    /// Adds the resources of a run that another process made at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.cpu_s += other.cpu_s;
        self.wall_s = self.wall_s.max(other.wall_s);
        self.socket_drops += other.socket_drops;
        self.send_drops += other.send_drops;
        match (&mut self.streams, &other.streams) {
            (Some(streams), Some(others)) => streams.merge(others),
            (streams @ None, others) => *streams = *others,
            (Some(_), None) => {}
        }
    }

    /// Returns whether the generator itself lost messages. Then failures and delays may not be
    /// caused by the server.
    pub(crate) fn has_own_losses(&self) -> bool {
        let is_limited = self.streams.is_some_and(|streams| streams.is_limited());
        self.socket_drops + self.send_drops > 0 || is_limited
    }
}

/// Formats the usage as a table of two lines.
impl fmt::Display for StreamUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, opened, accepted, failed, excess, .. } = self;
        write!(
            f,
            "{:<16}{transport}: opened {opened}, accepted {accepted}, failed {failed}, over the \
             limit {excess}",
            "connections"
        )?;
        if self.handshakes + self.handshakes_failed > 0 {
            write!(f, "; handshakes {}, failed {}", self.handshakes, self.handshakes_failed)?;
        }
        if self.websockets > 0 || self.websockets_failed != WebSocketFailures::default() {
            write!(f, "; WebSockets {}, failed {}", self.websockets, self.websockets_failed)?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<16}sent {} messages, {} bytes; received {} messages, {} bytes; not sent {}, {} of \
             them because the queue was full",
            "on connections",
            self.sent,
            self.sent_bytes,
            self.received,
            self.received_bytes,
            self.unsent,
            self.overflow
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_websockets_are_shown_with_their_reasons() {
        let failures = WebSocketFailures { status: 3, closed: 1, ..WebSocketFailures::default() };
        assert_eq!(WebSocketFailures::default().to_string(), "0");
        assert_eq!(failures.to_string(), "4 (status other than 101: 3, connection ended: 1)");
        let usage = StreamUsage {
            transport: Transport::Ws,
            opened: 2,
            accepted: 0,
            failed: 0,
            excess: 0,
            handshakes: 0,
            handshakes_failed: 0,
            websockets: 2,
            websockets_failed: WebSocketFailures::default(),
            sent: 0,
            sent_bytes: 0,
            received: 0,
            received_bytes: 0,
            overflow: 0,
            unsent: 0,
        };
        assert!(
            usage.to_string().contains("over the limit 0; WebSockets 2, failed 0\n"),
            "{usage}"
        );
        let usage = StreamUsage { websockets_failed: failures, ..usage };
        assert!(usage.to_string().contains("; WebSockets 2, failed 4 (status"), "{usage}");
    }
}
