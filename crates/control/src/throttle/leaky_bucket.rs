//! The leaky bucket.
//!
//! Each piece that passes pours T = 1/rate seconds into a bucket that leaks one second each second.
//! A piece does not pass if the bucket holds more than TAU. At a constant rate, at most (TAU + T)/T
//! pieces pass at once, and at most this number plus rate·t pass in any time t. The bucket starts
//! empty. When the rate changes, the bucket keeps its content in seconds, but no more than T + TAU
//! at the new rate. Otherwise one piece that passed at a very low rate could block all pieces for
//! minutes, even if the rate has risen. When the rate falls, the same content corresponds to fewer
//! pieces.
//!
//! RFC 7415 §3.5.3 adds or subtracts up to half a T if the bucket is empty, so that many senders to
//! one server do not synchronize. A server has only one bucket, so its throttle does not do this.
//! The buckets that limit the requests to overloaded servers (see [feedback](crate::feedback)) do
//! it, and have a tolerance for each priority.
//!
//! Source: RFC 7415 §3.5.1, which calls TAU = 4·T a reasonable compromise: a burst of 5.

use tidegate_world::Timestamp;

#[derive(Clone, Debug)]
pub(crate) struct LeakyBucket {
    /// TAU of the throttle in multiples of T.
    tolerance: f64,
    /// X: the content in seconds at the time `passed`.
    content_s: f64,
    /// LCT: the time when the last piece passed or the content was last scaled. Shards that share a
    /// bucket have different clocks, but this time never goes back. Otherwise the content would
    /// leak twice for the same time.
    passed: Timestamp,
}

impl LeakyBucket {
    pub(crate) fn new(burst: u32) -> Self {
        let tolerance = f64::from(burst.max(1)) - 1.0;
        Self { tolerance, content_s: 0.0, passed: Timestamp::ZERO }
    }

    /// Sets the content at `now` to `content_s` seconds, which may be below zero.
    pub(crate) fn start(&mut self, now: Timestamp, content_s: f64) {
        (self.content_s, self.passed) = (content_s, now);
    }

    /// Multiplies the content at `now` by `factor`.
    pub(crate) fn scale(&mut self, now: Timestamp, factor: f64) {
        let left_s = self.content_s - now.since(self.passed).as_secs_f64();
        (self.content_s, self.passed) = (left_s * factor, self.passed.max(now));
    }

    /// Returns whether the bucket is empty, which it is if pieces arrive more slowly than the rate
    /// allows.
    pub(crate) fn is_empty(&self, now: Timestamp) -> bool {
        self.content_s <= now.since(self.passed).as_secs_f64()
    }

    /// Returns whether a piece of work passes, if `rate` pieces a second may pass. `rate` is above
    /// zero.
    pub(crate) fn passes(&mut self, now: Timestamp, rate: f64) -> bool {
        // RFC 7415 §3.5.1: "the capacity of the bucket (the upper bound of the counter) is (T +
        // TAU)."
        self.limit(now, (self.tolerance + 1.0) / rate);
        self.passes_within(now, rate, self.tolerance, || 0.0)
    }

    /// Reduces the content at `now` to `capacity_s` seconds if it is more.
    pub(crate) fn limit(&mut self, now: Timestamp, capacity_s: f64) {
        let left_s = self.content_s - now.since(self.passed).as_secs_f64();
        if left_s > capacity_s {
            (self.content_s, self.passed) = (capacity_s, self.passed.max(now));
        }
    }

    /// Returns whether a piece of work passes, if `rate` pieces a second may pass. `rate` is above
    /// zero, and `tolerance` is TAU in multiples of T. If the bucket is empty, the piece adds
    /// `spread` times T more.
    pub(crate) fn passes_within(
        &mut self,
        now: Timestamp,
        rate: f64,
        tolerance: f64,
        spread: impl FnOnce() -> f64,
    ) -> bool {
        let interval_s = 1.0 / rate;
        // RFC 7415 §3.5.1: "X' = X - (ta(k) - LCT)".
        let left_s = self.content_s - now.since(self.passed).as_secs_f64();
        // Four additions of T may exceed 4·T in floating point.
        let passes = left_s <= tolerance * interval_s + 1e-9;
        if passes {
            // RFC 7415 §3.5.3: "if X' > 0, then u = 0".
            let spread = if left_s > 0.0 { 0.0 } else { spread() };
            self.content_s = left_s.max(0.0) + interval_s * (1.0 + spread);
            self.passed = self.passed.max(now);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    #[test]
    fn the_tolerance_of_the_rfc_is_a_burst_of_five() {
        let mut bucket = LeakyBucket::new(5);
        let passed = (0..20).filter(|_| bucket.passes(at(1000), 10.0)).count();
        assert_eq!(passed, 5);
        assert!(!bucket.passes(at(1099), 10.0) && bucket.passes(at(1100), 10.0));
    }

    #[test]
    fn a_time_that_goes_back_does_not_leak_twice() {
        let mut bucket = LeakyBucket::new(2);
        let mut passes = |ms| bucket.passes(at(ms), 100.0);
        assert!(passes(1000) && passes(995));
        assert!(!passes(1005) && passes(1010));
        bucket.scale(at(1005), 1.0);
        assert!(!bucket.passes(at(1019), 100.0) && bucket.passes(at(1020), 100.0));
    }

    #[test]
    fn a_new_rate_finds_the_seconds_of_the_old_up_to_the_capacity() {
        let mut bucket = LeakyBucket::new(5);
        assert!(bucket.passes(at(0), 10.0) && bucket.passes(at(0), 10.0));
        // The content is cut from 0.15 s to 0.1 s. TAU is 0.08 s. A token bucket would be full.
        assert!(!bucket.passes(at(50), 50.0) && !bucket.passes(at(69), 50.0));
        assert!(bucket.passes(at(70), 50.0) && !bucket.passes(at(70), 50.0));
    }

    // RFC 7415 §3.5.1: "the capacity of the bucket (the upper bound of the counter) is (T + TAU)".
    #[test]
    fn rfc7415_3_5_1_a_moment_of_a_very_low_rate_keeps_nothing_out_afterwards() {
        for burst in [1, 5] {
            let mut bucket = LeakyBucket::new(burst);
            let low = (0..200).filter(|&ms| bucket.passes(at(ms), 0.1)).count();
            assert_eq!(low, burst as usize);
            let passed = (200..1200).filter(|&ms| bucket.passes(at(ms), 100.0)).count();
            assert!((99..=100).contains(&passed), "{passed} of 100 in a second");
        }
    }
}
