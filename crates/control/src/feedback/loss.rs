//! Holds back a percentage of the requests to a server (RFC 7339 §7.2).
//!
//! New requests without priority are reducible ([`Category::is_reducible`]). Other requests are
//! held back only if holding back all reducible requests is not enough. The percentage applies to
//! all requests. So if there are few reducible requests, a larger part of them is held back. ACKs
//! and CANCELs ([`Category::Required`]) count too, but always pass. So a larger part of the other
//! requests is held back instead. Until enough requests have come, 80 % of them are assumed to be
//! reducible.
//!
//! The reference algorithm of the RFC measures the reducible part of the requests every 5 to 10 s.
//! Here each request counts by a weight that fades with its age, because the mix of requests
//! changes within a second when an overload begins. Before an overload, one request in three is an
//! INVITE. At eight times the capacity, eight in ten requests are INVITEs. If a sender that has to
//! hold back 85 % used the part from before the overload, it would send no call at all for seconds.
//!
//! The reference algorithm draws a random number for each request. Here the requests that pass are
//! evenly spread, and each client starts at a random position. So on average the same number of
//! requests passes, and this number varies less.

use tidegate_world::{Stream, Timestamp};

use super::Category;
use super::rate::REQUIRED_MAX;
use crate::throttle::Deterministic;

/// Age in seconds at which the weight of a request has fallen to 37 %. The receiving server uses
/// the same time for its estimate.
const FADES_S: f64 = 1.0;

/// Weight of the assumed mix ([`REDUCIBLE_AT_FIRST`]) at the start, as a number of requests. The
/// mix fades like real requests.
const ASSUMED: f64 = 5.0;

/// The assumed part of reducible requests ([`Category::is_reducible`]) among all requests, 0 to 1,
/// until enough requests have come.
const REDUCIBLE_AT_FIRST: f64 = 0.8;

/// The state of the `loss` algorithm towards one server.
// RFC 7339 §4.2: "A SIP client MUST support the loss-based overload control scheme". §5.5: "this local
// policy SHOULD transmit the same number of SIP requests as the sample algorithm defined by the overload
// control scheme being used."
#[derive(Debug)]
pub(super) struct Loss {
    /// Three numbers as of the last request: of reducible requests, of requests that always pass,
    /// and of all requests. Older requests count less.
    weights: [f64; 3],
    counted: Timestamp,
    /// The throttle of reducible requests, and the throttle of other requests.
    throttles: [Deterministic; 2],
}

impl Loss {
    pub(super) fn new(stream: &mut Stream) -> Self {
        let mut throttles = [Deterministic::default(), Deterministic::default()];
        for throttle in &mut throttles {
            throttle.start_at(stream.unit());
        }
        Self {
            weights: [ASSUMED * REDUCIBLE_AT_FIRST, 0.0, ASSUMED],
            counted: Timestamp::ZERO,
            throttles,
        }
    }

    /// Counts a request to be sent, whether the server is overloaded or not.
    pub(super) fn count(&mut self, now: Timestamp, category: Category) {
        // The sum never fades below the weight of the assumed mix, so the quotient stays defined.
        let elapsed_s = now.since(self.counted).as_secs_f64();
        let kept = (-elapsed_s / FADES_S).exp().max((ASSUMED / self.weights[2]).min(1.0));
        let is_required = category == Category::Required;
        let ones = [category.is_reducible(), is_required, true].map(|is| f64::from(u8::from(is)));
        self.weights = [0, 1, 2].map(|index| self.weights[index] * kept + ones[index]);
        self.counted = now;
    }

    /// Returns whether a request may be sent when `percent` of all requests must be held back.
    pub(super) fn passes(&mut self, percent: u32, category: Category) -> bool {
        let loss = f64::from(percent.min(100)) / 100.0;
        let [reducible, required, all] = self.weights;
        let (reducible, required) = (reducible / all, required / all);
        let [first, second] = if loss <= reducible {
            // If `reducible` is 0, `loss` is 0 too: avoid the division 0/0.
            [if loss > 0.0 { loss / reducible } else { 0.0 }, 0.0]
        } else {
            // ACKs and CANCELs take at most two thirds of what may be sent, so that a flood of ACKs
            // does not hold back all other requests.
            let (may_pass, others) = (1.0 - loss, 1.0 - reducible - required);
            let left = may_pass - required.min(REQUIRED_MAX * may_pass);
            [1.0, if left < others { 1.0 - left / others } else { 0.0 }]
        };
        let (index, held) = if category.is_reducible() { (0, first) } else { (1, second) };
        category == Category::Required || self.throttles[index].passes(1.0 - held)
    }
}
