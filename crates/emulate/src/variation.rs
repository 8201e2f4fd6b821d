//! Random variation of the costs of a host.

use std::time::Duration;

use tidegate_world::{Purpose, Seed, Stream};

use super::distribution::Distribution;

/// The random variation of a host's costs, and the seed of its random numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Variation {
    /// The distribution of each cost around its mean.
    pub distribution: Distribution,
    /// The seed of the run.
    pub seed: Seed,
    /// The number of the host. Hosts with different numbers draw independent costs.
    pub element: u32,
}

impl Variation {
    /// No variation.
    pub const NONE: Self = Self { distribution: Distribution::Constant, seed: Seed(0), element: 0 };
}

/// A generator of random costs.
#[derive(Debug)]
pub(super) struct Varying {
    distribution: Distribution,
    stream: Stream,
}

impl Varying {
    pub(super) fn new(variation: &Variation) -> Self {
        let Variation { distribution, seed, element } = variation;
        let stream = seed.stream(Purpose::Service, *element);
        Self { distribution: distribution.clone(), stream }
    }

    /// Draws the cost of a step from the distribution with this mean.
    pub(super) fn of(&mut self, mean: Duration) -> Duration {
        if mean.is_zero() || matches!(self.distribution, Distribution::Constant) {
            return mean;
        }
        let drawn = self.distribution.draw(&mut self.stream, mean.as_secs_f64());
        Duration::try_from_secs_f64(drawn).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: Duration = Duration::from_micros(100);

    fn varying(distribution: Distribution, element: u32) -> Varying {
        Varying::new(&Variation { distribution, seed: Seed(1), element })
    }

    /// Returns `n` costs in µs.
    fn draw(distribution: Distribution, element: u32, n: usize) -> Vec<f64> {
        let mut varying = varying(distribution, element);
        (0..n).map(|_| varying.of(MEAN).as_secs_f64() * 1e6).collect()
    }

    /// Returns the mean and the squared coefficient of variation.
    fn moments(drawn: &[f64]) -> (f64, f64) {
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        (mean, variance / mean.powi(2))
    }

    #[test]
    fn constant_costs_do_not_vary() {
        assert_eq!(varying(Distribution::Constant, 0).of(MEAN), MEAN);
    }

    #[test]
    fn exponential_costs_have_their_mean_and_as_large_a_deviation() {
        let drawn = draw(Distribution::Exponential, 0, 20_000);
        let (mean, scv) = moments(&drawn);
        // The standard error of the mean is 100 / sqrt(20,000) = 0.7, and that of the coefficient of
        // variation is 1 % or less. The test allows five standard errors.
        assert!((mean - 100.0).abs() < 3.5, "{mean}");
        assert!((scv.sqrt() - 1.0).abs() < 0.07, "{scv}");
        assert_eq!(draw(Distribution::Exponential, 0, 20_000), drawn);
        let other = draw(Distribution::Exponential, 1, 20_000);
        assert_ne!(other, drawn, "each host has a stream of its own");
    }

    #[test]
    fn a_few_pareto_costs_make_up_a_fifth_of_the_sum() {
        let mut drawn = draw(Distribution::Pareto, 0, 1_000_000);
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
    fn hyperexponential_costs_have_their_mean_and_the_given_coefficient_of_variation() {
        for scv in [1.0, 4.0, 10.0] {
            let drawn = draw(Distribution::Hyperexponential { scv }, 0, 400_000);
            let (mean, found) = moments(&drawn);
            // The standard error of the mean is at most 100·√(10 / 400,000) = 0.5.
            assert!((mean - 100.0).abs() < 2.5, "{scv}: {mean}");
            assert!((0.9..1.1).contains(&(found / scv)), "{scv}: {found}");
        }
    }

    #[test]
    fn lognormal_costs_have_their_mean_and_the_given_deviation_of_the_logarithm() {
        let drawn = draw(Distribution::Lognormal { sigma: 0.8 }, 0, 400_000);
        let (mean, scv) = moments(&drawn);
        // The squared coefficient of variation is exp(σ²) − 1 = 0.896. The standard error of the
        // mean is 100·√(0.896 / 400,000) = 0.15.
        assert!((mean - 100.0).abs() < 0.75, "{mean}");
        assert!((0.85..0.95).contains(&scv), "{scv}");
        let logarithms: Vec<f64> = drawn.iter().map(|cost| cost.ln()).collect();
        let middle = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        let squares = logarithms.iter().map(|x| (x - middle).powi(2)).sum::<f64>();
        let sigma = (squares / logarithms.len() as f64).sqrt();
        assert!((sigma - 0.8).abs() < 0.005, "{sigma}");
        assert_eq!(draw(Distribution::Lognormal { sigma: 0.0 }, 0, 1), [100.0]);
    }

    #[test]
    fn empirical_costs_are_those_of_the_file_in_its_proportions() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("costs.txt");
        // The mean is 2, so the costs are half of the mean, and five times the mean.
        std::fs::write(&file, "# ms\n1\n1\n1\n1\n1\n1\n1\n1\n2\n10\n").unwrap();
        let distribution: Distribution = format!("empirical:{}", file.display()).parse().unwrap();
        let drawn = draw(distribution.clone(), 0, 100_000);
        let part = |cost: f64| {
            drawn.iter().filter(|drawn| (**drawn - cost).abs() < 1e-6).count() as f64 / 1e5
        };
        // Five standard errors: 5·√(0.8·0.2 / 100,000).
        assert!((part(50.0) - 0.8).abs() < 0.0064, "{}", part(50.0));
        assert!((part(100.0) - 0.1).abs() < 0.005, "{}", part(100.0));
        assert!((part(500.0) - 0.1).abs() < 0.005, "{}", part(500.0));
        assert_eq!(draw(distribution.clone(), 0, 100_000), drawn);
        let again: Distribution = distribution.to_string().parse().unwrap();
        assert_eq!(again, distribution);
    }

    #[test]
    fn a_cost_of_zero_stays_zero_and_draws_no_number() {
        let exponential = || varying(Distribution::Exponential, 0);
        let mut varying = exponential();
        assert_eq!(varying.of(Duration::ZERO), Duration::ZERO);
        assert_eq!(varying.of(MEAN), exponential().of(MEAN));
    }
}
