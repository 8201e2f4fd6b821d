//! An estimate of the rate of arrivals.

use std::time::Duration;

use tidegate_world::Timestamp;

/// The minimum observation time by which [`rate_at`](ArrivalRate::rate_at) divides the arrivals.
const OBSERVED_MIN: Duration = Duration::from_millis(100);

/// An estimate of the arrivals a second: the number of arrivals, divided by the observation time.
/// Older arrivals and older observation time count less (exponential decay with the same time
/// constant).
///
/// After a pause in the arrivals, the estimate is too low at first. Within one time constant, the
/// error falls by 63 %.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalRate {
    /// Time in seconds after which an arrival counts only 37 % of its initial weight.
    time_constant_s: f64,
    /// [`OBSERVED_MIN`] in seconds, decayed in the same way as `observed_s`.
    /// [`rate_at`](Self::rate_at) divides by at least this time.
    observed_min_s: f64,
    /// The time of the last arrival, or `None` before the first.
    last: Option<Timestamp>,
    /// Decayed number of all arrivals after the first, as of the last arrival.
    count: f64,
    /// Decayed time in seconds from the first to the last arrival. It is always less than the time
    /// constant.
    observed_s: f64,
}

impl Default for ArrivalRate {
    /// Creates an estimate with a time constant of half a second.
    fn default() -> Self {
        Self::over_s(0.5)
    }
}

impl ArrivalRate {
    /// Creates an estimate with this time constant in seconds.
    pub(crate) fn over_s(time_constant_s: f64) -> Self {
        let empty =
            Self { time_constant_s, observed_min_s: 0.0, last: None, count: 0.0, observed_s: 0.0 };
        Self { observed_min_s: empty.observed_s(empty.kept(OBSERVED_MIN)), ..empty }
    }

    pub(crate) fn on_arrival(&mut self, now: Timestamp) {
        self.on_arrivals(now, 1.0);
    }

    /// Records an arrival that counts as `number` arrivals.
    pub(crate) fn on_arrivals(&mut self, now: Timestamp, number: f64) {
        if let Some(last) = self.last.replace(now) {
            let kept = self.kept(now.since(last));
            self.count = self.count * kept + number;
            self.observed_s = self.observed_s(kept);
        }
    }

    /// Returns whether there has been any arrival.
    pub(crate) fn has_begun(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the factor by which a count decays in `time`.
    fn kept(&self, time: Duration) -> f64 {
        (-time.as_secs_f64() / self.time_constant_s).exp()
    }

    /// Returns `observed_s` after a further time in which counts decay by the factor `kept`.
    fn observed_s(&self, kept: f64) -> f64 {
        self.time_constant_s - (self.time_constant_s - self.observed_s) * kept
    }

    /// Returns the arrivals a second as of `now`. The estimate falls with the time since the last
    /// arrival. The time since the first arrival counts as at least [`OBSERVED_MIN`], so that two
    /// arrivals at nearly the same time do not count as a high rate.
    pub(crate) fn rate_at(&self, now: Timestamp) -> f64 {
        let Some(last) = self.last else { return 0.0 };
        let kept = self.kept(now.since(last));
        self.count * kept / self.observed_s(kept).max(self.observed_min_s)
    }

    /// Returns the arrivals a second as of the last arrival. Returns 0 until two arrivals have come
    /// at different times.
    pub(crate) fn rate(&self) -> f64 {
        if self.observed_s > 0.0 { self.count / self.observed_s } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(rate: &mut ArrivalRate, from_ms: u64, to_ms: u64, every_ms: u64) {
        for ms in (from_ms..to_ms).step_by(every_ms as usize) {
            rate.on_arrival(Timestamp::from_nanos(ms * 1_000_000));
        }
    }

    #[test]
    fn an_even_stream_is_measured_from_its_second_arrival_on() {
        let mut rate = ArrivalRate::default();
        even(&mut rate, 0, 1, 1);
        assert_eq!(rate.rate(), 0.0);
        for until in [20, 100, 1000, 10_000] {
            let mut rate = ArrivalRate::default();
            even(&mut rate, 0, until, 10);
            assert!((rate.rate() - 100.0).abs() < 2.0, "{} after {until} ms", rate.rate());
        }
    }

    #[test]
    fn a_step_is_followed_by_63_percent_in_one_time_constant() {
        let mut rate = ArrivalRate::default();
        even(&mut rate, 0, 10_000, 10);
        even(&mut rate, 10_000, 10_500, 1);
        // 100 + 0.632 · 900
        assert!((rate.rate() - 669.0).abs() < 10.0, "{}", rate.rate());
        let mut slow = ArrivalRate::over_s(2.0);
        even(&mut slow, 0, 20_000, 10);
        even(&mut slow, 20_000, 22_000, 1);
        assert!((slow.rate() - 669.0).abs() < 10.0, "{}", slow.rate());
    }

    #[test]
    fn the_current_rate_falls_while_nothing_arrives() {
        let mut rate = ArrivalRate::over_s(1.0);
        even(&mut rate, 0, 10_000, 10);
        let at = |ms: u64| rate.rate_at(Timestamp::from_nanos(ms * 1_000_000));
        assert!((at(10_000) - 100.0).abs() < 2.0 && (at(11_000) - 36.8).abs() < 1.0);
        assert_eq!(ArrivalRate::default().rate_at(Timestamp::from_nanos(9)), 0.0);
    }

    #[test]
    fn two_arrivals_within_an_instant_are_no_high_rate() {
        let mut rate = ArrivalRate::default();
        even(&mut rate, 0, 2, 1);
        // One more arrival in the decayed time 0.5 s · (1 - exp(-0.2)). In 1 ms it would be 1000/s.
        let current = rate.rate_at(Timestamp::from_nanos(1_000_000));
        assert!((current - 11.0).abs() < 0.1, "{current}");
    }

    #[test]
    fn one_arrival_may_count_as_several() {
        let mut rate = ArrivalRate::default();
        for ms in (0..5000).step_by(10) {
            rate.on_arrivals(Timestamp::from_nanos(ms * 1_000_000), 2.5);
        }
        assert!((rate.rate() - 250.0).abs() < 5.0, "{}", rate.rate());
    }

    #[test]
    fn simultaneous_arrivals_do_not_divide_by_zero() {
        let mut rate = ArrivalRate::default();
        even(&mut rate, 5, 6, 1);
        even(&mut rate, 5, 6, 1);
        assert_eq!(rate.rate(), 0.0);
    }
}
