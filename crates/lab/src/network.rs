//! The network between callers, servers and answerers, and its faults.

use std::time::Duration;

use serde::Serialize;
use tidegate_sim::{Link, Resolution, Silence};

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// All callers.
    Callers,
    /// The server at this place of the topology.
    Node(usize),
    /// All answerers.
    Answerers,
}

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Way {
    /// Source; any if `None`.
    pub from: Option<Endpoint>,
    /// Destination; any if `None`.
    pub to: Option<Endpoint>,
    /// The link.
    pub link: Link,
}

/// A fault with a duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// Start, after the start of the load.
    pub at: Duration,
    /// Duration.
    pub lasts: Duration,
    /// The fault.
    pub what: Trouble,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// A server loses all its state, and comes back without it.
    Crash {
        /// Its index.
        node: usize,
        /// Reports to its senders meanwhile.
        silence: Silence,
    },
    /// A server gets no processor.
    Stall {
        /// Its index.
        node: usize,
    },
    /// No packet passes between two ends, in either direction.
    Partition {
        /// One end.
        a: Endpoint,
        /// The other.
        b: Endpoint,
    },
    /// A worse link.
    Link(Way),
    /// Name resolution is not immediate.
    Resolver(Resolution),
}

impl Way {
    /// Returns whether packets from `from` to `to` travel this way.
    pub fn carries(&self, from: Endpoint, to: Endpoint) -> bool {
        self.from.is_none_or(|endpoint| endpoint == from)
            && self.to.is_none_or(|endpoint| endpoint == to)
    }
}

impl Fault {
    /// Returns its end.
    pub fn end(&self) -> Duration {
        self.at + self.lasts
    }
}
