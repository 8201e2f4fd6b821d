//! The drops of the kernel that apply only to heavy sources.

use std::mem;

use tidegate_world::Timestamp;

use super::follow::{Edge, Episodes};
use crate::heavy::{HeavySources, Target};
use crate::metrics::collect::ShardCounters;

/// The watched drops.
pub(super) struct Targeted {
    /// Requests that the kernel dropped up to the last check.
    filtered: u64,
    /// Requests among them that were dropped while the drops applied only to heavy sources.
    of_heavy: u64,
    episodes: Episodes,
}

impl Targeted {
    /// Starts to watch the drops of these shards.
    pub(super) fn new(shards: &[ShardCounters]) -> Self {
        Self { filtered: filtered(shards), of_heavy: 0, episodes: Episodes::new(0) }
    }

    /// Takes the state at `now`. Returns the reason for a line and its subject, if a line is due.
    /// The subject names the sources, except at the end, when there may be none.
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
        let drops = "the kernel drops INVITEs and REGISTERs of heavy sources only";
        Some((edge, format!("{drops}{named}")))
    }
}

fn filtered(shards: &[ShardCounters]) -> u64 {
    shards.iter().map(ShardCounters::filtered).sum()
}
