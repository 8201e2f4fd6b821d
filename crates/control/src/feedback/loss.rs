//! Holds back a percentage of the requests (RFC 7339 §7.2).
//!
//! There are two categories of requests. The second is reduced only when nothing is left of the
//! first. The percentage applies to all requests, so a small first category is reduced by a larger
//! part. The first category's part of the requests is measured every 5 s. Before the first
//! measurement it is taken as 80 %.
//!
//! The reference algorithm draws a number for each request. Here the requests that pass are evenly
//! spread, and each client starts at a random position. This sends the same number of requests with
//! less deviation.

use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use super::Category;
use crate::throttle::Deterministic;

/// Time between two measurements of the mix of requests.
// RFC 7339 §7.2: "Periodically (every 5-10 seconds), get the value of the counters".
const PERIOD: Duration = Duration::from_secs(5);

/// Minimum number of requests from which a mix is computed.
const ENOUGH: u64 = 20;

/// The first category's part of the requests, until it is known.
const REDUCIBLE_AT_FIRST: f64 = 0.8;

/// The state of one server.
// RFC 7339 §4.2: "A SIP client MUST support the loss-based overload control scheme". §5.5: "this local
// policy SHOULD transmit the same number of SIP requests as the sample algorithm defined by the overload
// control scheme being used."
#[derive(Debug)]
pub(super) struct Loss {
    /// The first category's part of the requests, 0 to 1.
    reducible: f64,
    counted_since: Timestamp,
    /// Requests of the first category, and requests of both.
    counted: [u64; 2],
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
            reducible: REDUCIBLE_AT_FIRST,
            counted_since: Timestamp::ZERO,
            counted: [0; 2],
            throttles,
        }
    }

    /// Counts a request to be sent, whether the server is overloaded or not.
    pub(super) fn count(&mut self, now: Timestamp, category: Category) {
        self.counted[0] += u64::from(category.is_reducible());
        self.counted[1] += 1;
        if now.since(self.counted_since) >= PERIOD && self.counted[1] >= ENOUGH {
            self.reducible = self.counted[0] as f64 / self.counted[1] as f64;
            (self.counted_since, self.counted) = (now, [0; 2]);
        }
    }

    /// Returns whether a request passes, when `percent` of all requests must be held back.
    pub(super) fn passes(&mut self, percent: u32, category: Category) -> bool {
        let loss = f64::from(percent.min(100)) / 100.0;
        let [first, second] = if loss <= self.reducible {
            // Without a first category there is nothing to hold back.
            [if loss > 0.0 { loss / self.reducible } else { 0.0 }, 0.0]
        } else {
            [1.0, (loss - self.reducible) / (1.0 - self.reducible)]
        };
        let (index, held) = if category.is_reducible() { (0, first) } else { (1, second) };
        category == Category::Required || self.throttles[index].passes(1.0 - held)
    }
}
