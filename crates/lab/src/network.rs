//! What lies between callers, servers and answerers, and what goes wrong there.

use std::time::Duration;

use serde::Serialize;
use tidegate_sim::{Link, Resolution, Silence};

/// Somebody who sends and receives.
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

/// A link, and whose packets it carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Way {
    /// From whom; everybody if `None`.
    pub from: Option<Endpoint>,
    /// To whom; everybody if `None`.
    pub to: Option<Endpoint>,
    /// How they travel.
    pub link: Link,
}

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// When, after the start of the load.
    pub at: Duration,
    /// For how long.
    pub lasts: Duration,
    /// What.
    pub what: Trouble,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// A server loses all it holds, and comes back without it.
    Crash {
        /// Its place.
        node: usize,
        /// What its senders hear meanwhile.
        silence: Silence,
    },
    /// A server gets no processor.
    Stall {
        /// Its place.
        node: usize,
    },
    /// Nothing gets through between two, in either direction.
    Partition {
        /// One of them.
        a: Endpoint,
        /// The other.
        b: Endpoint,
    },
    /// A worse link.
    Link(Way),
    /// Names are resolved otherwise than at once.
    Resolver(Resolution),
}

impl Way {
    /// Whether packets from `from` to `to` travel this way.
    pub fn carries(&self, from: Endpoint, to: Endpoint) -> bool {
        self.from.is_none_or(|endpoint| endpoint == from)
            && self.to.is_none_or(|endpoint| endpoint == to)
    }
}

impl Fault {
    /// When it is over.
    pub fn end(&self) -> Duration {
        self.at + self.lasts
    }
}
