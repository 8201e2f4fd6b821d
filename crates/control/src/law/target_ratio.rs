//! The common part of the laws [`acceptance`], [`occupancy`] and [`aro`](super::aro).

use std::time::Duration;

use tidegate_world::Timestamp;

use super::cadence::{Cadence, PATIENCE};
use super::{Law, acceptance, occupancy};
use crate::{Allowance, Control, Signals, Values};

/// A law that multiplies the admitted share by target/measured at each measurement. If it measures
/// both the acceptance and the occupancy, it uses the smaller quotient.
#[derive(Debug)]
pub(super) struct TargetRatio {
    cadence: Cadence,
    acceptance: Option<acceptance::Estimate>,
    occupancy: Option<occupancy::Estimate>,
    floor: f64,
    fraction: f64,
}

impl TargetRatio {
    /// Creates the law with the given estimates and with the values of the parameters of `Cadence`
    /// and of [`FLOOR`](occupancy::FLOOR).
    pub(super) fn new(
        values: &Values,
        acceptance: Option<acceptance::Estimate>,
        occupancy: Option<occupancy::Estimate>,
    ) -> Self {
        let cadence = match occupancy {
            Some(_) => {
                Cadence::new(values, values.of(&occupancy::TARGET), values.of(&occupancy::WEIGHT))
            }
            None => Cadence::new(values, values.of(&acceptance::TARGET), 1.0),
        };
        let floor = values.of(&occupancy::FLOOR);
        Self { cadence, acceptance, occupancy, floor, fraction: 1.0 }
    }

    /// Handles an arrival or a tick. Measures if a measurement is due.
    fn measure(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        let is_news = |occupancy: &occupancy::Estimate| occupancy.is_news(signals.processor);
        if !self.cadence.is_due(now, signals) || !self.occupancy.as_ref().is_none_or(is_news) {
            return;
        }
        let arrived = self.cadence.on_taken(now, signals, control);
        let acceptance = self.acceptance.as_mut();
        let occupancy = self.occupancy.as_mut();
        let factors = [
            occupancy.and_then(|estimate| estimate.factor(signals.processor)),
            acceptance.and_then(|estimate| estimate.factor(now, arrived, signals)),
        ];
        if let Some(factor) = factors.into_iter().flatten().reduce(f64::min) {
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
        self.occupancy.as_ref().map(occupancy::Estimate::target)
    }

    fn is_at_rest(&self) -> bool {
        self.fraction >= 1.0
    }
}
