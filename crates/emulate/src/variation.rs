//! Costs that vary.

use std::time::Duration;

use tidegate_world::{Purpose, Seed, Stream};

/// The distribution of a step's cost around its [mean](super::Costs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variation {
    /// The cost is always the mean.
    #[default]
    Constant,
    /// An exponential distribution, as for the service times of the M/M/1 queue. The whole cost of
    /// a step is one draw from the host's own stream.
    Exponential {
        /// The seed of the run.
        seed: Seed,
        /// The number of the host.
        element: u32,
    },
    /// A Pareto distribution with α = 1.5, cut at a hundred times the mean. Without this limit, the
    /// variance would be infinite. The most expensive 1 % of the steps account for about a fifth of
    /// the time.
    Pareto {
        /// The seed of the run.
        seed: Seed,
        /// The number of the host.
        element: u32,
    },
    /// A hyperexponential distribution whose squared coefficient of variation is 10, with balanced
    /// means. About one step in 20 has an exponential distribution around ten times the mean. The
    /// others have an exponential distribution around half of the mean.
    Hyperexponential {
        /// The seed of the run.
        seed: Seed,
        /// The number of the host.
        element: u32,
    },
}

/// Squared coefficient of variation of the hyperexponential distribution.
const SCV: f64 = 10.0;
/// α of the Pareto distribution.
const ALPHA: f64 = 1.5;
/// The smallest cost, as a multiple of the mean. Without the cut at [`LONGEST`] it would be a third.
/// The mean after the cut is 3·[`SHORTEST`] − 2·[`SHORTEST`]^1.5 ÷ √[`LONGEST`], which is 1 here.
const SHORTEST: f64 = 0.346_957_94;
/// The largest cost, as a multiple of the mean.
const LONGEST: f64 = 100.0;

/// The source of random costs.
#[derive(Debug)]
pub(super) struct Varying(Option<(Stream, Draw)>);

/// A function that draws a cost in seconds with a given mean.
type Draw = fn(&mut Stream, f64) -> f64;

impl Varying {
    pub(super) fn new(variation: Variation) -> Self {
        Self(match variation {
            Variation::Constant => None,
            Variation::Exponential { seed, element } => {
                Some((seed.stream(Purpose::Service, element), |stream, mean_s| {
                    stream.exponential(mean_s)
                }))
            }
            Variation::Pareto { seed, element } => {
                Some((seed.stream(Purpose::Service, element), |stream, mean_s| {
                    let times = SHORTEST * (1.0 - stream.unit()).powf(-1.0 / ALPHA);
                    mean_s * times.min(LONGEST)
                }))
            }
            Variation::Hyperexponential { seed, element } => {
                Some((seed.stream(Purpose::Service, element), |stream, mean_s| {
                    let short = f64::midpoint(1.0, ((SCV - 1.0) / (SCV + 1.0)).sqrt());
                    let part = if stream.unit() < short { short } else { 1.0 - short };
                    stream.exponential(mean_s / (2.0 * part))
                }))
            }
        })
    }

    /// Returns the cost of a step with this mean.
    pub(super) fn of(&mut self, mean: Duration) -> Duration {
        match &mut self.0 {
            Some((stream, draw)) if !mean.is_zero() => {
                let drawn = draw(stream, mean.as_secs_f64());
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
    fn constant_costs_do_not_vary() {
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
        // The standard error of the mean is 100 / sqrt(20,000) = 0.7, and that of the deviation is
        // twice as much. The test allows five standard errors.
        assert!((mean - 100.0).abs() < 3.5, "{mean}");
        assert!((variance.sqrt() - 100.0).abs() < 7.0, "{variance}");
        assert_eq!(draw(0), drawn);
        assert_ne!(draw(1), drawn, "each host has a stream of its own");
    }

    #[test]
    fn a_few_pareto_costs_make_up_a_fifth_of_the_sum() {
        let mut varying = Varying::new(Variation::Pareto { seed: Seed(1), element: 0 });
        let mut drawn: Vec<f64> =
            (0..1_000_000).map(|_| varying.of(MEAN).as_secs_f64() * 1e6).collect();
        drawn.sort_by(f64::total_cmp);
        let sum = drawn.iter().sum::<f64>();
        // The second moment after the cut is 4·SHORTEST^1.5·√LONGEST − 3·SHORTEST², which is 7.8. So
        // the standard error of the mean is 0.26. The test allows five standard errors.
        assert!((sum / 1e6 - 100.0).abs() < 1.3, "{}", sum / 1e6);
        let largest = drawn[990_000..].iter().sum::<f64>() / sum;
        assert!((0.16..0.21).contains(&largest), "{largest}");
        assert!((34.69..34.71).contains(&drawn[0]), "{}", drawn[0]);
        assert_eq!(drawn[999_999], 10_000.0, "the cut");
    }

    #[test]
    fn hyperexponential_costs_have_their_mean_and_ten_times_its_square_as_variance() {
        let mut varying = Varying::new(Variation::Hyperexponential { seed: Seed(1), element: 0 });
        let drawn: Vec<f64> = (0..400_000).map(|_| varying.of(MEAN).as_secs_f64() * 1e6).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        // The standard error of the mean is 100·√(10 / 400,000) = 0.5.
        assert!((mean - 100.0).abs() < 2.5, "{mean}");
        assert!((9.0..11.0).contains(&(variance / mean.powi(2))), "{variance}");
    }

    #[test]
    fn a_cost_of_zero_stays_zero_and_draws_no_number() {
        let exponential = || Varying::new(Variation::Exponential { seed: Seed(1), element: 0 });
        let mut varying = exponential();
        assert_eq!(varying.of(Duration::ZERO), Duration::ZERO);
        assert_eq!(varying.of(MEAN), exponential().of(MEAN));
    }
}
