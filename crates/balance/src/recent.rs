//! The last response times of a back end, and their weighted mean.

use std::time::Duration;

/// Number of response times that are kept.
const WINDOW: usize = 20;

/// The last 20 response times.
///
/// Their mean is Jiang et al.'s response-time weighted moving average (IEEE/ACM Transactions on
/// Networking 20(4), 2012): the newest weighs 20, the one before it 19, the oldest 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    /// The response times in µs, as a ring.
    times_us: [u32; WINDOW],
    length: usize,
    /// Index in `times_us` for the next response time.
    next: usize,
    sum_us: u64,
    /// The sum of all response times, each multiplied by its weight.
    weighed_us: u64,
}

impl Recent {
    /// Adds a response time. A response time of more than 71 minutes counts as 71 minutes.
    pub(crate) fn push(&mut self, time: Duration) {
        let newest = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let oldest = std::mem::replace(&mut self.times_us[self.next], newest);
        // The weights of all others fall by one, so the oldest, whose weight was 1, drops out.
        self.weighed_us = self.weighed_us - self.sum_us + WINDOW as u64 * u64::from(newest);
        self.sum_us = self.sum_us - u64::from(oldest) + u64::from(newest);
        self.next = (self.next + 1) % WINDOW;
        self.length = (self.length + 1).min(WINDOW);
    }

    /// Returns the weighted mean, or zero if there is no response time. The newest response time
    /// has weight 20 even if there are fewer than 20.
    pub(crate) fn mean(&self) -> Duration {
        let lightest = WINDOW - self.length + 1;
        let weights = (lightest + WINDOW) * self.length / 2;
        Duration::from_micros(self.weighed_us.checked_div(weights as u64).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_us(times_us: impl IntoIterator<Item = u64>) -> u128 {
        let mut recent = Recent::default();
        times_us.into_iter().for_each(|us| recent.push(Duration::from_micros(us)));
        recent.mean().as_micros()
    }

    #[test]
    fn the_newest_of_twenty_weighs_twenty_and_the_oldest_one() {
        assert_eq!(mean_us([]), 0);
        assert_eq!(mean_us([500]), 500);
        assert_eq!(mean_us([100, 200]), (19 * 100 + 20 * 200) / 39);
        // Σ w·w over Σ w, w = 1 … 20.
        assert_eq!(mean_us((1..=20).map(|n| n * 1000)), 2870 * 1000 / 210);
        // Times before the last 20 are forgotten.
        assert_eq!(mean_us((0..7).map(|_| 9_000_000).chain((0..20).map(|_| 40))), 40);
        assert_eq!(mean_us([u64::MAX]), u32::MAX.into());
    }
}
