//! Describes the network between callers, servers and answerers, its buffers and its faults.

use std::time::Duration;

use serde::Serialize;
use tidegate_sim::{Link, Resolution, Silence, StreamSettings};

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// All callers.
    Callers,
    /// The server at this index of the topology.
    Node(usize),
    /// All answerers.
    Answerers,
}

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Way {
    /// Source of the packets. `None` means any source.
    pub from: Option<Endpoint>,
    /// Destination of the packets. `None` means any destination.
    pub to: Option<Endpoint>,
    /// Properties of the link.
    pub link: Link,
}

/// The buffers of the TCP connections, if all messages travel over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tcp {
    /// Receive window of each connection, in bytes.
    pub window_bytes: usize,
    /// Send buffer of each connection, in bytes. If this is `None`, the buffer is as large as the
    /// window.
    pub buffer_bytes: Option<usize>,
}

impl Tcp {
    /// Returns the settings of the streams in a simulated network.
    pub fn streams(self) -> StreamSettings {
        let window = self.window_bytes;
        let buffer = self.buffer_bytes.unwrap_or(window);
        StreamSettings { window, buffer, ..StreamSettings::default() }
    }
}

/// A fault of a server or of the network, with its start and duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// Time from the start of the load to the start of the fault.
    pub at: Duration,
    /// Duration of the fault.
    pub lasts: Duration,
    /// Kind of the fault.
    pub what: Trouble,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// A server loses all its state. It starts again without state when the fault ends.
    Crash {
        /// Index of the server.
        node: usize,
        /// ICMP reports that senders get about the server while it is down.
        silence: Silence,
    },
    /// A server gets no processor time.
    Stall {
        /// Index of the server.
        node: usize,
    },
    /// No packet passes between two endpoints, in either direction.
    Partition {
        /// One of the two endpoints.
        a: Endpoint,
        /// The other endpoint.
        b: Endpoint,
    },
    /// Packets travel over a worse link than usual.
    Link(Way),
    /// Name resolution takes time or fails.
    Resolver(Resolution),
}

impl Fault {
    /// Returns the time from the start of the load to the end of the fault.
    pub fn end(&self) -> Duration {
        self.at + self.lasts
    }
}
