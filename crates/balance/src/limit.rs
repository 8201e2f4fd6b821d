//! Limits of a back end on simultaneous calls and on requests a second.
//!
//! Limits are configured ([`Limits`]). In addition, Tidegate can learn two limits. From the
//! rejections of the back end it learns a limit on the rate ([`RateLearning`]). From the delay of
//! the back end it learns a limit on the number of requests without a response
//! ([`WindowLearning`]). All shards share the counts. A call is counted by compare-and-swap, so the
//! number of calls never exceeds its limit. One atomic word stores how much of the rate is used
//! (`gcra`). The headroom of a back end is the number of calls that its limits still allow. The
//! headroom of a pool is the sum over its back ends.
//!
//! Requests with priority may use a [reserve](Demand::Priority) that other requests may not use.

mod aimd;
#[cfg(test)]
#[path = "../../world/tests/committed/mod.rs"]
mod committed;
mod delay;
mod gcra;
mod gradient;
mod learned;
mod rate_law;
mod rate_learning;
mod retransmissions;
mod sre;
mod window;
mod window_law;
mod window_learning;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_world::Timestamp;

pub use aimd::DOUBLING_S;
use gcra::Gcra;
pub use gcra::{BURST_S, RESERVE_S};
use learned::Learned;
pub use rate_learning::{RateLaw, RateLearning};
use window::Window;
pub use window_learning::{WindowLaw, WindowLearning};

/// The kind of a request, which decides the limits that apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A request outside any call. The limit on simultaneous calls does not apply to it.
    Single,
    /// A new call without priority.
    Call,
    /// A call with priority. For such calls the limits are higher. `calls_max` is higher by a
    /// twentieth, at least by one call. The burst of the rate is larger by the requests that the
    /// rate allows in [one second](RESERVE_S), at least by one. A learned window is larger by a
    /// tenth, at least by one request.
    Priority,
}

/// The configured limits of a back end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Maximum number of calls at the same time, or `None` for no limit.
    pub calls_max: Option<u64>,
    /// Maximum number of requests a second, counting those that start a call and those outside any
    /// call, or `None` for no limit.
    pub cps_max: Option<f64>,
    /// Parameters of the limits that Tidegate learns in addition.
    pub learning: Learning,
}

/// The limits of a back end that Tidegate learns, with the parameters for learning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Learning {
    /// Parameters for learning a rate from rejections, or `None` if no rate is learned.
    pub rate: Option<RateLearning>,
    /// Parameters for learning a maximum number of requests without a response, or `None` if no
    /// such maximum is learned.
    pub window: Option<WindowLearning>,
}

/// The limits of a back end that are in force, and how much of the rate limit is used.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// Maximum number of calls, or zero if there is no limit.
    calls_max: AtomicU64,
    /// The configured rate limit in requests a second, or infinity if there is none.
    cps_max: AtomicF64,
    /// The rate limit in force (the lower of the configured and the learned one), and how much of
    /// it is used.
    gcra: Gcra,
    learned: Learned,
    window: Window,
}

/// A floating-point number that threads share. The default is infinity: no limit.
#[derive(Debug)]
pub(crate) struct AtomicF64(AtomicU64);

impl AtomicF64 {
    pub(crate) fn new(value: f64) -> Self {
        Self(AtomicU64::new(value.to_bits()))
    }

    pub(crate) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    pub(crate) fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }
}

impl Default for AtomicF64 {
    fn default() -> Self {
        Self::new(f64::INFINITY)
    }
}

impl Demand {
    /// Returns the maximum number of calls that applies to a request of this kind. `calls_max` is
    /// the configured limit.
    fn calls_max(self, calls_max: u64) -> u64 {
        match self {
            Self::Priority => calls_max + (calls_max / 20).max(1),
            Self::Single | Self::Call => calls_max,
        }
    }
}

impl Allowance {
    /// Sets the limits. Learned values are kept.
    pub(crate) fn set(&self, limits: &Limits) {
        self.calls_max.store(limits.calls_max.unwrap_or(0), Relaxed);
        self.cps_max.set(limits.cps_max.unwrap_or(f64::INFINITY));
        self.learned.set(limits.learning.rate, |rate| self.set_rate(rate));
        self.window.set(limits.learning.window);
    }

    /// Returns the maximum number of simultaneous calls, without the reserve for priority, or
    /// `None` if there is no limit.
    pub(crate) fn calls_max(&self) -> Option<u64> {
        Some(self.calls_max.load(Relaxed)).filter(|&calls_max| calls_max > 0)
    }

    /// Returns the maximum number of simultaneous calls that applies to a request of this kind, or
    /// `None` if there is no limit.
    pub(crate) fn calls_max_of(&self, demand: Demand) -> Option<u64> {
        self.calls_max().map(|calls_max| demand.calls_max(calls_max))
    }

    /// Returns the configured rate limit in requests a second, or infinity if there is none.
    pub(crate) fn cps_max(&self) -> f64 {
        self.cps_max.get()
    }

    /// Returns the lower of the configured and the learned rate limit, in requests a second, or
    /// infinity if there is none.
    pub(crate) fn rate_max_cps(&self) -> f64 {
        self.gcra.rate()
    }

    /// Returns the learned rate in requests a second, or infinity if it is not known.
    pub(crate) fn learned_cps(&self) -> f64 {
        self.learned.rate()
    }

    pub(crate) fn learns(&self) -> bool {
        self.learned.is_on()
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Returns whether the rate limit and the window allow a request, without counting it. If they
    /// do not, records this for learning.
    pub(crate) fn conforms(&self, now: Timestamp, demand: Demand) -> bool {
        let has_priority = demand == Demand::Priority;
        if !self.window.conforms(now, has_priority) {
            return false;
        }
        let conforms = self.gcra.conforms(now, has_priority);
        if !conforms {
            self.learned.on_wanted();
        }
        conforms
    }

    /// Returns whether the rate limit and the window allow a request, and half of the burst and a
    /// tenth of the window are left after it.
    pub(crate) fn is_spare(&self, now: Timestamp) -> bool {
        self.window.is_spare(now) && self.gcra.is_spare(now)
    }

    /// Records for learning that a request was rejected because only the reserve was left.
    pub(crate) fn on_reserve_kept(&self) {
        self.learned.on_wanted();
        self.window.on_wanted();
    }

    /// Counts a request against the rate limit. Returns false if the rate limit or the window does
    /// not allow the request.
    pub(crate) fn take(&self, now: Timestamp, demand: Demand) -> bool {
        if !self.window.conforms(now, demand == Demand::Priority) {
            return false;
        }
        let is_taken = self.gcra.take(now, demand == Demand::Priority);
        if is_taken && self.learned.is_on() {
            self.learned.on_given(now, self.cps_max.get(), |rate| self.set_rate(rate));
        }
        is_taken
    }

    /// Records that a request sent at `sent` was rejected or not answered. `is_proved` is true if
    /// overload is known to be the cause.
    pub(crate) fn on_not_taken(&self, sent: Timestamp, is_proved: bool) {
        self.learned.on_rejected(sent, is_proved);
    }

    pub(crate) fn forget_learned(&self) {
        self.window.forget();
        self.learned.forget(|rate| self.set_rate(rate));
    }

    fn set_rate(&self, learned_cps: f64) {
        self.gcra.set_rate(learned_cps.min(self.cps_max.get()));
    }
}
