//! A rate limit learned from rejections (additive increase, multiplicative decrease).
//!
//! - Signal: the requests of an interval that the back end rejected with 503, or left unanswered
//!   while it answered nothing else.
//! - Trigger: one such request lowers the rate. The rate becomes the accepted rate, less a margin
//!   ([`RateLearning::decrease`]). A server with watermarks rejects everything for some time, even
//!   if the excess is small. So the first decrease since the rate was used without rejections
//!   leaves at least four fifths of the rate. Each further decrease leaves at least one half. If
//!   the back end got fewer requests a second than the rate, these are fractions of that number.
//!   Requests sent before a decrease, or within an interval after it, are not evidence about the
//!   new rate. As in TCP, several losses in one window cause only one decrease, and the queue of
//!   the back end needs time to become empty.
//! - Recovery: the rate grows after an interval without rejections in which nine tenths of the rate
//!   were used, or the rate limit held requests back. In each second it grows by the share
//!   [`RateLearning::increase`]. This share doubles after each four seconds ([`DOUBLING_S`]) of
//!   such intervals, so that a rate far below the capacity recovers quickly. An unused rate does
//!   not grow, because the result would be untested when it is needed.
//! - Cold start: no limit until the first rejection. Then the limit is the accepted rate less the
//!   margin, or half of the offered rate if that is more.
//! - Known bias: some requests must be rejected from time to time to find the right rate. If a
//!   server rejects late, or only answers more and more slowly, the rate is learned late. 503s for
//!   several numbers that are not caused by load (a trunk out of service) lower the rate too.
//!
//! Source: Chiu, Jain: Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in
//! Computer Networks, Computer Networks and ISDN Systems 17, 1989, with a decrease by the rejected
//! share. The reason for a rate instead of stopping and resuming: RFC 5390 §5.3, "The Off/On
//! Retry-After Problem".

use super::rate_learning::{Interval, RateLearning};

/// Seconds of use without a rejection after which the growth of the rate doubles.
pub const DOUBLING_S: f64 = 4.0;

/// Maximum growth of the rate in a second, as a fraction of the rate.
const GROWTH_MAX: f64 = 1.0;

/// Minimum factor of the first decrease since the rate last grew. It applies to the rate, or to the
/// requests a second that the back end got, if those were fewer.
const FALL_FIRST: f64 = 0.8;
/// Minimum factor of each further decrease. It applies to the same rate as [`FALL_FIRST`].
const FALL_NEXT: f64 = 0.5;

/// The learned rate, and the time for which it was used without a rejection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aimd {
    /// Rate in requests a second, or infinity before the first rejection.
    pub(crate) rate: f64,
    /// Seconds for which the rate was in use since the last rejection.
    clean_s: f64,
}

impl Aimd {
    pub(crate) const COLD: Self = Self { rate: f64::INFINITY, clean_s: 0.0 };

