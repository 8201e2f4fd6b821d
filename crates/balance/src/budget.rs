//! A budget for retries of rejected requests, as a share of all requests.
//!
//! The first retry of a rejected request at another back end is always allowed. Each further retry
//! takes one retry from this budget. So however many requests are rejected, the number of attempts
//! is at most 2.2 times the number of requests, plus the 20 retries available at the start.

/// Number of requests that allow one retry.
const REQUESTS_PER_TRY: u32 = 5;

/// Maximum number of retries that the budget can hold. A budget starts with this number, so that a
/// pool with few requests can retry too.
const TRIES_MAX: u32 = 20;

/// A shard's budget of retries for the requests to a pool.
#[derive(Debug)]
pub struct RetryBudget {
    /// Number of requests that have not been used for a retry yet. A retry uses
    /// [`REQUESTS_PER_TRY`] of them.
    saved: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { saved: TRIES_MAX * REQUESTS_PER_TRY }
    }
}

impl RetryBudget {
    /// Adds a new request to the budget. Five requests allow one retry.
    pub fn earn(&mut self) {
        self.saved = (self.saved + 1).min(TRIES_MAX * REQUESTS_PER_TRY);
    }

    /// Returns whether a retry is left.
    pub fn has_retry(&self) -> bool {
        self.saved >= REQUESTS_PER_TRY
    }

    /// Takes one retry from the budget. Returns false if none is left.
    pub fn take(&mut self) -> bool {
        let left = self.saved.checked_sub(REQUESTS_PER_TRY);
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_requests_may_be_tried_again_after_a_few_at_the_start() {
        let mut budget = RetryBudget::default();
        assert!(budget.has_retry());
        assert_eq!((0..100).filter(|_| budget.take()).count(), 20);
        assert!(!budget.has_retry());
        let tries = (0..1000).filter(|_| {
            budget.earn();
            budget.take()
        });
        assert_eq!(tries.count(), 200);
        (0..1000).for_each(|_| budget.earn());
        assert_eq!((0..100).filter(|_| budget.take()).count(), 20, "no more is saved");
    }
}
