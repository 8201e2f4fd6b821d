//! Extremum seeking: finds the minimum of a function whose slope is not known.
//!
//! Every coordinate is perturbed by a cosine with its own frequency. The mean product of the
//! function's value and this perturbation is proportional to the slope along the coordinate. The
//! estimate of the minimum moves against the slope. A filter first removes the constant part of the
//! value.

use std::f64::consts::PI;
use std::ops::RangeInclusive;

/// The settings of extremum seeking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// α: amplitude of the perturbation of each coordinate, above 0.
    pub amplitude: f64,
    /// γ: the factor from a slope to the distance by which the estimate moves, above 0. The default
    /// suits functions whose value changes by less than 1 when a coordinate changes by 1.
    pub gain: f64,
    /// h: parameter of the filter that removes the constant part of the value, 0 to 1. The nearer
    /// `filter` is to 1, the further the output of the filter runs ahead of the perturbation, by up
    /// to a quarter of a period. Then the mean of their product shows the slope less well. A search
    /// in three coordinates diverges at 0.5, but not at 0.3.
    pub filter: f64,
    /// a: ratio of the perturbation frequencies of successive coordinates, above 0 and below 1.
    pub slowing: f64,
    /// Maximum distance by which a coordinate moves in one step, above 0. It limits the effect of a
    /// very steep slope.
    pub step_max: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { amplitude: 0.15, gain: 25.0, filter: 0.3, slowing: 0.8, step_max: 0.15 }
    }
}

/// A search for the minimum of a function, in progress.
#[derive(Clone, Debug)]
pub struct Seeker {
    settings: Settings,
    estimate: Vec<f64>,
    bounds: Vec<RangeInclusive<f64>>,
    zeta: f64,
    last: Option<f64>,
    steps: u32,
}

impl Seeker {
    /// Creates a search that starts at `start` and keeps each coordinate within its bounds. Beyond
    /// a bound, the value of the function would not change, and the search would have no slope by
    /// which to return.
    pub fn new(start: Vec<f64>, bounds: Vec<RangeInclusive<f64>>, settings: Settings) -> Self {
        Self { settings, estimate: start, bounds, zeta: 0.0, last: None, steps: 0 }
    }

    /// Returns the current estimate of the minimum.
    pub fn estimate(&self) -> &[f64] {
        &self.estimate
    }

    /// Returns the point at which the function must be evaluated next.
    pub fn probe(&self) -> Vec<f64> {
        let shaken = |(i, estimate): (usize, &f64)| estimate + self.shake(i);
        self.estimate.iter().enumerate().map(shaken).collect()
    }

    /// Records the value of the function at [`probe`](Self::probe), and moves the estimate.
    pub fn learn(&mut self, value: f64) {
        let Settings { gain, filter, step_max, .. } = self.settings;
        // The first value has no predecessor. It is compared with itself, so that the filter
        // removes it as a constant.
        let last = self.last.unwrap_or(value);
        if self.last.is_none() {
            self.zeta = value / (1.0 + filter);
        }
        self.zeta = last - filter * self.zeta;
        let passed = value - (1.0 + filter) * self.zeta;
        for i in 0..self.estimate.len() {
            let step = gain * self.shake(i) * passed;
            let moved = self.estimate[i] - step.clamp(-step_max, step_max);
            self.estimate[i] = moved.clamp(*self.bounds[i].start(), *self.bounds[i].end());
        }
        self.last = Some(value);
        self.steps += 1;
    }

    /// Returns the perturbation of the coordinate with the index `i`: its distance from the
    /// estimate.
    fn shake(&self, i: usize) -> f64 {
        let frequency = self.settings.slowing.powi(i as i32 + 1) * PI;
        self.settings.amplitude * (frequency * f64::from(self.steps)).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeker(start: &[f64], settings: Settings) -> Seeker {
        let bounds = vec![-10.0..=10.0; start.len()];
        Seeker::new(start.to_vec(), bounds, settings)
    }

    fn sought(start: &[f64], steps: u32, function: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        // The test functions are steep, so the gain is smaller than the default.
        let settings = Settings { gain: 4.0, ..Settings::default() };
        let mut seeker = seeker(start, settings);
        for _ in 0..steps {
            let value = function(&seeker.probe());
            seeker.learn(value);
        }
        seeker.estimate().to_vec()
    }

    /// Returns the value of a function that has its minimum of 0.3 at (1, −2, 0.5).
    fn bowl(at: &[f64]) -> f64 {
        0.3 + (at[0] - 1.0).powi(2) + 0.5 * (at[1] + 2.0).powi(2) + 0.8 * (at[2] - 0.5).powi(2)
    }

    #[test]
    fn the_bottom_of_a_bowl_is_found_from_anywhere() {
        for start in [[0.0, 0.0, 0.0], [3.0, -4.0, 2.0], [1.0, -2.0, 0.5]] {
            let found = sought(&start, 2000, bowl);
            for (found, bottom) in found.iter().zip([1.0, -2.0, 0.5]) {
                assert!((found - bottom).abs() < 0.15, "{found} from {start:?}");
            }
        }
    }

    #[test]
    fn a_constant_measure_moves_no_estimate() {
        let start = [0.3, -0.2];
        let found = sought(&start, 100, |_| 7.0);
        assert!(found.iter().zip(start).all(|(found, start)| (found - start).abs() < 1e-9));
    }

    #[test]
    fn a_cliff_moves_the_estimate_by_at_most_one_step() {
        let mut seeker = seeker(&[0.0], Settings::default());
        for value in [0.0, 1e9, -1e9] {
            let before = seeker.estimate()[0];
            seeker.learn(value);
            assert!((seeker.estimate()[0] - before).abs() <= 0.15 + 1e-12);
        }
    }

    #[test]
    fn the_first_probe_is_a_whole_amplitude_away() {
        let seeker = seeker(&[1.0, 2.0], Settings::default());
        assert_eq!(seeker.probe(), [1.15, 2.15]);
    }

    #[test]
    fn an_estimate_stays_within_its_bounds_and_comes_back_from_them() {
        let mut seeker = Seeker::new(vec![0.0], vec![-1.0..=1.0], Settings::default());
        let mut follow = |slope: f64, steps: u32| {
            for _ in 0..steps {
                let at = seeker.probe()[0];
                seeker.learn(slope * at);
                assert!((-1.0..=1.0).contains(&seeker.estimate()[0]));
            }
            seeker.estimate()[0]
        };
        assert!(follow(-1.0, 300) > 0.8);
        assert!(follow(1.0, 100) < 0.0);
    }
}
