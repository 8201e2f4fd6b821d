//! Measures how much work a server could serve if it rejected nothing.

use super::period::Period;
use super::{LOAD_WEIGHT, STEP_MAX_S};

/// Service time in seconds after which the weight of a capacity measurement has fallen to 1/e.
const FORGET_S: f64 = 0.5;

/// The growth rate of the measured capacity while the processor is idle for half of the time, in
/// 1/s. In a second, the capacity is multiplied by e to the power of this number.
const DISCOVERY: f64 = 0.5;

/// Maximum idle part of a period that counts for the growth of the measured capacity.
const IDLE_MAX: f64 = 0.9;

/// The idle part of a period above which the server has room for more work. Otherwise the period is
/// a busy one.
const IDLE: f64 = 0.1;

/// The work that could be served in a second without rejections.
#[derive(Clone, Debug)]
pub(super) struct Capacity {
    /// Pieces of work that were served. Older ones count less.
    taken: f64,
    /// Occupied seconds without the time for rejections. Older ones count less.
    serving_s: f64,
    /// True after the first busy period: one with at most [`IDLE`] idle time.
    was_busy: bool,
    /// Mean CPU time of the last busy periods, divided by the length of a period. It is less than 1
    /// with a quota, or if other programs use the processor.
    full_cpu: f64,
}

impl Capacity {
    /// Creates a capacity that is unknown.
    pub(super) fn new() -> Self {
        Self { taken: 0.0, serving_s: 0.0, was_busy: false, full_cpu: 1.0 }
    }

    /// Updates the capacity with the counts of a period. `drops` is true if messages are dropped
    /// unread.
    pub(super) fn measure(&mut self, period: &Period, drops: bool) {
        let seconds = period.seconds.min(STEP_MAX_S);
        if period.idle <= IDLE {
            let weight = if self.was_busy { LOAD_WEIGHT } else { 1.0 };
            self.full_cpu += weight * (period.cpu - self.full_cpu);
            self.was_busy = true;
            let serving_s = (1.0 - period.idle - period.load).max(0.0) * seconds;
            let kept = (-serving_s / FORGET_S).exp();
            self.taken = self.taken * kept + period.taken * seconds;
            self.serving_s = self.serving_s * kept + serving_s;
            return;
        }
        // The server can serve at least as much as it has served now.
        if period.taken > self.per_second() {
            self.serving_s = self.serving_s.max(seconds);
            self.taken = period.taken * self.serving_s;
        }
        if drops && self.taken > 0.0 {
            let idle = period.idle.min(IDLE_MAX);
            let growth = (DISCOVERY * idle / (1.0 - idle) * seconds).exp();
            // The work that the server would serve with all of its CPU time, at the present cost of
            // a call.
            let serving = 1.0 - period.load / (1.0 - period.idle).max(period.load);
            let shown = period.taken * self.full_cpu / (period.cpu * serving);
            self.taken *= (shown / self.per_second()).max(1.0).min(growth);
        }
    }

    /// Returns the work that could be served in a second without rejections, or infinity until it
    /// is measured.
    pub(super) fn per_second(&self) -> f64 {
        match (self.was_busy, self.serving_s > 0.0) {
            // A processor that was never busy needs no drops.
            (false, _) => f64::INFINITY,
            (true, false) => 0.0,
            (true, true) => self.taken / self.serving_s,
        }
    }
}
