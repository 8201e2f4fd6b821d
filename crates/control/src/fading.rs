//! Decay of counts, and of the time over which they were taken.
//!
//! Every 100 ms, a count and its observation time are multiplied by 0.8. So the count divided by
//! the time is a rate in which older pieces of work count less.

use std::time::Duration;

use tidegate_world::Timestamp;

/// The interval at which counts fade.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// Factor by which a count decays in one [`PERIOD`]. The time constant is 0.45 s.
const KEPT: f64 = 0.8;

/// The shortest observation time in seconds. A rate over less time would depend on chance.
const SECONDS_MIN: f64 = 0.01;

/// The time over which counts were taken. Past time decays like the counts.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    /// The number of the current period.
    period: u64,
    /// Observation time before the current period, in seconds. It is negative if the observation
    /// began in the current period.
    before_s: f64,
}

impl Observation {
    /// Starts an observation at `now`.
    pub(crate) fn starting_at(now: Timestamp) -> Self {
        let mut observation = Self { period: period_of(now), before_s: 0.0 };
        observation.before_s = -observation.open_s(now);
        observation
    }

    pub(crate) fn period(&self) -> u64 {
        self.period
    }

    /// Advances the observation to `now`. Returns the factor by which counts have faded.
    pub(crate) fn advance(&mut self, now: Timestamp) -> f64 {
        let passed = period_of(now).saturating_sub(self.period);
        if passed == 0 {
            return 1.0;
        }
        let kept = faded(passed);
        // The sum of the periods that have passed. The last one has faded once, the one before it
        // twice, and so on.
        let whole = PERIOD.as_secs_f64() * KEPT * (1.0 - kept) / (1.0 - KEPT);
        self.before_s = self.before_s * kept + whole;
        self.period += passed;
        kept
    }

    /// Returns the observation time up to `now` in seconds, at least 10 ms.
    pub(crate) fn seconds(&self, now: Timestamp) -> f64 {
        (self.before_s + self.open_s(now)).max(SECONDS_MIN)
    }

    /// Returns the time in seconds since the start of the current period.
    fn open_s(&self, now: Timestamp) -> f64 {
        let begun = PERIOD.as_nanos() as u64 * self.period;
        Duration::from_nanos(now.as_nanos().saturating_sub(begun)).as_secs_f64()
    }
}

/// Returns the number of the period that contains `now`.
fn period_of(now: Timestamp) -> u64 {
    now.as_nanos() / PERIOD.as_nanos() as u64
}

/// Returns the factor by which a count fades in this number of periods.
pub(crate) fn faded(periods: u64) -> f64 {
    KEPT.powi(periods.min(1000) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    /// Counts a piece every millisecond from `from_ms`. Returns the count for each second of
    /// observation at `to_ms`.
    fn rate(mut observation: Observation, from_ms: u64, to_ms: u64) -> f64 {
        let mut count = 0.0;
        for ms in from_ms..to_ms {
            count = count * observation.advance(at(ms)) + 1.0;
        }
        count *= observation.advance(at(to_ms));
        count / observation.seconds(at(to_ms))
    }

    #[test]
    fn a_count_over_its_observation_time_is_a_rate() {
        for to_ms in [50, 100, 130, 1000, 5050] {
            let cps = rate(Observation::default(), 0, to_ms);
            assert!((cps - 1000.0).abs() < 1e-6, "{cps} after {to_ms} ms");
        }
    }

    #[test]
    fn time_before_the_start_does_not_count() {
        for to_ms in [1080, 1100, 1130, 3000] {
            let cps = rate(Observation::starting_at(at(1060)), 1060, to_ms);
            assert!((cps - 1000.0).abs() < 1e-6, "{cps} until {to_ms} ms");
        }
    }

    #[test]
    fn a_rate_is_measured_over_ten_milliseconds_at_least() {
        assert!((rate(Observation::starting_at(at(1060)), 1060, 1062) - 200.0).abs() < 1e-6);
    }
}
