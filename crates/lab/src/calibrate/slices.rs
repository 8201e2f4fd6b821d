//! Lets a thread run only for a part of each period, like a CPU quota of the kernel.
//!
//! Packets accumulate during the pauses of the thread, so the thread reads them in batches, like a
//! server at its capacity. During the pauses, the load generator can use the processor. Because the
//! cost of a packet depends on the length of the batches, the pauses are as long as those of a
//! server with the emulated quota.

use std::thread;
use std::time::{Duration, Instant};

use tidegate_emulate::Quota;

/// The CPU time that a thread may use in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    runs: Duration,
    period: Duration,
}

impl Slice {
    /// The slice of a server without a quota. This server must pause too, because the load
    /// generator needs the processor.
    const USUAL: Self = Self { runs: Duration::from_millis(1), period: Duration::from_millis(5) };

    /// Returns the slice of a busy server with this quota, or the usual slice without a quota.
    /// Linux stops a busy server only at a tick of the kernel, so the server runs at least until a
    /// tick. The server then pauses for longer, so that its share of the core stays the same.
    pub fn of(quota: Option<Quota>) -> Self {
        let Some(Quota { period, runtime, tick }) = quota else { return Self::USUAL };
        let runs = runtime.max(tick);
        Self { runs, period: period.mul_f64(runs.div_duration_f64(runtime)) }
    }

    /// Returns the fraction of a core that the thread may use, 0 to 1.
    pub fn share(&self) -> f64 {
        self.runs.div_duration_f64(self.period)
    }

    /// Returns the CPU time of this slice divided by the CPU time of the usual slice.
    pub fn length(&self) -> f64 {
        self.runs.div_duration_f64(Self::USUAL.runs)
    }
}

/// The current period of a thread, and the slice of CPU time that the thread may use in it.
pub(super) struct Slices {
    slice: Slice,
    began: Instant,
    /// The thread's CPU time at the start of the period, in ns.
    from_ns: u64,
}

impl Slices {
    /// Starts the first period of a thread whose CPU time is `thread_ns` now.
    pub fn new(slice: Slice, thread_ns: u64) -> Self {
        Self { slice, began: Instant::now(), from_ns: thread_ns }
    }

    /// If the thread has used its slice, pauses until the end of the period and starts the next
    /// period. `thread_ns` is the thread's CPU time now.
    pub fn keep(&mut self, thread_ns: u64) {
        let spent = Duration::from_nanos(thread_ns - self.from_ns);
        if spent < self.slice.runs {
            return;
        }
        let passed = self.began.elapsed();
        // If the period has ended already, there is no pause. Lost time is not made up.
        if let Some(left) = self.slice.period.checked_sub(passed) {
            thread::sleep(left);
        }
        *self = Self::new(self.slice, thread_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_within_the_share_of_a_period_is_not_delayed() {
        let mut slices = Slices::new(Slice::USUAL, 7);
        let began = slices.began;
        slices.keep(7 + 999_999);
        assert_eq!(slices.began, began, "the period goes on");
        slices.keep(7 + 1_000_000);
        assert!(slices.began >= began + Slice::USUAL.period, "another began after the pause");
        let began = slices.began;
        slices.keep(7 + 1_000_000 + 999_999);
        assert_eq!(slices.began, began);
    }

    #[test]
    fn a_server_with_a_quota_runs_until_a_tick() {
        let ms = Duration::from_millis;
        let quota =
            |runtime, period| Some(Quota { period: ms(period), runtime: ms(runtime), tick: ms(4) });
        assert_eq!(Slice::of(None), Slice::USUAL);
        assert_eq!(Slice::of(quota(1, 5)), Slice { runs: ms(4), period: ms(20) });
        assert_eq!(Slice::of(quota(20, 100)), Slice { runs: ms(20), period: ms(100) });
        assert!((Slice::of(quota(1, 5)).share() - 0.2).abs() < 1e-9);
    }
}
