//! The token bucket.
//!
//! A bucket with a fixed depth gets `rate` tokens a second. Each piece that passes takes one token.
//! The bucket starts full. At a constant rate the bucket passes the same pieces as a [leaky
//! bucket](super::leaky_bucket) with the same burst: the tokens correspond to the free space in the
//! leaky bucket. The two differ when the rate changes. Tokens are pieces, not seconds. So a higher
//! rate applies at once, and tokens that were saved at a high rate can be spent at a low rate.
//!
//! Source: RFC 2697 §3, one of its two buckets. Paper 002 §2.4 names the token bucket among the
//! throttles.

use tidegate_world::Timestamp;

#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    depth: f64,
    tokens: f64,
    filled: Timestamp,
}

impl TokenBucket {
    pub(crate) fn new(burst: u32) -> Self {
        let depth = f64::from(burst.max(1));
        Self { depth, tokens: depth, filled: Timestamp::ZERO }
    }

    /// Returns whether the bucket is full, as it was at the start.
    pub(crate) fn is_full(&mut self, now: Timestamp, rate: f64) -> bool {
        self.fill(now, rate);
        self.tokens >= self.depth
    }

    /// Returns whether a piece of work passes, if `rate` pieces a second may pass.
    pub(crate) fn passes(&mut self, now: Timestamp, rate: f64) -> bool {
        self.fill(now, rate);
        // In floating point ten times a tenth of a token is less than one.
        let passes = self.tokens >= 1.0 - 1e-9;
        if passes {
            self.tokens -= 1.0;
        }
        passes
    }

    fn fill(&mut self, now: Timestamp, rate: f64) {
        let earned = rate * now.since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + earned).min(self.depth);
        self.filled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    fn burst(bucket: &mut TokenBucket, ms: u64, rate: f64) -> usize {
        (0..20).take_while(|_| bucket.passes(at(ms), rate)).count()
    }

    #[test]
    fn unused_tokens_are_saved_up_to_the_depth() {
        let mut bucket = TokenBucket::new(5);
        assert_eq!(burst(&mut bucket, 0, 10.0), 5, "it begins full");
        assert_eq!(burst(&mut bucket, 100, 10.0), 1);
        assert_eq!(burst(&mut bucket, 450, 10.0), 3);
        assert_eq!(burst(&mut bucket, 500, 10.0), 1, "halves add up");
        assert_eq!(burst(&mut bucket, 60_000, 10.0), 5);
    }

    #[test]
    fn a_new_rate_fills_at_once() {
        let mut bucket = TokenBucket::new(1);
        assert!(bucket.passes(at(0), 1.0));
        assert!(!bucket.passes(at(50), 10.0) && bucket.passes(at(145), 10.0));
    }
}
