//! The identity of a node, and the reports about a crashed node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a node of a network. Nodes are numbered from 0, in the order in which they are
/// [added](crate::Network::add).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(u16);

impl NodeId {
    /// Returns the id of the node that is [added](crate::Network::add) after `index` others.
    ///
    /// # Panics
    /// Panics if `index` is 65,535 or more: a network has at most 65,535 nodes.
    pub fn new(index: usize) -> Self {
        let id = u16::try_from(index).ok().filter(|&id| id < u16::MAX);
        Self(id.expect("a network has at most 65,535 nodes"))
    }

    /// Returns the number of the node.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// The ICMP reports, if any, that senders get about a crashed node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Silence {
    /// Only the process of the node has ended. The machine answers packets with ICMP "port
    /// unreachable".
    Refused,
    /// The machine of the node is down, so senders get no ICMP reports.
    Silent,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index of the 65,535th node, 65,534, is allowed. The next one panics.
    #[test]
    #[should_panic(expected = "at most 65,535 nodes")]
    fn a_network_has_at_most_65_535_nodes() {
        assert_eq!(NodeId::new(65_534).index(), 65_534);
        NodeId::new(65_535);
    }
}
