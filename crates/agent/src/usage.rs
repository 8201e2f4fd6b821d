//! The resources and connections that a run of an agent used, as its driver counted them.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_world::Transport;

/// The resources that a run used in its own process, as the driver measured them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Usage {
    /// CPU time, user and system, in seconds.
    pub cpu_s: f64,
    /// Duration of the run in seconds.
    pub wall_s: f64,
    /// Datagrams that the kernel dropped because the receive buffers of our sockets were full.
    pub socket_drops: u64,
    /// Datagrams that could not be sent.
    pub send_drops: u64,
    /// The connections, or `None` over UDP.
    pub streams: Option<StreamUsage>,
}

/// The connections of a run.
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
    /// Messages that were passed to connections.
    pub sent: u64,
    /// Bytes of the messages in `sent`, without the bytes that TLS adds.
    pub sent_bytes: u64,
    /// Messages received on connections.
    pub received: u64,
    /// Bytes of the messages in `received`, without the bytes that TLS adds.
    pub received_bytes: u64,
    /// Messages not sent because the queue of their connection was full.
    pub overflow: u64,
    /// Messages not sent for any reason, such as a missing connection or a full queue.
    pub unsent: u64,
}

impl StreamUsage {
    /// Returns whether a limit of ours prevented a connection from being opened or a message from
    /// being sent.
    pub(crate) fn is_limited(&self) -> bool {
        self.excess + self.overflow > 0
    }

    /// Adds the connections of another run over the same transport.
    fn merge(&mut self, other: &Self) {
        self.opened += other.opened;
        self.accepted += other.accepted;
        self.failed += other.failed;
        self.excess += other.excess;
        self.handshakes += other.handshakes;
        self.handshakes_failed += other.handshakes_failed;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.overflow += other.overflow;
        self.unsent += other.unsent;
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
    /// Adds the resources of another run at the same time, in another process.
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
            "{:<16}{transport}: opened {opened}, accepted {accepted}, failed {failed}, too many \
             {excess}",
            "connections"
        )?;
        if self.handshakes + self.handshakes_failed > 0 {
            write!(f, "; handshakes {}, failed {}", self.handshakes, self.handshakes_failed)?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<16}sent {} messages, {} bytes; received {} messages, {} bytes; unsent {}, of these \
             queue full {}",
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
