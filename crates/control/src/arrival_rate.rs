//! An estimate of the rate at which something arrives.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Time constant: an arrival longer ago counts for less than 37 %.
const TIME_CONSTANT_S: f64 = 0.5;

/// Arrivals a second, each counted by a weight that fades with its age.
///
/// After a time without arrivals the estimate begins low, and follows within half a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArrivalRate {
    /// The times of the first and the last arrival.
    seen: Option<(Timestamp, Timestamp)>,
    /// Faded count of all arrivals after the first.
    count: f64,
    rate: f64,
}

impl ArrivalRate {
    /// Records an arrival.
    pub(crate) fn on_arrival(&mut self, now: Timestamp) {
        let Some((first, last)) = self.seen else {
            self.seen = Some((now, now));
            return;
        };
        let kept = |time: Duration| (-time.as_secs_f64() / TIME_CONSTANT_S).exp();
        self.count = self.count * kept(now.since(last)) + 1.0;
        self.seen = Some((first, now));
        // The observed time fades as the count does.
        let watched_s = TIME_CONSTANT_S * (1.0 - kept(now.since(first)));
        if watched_s > 0.0 {
            self.rate = self.count / watched_s;
        }
    }

    /// Returns arrivals a second, as of the last arrival; 0 before there were two at different
    /// times.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
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
    }

    #[test]
    fn what_arrives_at_once_divides_by_no_time() {
        let mut rate = ArrivalRate::default();
        even(&mut rate, 5, 6, 1);
        even(&mut rate, 5, 6, 1);
        assert_eq!(rate.rate(), 0.0);
    }
}
