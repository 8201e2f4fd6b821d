//! A limit on the number of log lines of one kind.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Maximum number of log lines within [`LINES_WITHIN`].
const LINES_MAX: u32 = 5;
const LINES_WITHIN: Duration = Duration::from_secs(10);

/// A limit on the number of log lines in a period.
#[derive(Default)]
pub(super) struct Allowance {
    since: Timestamp,
    lines: u32,
    /// Number of events that were not logged in the period.
    withheld: u64,
}

impl Allowance {
    /// Returns whether another line, about this number of events, may be logged at `now`. If not,
    /// the events are withheld.
    pub(super) fn take(&mut self, now: Timestamp, count: u64) -> bool {
        let is_left = self.lines < LINES_MAX;
        if is_left {
            self.begin(now);
            self.lines += 1;
        } else {
            self.withhold(now, count);
        }
        is_left
    }

    /// Records that this number of events is not logged.
    pub(super) fn withhold(&mut self, now: Timestamp, count: u64) {
        self.begin(now);
        self.withheld += count;
    }

    /// Ends the period if it is over at `now`. Then returns the number of events that were not
    /// logged in the period, if any.
    pub(super) fn settle(&mut self, now: Timestamp) -> Option<u64> {
        if !self.has_begun() || now.since(self.since) < LINES_WITHIN {
            return None;
        }
        self.lines = 0;
        Some(std::mem::take(&mut self.withheld)).filter(|&withheld| withheld > 0)
    }

    fn begin(&mut self, now: Timestamp) {
        if !self.has_begun() {
            self.since = now;
        }
    }

    fn has_begun(&self) -> bool {
        self.lines > 0 || self.withheld > 0
    }
}
