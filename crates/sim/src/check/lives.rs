//! Which nodes have crashed, and which were held up.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_world::Timestamp;

use crate::node_id::NodeId;

/// What was done to the nodes, which excuses some of what they do.
#[derive(Debug, Default)]
pub(super) struct Lives {
    crashed: BTreeMap<NodeId, Timestamp>,
    disturbed: BTreeSet<NodeId>,
}

impl Lives {
    pub(super) fn crashed(&mut self, now: Timestamp, node: NodeId) {
        self.crashed.insert(node, now);
        // A new life begins.
        self.disturbed.remove(&node);
    }

    pub(super) fn disturbed(&mut self, node: NodeId) {
        self.disturbed.insert(node);
    }

    /// Whether the node's life was another when this happened.
    pub(super) fn is_of_another_life(&self, node: NodeId, then: Timestamp) -> bool {
        self.crashed.get(&node).is_some_and(|&crashed| then <= crashed)
    }

    /// Whether the node has ever crashed.
    pub(super) fn has_crashed(&self, node: NodeId) -> bool {
        self.crashed.contains_key(&node)
    }

    /// Whether any node has crashed.
    pub(super) fn has_any_crashed(&self) -> bool {
        !self.crashed.is_empty()
    }

    /// Whether the node was held up in this life.
    pub(super) fn is_disturbed(&self, node: NodeId) -> bool {
        self.disturbed.contains(&node)
    }
}
