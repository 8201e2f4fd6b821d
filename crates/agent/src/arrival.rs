//! When calls begin: drawn in advance of any answer.
//!
//! An open loop: the moments depend on the seed alone, so a peer that is slow or
//! silent is offered exactly as much as one that is fast.

use std::time::Duration;

use tidegate_world::{Purpose, Seed, Stream, Timestamp};

/// The process by which calls arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Process {
    /// Independent arrivals: exponentially distributed gaps.
    #[default]
    Poisson,
    /// Equal gaps.
    Uniform,
}

/// How many calls are offered, how fast and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The process by which they arrive.
    pub process: Process,
    /// Mean rate, calls/s.
    pub rate_cps: f64,
    /// At most so many calls.
    pub calls: u32,
    /// None later than this after the start.
    pub duration: Duration,
}

/// The intended moments of a run's calls, in order.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    load: Load,
    stream: Stream,
    start: Timestamp,
    drawn: u32,
    /// Seconds since the start.
    offset_s: f64,
}

impl Arrivals {
    pub fn new(load: Load, start: Timestamp, seed: Seed, element: u32) -> Self {
        let stream = seed.stream(Purpose::Arrivals, element);
        Self { load, stream, start, drawn: 0, offset_s: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        if self.drawn == self.load.calls {
            return None;
        }
        self.offset_s = match self.load.process {
            // From the count, not from the last one: rounding does not add up.
            Process::Uniform => f64::from(self.drawn) / self.load.rate_cps,
            Process::Poisson => self.offset_s + self.stream.exponential(1.0 / self.load.rate_cps),
        };
        if self.offset_s > self.load.duration.as_secs_f64() {
            self.drawn = self.load.calls;
            return None;
        }
        self.drawn += 1;
        // Saturates at the end of time.
        Some(self.start + Duration::from_nanos((self.offset_s * 1e9) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(process: Process, rate_cps: f64, calls: u32) -> Load {
        Load { process, rate_cps, calls, duration: Duration::MAX }
    }

    fn drawn(load: Load) -> Vec<Timestamp> {
        Arrivals::new(load, Timestamp::from_nanos(5), Seed(1), 0).collect()
    }

    #[test]
    fn uniform_gaps_are_equal_to_the_end() {
        let times = drawn(load(Process::Uniform, 3.0, 300_001));
        assert_eq!(times.len(), 300_001);
        assert_eq!(times[0], Timestamp::from_nanos(5));
        assert_eq!(times[300_000], Timestamp::from_nanos(100_000_000_000_005));
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let n = 100_000;
        let times = drawn(load(Process::Poisson, 1000.0, n));
        let gaps: Vec<f64> =
            times.windows(2).map(|w| w[1].since(w[0]).as_secs_f64() * 1000.0).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Five standard errors: 5 / sqrt(n) for the mean, 5·sqrt(8 / n) for the variance.
        assert!((mean - 1.0).abs() < 0.016, "{mean}");
        assert!((variance - 1.0).abs() < 0.045, "{variance}");
    }

    #[test]
    fn the_duration_ends_them() {
        let load =
            Load { duration: Duration::from_millis(999), ..load(Process::Uniform, 10.0, u32::MAX) };
        assert_eq!(drawn(load).len(), 10);
    }
}
