//! A rate limit that is a multiple of the accepted requests (client-side throttling).
//!
//! # Signal
//!
//! The requests that the back end got, and those of them that it accepted, in about the last
//! [`HISTORY_S`] seconds. A rejection counts under the same conditions as with
//! [`aimd`](super::aimd).
//!
//! # Decision
//!
//! By the published rule, a client rejects a request with the probability
//!
//! ```text
//! p = max(0, (requests − K·accepts)/(requests + 1)),   K = 2
//! ```
//!
//! where `requests` includes the requests that the client rejects itself. Then (1 − p)·requests
//! reach the back end: K·accepts, to within one request. So this law sets the rate to K·accepts a
//! second, as soon as the back end got more than that in the history and in the last interval. The
//! rate limit needs no count of Tidegate's own rejections, and no random number.
//!
//! Recovery: while the back end accepts everything, the accepted requests increase by at most the
//! factor K in [`HISTORY_S`] seconds, and so does the rate. After an interval that does not use the
//! rate there is no limit any more. Cold start: no limit.
//!
//! # Bias
//!
//! With K = 2, up to half of the requests that the back end gets are requests that it rejects. If a
//! rejection costs the back end much, its goodput falls. The published rule assumes that rejections
//! are cheap. K must be above 1, because otherwise the rate could not grow.
//!
//! # Source
//!
//! Beyer et al.: Site Reliability Engineering, 2016, chapter 21, "Client-Side Throttling", with a
//! history of 30 s as in gRPC (`balancer/rls/internal/adaptive`) instead of two minutes.

use super::rate_learning::{Interval, RateLearning};

/// Maximum number of requests that the back end gets for each request that it accepts.
const K: f64 = 2.0;
/// Time constant with which the counts decay, in seconds.
const HISTORY_S: f64 = 30.0;

/// The learned rate, and the counts from which it is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sre {
    /// Rate in requests a second, or infinity while there is no limit.
    pub(crate) rate: f64,
    /// Requests that the back end got. Older requests count less.
    given: f64,
    /// Requests that the back end accepted. Older requests count less.
    accepted: f64,
    /// Seconds in which the requests were sent. Older seconds count less.
    seconds: f64,
}

impl Sre {
    pub(crate) const COLD: Self =
        Self { rate: f64::INFINITY, given: 0.0, accepted: 0.0, seconds: 0.0 };

    /// Returns the rate after `interval`, at most `cps_max`.
    pub(crate) fn step(
        mut self,
        learning: &RateLearning,
        interval: &Interval,
        cps_max: f64,
    ) -> Self {
        let lasted_s = interval.lasted.as_secs_f64();
        let kept = (-lasted_s / HISTORY_S).exp();
        let (given, rejected) = (interval.given as f64, interval.rejected as f64);
        self.given = kept * self.given + given;
        // A rejection may arrive in a later interval than its request.
        self.accepted = (kept * self.accepted + given - rejected).max(0.0);
        self.seconds = kept * self.seconds + lasted_s;
        let rate = K * self.accepted / self.seconds;
        let is_limited = if self.rate.is_infinite() {
            self.given > K * self.accepted && interval.given_cps() > rate
        } else {
            interval.uses(self.rate)
        };
        self.rate =
            if is_limited { rate.max(learning.rate_min_cps).min(cps_max) } else { f64::INFINITY };
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NONE: f64 = f64::INFINITY;

    /// Gives the law intervals of 200 ms with these counts, for some seconds.
    fn run(mut law: Sre, seconds: u32, given: u64, rejected: u64) -> Sre {
        for _ in 0..5 * seconds {
            let lasted = Duration::from_millis(200);
            let interval = Interval { lasted, given, rejected, wanted: false };
            law = law.step(&RateLearning::default(), &interval, NONE);
        }
        law
    }

    #[test]
    fn there_is_no_limit_until_more_than_half_of_the_requests_are_rejected() {
        assert_eq!(run(Sre::COLD, 60, 40, 19).rate, NONE);
        // 200 requests a second, of which 95 are accepted.
        assert!((run(Sre::COLD, 60, 40, 21).rate - 190.0).abs() < 1e-6);
        assert_eq!(run(Sre::COLD, 60, 40, 40).rate, 1.0, "the minimum");
    }

    #[test]
    fn it_remembers_the_requests_of_the_history() {
        let law = run(Sre::COLD, 300, 40, 0);
        // Half of the counts are from the last 30 s · ln 2 = 20.8 s.
        assert_eq!(run(law, 20, 40, 40).rate, NONE);
        let limited = run(law, 21, 40, 40);
        assert!((190.0..200.0).contains(&limited.rate), "{limited:?}");
        // While the back end accepts what it gets, the rate grows.
        let grown = run(limited, 10, 39, 0);
        assert!(grown.rate > 1.2 * limited.rate || grown.rate == NONE, "{grown:?}");
    }

    #[test]
    fn an_unused_rate_is_no_limit() {
        let law = run(Sre::COLD, 60, 40, 21);
        assert_eq!(run(law, 1, 30, 15).rate, NONE);
    }
}
