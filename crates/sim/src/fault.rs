//! Faults: what goes wrong, and when.

mod plan;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::link::Link;
use crate::micros;
use crate::node_id::{NodeId, Silence};
use crate::zone::Resolution;
pub use plan::{Episode, Plan, Shape, Trouble};

/// One thing that goes wrong, or that comes right again: see
/// [`Network::apply`](crate::Network::apply).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// A node loses its core and all it held.
    Crash {
        /// Which.
        node: NodeId,
        /// What its senders hear.
        silence: Silence,
    },
    /// A node that has crashed gets a new core.
    Restart {
        /// Which.
        node: NodeId,
    },
    /// A node gets no processor.
    Stall {
        /// Which.
        node: NodeId,
        /// For how long; in text, in microseconds.
        #[serde(rename = "lasts_us", with = "micros")]
        lasts: Duration,
    },
    /// A node is to admit no new work.
    Drain {
        /// Which.
        node: NodeId,
    },
    /// Nothing gets through between two nodes.
    Partition {
        /// One of them.
        a: NodeId,
        /// The other.
        b: NodeId,
    },
    /// A partition ends.
    Heal {
        /// One of the two.
        a: NodeId,
        /// The other.
        b: NodeId,
    },
    /// A worse link stands in for one.
    Impair {
        /// Whose packets suffer.
        from: NodeId,
        /// Where they go.
        to: NodeId,
        /// What they travel by.
        link: Link,
    },
    /// A link is as it was before it was impaired.
    Restore {
        /// Whose packets suffered.
        from: NodeId,
        /// Where they went.
        to: NodeId,
    },
    /// The connections between two nodes are reset.
    Reset {
        /// One of them.
        a: NodeId,
        /// The other.
        b: NodeId,
    },
    /// The connection on which a node next sends a message to another breaks within the message.
    Sever {
        /// Whose message.
        from: NodeId,
        /// To whom.
        to: NodeId,
    },
    /// A node reads slowly from each stream.
    ReadSlowly {
        /// Which.
        node: NodeId,
        /// Bytes a second.
        bytes_per_s: u64,
    },
    /// A node reads from its streams at once again.
    ReadAtOnce {
        /// Which.
        node: NodeId,
    },
    /// Names are resolved otherwise than usual: late, in vain, or not at all.
    Resolver {
        /// How.
        resolution: Resolution,
    },
    /// Names are resolved as usual.
    Resolves,
}
