//! Faults of a simulated network, and plans that say when they happen.

mod plan;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::link::Link;
use crate::micros;
use crate::node_id::{NodeId, Silence};
use crate::zone::Resolution;
pub use plan::{Episode, Plan, Shape, Trouble};

/// The start or the end of a fault in a simulated network.
/// [`Network::apply`](crate::Network::apply) carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// A node crashes, and loses its core and all its state.
    Crash {
        /// The node.
        node: NodeId,
        /// The ICMP reports, if any, that senders to the crashed node get.
        silence: Silence,
    },
    /// A node that has crashed gets a new core.
    Restart {
        /// The node.
        node: NodeId,
    },
    /// A node gets no processor time.
    Stall {
        /// The node.
        node: NodeId,
        /// Duration of the stall, serialized in microseconds.
        #[serde(rename = "lasts_us", with = "micros")]
        lasts: Duration,
    },
    /// A node starts to drain: it takes no new calls and finishes the old ones.
    Drain {
        /// The node.
        node: NodeId,
    },
    /// Two nodes are partitioned: no packet passes between them.
    Partition {
        /// One of the two nodes.
        a: NodeId,
        /// The other node.
        b: NodeId,
    },
    /// The partition of two nodes ends.
    Heal {
        /// One of the two nodes.
        a: NodeId,
        /// The other node.
        b: NodeId,
    },
    /// A worse link replaces the link from one node to another, until [`Restore`](Fault::Restore).
    Impair {
        /// Sender of the affected packets.
        from: NodeId,
        /// Receiver of the affected packets.
        to: NodeId,
        /// The link that temporarily replaces the normal one.
        link: Link,
    },
    /// The normal link from one node to another replaces the worse one again.
    Restore {
        /// Sender of the affected packets.
        from: NodeId,
        /// Receiver of the affected packets.
        to: NodeId,
    },
    /// The connections between two nodes are reset.
    Reset {
        /// One of the two nodes.
        a: NodeId,
        /// The other node.
        b: NodeId,
    },
    /// The connection that carries the next message from one node to another breaks in the middle
    /// of that message.
    Sever {
        /// Sender of the message.
        from: NodeId,
        /// Receiver of the message.
        to: NodeId,
    },
    /// A node reads slowly from each of its streams.
    ReadSlowly {
        /// The node.
        node: NodeId,
        /// Number of bytes that the node reads from each stream in a second.
        bytes_per_s: u64,
    },
    /// A node reads from its streams at full speed again.
    ReadAtOnce {
        /// The node.
        node: NodeId,
    },
    /// Name resolution has faults: answers are late, are errors, or do not come.
    Resolver {
        /// The behaviour of name resolution during the fault.
        resolution: Resolution,
    },
    /// Name resolution is normal again.
    Resolves,
}
