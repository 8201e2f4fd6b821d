//! Holds back a percentage of the requests (RFC 7339 §7.2).
//!
//! There are two categories of requests. The second is reduced only when nothing is left of the
//! first. The percentage applies to all requests, so a small first category is reduced by a larger
//! part. Until enough requests have come, the first category is assumed to be 80 % of the requests.
//!
//! The reference algorithm measures the first category's part of the requests every 5 to 10 s. Here
//! each request counts by a weight that fades with its age, as in the receiver's estimate. When an
//! overload begins, the mix changes within a second. Before it, one request in three is an INVITE.
//! At eight times the capacity, eight in ten requests are INVITEs. If a sender that has to hold
//! back 85 % used the part from before the overload, it would send no call at all for seconds.
//!
//! The reference algorithm draws a number for each request. Here the requests that pass are evenly
//! spread, and each client starts at a random position. So on average the same number of requests
//! passes, and this number varies less.

use tidegate_world::{Stream, Timestamp};

use super::Category;
use crate::throttle::Deterministic;

/// Age in seconds at which the weight of a request has fallen to 37 %. It is the same as in the
/// receiver's estimate.
const FADES_S: f64 = 1.0;

/// The weight of the assumed mix, in requests. It fades too.
const ASSUMED: f64 = 5.0;

/// The assumed part of the first category among all requests, until enough requests have come.
const REDUCIBLE_AT_FIRST: f64 = 0.8;

/// The state of the `loss` algorithm towards one server.
// RFC 7339 §4.2: "A SIP client MUST support the loss-based overload control scheme". §5.5: "this local
// policy SHOULD transmit the same number of SIP requests as the sample algorithm defined by the overload
// control scheme being used."
#[derive(Debug)]
pub(super) struct Loss {
    /// Weights of the requests as of the last request: the sum over the first category, and the sum
    /// over both categories.
    weights: [f64; 2],
    counted: Timestamp,
    /// The throttle of each category.
    throttles: [Deterministic; 2],
}

impl Loss {
    pub(super) fn new(stream: &mut Stream) -> Self {
        let mut throttles = [Deterministic::default(), Deterministic::default()];
        for throttle in &mut throttles {
            throttle.start_at(stream.unit());
        }
        Self {
            weights: [ASSUMED * REDUCIBLE_AT_FIRST, ASSUMED],
            counted: Timestamp::ZERO,
            throttles,
        }
    }

    /// Counts a request to be sent, whether the server is overloaded or not.
    pub(super) fn count(&mut self, now: Timestamp, category: Category) {
        // The sum never fades below the weight of the assumed mix, so the quotient stays defined.
        let elapsed_s = now.since(self.counted).as_secs_f64();
        let kept = (-elapsed_s / FADES_S).exp().max((ASSUMED / self.weights[1]).min(1.0));
        let ones = [f64::from(u8::from(category.is_reducible())), 1.0];
        self.weights = [0, 1].map(|index| self.weights[index] * kept + ones[index]);
        self.counted = now;
    }

    /// Returns the first category's part of the requests, 0 to 1.
    fn reducible(&self) -> f64 {
        self.weights[0] / self.weights[1]
    }

    /// Returns whether a request may be sent when `percent` of all requests must be held back.
    pub(super) fn passes(&mut self, percent: u32, category: Category) -> bool {
        let loss = f64::from(percent.min(100)) / 100.0;
        let reducible = self.reducible();
        let [first, second] = if loss <= reducible {
            // Without a first category there is nothing to hold back.
            [if loss > 0.0 { loss / reducible } else { 0.0 }, 0.0]
        } else {
            [1.0, (loss - reducible) / (1.0 - reducible)]
        };
        let (index, held) = if category.is_reducible() { (0, first) } else { (1, second) };
        category == Category::Required || self.throttles[index].passes(1.0 - held)
    }
}
