//! A histogram of durations. Its buckets are fixed, so that the histograms of several shards and
//! machines can be added.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets, in µs. One more bucket counts the longer durations.
const BOUNDS_US: [u64; 14] = [
    100, 500, 1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// A histogram of durations that any number of threads may write and read.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub fn observe(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Most durations are short, so their bucket is found at once.
        let bucket = BOUNDS_US.iter().position(|bound| ns <= bound * 1000);
        self.buckets[bucket.unwrap_or(BOUNDS_US.len())].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    /// Returns the upper bound of each bucket in seconds, and the number of durations in this
    /// bucket alone. The bound of the last bucket is [`f64::INFINITY`].
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BOUNDS_US.iter().map(|&us| us as f64 / 1e6).chain([f64::INFINITY]);
        bounds.zip(self.buckets.iter().map(|count| count.load(Relaxed)))
    }

    /// Returns the sum of all durations, in seconds.
    pub fn sum(&self) -> f64 {
        self.sum_ns.load(Relaxed) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_that_bounds_it() {
        let histogram = Histogram::default();
        for us in [0, 100, 101, 10_000_000, 10_000_001] {
            histogram.observe(Duration::from_micros(us));
        }
        let filled: Vec<_> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.0001, 2), (0.0005, 1), (10.0, 1), (f64::INFINITY, 1)]);
        assert!((histogram.sum() - 20.000_202).abs() < 1e-9);
    }
}
