//! A rate limit that all shards share in one atomic word: the generic cell rate algorithm.
//!
//! ITU-T I.371 annex A, as virtual scheduling: a request at time t conforms if the theoretical
//! arrival time TAT is no later than t + τ. Then TAT becomes max(t, TAT) + T, with T the time
//! between requests at the rate and τ the tolerance for bursts. Nothing has to be refilled, and no
//! shard waits: if another shard has changed the word, the shard tries again.
//!
//! The tolerance follows from the rate. After a pause, as many requests as the rate allows in
//! [`BURST_S`] seconds may come at once, and at least two. Cold start: the whole burst is
//! available. A change of the rate does not change TAT, so a used part of the burst stays used. If
//! TAT is further ahead than the new rate allows, the next request counts from the current time.
//! The clocks of two shards may differ, so this happens only if TAT is too far ahead by more than
//! [`SKEW_MAX`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::Timestamp;

use super::AtomicF64;

/// Size of a burst, in seconds: a burst contains at most as many requests as the rate allows in
/// this time, but two are always allowed.
pub const BURST_S: f64 = 0.1;

/// Size, in seconds, of the reserve for requests with priority. The reserve adds to the burst as
/// many requests as the rate allows in this time, and at least one.
pub const RESERVE_S: f64 = 1.0;

/// Maximum time by which the clock of one shard may be behind that of another. A shard reads the
/// clock only once in each turn of its loop.
const SKEW_MAX: Duration = Duration::from_millis(100);

/// A rate limit on requests.
#[derive(Debug)]
pub(crate) struct Gcra {
    /// Limit in requests a second, or infinity if there is none.
    rate: AtomicF64,
    /// Theoretical arrival time of the next request, in nanoseconds.
    next_at: AtomicU64,
}

/// The time constants of one rate, in nanoseconds.
#[derive(Clone, Copy)]
struct Times {
    /// T: the time between two requests.
    step: u64,
    /// τ: the tolerance for bursts.
    tolerance: u64,
    /// Maximum time by which the theoretical arrival time may be ahead of the current time of a
    /// shard, when the whole reserve is used.
    ahead_max: u64,
}

impl Default for Gcra {
    fn default() -> Self {
        Self { rate: AtomicF64::new(f64::INFINITY), next_at: AtomicU64::new(0) }
    }
}

impl Gcra {
    pub(crate) fn rate(&self) -> f64 {
        self.rate.get()
    }

    pub(crate) fn set_rate(&self, rate: f64) {
        self.rate.set(rate);
    }

    /// Returns whether the rate limit allows a request at `now`, without counting it. If `reserve`
    /// is true, the request may use the reserve.
    pub(crate) fn conforms(&self, now: Timestamp, reserve: bool) -> bool {
        let Some(times) = Times::of(self.rate(), reserve) else { return true };
        times.next(self.next_at.load(Relaxed), now).is_some()
    }

    /// Returns whether the rate limit allows a request at `now`, and half of the burst is left
    /// after it.
    pub(crate) fn is_spare(&self, now: Timestamp) -> bool {
        let Some(times) = Times::of(self.rate(), false) else { return true };
        let half = Times { tolerance: times.tolerance / 2, ..times };
        half.next(self.next_at.load(Relaxed), now).is_some()
    }

    /// Counts a request if the rate limit allows it. Returns whether the request is allowed.
    pub(crate) fn take(&self, now: Timestamp, reserve: bool) -> bool {
        let Some(times) = Times::of(self.rate(), reserve) else { return true };
        self.next_at.fetch_update(Relaxed, Relaxed, |next_at| times.next(next_at, now)).is_ok()
    }
}

impl Times {
    fn of(rate: f64, reserve: bool) -> Option<Self> {
        if rate.is_infinite() {
            return None;
        }
        let step = 1e9 / rate;
        let at_once = (rate * BURST_S).max(2.0);
        let (burst, kept) = ((at_once - 1.0) * step, (RESERVE_S * 1e9).max(step));
        // The values are rounded before they are added. Otherwise TAT could be further ahead than
        // allowed after the last request.
        let [step, burst, kept] = [step, burst, kept].map(|ns| ns.round() as u64);
        let with_kept = burst.saturating_add(kept);
        Some(Self {
            step,
            tolerance: if reserve { with_kept } else { burst },
            ahead_max: with_kept.saturating_add(step).saturating_add(SKEW_MAX.as_nanos() as u64),
        })
    }

