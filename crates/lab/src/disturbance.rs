//! Disturbances of the servers under test: conditions for which overload control is not prepared.

use std::time::Duration;

use serde::Serialize;
use tidegate_emulate::{Distribution, Disturbance as OfHost, HostSettings, Variation};
use tidegate_world::Seed;

/// The disturbance of a run: conditions of the servers under test for which overload control is not
/// prepared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Disturbance {
    /// The distribution of the costs of messages around their means.
    pub costs: Spread,
    /// A rise of the costs of messages: a time after the start of the load, and the factor by which
    /// all costs are multiplied from that time on. `None` if costs do not change.
    pub dearer: Option<(Duration, f64)>,
    /// Processor time of other processes: a period, and the time that they use at the end of each
    /// period. `None` if there are no other processes.
    pub stolen: Option<(Duration, Duration)>,
    /// The factor by which the occupancy is multiplied before the servers read it.
    pub misread: f64,
}

/// The distribution of the costs of messages around their means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// Costs have the distribution in the configuration of the server.
    Constant,
    /// Costs have an exponential distribution.
    Exponential,
    /// Costs have a hyperexponential distribution, whose variance is ten times the square of the
    /// mean.
    Hyperexponential,
    /// Costs have a Pareto distribution with α = 1.5, cut off at a hundred times the mean.
    Pareto,
}

impl Disturbance {
    /// No disturbance.
    pub const NONE: Self =
        Self { costs: Spread::Constant, dearer: None, stolen: None, misread: 1.0 };

    /// Returns `settings` with the changes of the disturbance. They are the settings of the server
    /// numbered `element`.
    pub fn on(&self, settings: &HostSettings, seed: Seed, element: u32) -> HostSettings {
        let distribution = match self.costs {
            Spread::Constant => None,
            Spread::Exponential => Some(Distribution::Exponential),
            Spread::Hyperexponential => Some(Distribution::Hyperexponential { scv: 10.0 }),
            Spread::Pareto => Some(Distribution::Pareto),
        };
        // Without a distribution here, that of the configuration applies.
        let variation = distribution.map_or_else(
            || settings.variation.clone(),
            |distribution| Variation { distribution, seed, element },
        );
        HostSettings { variation, disturbance: self.of_host(), ..settings.clone() }
    }

    /// Returns the speed of the processor at a time after the start of the load, relative to its
    /// speed without a disturbance. If other processes use a part of each period, this is the mean
    /// over a period.
    pub fn speed(&self, at: Duration) -> f64 {
        let host = self.of_host();
        host.own_part() / host.cost_factor(at)
    }

    fn of_host(&self) -> OfHost {
        OfHost { stolen: self.stolen, dearer: self.dearer, misread: self.misread }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_slower_by_what_others_take_and_by_higher_costs() {
        let ms = Duration::from_millis;
        let stolen = Some((ms(100), ms(80)));
        let disturbance =
            Disturbance { dearer: Some((ms(5000), 2.0)), stolen, ..Disturbance::NONE };
        let speeds = [4999, 5000].map(|at| disturbance.speed(ms(at)));
        assert!((speeds[0] - 0.2).abs() < 1e-12 && (speeds[1] - 0.1).abs() < 1e-12, "{speeds:?}");
        assert_eq!(Disturbance::NONE.speed(ms(0)), 1.0);
    }

    #[test]
    fn without_a_disturbance_a_server_is_unchanged() {
        let distribution = Distribution::Lognormal { sigma: 1.0 };
        let variation = Variation { distribution, seed: Seed(3), element: 0 };
        let settings = HostSettings { variation, ..HostSettings::default() };
        assert_eq!(Disturbance::NONE.on(&settings, Seed(1), 2), settings);
    }
}
