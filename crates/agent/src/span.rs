//! Durations that people determine: ringing time, holding time, patience.

use std::time::Duration;

use tidegate_world::Stream;

/// A duration, or the distribution from which it is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Span {
    /// The same duration each time.
    Fixed(Duration),
    /// Exponentially distributed with this mean. This is the classical distribution of holding
    /// times in telephony. No duration is 0, unless the mean is 0.
    Exponential(Duration),
    /// Log-normally distributed. Most durations are shorter than the mean, and a few are very long,
    /// as measured holding times are (Bolotin, Telephone circuit holding time distributions, 1994).
    LogNormal {
        /// The mean duration.
        mean: Duration,
        /// Standard deviation of the natural logarithm of the duration. With 0, all durations equal
        /// the mean.
        sigma: f64,
    },
}

impl Span {
    /// A fixed duration of zero.
    pub const ZERO: Self = Self::Fixed(Duration::ZERO);

    /// Draws the next duration. A fixed duration takes no random number.
    pub(crate) fn draw(self, stream: &mut Stream) -> Duration {
        match self {
            Self::Fixed(time) => time,
            // With a mean of 1 ms, one of two million times would round to 0. But a call without a
            // holding time behaves differently from a short one, so each time is at least 1 ns.
            Self::Exponential(mean) => {
                seconds(stream.exponential(mean.as_secs_f64())).max(mean.min(SHORTEST))
            }
            Self::LogNormal { mean, sigma } => {
                let factor = (sigma * stream.normal() - sigma * sigma / 2.0).exp();
                seconds(mean.as_secs_f64() * factor)
            }
        }
    }
}

/// The shortest duration above 0.
const SHORTEST: Duration = Duration::from_nanos(1);

/// Returns a duration of this many seconds. If the number is out of range, returns the longest
/// duration.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl From<Duration> for Span {
    fn from(time: Duration) -> Self {
        Self::Fixed(time)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;

    fn stream() -> Stream {
        Seed(1).stream(Purpose::Hold, 0)
    }

    #[test]
    fn a_fixed_time_draws_nothing() {
        let mut stream_after = stream();
        let time = Duration::from_secs(3);
        assert_eq!(Span::from(time).draw(&mut stream_after), time);
        assert_eq!(stream_after.next_u64(), stream().next_u64());
    }

    #[test]
    fn a_random_time_has_the_mean_and_the_spread_of_an_exponential() {
        let (mut stream, n) = (stream(), 100_000);
        let span = Span::Exponential(Duration::from_secs(4));
        let drawn: Vec<f64> = (0..n).map(|_| span.draw(&mut stream).as_secs_f64() / 4.0).collect();
        let mean = drawn.iter().sum::<f64>() / f64::from(n);
        let longer = drawn.iter().filter(|&&time| time > 1.0).count() as f64 / f64::from(n);
        // The tolerance is five standard errors: 5 / sqrt(n), and 5·sqrt(p(1 - p) / n) with p =
        // 1/e.
        assert!((mean - 1.0).abs() < 0.016, "{mean}");
        assert!((longer - (-1.0f64).exp()).abs() < 0.0077, "{longer}");
    }

    /// For a call with a holding time of 0, the checker of calls once concluded that the caller had
    /// lost patience.
    #[test]
    fn no_exponential_time_is_zero() {
        let mut stream = stream();
        let mut is_zero = |mean| Span::Exponential(mean).draw(&mut stream).is_zero();
        assert!(!(0..100).any(|_| is_zero(Duration::from_nanos(1))));
        assert!(is_zero(Duration::ZERO));
    }

    #[test]
    fn a_log_normal_time_has_its_mean_above_its_median() {
        let (mut stream, n) = (stream(), 100_000);
        let span = Span::LogNormal { mean: Duration::from_secs(4), sigma: 1.0 };
        let drawn: Vec<f64> = (0..n).map(|_| span.draw(&mut stream).as_secs_f64() / 4.0).collect();
        let mean = drawn.iter().sum::<f64>() / f64::from(n);
        // The median is exp(-sigma² / 2) times the mean, so half of the durations are below that.
        let below = drawn.iter().filter(|&&time| time < (-0.5f64).exp()).count() as f64;
        // The tolerance is five standard errors. The standard deviation of a draw is sqrt(e - 1),
        // and the standard error of the share is sqrt(0.25 / n).
        assert!((mean - 1.0).abs() < 0.021, "{mean}");
        assert!((below / f64::from(n) - 0.5).abs() < 0.0079, "{below}");
        let same = Span::LogNormal { mean: Duration::from_secs(4), sigma: 0.0 };
        assert_eq!(same.draw(&mut stream), Duration::from_secs(4));
    }

    #[test]
    fn a_time_beyond_all_times_is_the_longest() {
        let drawn = Span::Exponential(Duration::MAX).draw(&mut stream());
        assert!(drawn > Duration::from_secs(1 << 40));
    }
}
