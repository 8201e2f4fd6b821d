//! Automatic call gapping.
//!
//! After a call that passes, no call passes for a gap of 1/rate. The first call after the gap
//! passes. Unused time is not saved, so two calls never pass closer together than the gap. If R
//! calls a second arrive at random, 1/(gap + 1/R) pass. This is less than the rate, and half of the
//! rate if R equals the rate.
//!
//! To pass a share f of R, the gap is therefore (1/f − 1)/R. This holds for Poisson arrivals. If
//! calls are evenly spaced, a gap can only pass every second call, every third call and so on.
//!
//! Source: RFC 7415 §3.5.3, 'classic gapping': a leaky bucket with TAU = 0; paper 002 §2.4 names
//! it.

use tidegate_world::Timestamp;

#[derive(Clone, Debug, Default)]
pub(super) struct Gapping {
    /// The time at which the last call passed, or `None` before the first.
    passed: Option<Timestamp>,
}

impl Gapping {
    /// Returns whether a call passes, when at most `rate` calls a second may pass.
    pub(super) fn passes(&mut self, now: Timestamp, rate: f64) -> bool {
        let gap_s = 1.0 / rate;
        let passes = self.passed.is_none_or(|last| now.since(last).as_secs_f64() >= gap_s);
        if passes {
            self.passed = Some(now);
        }
        passes
    }
}

/// Returns the rate at which the gap lets the share `fraction` of the calls pass (0 to 1), if
/// `arrivals` calls arrive a second.
pub(super) fn rate_of(fraction: f64, arrivals: f64) -> f64 {
    arrivals * fraction / (1.0 - fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    #[test]
    fn two_never_pass_closer_than_the_gap_and_nothing_is_saved() {
        let mut throttle = Gapping::default();
        let passed: Vec<u64> = [0, 99, 100, 150, 199, 250, 5000, 5001, 5099, 5100]
            .into_iter()
            .filter(|&ms| throttle.passes(at(ms), 10.0))
            .collect();
        assert_eq!(passed, [0, 100, 250, 5000, 5100]);
    }

    #[test]
    fn the_gap_of_a_share_compensates_for_lost_time() {
        // 1/(gap + 1/R) = f·R
        for (fraction, arrivals) in [(0.5, 100.0), (0.9, 7.0), (0.01, 1000.0)] {
            let gap_s = 1.0 / rate_of(fraction, arrivals);
            let passed = 1.0 / (gap_s + 1.0 / arrivals);
            assert!((passed - fraction * arrivals).abs() < 1e-9, "{passed}");
        }
    }
}
