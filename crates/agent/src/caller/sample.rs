//! A caller's counts at one moment, for a curve over time.

use serde::Serialize;

use crate::caller::stats::CallerStats;

/// The counts of a caller at one moment. The difference of two samples counts the events between
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallerSample {
    /// Calls that have become due.
    pub offered: u64,
    /// Calls whose INVITE was sent.
    pub begun: u64,
    /// Calls answered with 2xx while the caller was waiting.
    pub set_up: u64,
    /// Calls set up within [`deadline`](crate::CallerConfig::deadline) of their intended time.
    pub set_up_in_time: u64,
    /// Calls that were set up and then ended by a BYE.
    pub completed: u64,
    /// Calls that failed because of a 503.
    pub rejected: u64,
    /// Calls that failed, including the calls in `rejected`.
    pub failed: u64,
    /// INVITEs retransmitted.
    pub repeated: u64,
    /// Calls that are open at the time of the sample.
    pub open: u64,
    /// Calls that wait, at the time of the sample, for another call to end.
    pub waiting: u64,
}

impl CallerSample {
    /// Returns the events between `earlier` and this sample. Only `open` and `waiting` are not
    /// differences: they are copied from this sample.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            offered: self.offered - earlier.offered,
            begun: self.begun - earlier.begun,
            set_up: self.set_up - earlier.set_up,
            set_up_in_time: self.set_up_in_time - earlier.set_up_in_time,
            completed: self.completed - earlier.completed,
            rejected: self.rejected - earlier.rejected,
            failed: self.failed - earlier.failed,
            repeated: self.repeated - earlier.repeated,
            open: self.open,
            waiting: self.waiting,
        }
    }
}

impl CallerStats {
    /// Returns a sample of these counts.
    pub fn sample(&self) -> CallerSample {
        CallerSample {
            offered: self.offered,
            begun: self.begun,
            set_up: self.set_up,
            set_up_in_time: self.set_up_in_time,
            completed: self.completed,
            rejected: self.failed.status.get(&503).copied().unwrap_or(0),
            failed: self.failed.total(),
            repeated: self.repeated.invite,
            open: self.open,
            waiting: self.waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_covers_counts_but_not_current_numbers() {
        let sample = |n: u64| CallerSample {
            offered: 10 * n,
            begun: 9 * n,
            set_up: 8 * n,
            set_up_in_time: 7 * n,
            completed: 6 * n,
            rejected: 5 * n,
            failed: 4 * n,
            repeated: 3 * n,
            open: 2 * n,
            waiting: n,
        };
        let between = sample(5).since(&sample(2));
        assert_eq!(between, CallerSample { open: 10, waiting: 5, ..sample(3) });
    }
}
