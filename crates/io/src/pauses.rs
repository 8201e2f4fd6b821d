//! Pauses that gather several datagrams per wake.
//!
//! Waking a thread costs more than receiving a datagram. At 12,000 datagrams a second, a shard that
//! sleeps until the next datagram wakes nearly 12,000 times a second. A shard that pauses for
//! 500 µs wakes once for six datagrams. At 3,000 datagrams a second, which are 500 calls, pauses
//! would save no wakes. The messages of a call come in clusters, and a cluster causes only one wake
//! even without a pause. A pause that ends between two clusters causes a useless wake. So a pause
//! is taken only if at least [`WORTH`] datagrams are expected in it at the recent rate. After a
//! pause without datagrams, a shard waits for the next datagram and takes no second pause.
//!
//! A pause is as long as [`ENOUGH`] datagrams take to arrive, and at most as long as the budget
//! ([`Limits::coalesce`](crate::Limits::coalesce)). So the more messages arrive, the less they are
//! delayed. A datagram waits half a pause on average. During the set-up of a call, its INVITE and
//! its 200 wait once each. So pauses add at most the budget to the median set-up delay.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Number of datagrams that must be expected to arrive in a pause. Otherwise no pause is taken.
const WORTH: f64 = 4.0;

/// Number of datagrams beyond which a longer pause gains little, because the cost of the wake is
/// then divided among many datagrams.
const ENOUGH: f64 = 16.0;

/// Time constant of the measured rate of datagrams, in seconds. It is short compared with any
/// change that a person would notice, and long compared with the gaps between datagrams at rates at
/// which pauses are useful.
const MEMORY: f64 = 0.01;

/// A policy for the pauses of a shard: an exponentially weighted rate of datagrams, and two
/// thresholds for it.
#[derive(Clone, Debug)]
pub struct Pauses {
    budget: Duration,
    rate_per_s: f64,
    since: Timestamp,
    found_some: bool,
}

impl Pauses {
    /// Creates a policy with pauses of at most `budget`. A budget of zero means no pauses.
    pub fn new(budget: Duration, now: Timestamp) -> Self {
        Self { budget, rate_per_s: 0.0, since: now, found_some: false }
    }

    /// Records the number of datagrams that were received since the last call of this function, up
    /// to `now`.
    #[inline]
    pub fn on_received(&mut self, now: Timestamp, datagrams: usize) {
        let passed = now.since(self.since).as_secs_f64();
        self.since = now;
        self.found_some = datagrams > 0;
        // The mean of the old rate with the weight `MEMORY`, and of the new rate with the weight
        // `passed`.
        self.rate_per_s = (self.rate_per_s * MEMORY + datagrams as f64) / (MEMORY + passed);
    }

    /// Returns the length of the pause before the next datagrams are received. Returns `None` if
    /// the shard should wait for the next datagram instead.
    #[inline]
    pub fn pause(&self) -> Option<Duration> {
        let expected = self.rate_per_s * self.budget.as_secs_f64();
        if !self.found_some || expected < WORTH {
            return None;
        }
        Some(self.budget.mul_f64((ENOUGH / expected).min(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_world::{Purpose, Seed};

    const BUDGET: Duration = Duration::from_micros(500);

    /// Returns the number of pauses, and the number of wakes without a pause, of a shard with
    /// Poisson arrivals at this rate.
    fn wakes(rate: f64, seconds: f64) -> (u32, u32) {
        let mut gaps = Seed(5).stream(Purpose::Arrivals, 0);
        let mut pauses = Pauses::new(BUDGET, Timestamp::ZERO);
        let mut next = gaps.exponential(1.0 / rate);
        let mut now = 0.0;
        let (mut paused, mut woken) = (0, 0);
        while now < seconds {
            match pauses.pause() {
                Some(pause) => {
                    paused += 1;
                    now += pause.as_secs_f64();
                }
                None => {
                    woken += 1;
                    now = next;
                }
            }
            let mut received = 0;
            while next <= now {
                received += 1;
                next += gaps.exponential(1.0 / rate);
            }
            pauses.on_received(Timestamp::from_nanos((now * 1e9) as u64), received);
        }
        (paused, woken)
    }

    #[test]
    fn a_low_rate_is_never_delayed() {
        for rate in [10.0, 500.0, 1_500.0, 3_000.0] {
            assert_eq!(wakes(rate, 20.0).0, 0, "at {rate}/s");
        }
    }

    #[test]
    fn at_a_high_rate_pauses_gather_datagrams() {
        let (paused, woken) = wakes(12_000.0, 2.0);
        // 4,000 pauses of 500 µs fill the two seconds, except for the first 2 ms, in which
        // the rate is learnt.
        assert!((3_800..=4_000).contains(&paused) && woken < 200, "{paused} pauses, {woken} wakes");
    }

    #[test]
    fn a_higher_rate_is_delayed_less() {
        let (paused, woken) = wakes(64_000.0, 2.0);
        // A pause for 16 datagrams is 250 µs long.
        assert!((7_600..=8_400).contains(&paused) && woken < 200, "{paused} pauses, {woken} wakes");
    }

    #[test]
    fn when_datagrams_cease_one_pause_is_wasted() {
        let mut pauses = Pauses::new(BUDGET, Timestamp::ZERO);
        let mut now = Timestamp::ZERO;
        for _ in 0..1000 {
            now = now + BUDGET;
            pauses.on_received(now, 12);
        }
        assert_eq!(pauses.pause(), Some(BUDGET));
        pauses.on_received(now + BUDGET, 0);
        assert_eq!(pauses.pause(), None);
    }

    #[test]
    fn without_a_budget_there_is_no_pause() {
        let mut pauses = Pauses::new(Duration::ZERO, Timestamp::ZERO);
        pauses.on_received(Timestamp::from_nanos(1), 1_000_000);
        assert_eq!(pauses.pause(), None);
    }
}
