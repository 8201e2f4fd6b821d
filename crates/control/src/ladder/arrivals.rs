//! The rate at which callers send first packets. Retransmissions do not count.

/// Time in seconds after which the weight of a measurement has fallen to 1/e.
const FORGET_S: f64 = 1.0;

/// Deviation from the expected number of packets that suggests a new load, in standard deviations
/// of a Poisson process.
const DEVIATION: f64 = 4.0;

/// Minimum deviation that suggests a new load, as a fraction of the expected number of packets. If
/// the server reads too slowly for some periods, it counts too few packets, and then too many.
const DEVIATION_MIN: f64 = 0.5;

/// Number of consecutive deviations in the same direction that prove a new load. A single deviation
/// may be caused by a stall.
const DEVIATIONS: u32 = 2;

/// The factor for the weight of earlier measurements after a change of load.
const KEPT: f64 = 0.25;

/// An estimate of the rate of first packets: their number divided by the time. Both are sums over
/// all periods, so periods in which few packets pass have little weight.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    /// Number of packets. Older packets count less.
    counted: f64,
    /// Seconds of observation. Older seconds count less. Each second is multiplied by the fraction
    /// of all marks whose packets were counted in it.
    seconds: f64,
    /// Number of consecutive deviations in the same direction, and whether they are above the
    /// expected number.
    deviations: (u32, bool),
}

impl Arrivals {
    /// Records that `count` first packets came in `seconds`. `part` is the fraction of all marks
    /// whose packets were counted, 0 to 1. `all` is the number of packets of all marks, including
    /// retransmissions.
    pub(super) fn record(&mut self, count: f64, part: f64, all: f64, seconds: f64) {
        let far =
            |expected: f64| (DEVIATION * expected.max(1.0).sqrt()).max(DEVIATION_MIN * expected);
        let everything = self.per_second() * seconds;
        let expected = everything * part;
        // If few marks are counted, the number of all packets shows the end of a flood first.
        let is_over = everything - all > far(everything);
        let deviation = if is_over { all - everything } else { count - expected };
        let is_far = is_over || deviation.abs() > far(expected);
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

    /// Returns the rate of first packets a second, or 0 before the first record.
    pub(super) fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.counted / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(arrivals: &mut Arrivals, times: usize, count: f64, part: f64) -> f64 {
        (0..times).for_each(|_| arrivals.record(count, part, count / part, 0.1));
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

    /// Packets that come late delay the reading of other packets for two periods.
    #[test]
    fn packets_that_are_read_late_are_no_new_load() {
        let mut arrivals = Arrivals::default();
        record(&mut arrivals, 30, 1000.0, 1.0);
        let delayed = record(&mut arrivals, 2, 600.0, 1.0);
        assert!(delayed > 8_500.0, "{delayed}");
        let caught_up = record(&mut arrivals, 2, 1400.0, 1.0);
        assert!((9_500.0..11_500.0).contains(&caught_up), "{caught_up}");
    }

    #[test]
    fn a_period_in_which_little_passes_counts_little() {
        let mut arrivals = Arrivals::default();
        record(&mut arrivals, 10, 100.0, 1.0);
        (0..2).for_each(|_| arrivals.record(0.0, 0.01, 100.0, 0.1));
        let rate = arrivals.per_second();
        assert!((900.0..=1000.0).contains(&rate), "{rate}");
    }

    #[test]
    fn the_end_of_a_flood_is_noticed_even_if_few_marks_are_counted() {
        let mut arrivals = Arrivals::default();
        record(&mut arrivals, 30, 1.0, 0.01);
        assert!((arrivals.per_second() - 1000.0).abs() < 1e-6);
        let after = record(&mut arrivals, 5, 0.0, 0.01);
        assert!(after < 100.0, "{after}");
    }
}
