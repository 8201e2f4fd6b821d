//! The expected number of calls until a time, Λ(t), and the inverse: the time of a call.
//!
//! Λ(t) = ∫₀ᵗ λ(s) ds, where λ is the rate. If the eᵢ are exponentially distributed with mean 1,
//! the times Λ⁻¹(e₁), Λ⁻¹(e₁ + e₂), … are those of a Poisson process of rate λ(t) (time rescaling:
//! Çinlar, *Introduction to Stochastic Processes*, 1975, §4.7). So with any profile, a call needs
//! one random number, and none is discarded, as it would be by rejection sampling.
//!
//! λ consists of pieces. A piece is either a straight line or an exponential decay to a floor. For
//! a line, Λ⁻¹ is the root of a quadratic equation. For a decay, Λ is concave, and Newton's method
//! converges from below.

use super::profile::Profile;

/// Maximum number of steps of Newton's method for a decaying rate. While the rate is far above its
/// floor, a step advances by about the time constant of the decay. After that, each step doubles
/// the number of correct digits. So the steps suffice for peaks up to e⁵⁰ times the floor.
const NEWTON_MAX: usize = 64;

/// The expected number of calls as a function of time (Λ), for one profile at one rate.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// The pieces of the curve in order of time. The first begins at time 0, each later one begins
    /// at the end of the previous one, and the last has no end.
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Start of the piece, in seconds after the start of the load.
    start_s: f64,
    /// Expected number of calls from the start of the load to the start of the piece.
    calls: f64,
    shape: Shape,
}

/// The rate in calls/s, as a function of the time since the piece began.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Line { from_cps: f64, to_cps: f64, length_s: f64 },
    Decay { floor_cps: f64, excess_cps: f64, tau_s: f64 },
}

impl Curve {
    /// Creates the curve of `profile`, with `rate_cps` at factor 1.
    pub fn new(profile: &Profile, rate_cps: f64) -> Self {
        let mut curve = Drawing::default();
        match profile {
            Profile::Constant => curve.level(rate_cps, f64::INFINITY),
            Profile::Gradual { up, hold, down } => {
                curve.line(0.0, rate_cps, up.as_secs_f64());
                curve.level(rate_cps, hold.as_secs_f64());
                curve.line(rate_cps, 0.0, down.as_secs_f64());
                curve.level(0.0, f64::INFINITY);
            }
            Profile::Instant { at } => {
                curve.level(0.0, at.as_secs_f64());
                curve.level(rate_cps, f64::INFINITY);
            }
            Profile::Steps(steps) => {
                let mut cps = rate_cps;
                for (at, factor) in steps.iter() {
                    curve.level(cps, at.as_secs_f64() - curve.end_s);
                    cps = rate_cps * factor;
                }
                curve.level(cps, f64::INFINITY);
            }
            Profile::Flash { at, peak, rise, decay } => {
                curve.level(rate_cps, at.as_secs_f64());
                curve.line(rate_cps, rate_cps * peak, rise.as_secs_f64());
                let excess_cps = rate_cps * (peak - 1.0);
                let tau_s = decay.as_secs_f64();
                let shape = Shape::Decay { floor_cps: rate_cps, excess_cps, tau_s };
                curve.push(shape, f64::INFINITY);
            }
            Profile::Avalanche { at, calls, within } => {
                let within_s = within.as_secs_f64();
                curve.level(rate_cps, at.as_secs_f64());
                curve.level(rate_cps + f64::from(*calls) / within_s, within_s);
                curve.level(rate_cps, f64::INFINITY);
            }
        }
        Self { pieces: curve.pieces }
    }

    /// Returns Λ: the number of calls that are expected until `at_s` seconds after the start.
    pub fn calls_until(&self, at_s: f64) -> f64 {
        let piece = self.last_piece(|piece| piece.start_s <= at_s);
        piece.calls + piece.shape.calls(at_s - piece.start_s)
    }

    /// Returns Λ⁻¹: the time in seconds after the start at which the number of expected calls first
    /// exceeds `calls`. Returns `None` if it never does.
    pub fn time_of(&self, calls: f64) -> Option<f64> {
        let piece = self.last_piece(|piece| piece.calls <= calls);
        let passed_s = piece.shape.time(calls - piece.calls)?;
        Some(piece.start_s + passed_s)
    }

