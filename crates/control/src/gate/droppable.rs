//! The gate's count of the messages that may be dropped before they are read, by their source.

use tidegate_world::Timestamp;

use super::Gate;
use crate::{Arrived, HeavySource};

impl Gate {
    /// Starts or stops counting, by source, the messages that may be dropped before they are read.
    /// They should be counted while messages are dropped or lost, or will probably be soon. Returns
    /// true if counting starts now. Nothing is counted if the setting `fair` is not enabled.
    pub fn set_counts_droppable(&mut self, now: Timestamp, counts: bool) -> bool {
        self.sources.heavy_mut().is_some_and(|heavy| heavy.set_counting(now, counts))
    }

    /// Returns whether messages that may be dropped before they are read are counted by their
    /// source.
    pub fn counts_droppable(&self) -> bool {
        self.sources.heavy().is_some_and(|heavy| heavy.is_counting())
    }

    /// Counts a message that could have been dropped before it was read, whether it is served or
    /// not. `arrived` is the number of messages that it represents. `repeats` is true if it repeats
    /// a message on which the gate has decided, and `is_emergency` if it is a datagram that calls
    /// an emergency service. The source counts as `weight` sources, at least 1. Returns whether the
    /// source is [heavy](Self::heavy_sources).
    pub fn on_droppable(
        &mut self,
        now: Timestamp,
        source: u128,
        weight: u32,
        arrived: Arrived,
        repeats: bool,
        is_emergency: bool,
    ) -> bool {
        let heavy = self.sources.heavy_mut();
        heavy
            .is_some_and(|heavy| heavy.on_read(now, source, weight, arrived, repeats, is_emergency))
    }

    /// Counts a message that could have been dropped before it was read, and that is served: new work
    /// that gets a place in the queue, or a message that belongs to existing work.
    pub fn on_droppable_served(&mut self, now: Timestamp) {
        if let Some(heavy) = self.sources.heavy_mut() {
            heavy.on_placed(now);
        }
    }

    /// Writes the sources that cause the overload to `heavy`, in ascending order. `heavy` becomes
    /// empty if there are more than `max` such sources, if some of them have no entry in the table,
    /// or if nothing is counted. Sources for which `is_spared` returns true do not become heavy.
    pub fn heavy_sources(
        &mut self,
        now: Timestamp,
        max: usize,
        is_spared: impl Fn(u128) -> bool,
        heavy: &mut Vec<HeavySource>,
    ) {
        match self.sources.heavy_mut() {
            Some(counted) => counted.list(now, max, is_spared, heavy),
            None => heavy.clear(),
        }
    }

    /// Returns the heavy sources that flood with emergency calls, as of the last call of
    /// [`heavy_sources`](Self::heavy_sources), even if that call listed no source. Their `rate_cps`
    /// is the rate of the emergency calls, and the highest rate comes first.
    pub fn emergency_floods(&self) -> &[HeavySource] {
        self.sources.heavy().map_or(&[], |heavy| heavy.emergency_floods())
    }
}
