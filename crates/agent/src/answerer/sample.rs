//! An answerer's counts at one moment, for a curve over time.

use serde::Serialize;

use super::stats::AnswererStats;

/// The counts of an answerer at one moment. The difference of two samples counts the events between
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnswererSample {
    /// Calls received. A copy of an INVITE is not a new call.
    pub calls: u64,
    /// Calls answered with 200.
    pub answered: u64,
    /// Calls whose 200 was acknowledged.
    pub acknowledged: u64,
    /// Calls whose ACK came within [`deadline`](crate::AnswererConfig::deadline) of their INVITE.
    pub acknowledged_in_time: u64,
    /// Answered calls that the caller ended.
    pub completed: u64,
    /// Copies of INVITEs received.
    pub invites_again: u64,
    /// Retransmissions of final responses and BYEs by the answerer.
    pub repeated: u64,
    /// Calls that are open at the time of the sample.
    pub open: u64,
}

impl AnswererSample {
    /// Returns the events between `earlier` and this sample. Only `open` is not a difference: it is
    /// copied from this sample.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            calls: self.calls - earlier.calls,
            answered: self.answered - earlier.answered,
            acknowledged: self.acknowledged - earlier.acknowledged,
            acknowledged_in_time: self.acknowledged_in_time - earlier.acknowledged_in_time,
            completed: self.completed - earlier.completed,
            invites_again: self.invites_again - earlier.invites_again,
            repeated: self.repeated - earlier.repeated,
            open: self.open,
        }
    }
}

impl AnswererStats {
    /// Returns a sample of these counts.
    pub fn sample(&self) -> AnswererSample {
        AnswererSample {
            calls: self.calls,
            answered: self.answered,
            acknowledged: self.acknowledged,
            acknowledged_in_time: self.acknowledged_in_time,
            completed: self.completed,
            invites_again: self.invites_again,
            repeated: self.repeated,
            open: self.open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_covers_counts_but_not_current_numbers() {
        let sample = |n: u64| AnswererSample {
            calls: 8 * n,
            answered: 7 * n,
            acknowledged: 6 * n,
            acknowledged_in_time: 5 * n,
            completed: 4 * n,
            invites_again: 3 * n,
            repeated: 2 * n,
            open: n,
        };
        assert_eq!(sample(5).since(&sample(2)), AnswererSample { open: 5, ..sample(3) });
    }
}
