//! Records the crashes and stalls of nodes.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_world::Timestamp;

use crate::node_id::NodeId;

/// The crashes and stalls of nodes, which explain some deviations from the rules.
#[derive(Debug, Default)]
pub(super) struct Lives {
    crashed: BTreeMap<NodeId, Timestamp>,
    disturbed: BTreeSet<NodeId>,
}

impl Lives {
    pub(super) fn crashed(&mut self, now: Timestamp, node: NodeId) {
        self.crashed.insert(node, now);
        // A restarted node is neither stalled nor draining.
        self.disturbed.remove(&node);
    }

    pub(super) fn disturbed(&mut self, node: NodeId) {
        self.disturbed.insert(node);
    }

    /// Returns whether the node has crashed since the time `then`.
    pub(super) fn is_of_another_life(&self, node: NodeId, then: Timestamp) -> bool {
        self.crashed.get(&node).is_some_and(|&crashed| then <= crashed)
    }

    /// Returns whether the node has ever crashed.
    pub(super) fn has_crashed(&self, node: NodeId) -> bool {
        self.crashed.contains_key(&node)
    }

    pub(super) fn has_any_crashed(&self) -> bool {
        !self.crashed.is_empty()
    }

    /// Returns whether the node was stalled or drained since its last start.
    pub(super) fn is_disturbed(&self, node: NodeId) -> bool {
        self.disturbed.contains(&node)
    }
}
