//! A window learned from the slope of the delay: the maximum number of requests without a response
//! at a back end.
//!
//! # Signal
//!
//! The shortest time R in an interval from a request to the first response of the back end, and its
//! average R̄ over about the last [`LONG`] intervals, both in seconds. As in
//! [`delay`](super::delay), the shortest time does not depend on one slow destination or one
//! caller.
//!
//! # Decision
//!
//! There is no window until R exceeds 2·R̄. The first window is the number of requests that the back
//! end held at that time (responses a second times R). From then on, in each interval:
//!
//! ```text
//! g = clamp(½, R̄/R, 1)
//! W ← 0.8·W + 0.2·(g·W + 4),   growth only while the window is used up
//! ```
//!
//! W counts requests. If R̄ exceeds 2·R, R̄ falls by a tenth, because its value still comes from an
//! overload.
//!
//! # Bias
//!
//! The law has no threshold in seconds. If a back end normally responds in 1 ms, responses after
//! 3 ms cause a window, although this is no overload. In a long overload the average follows the
//! delay, so the window grows by 0.8 in each interval until the delay rises faster than its
//! average. Loss is not a signal, so a back end with a short receive buffer is not protected.
//!
//! # Source
//!
//! Netflix concurrency-limits, `Gradient2Limit.java`, with one step in each interval instead of one
//! for each response, and with the minimum of the interval instead of each response time. The
//! original starts with a window of 20. Here the window starts only when R first exceeds 2·R̄,
//! because with a window of 20, a back end that responds after 200 ms would get only 100 requests a
//! second.

use super::window_learning::{FEW, Responses, WINDOW_MIN};

/// Length of the long average of the delay, in intervals. The newest interval has a weight of
/// 2/(LONG + 1).
const LONG: f64 = 60.0;
/// Multiple of the average delay that the delay must exceed before the first window is set.
const TRIP: f64 = 2.0;
/// The minimum of g, the factor by which a rising delay reduces the window.
const GRADIENT_MIN: f64 = 0.5;
/// The weight of the newly computed window in its average with the previous window.
const SMOOTHING: f64 = 0.2;
/// Number of requests by which the window would grow in each interval without smoothing.
const QUEUE: f64 = 4.0;
/// The average delay is reduced by the factor [`DRIFT_FACTOR`] while it exceeds this multiple of
/// the delay.
const DRIFT_MAX: f64 = 2.0;
const DRIFT_FACTOR: f64 = 0.9;

/// The learned window, and the average delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GradientWindow {
    /// The maximum number of requests without a response, or infinity until the delay has exceeded
    /// [`TRIP`] times its average.
    pub(crate) window: f64,
    /// The average of the shortest delays, in seconds, or infinity before the first response.
    long_s: f64,
}

impl GradientWindow {
    pub(crate) const COLD: Self = Self { window: f64::INFINITY, long_s: f64::INFINITY };

    /// Returns the window after an interval with the responses `seen`.
    pub(crate) fn step(mut self, seen: &Responses) -> Self {
        let Some(least) = seen.least.filter(|_| seen.heard >= FEW) else { return self };
        let least_s = least.as_secs_f64().max(1e-6);
        if self.long_s.is_infinite() {
            self.long_s = least_s;
        }
        let is_tripped = least_s > TRIP * self.long_s;
        self.long_s += 2.0 / (LONG + 1.0) * (least_s - self.long_s);
        if self.long_s > DRIFT_MAX * least_s {
            self.long_s *= DRIFT_FACTOR;
        }
        if self.window.is_infinite() {
            if is_tripped {
                self.window = (seen.heard_per_s() * least_s).max(WINDOW_MIN);
            }
            return self;
        }
        let gradient = (self.long_s / least_s).clamp(GRADIENT_MIN, 1.0);
        let wanted = gradient * self.window + QUEUE;
        let window = (1.0 - SMOOTHING) * self.window + SMOOTHING * wanted;
        if seen.wanted || window < self.window {
            self.window = window.max(WINDOW_MIN);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the responses of an interval of 100 ms: 100 of them, the quickest after `least_ms`.
    fn seen(least_ms: u64, wanted: bool) -> Responses {
        Responses {
            lasted: Duration::from_millis(100),
            heard: 100,
            late: 0,
            least: Some(Duration::from_millis(least_ms)),
            lost: 0,
            wanted,
        }
    }

    /// A law with an average of 10 ms.
    fn warm() -> GradientWindow {
        GradientWindow::COLD.step(&seen(10, false))
    }

    /// A law with a window of 100 and an average of 10 ms.
    fn limited() -> GradientWindow {
        GradientWindow { window: 100.0, ..warm() }
    }

    #[test]
    fn the_first_window_is_what_the_back_end_holds_at_twice_the_average() {
        assert!(warm().step(&seen(20, true)).window.is_infinite());
        // 1,000 responses a second after 40 ms.
        assert!((warm().step(&seen(40, true)).window - 40.0).abs() < 1e-9);
        let few = Responses { heard: 4, ..seen(40, true) };
        assert!(warm().step(&few).window.is_infinite());
    }

    #[test]
    fn the_window_follows_the_slope() {
        let next = |least_ms, wanted| limited().step(&seen(least_ms, wanted)).window;
        assert!((next(10, true) - 100.8).abs() < 1e-9);
        assert!((next(10, false) - 100.0).abs() < 1e-9, "not used up");
        // 80 + 0.2·(50 + 4)
        assert!((next(10_000, true) - 90.8).abs() < 1e-9, "½ is the minimum");
        let (slower, slowest) = (next(15, true), next(18, true));
        assert!(slowest < slower && slower < 100.0, "{slower} {slowest}");
        let law = (0..1000).fold(limited(), |law, i| law.step(&seen(10 * (i + 1), true)));
        assert!(law.window >= WINDOW_MIN);
    }

    #[test]
    fn an_average_from_an_overload_is_forgotten() {
        let law = GradientWindow { long_s: 1.0, ..limited() };
        // By its weight alone the average would still be 270 ms.
        let law = (0..40).fold(law, |law, _| law.step(&seen(10, true)));
        assert!(law.long_s < 0.021, "{law:?}");
    }
}