    /// Returns λ: the rate in calls/s, `at_s` seconds after the start.
    pub fn rate_cps(&self, at_s: f64) -> f64 {
        let piece = self.last_piece(|piece| piece.start_s <= at_s);
        piece.shape.rate_cps(at_s - piece.start_s)
    }

    /// Returns the total number of expected calls. It is infinite unless the rate falls to zero and
    /// stays there.
    pub fn total(&self) -> f64 {
        let last = self.pieces.last().expect("a curve has a last piece");
        if last.shape.rate_cps(0.0) > 0.0 { f64::INFINITY } else { last.calls }
    }

    /// Returns the last piece for which `has_begun` is true. It is always true for the first piece,
    /// which begins at time 0 with 0 calls.
    fn last_piece(&self, has_begun: impl Fn(&Piece) -> bool) -> &Piece {
        &self.pieces[self.pieces.partition_point(has_begun) - 1]
    }
}

/// A curve during construction.
#[derive(Default)]
struct Drawing {
    pieces: Vec<Piece>,
    end_s: f64,
    calls: f64,
}

impl Drawing {
    fn level(&mut self, cps: f64, length_s: f64) {
        self.line(cps, cps, length_s);
    }

    fn line(&mut self, from_cps: f64, to_cps: f64, length_s: f64) {
        self.push(Shape::Line { from_cps, to_cps, length_s }, length_s);
    }

    fn push(&mut self, shape: Shape, length_s: f64) {
        if length_s <= 0.0 {
            return;
        }
        self.pieces.push(Piece { start_s: self.end_s, calls: self.calls, shape });
        if length_s.is_finite() {
            self.end_s += length_s;
            self.calls += shape.calls(length_s);
        }
    }
}

impl Shape {
    fn rate_cps(self, passed_s: f64) -> f64 {
        match self {
            Self::Line { from_cps, to_cps, length_s } => {
                from_cps + slope(from_cps, to_cps, length_s) * passed_s
            }
            Self::Decay { floor_cps, excess_cps, tau_s } => {
                floor_cps + excess_cps * (-passed_s / tau_s).exp()
            }
        }
    }

    /// Returns the number of calls that are expected in the first `passed_s` seconds of the piece.
    fn calls(self, passed_s: f64) -> f64 {
        match self {
            Self::Line { from_cps, to_cps, length_s } => {
                (from_cps + slope(from_cps, to_cps, length_s) * passed_s / 2.0) * passed_s
            }
            Self::Decay { floor_cps, excess_cps, tau_s } => {
                floor_cps * passed_s - excess_cps * tau_s * (-passed_s / tau_s).exp_m1()
            }
        }
    }

    /// Returns the time in seconds from the start of the piece until `calls` calls are expected, or
    /// `None` if the rate is always zero.
    fn time(self, calls: f64) -> Option<f64> {
        match self {
            Self::Line { from_cps, to_cps, .. } if from_cps == 0.0 && to_cps == 0.0 => None,
            Self::Line { .. } if calls == 0.0 => Some(0.0),
            // This is the root of `from·u + slope·u²/2 = calls`, in a form without cancellation of
            // digits.
            Self::Line { from_cps, to_cps, length_s } => {
                let slope = slope(from_cps, to_cps, length_s);
                let end_cps = (from_cps * from_cps + 2.0 * slope * calls).max(0.0).sqrt();
                Some((2.0 * calls / (from_cps + end_cps)).min(length_s))
            }
            Self::Decay { .. } => {
                let mut passed_s = 0.0;
                for _ in 0..NEWTON_MAX {
                    let missing = calls - self.calls(passed_s);
                    let next_s = passed_s + missing / self.rate_cps(passed_s);
                    // The iteration ends when rounding stops the progress.
                    if next_s <= passed_s {
                        break;
                    }
                    passed_s = next_s;
                }
                Some(passed_s)
            }
        }
    }
}

/// Returns the change of the rate per second. If the length is infinite, the change is 0.
fn slope(from_cps: f64, to_cps: f64, length_s: f64) -> f64 {
    (to_cps - from_cps) / length_s
}

#[cfg(test)]
#[path = "curve_tests.rs"]
mod tests;
