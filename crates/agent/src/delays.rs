//! Durations and their quantiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Maximum duration that is measured, in microseconds: an hour. A longer duration counts as an
/// hour.
const LONGEST_US: u64 = 3_600_000_000;

/// A set of durations, with a precision of three digits.
#[derive(Clone, Debug)]
pub struct Delays(Histogram<u64>);

impl Delays {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_US, 3).expect("valid bounds"))
    }

    /// Adds a duration.
    pub fn record(&mut self, delay: Duration) {
        let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(us);
    }

    /// Adds all durations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("same bounds");
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the quantile `q` (0 to 1): a fraction `q` of all durations is not longer. Returns
    /// zero if the set is empty.
    pub fn quantile(&self, q: f64) -> Duration {
        if self.0.is_empty() {
            return Duration::ZERO;
        }
        Duration::from_micros(self.0.value_at_quantile(q))
    }

    /// Returns the longest duration.
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.0.max())
    }

    /// Returns the mean duration.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.0.mean() / 1e6)
    }
}

impl Default for Delays {
    fn default() -> Self {
        Self::new()
    }
}

/// Serializes the quantiles of the set, in microseconds.
impl Serialize for Delays {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let us = |d: Duration| d.as_micros() as u64;
        let mut fields = serializer.serialize_struct("Delays", 6)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("mean_us", &us(self.mean()))?;
        fields.serialize_field("p50_us", &us(self.quantile(0.5)))?;
        fields.serialize_field("p90_us", &us(self.quantile(0.9)))?;
        fields.serialize_field("p99_us", &us(self.quantile(0.99)))?;
        fields.serialize_field("max_us", &us(self.max()))?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_merged_set_are_those_of_all() {
        let mut low = Delays::new();
        let mut high = Delays::new();
        (1..=500).for_each(|ms| low.record(Duration::from_millis(ms)));
        (501..=1000).for_each(|ms| high.record(Duration::from_millis(ms)));
        low.merge(&high);
        assert_eq!(low.count(), 1000);
        let p90 = low.quantile(0.9).as_secs_f64();
        assert!((p90 - 0.9).abs() < 0.001, "{p90}");
    }

    #[test]
    fn a_duration_beyond_the_range_counts_as_the_longest() {
        let mut delays = Delays::new();
        delays.record(Duration::MAX);
        let max = delays.max().as_secs_f64();
        assert!((max / 3600.0 - 1.0).abs() < 0.001, "{max}");
        assert_eq!(Delays::new().quantile(0.5), Duration::ZERO);
    }
}
