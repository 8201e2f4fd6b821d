//! Faults and their times.

mod plan;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::link::Link;
use crate::micros;
use crate::node_id::{NodeId, Silence};
use crate::zone::Resolution;
pub use plan::{Episode, Plan, Shape, Trouble};

/// A fault, or the end of one. [`Network::apply`](crate::Network::apply) carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// A node loses its core and all its state.
    Crash {
        /// The node.
        node: NodeId,
        /// The reports that senders to the node get.
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
        /// Duration of the stall. In text, it is in microseconds.
        #[serde(rename = "lasts_us", with = "micros")]
        lasts: Duration,
    },
    /// A node starts to drain: it takes no new calls and finishes the old ones.
    Drain {
        /// The node.
        node: NodeId,
    },
    /// No packet passes between two nodes.
    Partition {
        /// One of the two nodes.
        a: NodeId,
        /// The other node.
        b: NodeId,
    },
    /// A partition ends.
    Heal {
        /// One of the two nodes.
        a: NodeId,
        /// The other node.
        b: NodeId,
    },
    /// A worse link temporarily replaces the current one.
    Impair {
        /// Sender of the affected packets.
        from: NodeId,
        /// Receiver of the affected packets.
        to: NodeId,
        /// The worse link.
        link: Link,
    },
    /// The normal link returns.
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
    /// The next message of a node to another node breaks its connection: only a part of the message
    /// arrives.
    Sever {
        /// Sender of the message.
        from: NodeId,
        /// Receiver of the message.
        to: NodeId,
    },
    /// A node reads each stream slowly.
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
