//! A quota of processor time, as the kernel gives it to a control group (`cpu.max`).
//!
//! A group may use its *runtime* in each period. If it has used more, it is throttled until the
//! runtime of later periods has paid for the excess. Linux notices an excess only when it updates
//! the account of a running thread: at a tick of its clock, or when the thread goes to sleep. So a
//! busy thread runs past its quota until the next tick, and then waits until later periods have
//! paid for the excess. With a runtime of 1 ms in 5 ms and ticks of 4 ms, it runs for 4 ms and then
//! waits for 16 ms.

use std::time::Duration;

use tidegate_world::Timestamp;

/// A quota of processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Length of a period, above 0.
    pub period: Duration,
    /// Processor time in each period, above 0 and at most the period.
    pub runtime: Duration,
    /// Time between two ticks of the kernel's clock. A running thread is throttled at a tick. If
    /// this is 0, the thread is throttled as soon as its runtime is used up.
    pub tick: Duration,
}

/// The processor time that a group may still use under its quota. Periods and ticks begin at time
/// 0.
#[derive(Debug)]
pub(super) struct Account {
    period_ns: u64,
    runtime_ns: i64,
    tick_ns: u64,
    /// Runtime that the group may still use, in nanoseconds. It is negative if the group ran past
    /// its quota.
    left_ns: i64,
    /// Number of the latest period that has added its runtime to `left_ns`.
    period: u64,
    /// Time at which the last work is complete, in nanoseconds. It may lie in the future.
    free_ns: u64,
}

impl Account {
    /// Creates an account to which the runtime of one period has been added.
    ///
    /// # Panics
    /// Panics if the runtime is 0 or longer than the period.
    pub(super) fn new(quota: Quota) -> Self {
        let Quota { period, runtime, tick } = quota;
        assert!(!runtime.is_zero() && runtime <= period, "a quota of {runtime:?} in {period:?}");
        let [period_ns, runtime_ns, tick_ns] = [period, runtime, tick].map(nanos);
        let runtime_ns = runtime_ns.cast_signed();
        Self { period_ns, runtime_ns, tick_ns, left_ns: runtime_ns, period: 0, free_ns: 0 }
    }

    /// Returns the completion time of work that begins at `begins` and takes `work` of processor
    /// time. `begins` must not be before the completion of the previous work.
    pub(super) fn completion(&mut self, begins: Timestamp, work: Duration) -> Timestamp {
        let mut at = begins.as_nanos();
        let mut rest = nanos(work);
        self.refill(at);
        // A thread that wakes is throttled at once if it used too much before it went to sleep.
        if at > self.free_ns && self.left_ns <= 0 {
            at = self.release();
        }
        while rest > 0 {
            let next_period = (self.period + 1).saturating_mul(self.period_ns);
            let throttled_at = self.throttled_at(at);
            let until = at.saturating_add(rest).min(throttled_at).min(next_period);
            rest -= until - at;
            self.left_ns = self.left_ns.saturating_sub_unsigned(until - at);
            at = until;
            if at == next_period {
                self.refill(at);
            } else if at == throttled_at && rest > 0 {
                at = self.release();
            }
        }
        self.free_ns = at;
        Timestamp::from_nanos(at)
    }

    /// Returns the time in nanoseconds at which a thread that runs from `at` on is throttled.
    fn throttled_at(&self, at: u64) -> u64 {
        let used_up = at.saturating_add_signed(self.left_ns.max(0));
        if self.tick_ns == 0 {
            used_up
        } else {
            used_up.div_ceil(self.tick_ns).saturating_mul(self.tick_ns)
        }
    }

    /// Adds the runtime of future periods until `left_ns` is above 0 again. Returns the start of
    /// the last of these periods, in nanoseconds.
    fn release(&mut self) -> u64 {
        let owed = self.left_ns.unsigned_abs();
        let periods = owed / self.runtime_ns.unsigned_abs() + 1;
        let at = self.period.saturating_add(periods).saturating_mul(self.period_ns);
        self.refill(at);
        at
    }

    /// Adds the runtime of the periods that have begun by `at`. Unused runtime is lost.
    fn refill(&mut self, at: u64) {
        let period = at / self.period_ns;
        let begun = i64::try_from(period.saturating_sub(self.period)).unwrap_or(i64::MAX);
        let added = self.runtime_ns.saturating_mul(begun);
        self.left_ns = self.left_ns.saturating_add(added).min(self.runtime_ns);
        self.period = self.period.max(period);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(i64::MAX.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the completion, in ms, of each piece of work with its start and its length in ms.
    fn completions<const N: usize>(quota: [u32; 3], work: [(u32, u32); N]) -> [u32; N] {
        let mut account = account(quota);
        work.map(|(begins, work)| {
            let done = account.completion(Timestamp::ZERO + begins * MS, work * MS);
            u32::try_from(done.as_nanos() / 1_000_000).unwrap()
        })
    }

    fn account(quota: [u32; 3]) -> Account {
        let [period, runtime, tick] = quota.map(|ms| ms * MS);
        Account::new(Quota { period, runtime, tick })
    }

    #[test]
    fn work_beyond_the_quota_waits_for_the_next_period() {
        // The first piece of work uses up the quota, and the second one waits. When the last one
        // begins, 9 ms are left, so 11 ms of it wait for the next period.
        let work = [(0, 20), (20, 1), (101, 10), (150, 20)];
        assert_eq!(completions([100, 20, 0], work), [20, 101, 111, 211]);
        assert_eq!(completions([100, 20, 4], work), [20, 101, 111, 210]);
    }

    #[test]
    fn a_period_that_begins_during_work_adds_its_runtime() {
        // The work gets 10 ms in the first period, 20 ms in the second, and 10 ms in the third.
        assert_eq!(completions([100, 20, 0], [(90, 40)]), [210]);
    }

    #[test]
    fn a_thread_that_is_throttled_at_ticks_owes_what_it_used_beyond_its_quota() {
        // The thread runs from 0 to 4 ms, and the periods that begin at 5, 10 and 15 ms pay for the
        // excess. It runs again from 20 to 24 ms, and then from 40 ms on.
        assert_eq!(completions([5, 1, 4], [(0, 9)]), [41]);
        // Without ticks, the thread runs for 1 ms of each period.
        assert_eq!(completions([5, 1, 0], [(0, 3)]), [11]);
    }

    #[test]
    fn a_thread_beyond_its_quota_runs_until_the_tick_but_does_not_wake() {
        assert_eq!(completions([5, 1, 4], [(0, 2), (2, 1)]), [2, 3]);
        // At 3 ms the thread owes 1 ms. The period from 5 ms on pays for this, so the thread runs
        // again from 10 ms on.
        assert_eq!(completions([5, 1, 4], [(0, 2), (3, 1)]), [2, 11]);
    }

    #[test]
    fn over_a_long_time_a_group_gets_its_quota() {
        for tick in [0, 1, 4, 10] {
            let done = account([5, 1, tick]).completion(Timestamp::ZERO, 2000 * MS);
            let seconds = done.as_nanos() as f64 / 1e9;
            assert!((seconds - 10.0).abs() < 0.06, "{tick} ms: {seconds}");
        }
    }

    #[test]
    #[should_panic(expected = "a quota of 0ns")]
    fn a_quota_of_zero_is_a_bug() {
        account([5, 0, 0]);
    }
}
