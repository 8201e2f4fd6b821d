//! The random throttle.
//!
//! Each piece passes with the probability f. Of n pieces, the number that passes has a standard
//! deviation of √(n·f·(1−f)), and long runs occur. But the throttle has no pattern with which
//! arrivals could align.
//!
//! Source: paper 002 §2.4, the percentage throttle.

use tidegate_world::Stream;

#[derive(Clone, Debug)]
pub(super) struct Random(Box<Stream>);

impl Random {
    pub(super) fn new(stream: Stream) -> Self {
        Self(Box::new(stream))
    }

    /// Returns whether the next piece of work passes, if `fraction` of all work is to pass.
    pub(super) fn passes(&mut self, fraction: f64) -> bool {
        self.0.unit() < fraction
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;

    #[test]
    fn it_passes_f_of_many_with_the_deviation_of_independent_draws() {
        let mut throttle = Random::new(Seed(1).stream(Purpose::Throttle, 0));
        let mut passed = || (0..1000).filter(|_| throttle.passes(0.3)).count() as f64;
        let counts: Vec<f64> = (0..1000).map(|_| passed()).collect();
        let mean = counts.iter().sum::<f64>() / 1000.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 1000.0;
        // √(n·f·(1−f)) = 14.5. Its square is 210. Five standard errors of each.
        assert!((mean - 300.0).abs() < 2.3, "{mean}");
        assert!((variance - 210.0).abs() < 47.0, "{variance}");
    }
}
