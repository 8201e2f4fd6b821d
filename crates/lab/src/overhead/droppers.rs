//! Measures the deviation of the deterministic and of the random throttle from the share of
//! requests that they should admit, and the length of runs of rejections. The exact values are
//! shown beside the measured ones.
//!
//! The throttles are those of the gate (paper 000 §3.4, paper 002 §2.4). For n consecutive requests
//! at a share f:
//!
//! - The deterministic throttle admits ⌊n·f⌋ or ⌈n·f⌉ requests, depending on its state. The
//!   standard deviation of this number is √(φ(1−φ)), where φ is the fractional part of n·f. The
//!   distance between two admitted requests is ⌊1/f⌋ or ⌈1/f⌉.
//! - For the random throttle, the standard deviation is √(n·f·(1−f)). A run of rejections is longer
//!   than j with the probability (1−f)^j. So the mean length of a run is 1/f, and the expected
//!   length of the longest of R runs is the sum of 1 − (1 − (1−f)^j)^R over all j ≥ 0.

use serde::Serialize;
use tidegate_control::{Allowance, Throttle, ThrottleKind};
use tidegate_world::{Purpose, Seed, Timestamp};

/// The shares of requests that the throttles should admit.
pub(crate) const FRACTIONS: [f64; 7] = [0.05, 0.1, 0.25, 1.0 / 3.0, 0.5, 0.75, 0.95];

/// Number of consecutive requests among which the admitted ones are counted.
pub const WINDOW: u32 = 100;

/// The parameters of [`measure`].
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Number of requests for each share.
    pub pieces: u32,
    /// Seed of the random numbers of the random throttle.
    pub seed: u64,
}

/// The measured and the exact values of a throttle at one share of requests to admit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the throttle.
    pub dropper: &'static str,
    /// The share of requests that the throttle should admit, 0 to 1.
    pub fraction: f64,
    /// The share of requests that the throttle admitted, 0 to 1.
    pub admitted: f64,
    /// Standard deviation of the number of admitted requests among [`WINDOW`] consecutive ones.
    pub deviation: Pair,
    /// Mean length of a run of rejections between two admitted requests.
    pub run_mean: Pair,
    /// Length of the longest run of rejections between two admitted requests.
    pub run_longest: Pair,
}

/// A measured and an exact value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The measured value.
    pub measured: f64,
    /// The expected value, computed by a formula.
    pub exact: f64,
}

/// Measures both throttles at each share of [`FRACTIONS`].
pub fn measure(parameters: &Parameters) -> Vec<Row> {
    let kinds = [ThrottleKind::Deterministic, ThrottleKind::Random];
    let rows = kinds.iter().flat_map(|kind| FRACTIONS.map(|fraction| (*kind, fraction)));
    rows.map(|(kind, fraction)| row(parameters, kind, fraction)).collect()
}

fn row(parameters: &Parameters, kind: ThrottleKind, fraction: f64) -> Row {
    let stream = Seed(parameters.seed).stream(Purpose::Throttle, 0);
    let mut throttle = Throttle::new(kind, 1, stream);
    let mut seen = Seen::default();
    for _ in 0..parameters.pieces {
        seen.note(throttle.passes(Timestamp::ZERO, Allowance::Fraction(fraction), 0));
    }
    let [deviation, mean, longest] = exact(kind, fraction, seen.runs.len());
    let pair = |measured, exact| Pair { measured, exact };
    Row {
        dropper: kind.name(),
        fraction,
        admitted: f64::from(seen.admitted) / f64::from(parameters.pieces.max(1)),
        deviation: pair(deviation_of(&seen.windows), deviation),
        run_mean: pair(mean_of(&seen.runs), mean),
        run_longest: pair(f64::from(seen.runs.iter().copied().max().unwrap_or(0)), longest),
    }
}

/// Counts of the decisions of a throttle, which are recorded one after the other.
#[derive(Default)]
struct Seen {
    pieces: u32,
    admitted: u32,
    /// Number of requests admitted in the current window.
    in_window: u32,
    windows: Vec<u32>,
    /// Number of rejections since the last admitted request, or `None` before the first admitted
    /// request.
    run: Option<u32>,
    /// Lengths of the runs of rejections between two admitted requests.
    runs: Vec<u32>,
}

