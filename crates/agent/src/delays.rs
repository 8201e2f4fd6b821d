//! Durations and their quantiles.

use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Maximum duration that is measured, in microseconds: an hour. A longer duration counts as an
/// hour.
const LONGEST_US: u64 = 3_600_000_000;

/// Maximum number of durations in a set that is read from text. With this limit, the sum of several
/// sets does not overflow.
const COUNT_MAX: u64 = 1 << 56;

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

    /// Returns the quantile `q` (0 to 1): at least the fraction `q` of all durations is not longer
    /// than it. Returns zero if the set is empty.
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

    /// Returns all durations as text: `US:N US:N …`, which means N durations of US microseconds.
    fn histogram(&self) -> String {
        let mut text = String::new();
        for bucket in self.0.iter_recorded() {
            let separator = if text.is_empty() { "" } else { " " };
            let (us, count) = (bucket.value_iterated_to(), bucket.count_at_value());
            // Writing to a String does not fail.
            let _ = write!(text, "{separator}{us}:{count}");
        }
        text
    }

    /// Reads a set from the text that [`histogram`](Self::histogram) returns.
    fn of_histogram(text: &str) -> Result<Self, &'static str> {
        let mut delays = Self::new();
        let mut total = 0u64;
        for bucket in text.split_ascii_whitespace() {
            let (us, count) = bucket.split_once(':').ok_or("a bucket is not US:N")?;
            let us = us.parse().map_err(|_| "a duration is not a number")?;
            let count = count.parse().map_err(|_| "a count is not a number")?;
            total = total.saturating_add(count);
            delays.0.saturating_record_n(us, count);
        }
        if total > COUNT_MAX { Err("there are too many durations") } else { Ok(delays) }
    }
}

impl Default for Delays {
    fn default() -> Self {
        Self::new()
    }
}

/// Serializes the quantiles of the set, in microseconds, and its histogram. With the histogram,
/// another process can merge sets.
impl Serialize for Delays {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let us = |d: Duration| d.as_micros() as u64;
        let mut fields = serializer.serialize_struct("Delays", 7)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("mean_us", &us(self.mean()))?;
        fields.serialize_field("p50_us", &us(self.quantile(0.5)))?;
        fields.serialize_field("p90_us", &us(self.quantile(0.9)))?;
        fields.serialize_field("p99_us", &us(self.quantile(0.99)))?;
        fields.serialize_field("max_us", &us(self.max()))?;
        fields.serialize_field("histogram", &self.histogram())?;
        fields.end()
    }
}

/// Reads only the histogram, because the quantiles follow from it.
impl<'de> Deserialize<'de> for Delays {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Fields {
            histogram: String,
        }
        let Fields { histogram } = Fields::deserialize(deserializer)?;
        Self::of_histogram(&histogram).map_err(D::Error::custom)
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

    #[test]
    fn a_set_that_was_written_and_read_has_the_same_durations() {
        let mut delays = Delays::new();
        for us in [0, 1, 999, 1_000, 123_456, 123_456, LONGEST_US] {
            delays.record(Duration::from_micros(us));
        }
        for set in [delays, Delays::new()] {
            let text = serde_json::to_string(&set).unwrap();
            let read: Delays = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
            assert_eq!((read.count(), read.mean()), (set.count(), set.mean()));
        }
    }

    #[test]
    fn a_histogram_of_a_peer_may_be_wrong() {
        let read = |text: &str| {
            let json = serde_json::json!({ "histogram": text }).to_string();
            serde_json::from_str::<Delays>(&json).map_err(|error| error.to_string())
        };
        assert_eq!(read("5:2 7:1").unwrap().count(), 3);
        for (text, said) in [
            ("5", "a bucket is not US:N"),
            ("x:1", "a duration is not a number"),
            ("1:-1", "a count is not a number"),
            ("1:99999999999999999 2:18446744073709551615", "too many durations"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(serde_json::from_str::<Delays>("{}").is_err());
    }
}