    /// Returns the state after `interval`. An increase or a decrease makes the rate at most
    /// `cps_max`. The rate stays infinite until the first rejection.
    pub(crate) fn step(self, learning: &RateLearning, interval: &Interval, cps_max: f64) -> Self {
        let lasted_s = interval.lasted.as_secs_f64();
        let given_cps = interval.given_cps();
        if interval.rejected > 0 {
            let given = interval.given.max(interval.rejected);
            let taken = 1.0 - interval.rejected as f64 / given as f64;
            let least = if self.clean_s > 0.0 { FALL_FIRST } else { FALL_NEXT };
            let rate = self.rate.min(given_cps) * (taken * learning.decrease).max(least);
            return Self { rate: rate.max(learning.rate_min_cps).min(cps_max), clean_s: 0.0 };
        }
        if self.rate.is_infinite() || !interval.uses(self.rate) {
            return self;
        }
        let growth = learning.increase * (self.clean_s / DOUBLING_S).exp2();
        let rate = self.rate * (1.0 + growth.min(GROWTH_MAX) * lasted_s);
        Self { rate: rate.min(cps_max), clean_s: self.clean_s + lasted_s }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NONE: f64 = f64::INFINITY;

    fn interval(given: u64, rejected: u64) -> Interval {
        Interval { lasted: Duration::from_millis(200), given, rejected, wanted: false }
    }

    fn at(rate: f64) -> Aimd {
        Aimd { rate, clean_s: 0.0 }
    }

    fn rate(from: Aimd, given: u64, rejected: u64) -> f64 {
        let next = from.step(&RateLearning::default(), &interval(given, rejected), NONE);
        (next.rate * 1e6).round() / 1e6
    }

    #[test]
    fn it_begins_with_the_accepted_rate_at_the_first_rejection() {
        assert_eq!(rate(Aimd::COLD, 40, 0), NONE);
        assert_eq!(rate(Aimd::COLD, 40, 10), 200.0 * 0.75 * 0.95);
        assert_eq!(rate(Aimd::COLD, 40, 40), 100.0, "at least half");
        assert_eq!(rate(Aimd::COLD, 0, 3), 1.0);
    }

    #[test]
    fn it_falls_to_the_accepted_rate_whether_used_or_not() {
        assert_eq!(rate(at(200.0), 40, 4), 200.0 * 0.9 * 0.95);
        assert_eq!(rate(at(200.0), 20, 2), 100.0 * 0.9 * 0.95);
        assert_eq!(rate(at(200.0), 40, 39), 100.0, "at least half");
        let after_a_good_one = Aimd { clean_s: 0.2, ..at(200.0) };
        assert_eq!(rate(after_a_good_one, 40, 39), 160.0, "at least four fifths");
        assert_eq!(rate(at(1.2), 1, 1), 1.0, "no further");
        assert_eq!(rate(at(200.0), 1, 40), 2.5, "more rejections than requests in this interval");
    }

    #[test]
    fn it_grows_while_it_is_used_and_ever_faster() {
        let learning = RateLearning::default();
        assert_eq!(rate(at(100.0), 17, 0), 100.0, "less than nine tenths");
        assert_eq!(rate(at(100.0), 18, 0), 101.0, "0.05 a second, for 0.2 s");
        let wanted = Interval { wanted: true, ..interval(3, 0) };
        assert_eq!(at(100.0).step(&learning, &wanted, NONE).rate.round(), 101.0, "more was wanted");
        let mut aimd = at(1.0);
        let mut seconds = 0.0;
        while aimd.rate < 100.0 {
            let given = (aimd.rate * 0.2).ceil() as u64;
            aimd = aimd.step(&learning, &interval(given, 0), NONE);
            seconds += 0.2;
            assert!(seconds < 60.0, "no faster than at first");
        }
        assert!((16.0..22.0).contains(&seconds), "{seconds}");
        let before = aimd.rate;
        let grown = aimd.step(&learning, &interval(1000, 0), NONE).rate;
        assert!(grown <= before * 1.2 + 1e-9, "at most twice as much a second");
        let fallen = aimd.step(&learning, &interval(1000, 1), NONE);
        assert_eq!(fallen.clean_s, 0.0);
    }

    #[test]
    fn it_stays_within_the_configured_bounds() {
        let step = |from: Aimd, given, rejected| {
            from.step(&RateLearning::default(), &interval(given, rejected), 100.0).rate
        };
        assert_eq!((step(at(99.9), 20, 0), step(Aimd::COLD, 80, 1)), (100.0, 100.0));
    }

    #[test]
    fn with_few_requests_an_interval_is_longer() {
        let learning = RateLearning::default();
        let is_over = |ms, given| learning.is_over(Duration::from_millis(ms), given);
        assert!(is_over(200, 10) && !is_over(199, 1000));
        assert!(!is_over(1999, 9) && is_over(2000, 0));
    }

    #[test]
    fn it_doubles_within_a_second_at_the_fastest() {
        let after_a_minute = Aimd { clean_s: 60.0, ..at(100.0) };
        assert_eq!(rate(after_a_minute, 1000, 0), 120.0, "in a fifth of a second");
    }

    #[test]
    fn configured_limits_learn_nothing() {
        let wanted = Interval { wanted: true, ..interval(20, 0) };
        assert_eq!(Aimd::COLD.step(&RateLearning::default(), &wanted, 100.0).rate, NONE);
    }
}
