//! The common part of the laws [`acceptance`](super::acceptance), [`occupancy`](super::occupancy) and
//! [`aro`](super::aro).

use std::fmt::Debug;
use std::time::Duration;

use tidegate_world::Timestamp;

use super::Law;
use super::cadence::{Cadence, PATIENCE};
use crate::{Allowance, Control, Signals};

/// An estimate of a quantity that has a target.
pub(super) trait Estimate: Debug + Send {
    /// Returns whether a new measurement is possible.
    fn is_news(&self, _signals: &Signals) -> bool {
        true
    }

    /// Takes a measurement. `arrived` messages have come since the previous one. Returns the factor
    /// by which the admitted share changes, or `None` if the factor is not known.
    fn factor(&mut self, now: Timestamp, arrived: u64, signals: &Signals) -> Option<f64>;

    /// Returns the target of the occupancy, 0 to 1, or `None` if the law measures something else.
    fn occupancy_aimed_at(&self) -> Option<f64> {
        None
    }
}

/// A law that multiplies the admitted share by target/measured at each measurement. If it measures
/// several quantities, it uses the smallest quotient.
#[derive(Debug)]
pub(super) struct TargetRatio {
    cadence: Cadence,
    floor: f64,
    estimates: Vec<Box<dyn Estimate>>,
    fraction: f64,
}

impl TargetRatio {
    /// Creates the law with these estimates. It admits a share of at least `floor`.
    pub(super) fn new(cadence: Cadence, floor: f64, estimates: Vec<Box<dyn Estimate>>) -> Self {
        Self { cadence, floor, estimates, fraction: 1.0 }
    }

    /// Handles an arrival or a tick. Measures if a measurement is due.
    fn measure(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        let is_due = self.cadence.is_due(now, signals);
        if !is_due || !self.estimates.iter().all(|estimate| estimate.is_news(signals)) {
            return;
        }
        let arrived = self.cadence.on_taken(now, signals, control);
        let estimates = self.estimates.iter_mut();
        let factors = estimates.filter_map(|estimate| estimate.factor(now, arrived, signals));
        if let Some(factor) = factors.reduce(f64::min) {
            self.fraction = (factor * self.fraction).clamp(self.floor, 1.0);
            control.admit_of_all(Allowance::Fraction(self.fraction));
        }
    }
}

impl Law for TargetRatio {
    fn on_begin(&mut self, now: Timestamp, signals: &Signals) {
        self.cadence.start(now, signals);
    }

    fn on_arrival(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        self.measure(now, signals, control);
    }

    fn on_tick(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        self.measure(now, signals, control);
    }

    fn tick(&self) -> Option<Duration> {
        Some(PATIENCE)
    }

    fn occupancy_aimed_at(&self) -> Option<f64> {
        self.estimates.iter().find_map(|estimate| estimate.occupancy_aimed_at())
    }

    fn is_at_rest(&self) -> bool {
        self.fraction >= 1.0
    }
}
