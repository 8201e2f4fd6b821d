//! A budget for tries that refusals ask for: a share of the requests.
//!
//! A request that a back end has refused is tried elsewhere at most once for nothing; each further
//! try is paid from here. So however many requests are refused by whoever is asked, the back ends
//! get at most a fifth more than two tries of each, and a few at the start.

/// Requests that earn one try.
const REQUESTS_PER_TRY: u32 = 5;

/// Tries that may be saved up, and are there at the start: a pool that has few requests has its tries.
const TRIES_MAX: u32 = 20;

/// A shard's budget for a pool.
#[derive(Debug)]
pub struct RetryBudget {
    /// In requests.
    saved: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { saved: TRIES_MAX * REQUESTS_PER_TRY }
    }
}

impl RetryBudget {
    /// A new request earns its share of a try.
    pub fn earn(&mut self) {
        self.saved = (self.saved + 1).min(TRIES_MAX * REQUESTS_PER_TRY);
    }

    /// Takes one try, if there is one.
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
        assert_eq!((0..100).filter(|_| budget.take()).count(), 20);
        let tries = (0..1000).filter(|_| {
            budget.earn();
            budget.take()
        });
        assert_eq!(tries.count(), 200);
        (0..1000).for_each(|_| budget.earn());
        assert_eq!((0..100).filter(|_| budget.take()).count(), 20, "no more is saved");
    }
}
