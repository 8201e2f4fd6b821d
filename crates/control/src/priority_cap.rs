//! The cap on the rate of priority work. All shards of a process share it in one atomic word.
//!
//! The kernel gives all datagrams of one source port to one shard. So one shard may get all
//! emergency calls. If each shard had only a part of the cap, this part would be too small. The
//! rule is the generic cell rate algorithm (ITU-T I.371 annex A): a piece of work at time t passes
//! if the theoretical arrival time TAT is no later than t + τ. Then TAT becomes max(t, TAT) + T,
//! with T the time between two pieces at the rate. τ allows a burst as large as the number of
//! pieces in one second, at least one. The whole burst is available at the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_world::Timestamp;

/// The state of the cap on priority work. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct PriorityCap {
    /// TAT: the theoretical arrival time of the next piece of work, in nanoseconds.
    next_at: Arc<AtomicU64>,
}

impl PriorityCap {
    /// Returns whether a piece of priority work passes, if the cap is `rate_cps` pieces a second,
    /// above zero. A piece that passes counts against the cap.
    pub(crate) fn passes(&self, now: Timestamp, rate_cps: f64) -> bool {
        let step = 1e9 / rate_cps;
        let burst = rate_cps.ceil().max(1.0);
        let [step, tolerance] = [step, (burst - 1.0) * step].map(|ns| ns.round() as u64);
        let now = now.as_nanos();
        let next = |next_at: u64| {
            (next_at <= now.saturating_add(tolerance))
                .then(|| next_at.max(now).saturating_add(step))
        };
        self.next_at.fetch_update(Relaxed, Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(cap: &PriorityCap, ms: u64, rate_cps: f64) -> usize {
        let now = Timestamp::from_nanos(ms * 1_000_000);
        (0..100).take_while(|_| cap.passes(now, rate_cps)).count()
    }

    #[test]
    fn the_pieces_of_a_second_may_come_at_once() {
        let cap = PriorityCap::default();
        let counts = [0, 99, 100, 350, 60_000].map(|ms| passed(&cap, ms, 10.0));
        assert_eq!(counts, [10, 0, 1, 2, 10]);
        let slow = PriorityCap::default();
        assert_eq!([0, 1999, 2000].map(|ms| passed(&slow, ms, 0.5)), [1, 0, 1]);
        // The burst is a whole number.
        let cap = PriorityCap::default();
        assert_eq!([0, 399, 400].map(|ms| passed(&cap, ms, 2.5)), [3, 0, 1]);
    }
}
