//! Lets a thread run only for a part of each period, like a quota of the kernel.
//!
//! Packets accumulate during the pauses of the thread. So it reads them in batches, like a server
//! at its capacity. During the pauses, the generator can use the processor.

use std::thread;
use std::time::{Duration, Instant};

/// The length of a period: the same as for the quota of `make show-predict`.
const PERIOD: Duration = Duration::from_millis(5);

/// The part of a period for which the thread may run.
pub(super) const SHARE: f64 = 0.2;

/// The account of the CPU time that a thread has used in the current period.
pub(super) struct Slices {
    began: Instant,
    /// The thread's CPU time at the start of the period, or at the first call within it, in ns.
    from_ns: u64,
}

impl Slices {
    /// Creates the account of a thread whose CPU time is `thread_ns` now.
    pub fn new(thread_ns: u64) -> Self {
        Self { began: Instant::now(), from_ns: thread_ns }
    }

    /// Pauses until the end of the period if the thread has used its share of it. `thread_ns` is
    /// the thread's CPU time now.
    pub fn keep(&mut self, thread_ns: u64) {
        let spent = Duration::from_nanos(thread_ns - self.from_ns);
        if spent < PERIOD.mul_f64(SHARE) {
            return;
        }
        let passed = self.began.elapsed();
        // A thread that used more than its slice for several periods starts the next one afresh,
        // with neither credit nor debt.
        if let Some(left) = PERIOD.checked_sub(passed) {
            thread::sleep(left);
        }
        *self = Self::new(thread_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_within_the_share_of_a_period_is_not_delayed() {
        let mut slices = Slices::new(7);
        let began = slices.began;
        slices.keep(7 + 999_999);
        assert_eq!(slices.began, began, "the period goes on");
        slices.keep(7 + 1_000_000);
        assert!(slices.began >= began + PERIOD, "another began after the pause");
        let began = slices.began;
        slices.keep(7 + 1_000_000 + 999_999);
        assert_eq!(slices.began, began);
    }
}
