//! Which timer fires next, among some that no longer count.

use std::cmp::Reverse;

use dary_heap::OctonaryHeap;
use tidegate_world::Timestamp;

use crate::Handle;

/// Timers in the order in which they fire; of those that fire together, by slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    // Of a hundred thousand, few are in the cache: a heap with eight children to a node touches
    // a third of a binary heap's levels.
    heap: OctonaryHeap<Reverse<(Timestamp, u32, u16)>>,
}

impl Timers {
    pub(crate) fn push(&mut self, at: Timestamp, handle: Handle) {
        self.heap.push(Reverse((at, handle.slot, handle.generation)));
    }

    /// How many there are, with those that no longer count.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Drops those that no longer count.
    pub(crate) fn retain(&mut self, counts: impl Fn(Timestamp, Handle) -> bool) {
        self.heap
            .retain(|&Reverse((at, slot, generation))| counts(at, Handle { slot, generation }));
    }

    /// When the first one fires.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|&Reverse((at, ..))| at)
    }

    /// The first one, if it fires by `now`.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<(Timestamp, Handle)> {
        self.next().filter(|&at| at <= now)?;
        let Reverse((at, slot, generation)) = self.heap.pop()?;
        Some((at, Handle { slot, generation }))
    }
}
