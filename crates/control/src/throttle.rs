//! Throttles: which pieces of new work pass, when only a share may.

use tidegate_world::{Stream, Timestamp};

use crate::Allowance;
use crate::arrival_rate::ArrivalRate;

/// How a throttle picks what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleKind {
    /// Evenly spread (000 §3.4).
    Deterministic,
    /// Each by a draw of its own.
    Random,
}

/// Enforces an [`Allowance`] on the work of one bucket.
#[derive(Clone, Debug)]
pub struct Throttle {
    arrivals: ArrivalRate,
    pick: Pick,
}

/// One in fixed point: 0.1 ten times is less than 1 in floating point.
const ONE: u64 = 1 << 32;

#[derive(Clone, Debug)]
enum Pick {
    /// 000 §3.4: the shares that have not passed yet add up; when they make one, one
    /// passes. Of any n in a row it passes n·f, but for one.
    Deterministic {
        /// What has added up, in units of 2^-32; below one.
        sum: u64,
    },
    /// Passes each with the probability f. The number that passes of n deviates by
    /// √(n·f·(1−f)), and long runs occur.
    Random(Box<Stream>),
}

impl Throttle {
    /// A deterministic throttle.
    pub fn deterministic() -> Self {
        Self { arrivals: ArrivalRate::default(), pick: Pick::Deterministic { sum: 0 } }
    }

    /// A random throttle that draws from `stream`.
    pub fn random(stream: Stream) -> Self {
        Self { arrivals: ArrivalRate::default(), pick: Pick::Random(Box::new(stream)) }
    }

    /// Pieces of work a second that come before it, as of the last.
    pub fn arrival_rate(&self) -> f64 {
        self.arrivals.rate()
    }

    /// Whether the next piece of work passes while so many are in progress.
    pub fn passes(&mut self, now: Timestamp, allowance: Allowance, in_progress: u64) -> bool {
        self.arrivals.on_arrival(now);
        let fraction = match allowance {
            Allowance::Open => return true,
            Allowance::Closed => return false,
            Allowance::Window(window) => return in_progress as f64 + 1.0 <= window,
            Allowance::Fraction(_) | Allowance::Rate(_) => {
                allowance.fraction(self.arrivals.rate()).clamp(0.0, 1.0)
            }
        };
        match &mut self.pick {
            Pick::Deterministic { sum } => {
                *sum += (fraction * ONE as f64).round() as u64;
                let passes = *sum >= ONE;
                if passes {
                    *sum -= ONE;
                }
                passes
            }
            Pick::Random(stream) => stream.unit() < fraction,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_world::{Purpose, Seed};

    use super::*;

    const NOW: Timestamp = Timestamp::ZERO;

    fn passed(throttle: &mut Throttle, fraction: f64, n: u32) -> u32 {
        (0..n).map(|_| u32::from(throttle.passes(NOW, Allowance::Fraction(fraction), 0))).sum()
    }

    proptest! {
        #[test]
        fn of_n_in_a_row_the_deterministic_one_passes_n_times_f(
            fraction in 0.0..=1.0f64, before in 0..100u32, n in 0..1000u32,
        ) {
            let mut throttle = Throttle::deterministic();
            passed(&mut throttle, fraction, before);
            let count = f64::from(passed(&mut throttle, fraction, n));
            prop_assert!((count - fraction * f64::from(n)).abs() <= 1.0 + 1e-6, "{}", count);
        }
    }

    #[test]
    fn ten_tenths_are_one() {
        let mut throttle = Throttle::deterministic();
        assert_eq!(passed(&mut throttle, 0.1, 10), 1);
        assert_eq!(passed(&mut throttle, 1.0, 10), 10);
        assert_eq!(passed(&mut throttle, 0.0, 10), 0);
    }

    #[test]
    fn the_random_one_passes_f_of_many_with_the_deviation_of_independent_draws() {
        let mut throttle = Throttle::random(Seed(1).stream(Purpose::Throttle, 0));
        let counts: Vec<f64> =
            (0..1000).map(|_| f64::from(passed(&mut throttle, 0.3, 1000))).collect();
        let mean = counts.iter().sum::<f64>() / 1000.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 1000.0;
        // √(n·f·(1−f)) = 14.5; its square is 210. Five standard errors of each.
        assert!((mean - 300.0).abs() < 2.3, "{mean}");
        assert!((variance - 210.0).abs() < 47.0, "{variance}");
    }

    #[test]
    fn open_and_closed_need_no_count() {
        for mut throttle in
            [Throttle::deterministic(), Throttle::random(Seed(1).stream(Purpose::Throttle, 0))]
        {
            assert!(
                throttle.passes(NOW, Allowance::Open, 9)
                    && !throttle.passes(NOW, Allowance::Closed, 0)
            );
        }
    }

    #[test]
    fn a_window_lets_so_many_be_in_progress() {
        let mut throttle = Throttle::deterministic();
        let passes =
            |(window, in_progress)| throttle.passes(NOW, Allowance::Window(window), in_progress);
        let cases = [(0.0, 0), (0.9, 0), (1.0, 0), (1.0, 1), (3.5, 2), (3.5, 3), (1e9, 5)];
        assert_eq!(cases.map(passes), [false, false, true, false, true, false, true]);
    }

    #[test]
    fn a_rate_is_the_share_that_it_is_of_what_arrives() {
        for mut throttle in
            [Throttle::deterministic(), Throttle::random(Seed(1).stream(Purpose::Throttle, 0))]
        {
            let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
            let mut passed = |from: u64, to| {
                (from..to).filter(|&ms| throttle.passes(at(ms), Allowance::Rate(50.0), 0)).count()
            };
            // 1,000 a second, of which 50.
            let counts = [passed(0, 1000), passed(1000, 11_000)];
            assert!((30..80).contains(&counts[0]) && (430..570).contains(&counts[1]), "{counts:?}");
        }
    }
}