impl Seen {
    fn note(&mut self, passes: bool) {
        self.pieces += 1;
        self.in_window += u32::from(passes);
        self.admitted += u32::from(passes);
        if self.pieces.is_multiple_of(WINDOW) {
            self.windows.push(std::mem::take(&mut self.in_window));
        }
        if passes {
            self.runs.extend(self.run.filter(|run| *run > 0));
            self.run = Some(0);
        } else if let Some(run) = &mut self.run {
            *run += 1;
        }
    }
}

/// Returns the exact standard deviation of the number of admitted requests, the exact mean length
/// of a run of rejections, and the exact expected length of the longest of `runs` runs.
fn exact(kind: ThrottleKind, fraction: f64, runs: usize) -> [f64; 3] {
    let n = f64::from(WINDOW);
    match kind {
        ThrottleKind::Deterministic => {
            let part = (n * fraction).fract();
            let gap = 1.0 / fraction;
            // If more than half of the requests are admitted, each run has only one rejection.
            let mean = if gap < 2.0 { 1.0 } else { gap - 1.0 };
            [(part * (1.0 - part)).sqrt(), mean, (gap.ceil() - 1.0).max(1.0)]
        }
        _ => {
            let longest = (0..)
                .map(|j| 1.0 - (1.0 - (1.0 - fraction).powi(j)).powf(runs as f64))
                .take_while(|part| *part > 1e-9)
                .sum();
            [(n * fraction * (1.0 - fraction)).sqrt(), 1.0 / fraction, longest]
        }
    }
}

fn mean_of(counts: &[u32]) -> f64 {
    counts.iter().copied().map(f64::from).sum::<f64>() / counts.len().max(1) as f64
}

fn deviation_of(counts: &[u32]) -> f64 {
    let mean = mean_of(counts);
    let squares: f64 = counts.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum();
    (squares / counts.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        measure(&Parameters { pieces: 200_000, seed: 1 })
    }

    #[test]
    fn the_deterministic_dropper_is_exact() {
        for row in rows().iter().filter(|row| row.dropper == "deterministic") {
            let Row { fraction, deviation, run_mean, run_longest, admitted, .. } = row;
            assert!((admitted - fraction).abs() < 1e-5, "{row:?}");
            // The share is rounded to a multiple of 2^-32. So one piece moves to the next window,
            // and one of 2,000 windows has one piece too many or too few.
            assert!((deviation.measured - deviation.exact).abs() < 0.025, "{row:?}");
            assert!((run_mean.measured - run_mean.exact).abs() < 1e-3, "{row:?}");
            assert_eq!(run_longest.measured, run_longest.exact, "{row:?}");
        }
    }

    #[test]
    fn the_random_dropper_deviates_like_independent_draws() {
        for row in rows().iter().filter(|row| row.dropper == "random") {
            let Row { deviation, run_mean, run_longest, .. } = row;
            // In 2,000 windows, five standard errors of the standard deviation are 8 %.
            assert!((deviation.measured / deviation.exact - 1.0).abs() < 0.08, "{row:?}");
            assert!((run_mean.measured / run_mean.exact - 1.0).abs() < 0.05, "{row:?}");
            // The length of the longest of many runs has a standard deviation of 1.28 ÷ −ln(1−f).
            let scatter = 1.28 / -(1.0 - row.fraction).ln();
            assert!(
                (run_longest.measured - run_longest.exact).abs() < 5.0 * scatter + 1.0,
                "{row:?}"
            );
        }
    }

    #[test]
    fn the_mean_longest_run_matches_its_formula() {
        // If there is one run, the longest run is as long as the mean.
        let [_, mean, longest] = exact(ThrottleKind::Random, 0.25, 1);
        assert!((mean - 4.0).abs() < 1e-12 && (longest - 4.0).abs() < 1e-6);
        // For two runs and f = 1/2, the formula gives Σ 1 − (1 − 2^−j)² = 2·2 − 4/3.
        let [_, _, longest] = exact(ThrottleKind::Random, 0.5, 2);
        assert!((longest - 8.0 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn runs_of_drops_are_counted_between_admitted_pieces() {
        let mut seen = Seen::default();
        for passes in [false, true, false, false, true, true, false, true, false] {
            seen.note(passes);
        }
        assert_eq!((seen.runs, seen.admitted), (vec![2, 1], 4));
    }
}
