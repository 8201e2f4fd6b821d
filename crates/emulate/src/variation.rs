//! Costs that vary.

use std::time::Duration;

use tidegate_world::{Purpose, Seed, Stream};

/// The distribution of a step's cost around its [mean](super::Costs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variation {
    /// Always the mean.
    #[default]
    Constant,
    /// Exponential: the service times of the M/M/1 queue. Each step's whole cost is one draw from a
    /// stream of this host's own.
    Exponential {
        /// The seed of the run.
        seed: Seed,
        /// The number of the host.
        element: u32,
    },
}

/// The source of random costs.
#[derive(Debug)]
pub(super) struct Varying(Option<Stream>);

impl Varying {
    pub(super) fn new(variation: Variation) -> Self {
        Self(match variation {
            Variation::Constant => None,
            Variation::Exponential { seed, element } => {
                Some(seed.stream(Purpose::Service, element))
            }
        })
    }

    /// Returns the cost of a step with this mean.
    pub(super) fn of(&mut self, mean: Duration) -> Duration {
        match &mut self.0 {
            Some(stream) if !mean.is_zero() => {
                let drawn = stream.exponential(mean.as_secs_f64());
                Duration::try_from_secs_f64(drawn).unwrap_or(Duration::MAX)
            }
            _ => mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: Duration = Duration::from_micros(100);

    #[test]
    fn constant_costs_are_what_they_are() {
        assert_eq!(Varying::new(Variation::Constant).of(MEAN), MEAN);
    }

    #[test]
    fn exponential_costs_have_their_mean_and_as_large_a_deviation() {
        let exponential = |element| Varying::new(Variation::Exponential { seed: Seed(1), element });
        let draw = |element| -> Vec<f64> {
            let mut varying = exponential(element);
            (0..20_000).map(|_| varying.of(MEAN).as_secs_f64() * 1e6).collect()
        };
        let drawn = draw(0);
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        // Standard errors of 100 / sqrt(20,000) = 0.7, and twice as much: five of them.
        assert!((mean - 100.0).abs() < 3.5, "{mean}");
        assert!((variance.sqrt() - 100.0).abs() < 7.0, "{variance}");
        assert_eq!(draw(0), drawn);
        assert_ne!(draw(1), drawn, "each host has a stream of its own");
    }

    #[test]
    fn nothing_costs_nothing_and_is_not_drawn() {
        let exponential = || Varying::new(Variation::Exponential { seed: Seed(1), element: 0 });
        let mut varying = exponential();
        assert_eq!(varying.of(Duration::ZERO), Duration::ZERO);
        assert_eq!(varying.of(MEAN), exponential().of(MEAN));
    }
}
