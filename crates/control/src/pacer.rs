//! Releases waiting work at a limited rate.

use std::time::Duration;

use crate::Release;

/// One piece of work, with a tolerance: in floating point, ten times 0.1 is less than one.
const ONE: f64 = 1.0 - 1e-9;

/// A limit on the rate at which waiting work is released. Credit grows at this rate, and each
/// released piece of work uses one unit of it. If the processor is too slow to use the credit, the
/// credit is limited to one more than the number of waiting pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    credit: f64,
}

impl Pacer {
    /// Adds the credit that the rate of `release` earns in the time `passed`. `waiting` is the
    /// number of pieces of work in the queue.
    pub fn advance(&mut self, release: Release, passed: Duration, waiting: usize) {
        if let Release::Rate(rate) = release {
            let earned = rate.max(0.0) * passed.as_secs_f64();
            // One more than the waiting number, so that the next arrival need not wait for the next
            // tick.
            self.credit = (self.credit + earned).min(waiting as f64 + 1.0);
        }
    }

    /// Returns whether another piece of work may be released now.
    pub fn may_release(&self, release: Release) -> bool {
        release == Release::Open || self.credit >= ONE
    }

    /// Records that a piece of work was released.
    pub(crate) fn on_released(&mut self, release: Release) {
        if release != Release::Open {
            self.credit -= 1.0;
        }
    }

    /// Returns the unused credit, in pieces of work.
    pub fn credit(&self) -> f64 {
        self.credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(20);

    fn released(pacer: &mut Pacer, release: Release) -> u32 {
        let mut count = 0;
        while pacer.may_release(release) && count < 1000 {
            pacer.on_released(release);
            count += 1;
        }
        count
    }

    #[test]
    fn fractions_carry_over_from_tick_to_tick() {
        let mut pacer = Pacer::default();
        let release = Release::Rate(70.0);
        let mut count = 0;
        for _ in 0..50 {
            pacer.advance(release, TICK, 100);
            count += released(&mut pacer, release);
        }
        assert!((69..=70).contains(&count), "{count} in a second");
    }

    #[test]
    fn ten_tenths_are_one() {
        let mut pacer = Pacer::default();
        let release = Release::Rate(5.0);
        for tick in 1..=100 {
            pacer.advance(release, TICK, 100);
            assert_eq!(released(&mut pacer, release), u32::from(tick % 10 == 0), "tick {tick}");
        }
    }

    #[test]
    fn an_empty_queue_accumulates_no_burst() {
        let mut pacer = Pacer::default();
        let release = Release::Rate(1000.0);
        for _ in 0..50 {
            pacer.advance(release, TICK, 0);
        }
        assert_eq!(released(&mut pacer, release), 1);
    }

    #[test]
    fn an_open_release_keeps_no_account() {
        let mut pacer = Pacer::default();
        pacer.advance(Release::Open, TICK, 5);
        assert!(pacer.may_release(Release::Open));
        pacer.on_released(Release::Open);
        assert_eq!(pacer.credit(), 0.0);
        assert!(!pacer.may_release(Release::Rate(5.0)));
    }
}
