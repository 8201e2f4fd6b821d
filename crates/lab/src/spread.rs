//! Summarizes the values of one quantity in several runs.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence level of the interval in [`Spread::ci95`].
const CONFIDENCE: f64 = 0.95;

/// A summary of the values of one quantity in several runs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spread {
    /// The smallest value.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The largest value.
    pub max: f64,
    /// The mean, or 0 if the spread was read from results without it.
    #[serde(default)]
    pub mean: f64,
    /// The 95 % confidence interval of the mean by Student's t distribution, or `None` for a single
    /// value. The interval assumes independent, normally distributed values.
    #[serde(default)]
    pub ci95: Option<[f64; 2]>,
}

impl Spread {
    /// Returns the spread of `values`, or `None` if `values` is empty.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[half - 1], values[half]),
            _ => values[half],
        };
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let around = |reach: f64| [mean - reach, mean + reach];
        Some(Self { min, median, max, mean, ci95: reach(&values, mean).map(around) })
    }

    /// Returns the spread with all values multiplied by `factor`, for example to change their unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let Self { min, median, max, mean, ci95 } = self;
        Self {
            min: min * factor,
            median: median * factor,
            max: max * factor,
            mean: mean * factor,
            ci95: ci95.map(|ends| ends.map(|end| end * factor)),
        }
    }
}

/// Returns half of the width of the confidence interval of the mean, or `None` for a single value.
fn reach(values: &[f64], mean: f64) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|&freedom| freedom > 0)? as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom;
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf((1.0 + CONFIDENCE) / 2.0);
    Some(t * (variance / values.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Spread {
        Spread::of(values.iter().copied()).unwrap()
    }

    #[test]
    fn a_spread_has_its_median() {
        assert_eq!(Spread::of([]), None);
        let three = spread(&[3.0, 1.0, 2.0]);
        assert_eq!((three.min, three.median, three.max, three.mean), (1.0, 2.0, 3.0, 2.0));
        assert_eq!(spread(&[4.0, 1.0]).median, 2.5);
    }

    #[test]
    fn the_confidence_interval_of_the_mean_matches_published_tables() {
        assert_eq!(spread(&[1.0]).ci95, None);
        // t(0.975) is 12.706 for two values and 4.303 for three. Their s/√n is 0.5 and 1/√3.
        for (values, reach) in [(&[1.0, 2.0][..], 12.706 * 0.5), (&[1.0, 2.0, 3.0], 4.303 / 1.732)]
        {
            let Spread { mean, ci95: Some([low, high]), .. } = spread(values) else { panic!() };
            assert!((mean - low - reach).abs() < 2e-3 && (high - mean - reach).abs() < 2e-3);
        }
        let Some([low, high]) = spread(&[5.0, 5.0]).ci95 else { panic!() };
        assert_eq!((low, high), (5.0, 5.0));
    }

    #[test]
    fn a_scaled_spread_is_that_of_scaled_values() {
        let scaled = spread(&[1.0, 2.0, 4.0]).scaled(2.0);
        let expected = spread(&[2.0, 4.0, 8.0]);
        assert_eq!((scaled.median, scaled.mean), (expected.median, expected.mean));
        let ends = [scaled, expected].map(|spread| spread.ci95.unwrap()[1]);
        assert!((ends[0] - ends[1]).abs() < 1e-9);
    }
}
