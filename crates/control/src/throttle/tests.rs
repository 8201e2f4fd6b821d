//! Tests of the properties of all throttles.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_world::{Purpose, Seed};

use super::*;

const BURST: u32 = 5;

fn throttle(kind: ThrottleKind) -> Throttle {
    Throttle::new(kind, BURST, Seed(1).stream(Purpose::Throttle, 0))
}

/// Returns the times of Poisson arrivals.
fn poisson(rate: f64, seconds: f64) -> impl Iterator<Item = Timestamp> {
    let mut stream = Seed(2).stream(Purpose::Arrivals, 0);
    let end = Timestamp::ZERO + Duration::from_secs_f64(seconds);
    let mut now = Timestamp::ZERO;
    std::iter::from_fn(move || {
        now = now + Duration::from_secs_f64(stream.exponential(1.0 / rate));
        (now < end).then_some(now)
    })
}

/// Returns the rate of Poisson arrivals that pass.
fn passed(kind: ThrottleKind, allowance: Allowance, rate: f64) -> f64 {
    let mut throttle = throttle(kind);
    let passed = poisson(rate, 100.0).filter(|&now| throttle.passes(now, allowance, 0)).count();
    passed as f64 / 100.0
}

#[test]
fn a_rate_passes_in_the_long_run() {
    for kind in ThrottleKind::ALL {
        for rate in [20.0, 50.0, 90.0] {
            let expected = match kind {
                ThrottleKind::Gapping => 1.0 / (1.0 / rate + 1.0 / 200.0),
                _ => rate,
            };
            let passed = passed(kind, Allowance::Rate(rate), 200.0);
            assert!((passed / expected - 1.0).abs() < 0.04, "{kind:?}: {passed} of {expected}");
        }
    }
}

#[test]
fn arrivals_below_the_rate_pass_except_within_a_gap() {
    for kind in ThrottleKind::ALL {
        let passed = passed(kind, Allowance::Rate(100.0), 40.0);
        match kind {
            ThrottleKind::Gapping => assert!((passed - 1.0 / 0.035).abs() < 2.0, "{passed}"),
            _ => assert!(passed > 38.0, "{kind:?}: {passed}"),
        }
    }
}

#[test]
fn a_share_passes_in_the_long_run() {
    for kind in ThrottleKind::ALL {
        for fraction in [0.1, 0.5, 0.9] {
            let passed = passed(kind, Allowance::Fraction(fraction), 200.0);
            // Throttles with a bucket hold back bursts that are larger than the bucket allows.
            let tolerance = match kind {
                ThrottleKind::LeakyBucket | ThrottleKind::TokenBucket => 0.08,
                _ => 0.04,
            };
            let expected = 200.0 * fraction;
            assert!((passed / expected - 1.0).abs() < tolerance, "{kind:?} {fraction}: {passed}");
        }
    }
}

#[test]
fn all_throttles_treat_all_or_nothing_alike() {
    for kind in ThrottleKind::ALL {
        for (allowance, share) in [
            (Allowance::Open, 1.0),
            (Allowance::Fraction(1.0), 1.0),
            (Allowance::Window(1.0), 1.0),
            (Allowance::Closed, 0.0),
            (Allowance::Fraction(0.0), 0.0),
            (Allowance::Rate(0.0), 0.0),
            (Allowance::Window(0.5), 0.0),
        ] {
            let count = poisson(200.0, 100.0).count() as f64 / 100.0;
            assert_eq!(passed(kind, allowance, 200.0), share * count, "{kind:?} {allowance:?}");
        }
    }
}

proptest! {
    /// RFC 7415 §3.5.1: at most (T + TAU)/T pieces at once, and 1/T a second.
    #[test]
    fn in_any_time_the_buckets_pass_no_more_than_a_burst_and_the_rate(
        rate in 1.0..500.0f64,
        burst in 1..20u32,
        gaps_us in prop::collection::vec(0..50_000u64, 1..300),
    ) {
        for kind in [ThrottleKind::LeakyBucket, ThrottleKind::TokenBucket, ThrottleKind::Gapping] {
            let burst = if kind == ThrottleKind::Gapping { 1 } else { burst };
            let stream = Seed(1).stream(Purpose::Throttle, 0);
            let mut throttle = Throttle::new(kind, burst, stream);
            let mut now = Timestamp::ZERO;
            let mut passed = Vec::new();
            for &gap in &gaps_us {
                now = now + Duration::from_micros(gap);
                if throttle.passes(now, Allowance::Rate(rate), 0) {
                    passed.push(now);
                }
            }
            for (i, first) in passed.iter().enumerate() {
                for (j, last) in passed.iter().enumerate().skip(i) {
                    let most = f64::from(burst) + rate * last.since(*first).as_secs_f64();
                    prop_assert!((j - i + 1) as f64 <= most + 1e-3, "{:?}", kind);
                }
            }
        }
    }

    #[test]
    fn two_buckets_of_one_burst_pass_the_same_at_a_constant_rate(
        rate in 1.0..500.0f64,
        burst in 1..20u32,
        gaps_us in prop::collection::vec(0..50_000u64, 1..300),
    ) {
        let bucket = |kind| Throttle::new(kind, burst, Seed(1).stream(Purpose::Throttle, 0));
        let mut leaky = bucket(ThrottleKind::LeakyBucket);
        let mut token = bucket(ThrottleKind::TokenBucket);
        let mut now = Timestamp::ZERO;
        for gap in gaps_us {
            now = now + Duration::from_micros(gap);
            let rate = Allowance::Rate(rate);
            prop_assert_eq!(leaky.passes(now, rate, 0), token.passes(now, rate, 0), "{:?}", now);
        }
    }
}
