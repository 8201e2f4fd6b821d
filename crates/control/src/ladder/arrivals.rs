//! The rate at which callers send their first packets.

/// Time after which a measurement counts for 1/e, s.
const FORGET_S: f64 = 0.5;

/// Deviation from the expected number, in standard deviations of a Poisson process, that is a sign of
/// another load.
const DEVIATION: f64 = 4.0;

/// Deviations to the same side, one after the other, that are another load. A single one is a stall.
const DEVIATIONS: u32 = 2;

/// The weight that earlier measurements keep then.
const KEPT: f64 = 0.25;

/// The rate of first packets: a ratio of two sums, so that periods in which few packets pass count
/// for little.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    /// Packets.
    counted: f64,
    /// Seconds, weighted by the part of the marks that was counted in them.
    seconds: f64,
    /// Consecutive deviations to the same side, and whether it is the upper one.
    deviations: (u32, bool),
}

impl Arrivals {
    /// Records that `count` packets came in `seconds`, counted by a `part` of their marks.
    pub(super) fn record(&mut self, count: f64, part: f64, seconds: f64) {
        let expected = self.per_second() * part * seconds;
        let deviation = count - expected;
        let is_far = deviation.abs() > DEVIATION * expected.max(1.0).sqrt();
        let (number, is_above) = self.deviations;
        self.deviations = match (is_far, deviation > 0.0) {
            (false, _) => (0, false),
            (true, above) if number > 0 && above == is_above => (number + 1, above),
            (true, above) => (1, above),
        };
        let is_new_load = self.deviations.0 >= DEVIATIONS || self.seconds == 0.0;
        let kept = if is_new_load { KEPT } else { (-seconds / FORGET_S).exp() };
        self.counted = self.counted * kept + count;
        self.seconds = self.seconds * kept + part * seconds;
    }

    /// Returns the rate; 0 before the first record.
    pub(super) fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.counted / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(arrivals: &mut Arrivals, times: usize, count: f64, part: f64) -> f64 {
        (0..times).for_each(|_| arrivals.record(count, part, 0.1));
        arrivals.per_second()
    }

    #[test]
    fn the_passing_part_shows_the_whole() {
        let mut arrivals = Arrivals::default();
        assert!((record(&mut arrivals, 5, 50.0, 0.25) - 2000.0).abs() < 1e-6);
        assert!((record(&mut arrivals, 1, 200.0, 1.0) - 2000.0).abs() < 1e-6);
    }

    #[test]
    fn a_new_load_is_found_in_three_periods_and_a_stall_is_none() {
        let mut arrivals = Arrivals::default();
        record(&mut arrivals, 10, 100.0, 1.0);
        let stalled = record(&mut arrivals, 1, 0.0, 1.0);
        assert!((750.0..1000.0).contains(&stalled), "{stalled}");
        record(&mut arrivals, 1, 200.0, 1.0);
        let rate = record(&mut arrivals, 3, 1000.0, 1.0);
        assert!(rate > 8_000.0, "{rate}");
    }

    #[test]
    fn a_period_in_which_little_passes_counts_little() {
        let mut arrivals = Arrivals::default();
        record(&mut arrivals, 10, 100.0, 1.0);
        let rate = record(&mut arrivals, 2, 0.0, 0.01);
        assert!((900.0..=1000.0).contains(&rate), "{rate}");
    }
}
