//! The parameters for learning a rate limit, and the counts from which the laws compute it.

use std::time::Duration;

use tidegate_world::unit_enum;

/// A rate counts as used if the back end gets at least this fraction of it.
const USED: f64 = 0.9;

/// Minimum number of requests in an interval.
const ENOUGH: u64 = 10;
/// Maximum time for which an interval waits for [`ENOUGH`] requests.
const PATIENCE: Duration = Duration::from_secs(2);

unit_enum! {
    /// A law that computes the rate of a back end. The configuration uses these names. The default
    /// law is the first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum RateLaw {
        /// Additive increase, multiplicative decrease (`aimd.rs`).
        #[default]
        Aimd = "aimd",
        /// The rate is a multiple of the accepted requests (`sre.rs`).
        Sre = "sre",
    }
}

/// Parameters for learning the rate of a back end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLearning {
    /// The law that computes the rate.
    pub law: RateLaw,
    /// Time between two changes of the rate. It is longer if fewer than ten requests arrive.
    pub interval: Duration,
    /// Growth of the rate in a second, as a share of the rate. Only [`RateLaw::Aimd`] uses it.
    pub increase: f64,
    /// The rate after a decrease, as a share of the accepted rate. Only [`RateLaw::Aimd`] uses it.
    pub decrease: f64,
    /// Minimum of the learned rate, in requests a second.
    pub rate_min_cps: f64,
}

impl Default for RateLearning {
    fn default() -> Self {
        Self {
            law: RateLaw::default(),
            interval: Duration::from_millis(200),
            increase: 0.05,
            decrease: 0.95,
            rate_min_cps: 1.0,
        }
    }
}

/// The counts of one interval, from which a law computes the next rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    /// Time during which requests arrived.
    pub(crate) lasted: Duration,
    /// Requests that the back end got.
    pub(crate) given: u64,
    /// Requests that the back end rejected.
    pub(crate) rejected: u64,
    /// True if the rate limit held requests back.
    pub(crate) wanted: bool,
}

impl Interval {
    /// Returns the requests a second that the back end got.
    pub(super) fn given_cps(&self) -> f64 {
        self.given as f64 / self.lasted.as_secs_f64()
    }

    /// Returns whether the back end got nearly as many requests as `rate` allows, or the rate limit
    /// held requests back.
    pub(super) fn uses(&self, rate: f64) -> bool {
        self.wanted || self.given_cps() >= USED * rate
    }
}

impl RateLearning {
    /// Returns whether an interval of this length with this many requests is complete.
    pub(crate) fn is_over(&self, lasted: Duration, given: u64) -> bool {
        lasted >= self.interval && (given >= ENOUGH || lasted >= PATIENCE)
    }
}
