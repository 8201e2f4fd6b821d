//! A moving average of response times that rises at once and falls slowly.

use std::time::Duration;

use tidegate_world::Timestamp;

/// A peak-sensitive, exponentially weighted moving average of response times (Peak-EWMA), as in
/// Finagle. A response time above the average becomes the average. A lower response time reduces
/// the average by an amount that depends on the elapsed time, with the time constant `decay`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    average_ns: f64,
    at: Timestamp,
}

impl Peak {
    pub(crate) fn push(&mut self, now: Timestamp, time: Duration, decay: Duration) {
        // 64 bits of nanoseconds are 584 years. To convert 128 bits takes a call of the runtime.
        let time_ns = time.as_nanos() as u64 as f64;
        if time_ns >= self.average_ns {
            self.average_ns = time_ns;
        } else {
            let kept = kept(now.since(self.at), decay);
            self.average_ns = kept * self.average_ns + (1.0 - kept) * time_ns;
        }
        self.at = now;
    }

    pub(crate) fn average(&self) -> Duration {
        Duration::from_nanos(self.average_ns as u64)
    }
}

/// Returns the fraction of an average, 0 to 1, that remains after the time `passed`.
pub(crate) fn kept(passed: Duration, decay: Duration) -> f64 {
    (-passed.as_secs_f64() / decay.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_at_once_and_falls_by_the_time_that_passes() {
        let ms = Duration::from_millis;
        let mut peak = Peak::default();
        let mut now = Timestamp::ZERO;
        peak.push(now, ms(10), ms(1000));
        peak.push(now, ms(200), ms(1000));
        assert_eq!(peak.average(), ms(200));
        peak.push(now, ms(10), ms(1000));
        assert_eq!(peak.average(), ms(200), "no time has passed");
        now = now + ms(1000);
        peak.push(now, ms(10), ms(1000));
        let expected = 200.0 / 1f64.exp() + 10.0 * (1.0 - 1.0 / 1f64.exp());
        assert!((peak.average().as_secs_f64() * 1e3 - expected).abs() < 1e-3);
    }
}
