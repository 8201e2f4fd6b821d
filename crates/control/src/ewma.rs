//! Exponentially weighted moving averages.

/// An average in which the weight of each sample decreases by the same factor with every later
/// sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ewma {
    weight: f64,
    /// Number of samples at the start that have equal weight.
    alike: u32,
    /// The number of samples so far, counted up to `alike`.
    samples: u32,
    value: f64,
}

impl Ewma {
    /// Creates an average that begins with its first sample. The newest sample has the weight
    /// `weight`, 0 to 1.
    pub(crate) fn new(weight: f64) -> Self {
        Self::beginning_with(1, weight)
    }

    /// Creates an average that begins with the mean of its first `alike` samples. `alike` is at
    /// least 1.
    pub(crate) fn beginning_with(alike: u32, weight: f64) -> Self {
        Self { weight, alike, samples: 0, value: 0.0 }
    }

    /// Creates an average that begins at `value`.
    pub(crate) fn starting_at(value: f64, weight: f64) -> Self {
        Self { weight, alike: 0, samples: 0, value }
    }

    /// Adds a sample and returns the average.
    pub(crate) fn update(&mut self, sample: f64) -> f64 {
        let weight = if self.samples < self.alike {
            self.samples += 1;
            1.0 / f64::from(self.samples)
        } else {
            self.weight
        };
        self.value = (1.0 - weight) * self.value + weight * sample;
        self.value
    }

    /// Returns the average. Before the first sample, returns the start value, or zero if there is
    /// none.
    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    pub(crate) fn scale(&mut self, factor: f64) {
        self.value *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_starts_with_the_first_sample_and_later_ones_are_weighted() {
        let mut average = Ewma::new(0.25);
        assert_eq!(average.update(8.0), 8.0);
        assert_eq!(average.update(4.0), 7.0);
        assert_eq!(average.value(), 7.0);
        average.scale(0.5);
        assert_eq!(average.update(3.5), 3.5);
    }

    #[test]
    fn the_first_samples_may_have_equal_weight() {
        let mut average = Ewma::beginning_with(3, 0.25);
        assert_eq!([1.0, 5.0, 6.0, 8.0].map(|sample| average.update(sample)), [1.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn a_start_value_counts_as_a_sample() {
        let mut average = Ewma::starting_at(0.0, 0.25);
        assert_eq!(average.update(8.0), 2.0);
    }
}