    fn next(self, next_at: u64, now: Timestamp) -> Option<u64> {
        let now = now.as_nanos();
        // TAT is further ahead than this rate allows, so it was computed at a lower rate.
        let next_at = if next_at > now.saturating_add(self.ahead_max) { now } else { next_at };
        (next_at <= now.saturating_add(self.tolerance))
            .then(|| next_at.max(now).saturating_add(self.step))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A number of requests that is larger than any burst in these tests.
    const MANY: usize = 2000;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn of(rate: f64) -> Gcra {
        let gcra = Gcra::default();
        gcra.set_rate(rate);
        gcra
    }

    fn taken(gcra: &Gcra, now: Timestamp, reserve: bool) -> usize {
        (0..MANY).take_while(|_| gcra.take(now, reserve)).count()
    }

    #[test]
    fn a_burst_comes_at_once_and_then_one_request_a_step() {
        let gcra = of(100.0);
        assert_eq!(taken(&gcra, at(5000), false), 10);
        assert!(!gcra.conforms(at(5009), false) && gcra.conforms(at(5010), false));
        assert_eq!([5009, 5010, 5019, 5035].map(|ms| taken(&gcra, at(ms), false)), [0, 1, 0, 2]);
        assert_eq!(taken(&gcra, at(60_000), false), 10, "no more is saved");
        let slow = of(0.5);
        assert_eq!([0, 1999, 2000, 4000].map(|ms| taken(&slow, at(ms), false)), [2, 0, 1, 1]);
    }

    #[test]
    fn room_is_spare_while_half_of_the_burst_is_left() {
        let gcra = of(100.0);
        let spare = (0..MANY).take_while(|_| gcra.is_spare(at(0)) && gcra.take(at(0), false));
        assert_eq!(spare.count(), 5);
        assert!(gcra.conforms(at(0), false));
        assert!(Gcra::default().is_spare(at(0)));
    }

    #[test]
    fn priority_borrows_a_second_that_others_pay_back() {
        let gcra = of(100.0);
        assert_eq!((taken(&gcra, at(0), false), taken(&gcra, at(0), true)), (10, 100));
        assert_eq!((taken(&gcra, at(1000), false), taken(&gcra, at(1009), false)), (0, 0));
        assert_eq!(taken(&gcra, at(1010), false), 1);
        let slow = of(0.1);
        assert_eq!((taken(&slow, at(0), false), taken(&slow, at(0), true)), (2, 1));
    }

    #[test]
    fn without_a_rate_all_conform() {
        let gcra = Gcra::default();
        assert_eq!(taken(&gcra, at(0), false), MANY);
        gcra.set_rate(10.0);
        assert_eq!(taken(&gcra, at(0), false), 2);
        gcra.set_rate(1000.0);
        assert_eq!(taken(&gcra, at(0), false), 0, "as far ahead of its schedule as before");
        assert_eq!(taken(&gcra, at(101), false), 1);
    }

    #[test]
    fn a_rate_that_is_raised_does_not_wait_for_the_debt_of_the_old_one() {
        let gcra = of(0.1);
        assert_eq!((taken(&gcra, at(0), false), taken(&gcra, at(0), true)), (2, 1));
        gcra.set_rate(100.0);
        assert_eq!(taken(&gcra, at(1000), false), 10, "not in half a minute");
    }

    #[test]
    fn the_reserve_is_a_second_to_the_nanosecond() {
        let gcra = of(100.0);
        assert_eq!(taken(&gcra, at(0), true), 110);
        let next = at(10).as_nanos();
        assert!(!gcra.conforms(Timestamp::from_nanos(next - 1), true));
        assert!(gcra.conforms(Timestamp::from_nanos(next), true));
    }

    #[test]
    fn an_exhausted_reserve_is_not_granted_again() {
        // For some of these rates T is not a whole number of nanoseconds.
        for rate in 1..=1500 {
            let gcra = of(rate.into());
            taken(&gcra, at(0), true);
            let Times { tolerance, .. } = Times::of(rate.into(), true).unwrap();
            // TAT is as far ahead of the time as allowed.
            let now = Timestamp::from_nanos(gcra.next_at.load(Relaxed) - tolerance);
            assert_eq!(taken(&gcra, now, true), 1, "at {rate} a second");
        }
    }

    #[test]
    fn a_shard_whose_clock_is_behind_does_not_grant_the_reserve_again() {
        for rate in [0.1, 1.0, 100.0] {
            let gcra = of(rate);
            assert!(taken(&gcra, at(5000), true) > 0);
            for behind_us in [1, 50, 99_000] {
                let now = Timestamp::from_nanos(at(5000).as_nanos() - behind_us * 1000);
                assert_eq!(taken(&gcra, now, true), 0, "{rate} a second, {behind_us} µs");
            }
        }
    }

    proptest! {
        /// The leaky bucket of I.371 annex A is an equivalent description: it drains with time, and
        /// a request that finds it no fuller than τ adds T.
        #[test]
        fn it_is_the_leaky_bucket_of_the_same_rate(
            rate in 1_u32..5000,
            steps in proptest::collection::vec((0_u64..400_000_000, any::<bool>()), 1..400),
        ) {
            let gcra = of(rate.into());
            let times = |reserve| Times::of(rate.into(), reserve).unwrap();
            let (mut now, mut level) = (0_u64, 0_u64);
            for (gap, reserve) in steps {
                // Requests are often close together, and equally often far apart.
                let gap = if gap % 3 == 0 { gap } else { gap % 1_000_000 };
                now += gap;
                level = level.saturating_sub(gap);
                let Times { step, tolerance, .. } = times(reserve);
                let fits = level <= tolerance;
                prop_assert_eq!(gcra.conforms(Timestamp::from_nanos(now), reserve), fits);
                prop_assert_eq!(gcra.take(Timestamp::from_nanos(now), reserve), fits);
                level += if fits { step } else { 0 };
            }
        }
    }
}
