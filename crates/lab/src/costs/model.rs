//! The model of paper 000, §5: the performance of a server that admits a share f of the arrivals,
//! if processing a message costs t_a and shedding one costs t_d.

use serde::Serialize;

/// The two costs of a message in the model of paper 000, §5.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Model {
    /// t_a: the time to process a message, in µs.
    pub accepted_us: f64,
    /// t_d: the time to shed a message, in µs.
    pub dropped_us: f64,
}

impl Model {
    /// The example in paper 000, §5.2.1.
    pub const PAPER: Self = Self { accepted_us: 70.0, dropped_us: 6.0 };

    /// Returns the number of messages that are processed or shed in a second if the share
    /// `fraction` of the arrivals is admitted (PP_r, equation 9).
    pub fn processed(&self, fraction: f64) -> f64 {
        1e6 / (self.accepted_us * fraction + self.dropped_us * (1.0 - fraction))
    }

    /// Returns the number of messages that are accepted in a second if the share `fraction` of the
    /// arrivals is admitted (PP'_r, equation 10).
    pub fn accepted(&self, fraction: f64) -> f64 {
        fraction * self.processed(fraction)
    }

    /// Returns the share f of the arrivals to admit, so that the server accepts `part` times as
    /// many messages a second as if it admitted all.
    pub fn fraction_for(&self, part: f64) -> f64 {
        let Self { accepted_us, dropped_us } = *self;
        part * dropped_us / ((1.0 - part) * accepted_us + part * dropped_us)
    }

    /// Returns the number of messages that leave a full queue in a second if the share `fraction`
    /// of the arrivals is admitted, divided by this number if all are admitted. The wait in the
    /// queue is shorter by this factor.
    pub fn delay_ratio(&self, fraction: f64) -> f64 {
        self.processed(fraction) / self.processed(1.0)
    }

    /// Returns the time to shed a message divided by the time to process one (t_d ÷ t_a).
    pub fn ratio(&self) -> f64 {
        self.dropped_us / self.accepted_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of paper 000 §5.2.1. The paper rounds .436 to .44 and 29,500 to 32,000.
    #[test]
    fn the_papers_example() {
        let fraction = Model::PAPER.fraction_for(0.9);
        assert!((fraction - 0.4355).abs() < 1e-4, "{fraction}");
        assert!((Model::PAPER.processed(fraction) - 29_524.0).abs() < 1.0);
        assert!((Model::PAPER.delay_ratio(fraction) - 2.067).abs() < 1e-3);
        assert!((Model::PAPER.accepted(fraction) - 12_857.1).abs() < 0.1);
        assert!((Model::PAPER.accepted(1.0) - 14_285.7).abs() < 0.1);
    }

    #[test]
    fn drops_without_cost_leave_all_time_to_other_calls() {
        let free = Model { accepted_us: 10.0, dropped_us: 0.0 };
        assert_eq!(free.fraction_for(0.9), 0.0);
        assert!((free.accepted(0.01) - free.accepted(1.0)).abs() < 1e-6);
        let dear = Model { accepted_us: 10.0, dropped_us: 10.0 };
        assert!((dear.fraction_for(0.9) - 0.9).abs() < 1e-12);
    }
}
