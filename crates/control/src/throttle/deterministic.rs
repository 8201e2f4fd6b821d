//! The deterministic throttle.
//!
//! For each piece of work the throttle adds the admitted share f to a sum. When the sum reaches
//! one, the piece passes, and one is subtracted. While f stays the same, n·f of any n consecutive
//! pieces pass, plus or minus one. The pieces that pass are spread as evenly as possible.
//!
//! Source: paper 000 §3.4.

/// One in fixed point. In floating point, ten times 0.1 is less than 1.
const ONE: u64 = 1 << 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct Deterministic {
    /// Accumulated shares, in units of 2^-32, below one.
    sum: u64,
}

impl Deterministic {
    /// Sets the accumulated share to `part`, 0 to 1.
    pub(crate) fn start_at(&mut self, part: f64) {
        self.sum = fixed(part).min(ONE - 1);
    }

    /// Returns whether the next piece of work passes, if `fraction` of all work is to pass.
    pub(crate) fn passes(&mut self, fraction: f64) -> bool {
        self.sum += fixed(fraction);
        let passes = self.sum >= ONE;
        if passes {
            self.sum -= ONE;
        }
        passes
    }
}

fn fixed(fraction: f64) -> u64 {
    (fraction.clamp(0.0, 1.0) * ONE as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(throttle: &mut Deterministic, fraction: f64, n: u32) -> u32 {
        (0..n).map(|_| u32::from(throttle.passes(fraction))).sum()
    }

    proptest! {
        #[test]
        fn of_n_in_a_row_it_passes_n_times_f(
            start in 0.0..1.0f64, fraction in 0.0..=1.0f64, before in 0..100u32, n in 0..1000u32,
        ) {
            let mut throttle = Deterministic::default();
            throttle.start_at(start);
            passed(&mut throttle, fraction, before);
            let count = f64::from(passed(&mut throttle, fraction, n));
            prop_assert!((count - fraction * f64::from(n)).abs() <= 1.0 + 1e-6, "{}", count);
        }
    }

    #[test]
    fn ten_tenths_are_one() {
        let mut throttle = Deterministic::default();
        assert_eq!(passed(&mut throttle, 0.1, 10), 1);
        assert_eq!(passed(&mut throttle, 1.0, 10), 10);
        assert_eq!(passed(&mut throttle, 0.0, 10), 0);
    }

    #[test]
    fn where_it_starts_is_when_the_first_passes() {
        for (start, first) in [(0.0, 4), (0.3, 3), (0.5, 2), (0.75, 1), (0.99, 1), (1.0, 1)] {
            let mut throttle = Deterministic::default();
            throttle.start_at(start);
            let passes = (1..).find(|_| throttle.passes(0.25));
            assert_eq!(passes, Some(first), "from {start}");
        }
    }
}
