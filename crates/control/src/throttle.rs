//! Throttles: which pieces of new work pass, when only a share may.

use tidegate_world::Stream;

use crate::Allowance;

/// How a throttle picks what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleKind {
    /// Evenly spread (000 §3.4).
    Deterministic,
    /// Each by a draw of its own.
    Random,
}

/// One in fixed point: 0.1 ten times is less than 1 in floating point.
const ONE: u64 = 1 << 32;

/// Enforces an [`Allowance`] on the work of one bucket.
#[derive(Clone, Debug)]
pub enum Throttle {
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
        Self::Deterministic { sum: 0 }
    }

    /// A random throttle that draws from `stream`.
    pub fn random(stream: Stream) -> Self {
        Self::Random(Box::new(stream))
    }

    /// Whether the next piece of work passes.
    pub fn passes(&mut self, allowance: Allowance) -> bool {
        let fraction = match allowance {
            Allowance::Open => return true,
            Allowance::Closed => return false,
            Allowance::Fraction(fraction) => fraction.clamp(0.0, 1.0),
        };
        match self {
            Self::Deterministic { sum } => {
                *sum += (fraction * ONE as f64).round() as u64;
                let passes = *sum >= ONE;
                if passes {
                    *sum -= ONE;
                }
                passes
            }
            Self::Random(stream) => stream.unit() < fraction,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_world::{Purpose, Seed};

    use super::*;

    fn passed(throttle: &mut Throttle, fraction: f64, n: u32) -> u32 {
        (0..n).map(|_| u32::from(throttle.passes(Allowance::Fraction(fraction)))).sum()
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
            assert!(throttle.passes(Allowance::Open) && !throttle.passes(Allowance::Closed));
        }
    }
}
