//! One processor, which does one thing after the other.

use std::time::Duration;

use tidegate_world::Timestamp;

/// A single server: when it is free, and how long it has been busy.
#[derive(Debug, Default)]
pub(super) struct Processor {
    free_at: Timestamp,
    charged: Duration,
}

impl Processor {
    /// When the work it has taken is complete.
    pub(super) fn free_at(&self) -> Timestamp {
        self.free_at
    }

    /// Takes work at `at`, when it is free. Returns when that is complete.
    pub(super) fn work(&mut self, at: Timestamp, cost: Duration) -> Timestamp {
        debug_assert!(at >= self.free_at, "it does one thing at a time");
        self.free_at = at + cost;
        self.charged = self.charged.saturating_add(cost);
        self.free_at
    }

    /// How long it has worked by `now`, which is not before its last work began.
    pub(super) fn busy(&self, now: Timestamp) -> Duration {
        self.charged.saturating_sub(self.free_at.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_work_under_way_the_part_that_has_passed_is_busy_time() {
        let at = Timestamp::from_nanos;
        let mut processor = Processor::default();
        assert_eq!(processor.work(at(100), Duration::from_nanos(10)), at(110));
        assert_eq!(processor.work(at(200), Duration::from_nanos(50)), at(250));
        for (now, busy) in [(200, 10), (201, 11), (249, 59), (250, 60), (1000, 60)] {
            assert_eq!(processor.busy(at(now)), Duration::from_nanos(busy), "at {now}");
        }
        assert_eq!(processor.free_at(), at(250));
    }
}
