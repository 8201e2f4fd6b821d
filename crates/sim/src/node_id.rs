//! The identity of a node, and the reports about a crashed node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A node of a network: the number of its [`add`](crate::Network::add), from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(u16);

impl NodeId {
    /// Returns the node that is added after `index` others.
    ///
    /// # Panics
    /// From 65,535 on: a network has no more.
    pub fn new(index: usize) -> Self {
        let id = u16::try_from(index).ok().filter(|&id| id < u16::MAX);
        Self(id.expect("a network has fewer than 65,535 nodes"))
    }

    /// Returns its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// The kind of reports that senders get about a crashed node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Silence {
    /// The process has ended. Its machine answers with ICMP: port unreachable.
    Refused,
    /// The machine is down. There are no reports.
    Silent,
}
