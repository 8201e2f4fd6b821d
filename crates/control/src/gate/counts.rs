//! Counts the pieces of new work, and what became of them.

use tidegate_world::Timestamp;

use super::{EARLY, Gate};
use crate::{Bucket, Flow, Reason};

impl Gate {
    /// Returns the counts of new work of one bucket, without the work that another shard has
    /// [handed off](crate::Sender), because the gate of that shard has counted it as admitted. So
    /// the sum over all gates of a process contains each piece once. If this gate rejects work that
    /// was handed off, the work counts in `stale`, like other work that is rejected after its
    /// admission.
    pub fn own_flow(&self, bucket: Bucket) -> Flow {
        let (all, not_own) = (self.signals.flow(bucket), &self.handed_off[bucket as usize]);
        Flow {
            arrived: all.arrived - not_own.arrived,
            offered: all.offered - not_own.offered,
            repeated: all.repeated - not_own.repeated,
            admitted: all.admitted - not_own.admitted,
            rejected: all.rejected - not_own.rejected,
            stale: all.stale + not_own.rejected,
            ..*all
        }
    }

    /// Applies `change` to the counts of new work of a bucket. `is_handed_off` is true if another
    /// gate has counted the work.
    pub(super) fn count(
        &mut self,
        bucket: Bucket,
        is_handed_off: bool,
        change: impl Fn(&mut Flow),
    ) {
        change(self.signals.flow_mut(bucket));
        if is_handed_off {
            change(&mut self.handed_off[bucket as usize]);
        }
    }

    /// Counts a rejection by overload control as early if the processor was partly idle within the
    /// last 0.1 s.
    pub(super) fn count_early(&mut self, now: Timestamp, bucket: Bucket, reason: Reason) {
        let is_by_law = matches!(
            reason,
            Reason::Law | Reason::Rank | Reason::Stale | Reason::QueueFull | Reason::SourceShare
        );
        if is_by_law && self.idle.is_some_and(|at| now.since(at) <= EARLY) {
            self.signals.flow_mut(bucket).early += 1;
        }
    }
}
