//! Limits the rate of requests: the leaky bucket with priorities of RFC 7415 §3.5.
//!
//! Requests of the first category pass up to TAU1, others up to TAU2 = 2·TAU1. The bucket itself is
//! the [leaky bucket](LeakyBucket) of the throttles. This file adds the tolerances and the
//! randomness.
//!
//! If the server asks for another rate, the content of the bucket is scaled, so that it stands for
//! as many requests as before. In the RFC the content keeps its seconds. Then the ACKs that were
//! sent while the rate was one request a second could fill the bucket with eleven seconds. In this
//! time no request would pass, however high the new rate is. The content is scaled after a fall of
//! the rate too. Otherwise each rise and fall would free a part of the bucket, and more requests
//! would pass than the larger rate allows.

use tidegate_world::{Stream, Timestamp};

use super::Category;
use crate::throttle::LeakyBucket;

/// TAU0, TAU1 and TAU2 in multiples of T.
// RFC 7415 §3.5.2: "Reasonable values for TAU0, TAU1, and TAU2 are: TAU0 = 0, TAU1 = 1/2 * TAU2, and
// TAU2 = 10 * T."
const TAU0: f64 = 0.0;
const TAU1: f64 = 5.0;
const TAU2: f64 = 10.0;

/// The state of the `rate` algorithm towards one server.
#[derive(Debug)]
pub(super) struct Rate {
    bucket: LeakyBucket,
    stream: Stream,
    /// The rate in requests a second that applied to the last request.
    rate: u32,
}

impl Rate {
    pub(super) fn new(stream: Stream) -> Self {
        Self { bucket: LeakyBucket::new(1), stream, rate: 0 }
    }

    /// Starts to limit requests to `rate` a second.
    // RFC 7415 §3.5.3: "This randomization should also be done when control is activated, i.e.,
    // instead of simply initializing the leaky bucket counter to TAU0, initialize it to TAU0 + uT".
    // There u is from -1/2 to +1/2.
    pub(super) fn activate(&mut self, now: Timestamp, rate: u32) {
        let spread = self.stream.unit() - 0.5;
        self.bucket.start(now, (TAU0 + spread) / f64::from(rate.max(1)));
        self.rate = rate;
    }

    /// Returns whether fewer requests are sent than `rate` requests a second.
    // RFC 7415 §3.4: the rate is an upper bound, so it does not say that the server is overloaded.
    pub(super) fn has_room(&self, now: Timestamp, rate: u32) -> bool {
        rate > 0 && self.bucket.is_empty(now)
    }

    /// Returns whether a request may be sent at `rate` requests a second.
    pub(super) fn passes(&mut self, now: Timestamp, rate: u32, category: Category) -> bool {
        // RFC 7415 §3.5.1: "when the "oc" parameter is 0 with a non-zero "oc-validity", then the
        // client should reject 100% of SIP requests destined to the overload server."
        if rate == 0 {
            return category == Category::Required;
        }
        let before = std::mem::replace(&mut self.rate, rate);
        if rate != before && before > 0 {
            self.bucket.scale(now, f64::from(before) / f64::from(rate));
        }
        let tolerance = if category.is_reducible() { TAU1 } else { TAU2 };
        let stream = &mut self.stream;
        let passes =
            self.bucket.passes_within(now, f64::from(rate), tolerance, || stream.unit() - 0.5);
        // A full bucket takes no more content, so ACKs and CANCELs pass without being counted.
        passes || category == Category::Required
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_world::{Purpose, Seed};

    use super::*;

    #[test]
    fn a_bucket_that_was_filled_at_a_low_rate_does_not_block_a_high_one() {
        let mut rate = Rate::new(Seed(1).stream(Purpose::Restriction, 0));
        let at = |ms: u64| Timestamp::ZERO + Duration::from_millis(ms);
        rate.activate(at(0), 1);
        for ms in 0..60 {
            assert!(rate.passes(at(ms), 1, Category::Required));
        }
        assert!(!rate.passes(at(60), 1, Category::Session));
        let passed = (60..2060).filter(|&ms| rate.passes(at(ms), 100, Category::Session)).count();
        assert!((190..=200).contains(&passed), "{passed} of 100 a second in two seconds");
        // When the rate falls, the earlier content leaks at the new rate.
        let passed = (2060..7060).filter(|&ms| rate.passes(at(ms), 2, Category::Session)).count();
        assert!((9..=11).contains(&passed), "{passed} of 2 a second in five seconds");
    }

    // RFC 7415 §3.5.1: "upper bound of 1/T messages per second".
    #[test]
    fn a_changing_rate_lets_its_mean_pass() {
        for (low, high, every_ms) in [(10, 20, 100), (20, 40, 200), (45, 55, 100)] {
            let mut rate = Rate::new(Seed(1).stream(Purpose::Restriction, 0));
            let at = |ms: u64| Timestamp::ZERO + Duration::from_millis(ms);
            rate.activate(at(0), low);
            let passed = (0..20_000_u64).filter(|ms| {
                let now = if ms / every_ms % 2 == 0 { low } else { high };
                rate.passes(at(*ms), now, Category::Session)
            });
            let passed_rps = passed.count() as f64 / 20.0;
            let mean_rps = f64::from(low + high) / 2.0;
            assert!((passed_rps / mean_rps - 1.0).abs() < 0.05, "{passed_rps} of {mean_rps}");
        }
    }
}
