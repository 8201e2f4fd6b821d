//! The counts of calls or registrations in progress.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_agent::CallerStats;
use tidegate_world::Counter;

/// The counts of calls or registrations at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Progress {
    /// Calls or registrations that have become due.
    pub offered: u64,
    /// Open calls, or registrations without a response.
    pub open: u64,
    /// Calls that were set up and have ended, or registrations that succeeded.
    pub completed: u64,
    /// Calls or registrations that failed.
    pub failed: u64,
}

impl Progress {
    /// Adds the counts of other calls. Sums saturate, because the counts may come from a peer.
    pub fn add(&mut self, other: &Self) {
        self.offered = self.offered.saturating_add(other.offered);
        self.open = self.open.saturating_add(other.open);
        self.completed = self.completed.saturating_add(other.completed);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offered, open, completed, failed } = self;
        write!(f, "offered {offered}, open {open}, completed {completed}, failed {failed}")
    }
}

impl From<&CallerStats> for Progress {
    fn from(stats: &CallerStats) -> Self {
        let &CallerStats { offered, open, completed, begun, .. } = stats;
        Self { offered, open, completed, failed: begun - open - completed }
    }
}

/// Gauges that the progress thread reads while calls are made or users register.
#[derive(Default)]
pub struct Gauges {
    offered: Counter,
    open: Counter,
    completed: Counter,
    failed: Counter,
}

impl Gauges {
    /// Sets the counts.
    pub fn show(&self, progress: Progress) {
        self.offered.set(progress.offered);
        self.open.set(progress.open);
        self.completed.set(progress.completed);
        self.failed.set(progress.failed);
    }

    /// Returns the counts.
    pub fn progress(&self) -> Progress {
        let [offered, open, completed, failed] =
            [&self.offered, &self.open, &self.completed, &self.failed].map(Counter::get);
        Progress { offered, open, completed, failed }
    }
}
