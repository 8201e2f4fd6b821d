//! Reports for the log on periods in which only requests of heavy sources are dropped without a
//! response.

use std::mem;

use tidegate_world::Timestamp;

use super::follow::{Edge, Episodes};
use crate::heavy::{HeavySources, Target};
use crate::metrics::collect::ShardCounters;

/// Counts of dropped INVITEs and REGISTERs, for reports in the log. The kernel dropped them, or
/// Tidegate dropped them after it had read them from a stream.
pub(super) struct Targeted {
    /// Number of requests that were dropped up to the last check.
    filtered: u64,
    /// Number of requests that were dropped while the kernel dropped only requests of heavy
    /// sources.
    of_heavy: u64,
    episodes: Episodes,
}

impl Targeted {
    /// Creates the value with the present counts of these shards.
    pub(super) fn new(shards: &[ShardCounters]) -> Self {
        Self { filtered: filtered(shards), of_heavy: 0, episodes: Episodes::new(0) }
    }

    /// Compares the counts at `now` with those at the last check. If a log line is due, returns the
    /// event to report and the subject of the line. The subject names the heavy sources if the
    /// kernel still drops only their requests.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        shards: &[ShardCounters],
    ) -> Option<(Edge, String)> {
        let filtered = filtered(shards);
        let dropped = filtered.saturating_sub(mem::replace(&mut self.filtered, filtered));
        let heavy = HeavySources::of(shards);
        let is_targeted = heavy.target == Target::Heavy;
        self.of_heavy += if is_targeted { dropped } else { 0 };
        let edge = self.episodes.see(now, self.of_heavy)?;
        let named = if is_targeted { format!(" ({})", heavy.written()) } else { String::new() };
        let drops = "only INVITEs and REGISTERs of heavy sources are dropped without a response";
        Some((edge, format!("{drops}{named}")))
    }
}

fn filtered(shards: &[ShardCounters]) -> u64 {
    shards.iter().map(ShardCounters::filtered).sum()
}
