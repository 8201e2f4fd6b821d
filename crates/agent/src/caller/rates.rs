//! The rates of a caller, and the verdict whether it was fast enough.
//!
//! If the last of N calls is due at a time T after the start, the rate is (N - 1) / T. With uniform
//! arrivals, the first call is due at the start, so T is the time of N - 1 gaps. With Poisson
//! arrivals, (N - 1) / T is an estimate without bias, and N / T would be too high on average.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::caller::stats::CallerStats;

impl CallerStats {
    /// Returns the rate in calls/s at which calls were due, or 0 for fewer than two calls.
    pub fn intended_cps(&self) -> f64 {
        rate_to_last(self.offered, self.offered, self.last_intended.since(self.start))
    }

    /// Returns the goodput in the measured time: calls set up in time, per second. `warm_up` and
    /// `measured_until` are those of the configuration.
    pub fn measured_goodput_cps(&self, warm_up: Duration, measured_until: Duration) -> f64 {
        let (from, until) = (self.start + warm_up, self.start + measured_until);
        let (offered, good) = (self.measured.offered, self.measured.set_up_in_time);
        if until < self.last_intended {
            return rate(good as f64, until.since(from));
        }
        rate_to_last(good, offered, self.last_intended.since(from))
    }

    /// Returns the rate in calls/s at which calls were started. Calls that were due but not started
    /// lower this rate, even if they were due after the last call that was started.
    pub fn begun_cps(&self) -> f64 {
        let last = self.last_begun.max(self.last_intended);
        rate_to_last(self.begun, self.offered, last.since(self.start))
    }

    /// Returns the goodput: calls set up in time, per second of the time in which calls were
    /// offered.
    pub fn goodput_cps(&self) -> f64 {
        rate_to_last(self.set_up_in_time, self.offered, self.last_intended.since(self.start))
    }

    /// Returns the rates and the lateness of a caller that was too slow to offer its load, or
    /// `None` if it was fast enough. The other results of a slow caller do not describe the server.
    pub fn too_slow(&self) -> Option<TooSlow> {
        let missing = self.not_begun as f64 / self.offered.max(1) as f64;
        self.too_late().or_else(|| (missing > 0.01).then(|| self.figures()))
    }

    /// Returns the rates and the lateness of a caller that started its calls too late, or `None` if
    /// it was fast enough. Unlike [`too_slow`](Self::too_slow), this ignores calls that were not
    /// started.
    pub fn too_late(&self) -> Option<TooSlow> {
        /// Delay that at most 1 % of the calls may exceed.
        const LATENESS_MAX: Duration = Duration::from_millis(5);
        let intended = self.last_intended.since(self.start);
        let stretched = self.last_begun.since(self.start) > intended.mul_f64(1.01) + LATENESS_MAX;
        // Calls that were held back start late on purpose, so a late last start does not count.
        let stretched = stretched && self.held_back == 0;
        let figures = self.figures();
        (figures.lateness_p99 > LATENESS_MAX || stretched).then_some(figures)
    }

    fn figures(&self) -> TooSlow {
        TooSlow {
            follower: None,
            lateness_p99: self.lateness.quantile(0.99),
            intended_cps: self.intended_cps(),
            begun_cps: self.begun_cps(),
            not_begun: self.not_begun,
        }
    }
}

/// The rates and the lateness of a caller that was too slow to offer its load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TooSlow {
    /// Name of the follower that was too slow, or `None` if the figures are those of the whole load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follower: Option<String>,
    /// The 99th percentile of the delay between the intended and the actual start of a call.
    pub lateness_p99: Duration,
    /// Rate in calls/s at which calls should have started.
    pub intended_cps: f64,
    /// Rate in calls/s at which calls started.
    pub begun_cps: f64,
    /// Calls not started, because too many calls were open, or because too many calls already
    /// waited for another call to end.
    pub not_begun: u64,
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(follower) = &self.follower {
            write!(f, "follower {follower}: ")?;
        }
        write!(
            f,
            "too slow: began {:.1} instead of {:.1} calls/s, and 1 % of them more than {:.1} ms late",
            self.begun_cps,
            self.intended_cps,
            self.lateness_p99.as_secs_f64() * 1e3
        )?;
        match self.not_begun {
            0 => Ok(()),
            missing => {
                write!(f, "; {missing} calls did not begin, because too many were open or waiting")
            }
        }
    }
}

/// Returns how many calls or registrations there were a second, if `count` of them were counted. Of
/// the `due` ones that should have come, the last was due at the end of `span`. Returns 0 if fewer
/// than two were due.
pub(crate) fn rate_to_last(count: u64, due: u64, span: Duration) -> f64 {
    rate(count as f64 * due.saturating_sub(1) as f64 / due.max(1) as f64, span)
}

fn rate(count: f64, span: Duration) -> f64 {
    if span.is_zero() { 0.0 } else { count / span.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use tidegate_world::Timestamp;

    use super::*;
    use crate::caller::stats::Measured;

    fn after(seconds: f64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs_f64(seconds)
    }

    /// Two calls at 10 calls/s once had a rate of 20 calls/s.
    #[test]
    fn a_rate_counts_the_times_between_calls() {
        let rates = |calls, last_s| {
            let stats = CallerStats {
                offered: calls,
                begun: calls,
                set_up_in_time: calls,
                last_intended: after(last_s),
                last_begun: after(last_s),
                ..CallerStats::default()
            };
            [stats.intended_cps(), stats.begun_cps(), stats.goodput_cps()]
        };
        assert_eq!(rates(2, 0.125), [8.0; 3]);
        assert_eq!(rates(1001, 125.0), [8.0; 3]);
        // One call has no rate.
        for (calls, last_s) in [(0, 0.0), (1, 0.0), (1, 0.125)] {
            assert_eq!(rates(calls, last_s), [0.0; 3]);
        }
    }

    #[test]
    fn the_measured_time_ends_with_the_last_call_or_at_a_fixed_time() {
        let measured = Measured { offered: 5, set_up_in_time: 5, ..Measured::default() };
        let stats = CallerStats { measured, last_intended: after(3.0), ..CallerStats::default() };
        let goodput_cps = |until| stats.measured_goodput_cps(Duration::from_secs(1), until);
        assert_eq!(goodput_cps(Duration::MAX), 2.0);
        assert_eq!(goodput_cps(Duration::from_millis(2250)), 4.0);
    }

    /// The time of the last start does not move while too many calls are open. The rate of begun
    /// calls was once computed up to that time, so it did not show that calls were missing.
    #[test]
    fn calls_that_do_not_begin_lower_the_rate_and_are_named() {
        let stats = CallerStats {
            offered: 101,
            begun: 25,
            not_begun: 76,
            last_intended: after(10.0),
            last_begun: after(2.5),
            ..CallerStats::default()
        };
        assert_eq!(stats.intended_cps(), 10.0);
        let begun_cps = stats.begun_cps();
        assert!((begun_cps - 2.475).abs() < 0.001, "{begun_cps}");
        let text = stats.too_slow().expect("most calls did not begin").to_string();
        assert!(text.starts_with("too slow: began 2.5 instead of 10.0 calls/s"), "{text}");
        let end = "; 76 calls did not begin, because too many were open or waiting";
        assert!(text.ends_with(end), "{text}");
    }
}
