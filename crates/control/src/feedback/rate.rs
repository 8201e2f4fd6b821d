//! Limits the rate of requests: the leaky bucket with priorities of RFC 7415 §3.5.
//!
//! Requests of the first category pass up to TAU1, others up to TAU2 = 2·TAU1. Only the tolerances
//! and the randomness are here; the bucket is [the throttle's](LeakyBucket).

use tidegate_world::{Stream, Timestamp};

use super::Category;
use crate::throttle::LeakyBucket;

/// TAU0, TAU1 and TAU2 in multiples of T.
// RFC 7415 §3.5.2: "Reasonable values for TAU0, TAU1, and TAU2 are: TAU0 = 0, TAU1 = 1/2 * TAU2, and
// TAU2 = 10 * T."
const TAU0: f64 = 0.0;
const TAU1: f64 = 5.0;
const TAU2: f64 = 10.0;

/// The state of one server.
#[derive(Debug)]
pub(super) struct Rate {
    bucket: LeakyBucket,
    stream: Stream,
}

impl Rate {
    pub(super) fn new(stream: Stream) -> Self {
        Self { bucket: LeakyBucket::new(1), stream }
    }

    /// Starts to limit requests to `rate` a second.
    // RFC 7415 §3.5.3: "This randomization should also be done when control is activated, i.e.,
    // instead of simply initializing the leaky bucket counter to TAU0, initialize it to TAU0 + uT".
    // There u is from -1/2 to +1/2.
    pub(super) fn activate(&mut self, now: Timestamp, rate: u32) {
        let spread = self.stream.unit() - 0.5;
        self.bucket.start(now, (TAU0 + spread) / f64::from(rate.max(1)));
    }

    /// Returns whether a request passes at `rate` requests a second.
    pub(super) fn passes(&mut self, now: Timestamp, rate: u32, category: Category) -> bool {
        // RFC 7415 §3.5.1: "when the "oc" parameter is 0 with a non-zero "oc-validity", then the
        // client should reject 100% of SIP requests destined to the overload server."
        if rate == 0 {
            return category == Category::Required;
        }
        let tolerance = if category.is_reducible() { TAU1 } else { TAU2 };
        let stream = &mut self.stream;
        let passes =
            self.bucket.passes_within(now, f64::from(rate), tolerance, || stream.unit() - 0.5);
        // Nothing is poured into a full bucket.
        passes || category == Category::Required
    }
}
