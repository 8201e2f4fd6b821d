//! A window learned from retransmissions: the maximum number of requests without a response at a
//! back end. It keeps the share of redundant retransmissions at a target.
//!
//! # Signal
//!
//! The share γ of requests whose first response took longer than T1 (500 ms). These requests had
//! been retransmitted by then. Such a retransmission is redundant if the back end already had the
//! request, and only its queue was long. It is not redundant if the request was lost, or if only
//! this destination is slow. A queue delays all responses. So γ is 0 unless even the quickest
//! response of the interval took at least half of T1. One slow destination, or one caller with slow
//! destinations, cannot make all responses slow.
//!
//! # Decision
//!
//! The target γ₀ is 0.1. There is no window until γ exceeds 3·γ₀. The first window is the number of
//! requests that the back end can serve in T1 (responses a second times T1). From then on, a PI
//! controller in its incremental form adjusts the window W, in requests, after each interval of t
//! seconds:
//!
//! ```text
//! e = γ₀ − γ
//! W ← W·(1 + K_P·(e − e') + K_I·t·e),   at least W/2, at most 1.05·W, growth only if used up
//! ```
//!
//! e' is the previous error, K_P is 0.3 (no unit), and K_I is 1 per second. The incremental form
//! needs no rule against windup, because W itself is the integral, and it is limited.
//!
//! # Analysis
//!
//! While all requests are late, W falls by 9 % in a tenth of a second. While none is late, W grows
//! by a tenth in a second. γ changes only when requests wait for about T1. So the back end always
//! has work, but requests wait ten times as long as with [`delay`](super::delay).
//!
//! # Bias
//!
//! T1 is long. Callers wait for half a second although no call is lost. A back end that loses
//! requests, because its receive buffer is short, causes no redundant retransmissions, and is not
//! protected. If other senders overload the back end, a smaller window does not help. Then γ becomes
//! the base, as in [`delay`](super::delay). This happens when the window has been reduced to a quarter
//! and γ is still above 70 % of its earlier value. From then on, the target is the base plus γ₀.
//!
//! # Source
//!
//! Hong, Huang, Yan: Mitigating SIP Overload Using a Control-Theoretic Approach, IEEE GLOBECOM 2010
//! (paper 001, §2, \[7\]): a PI controller at the upstream server tracks a ratio of redundant
//! retransmissions without any feedback. The gains are ours. Their controller adjusts the rate of
//! retransmissions and forwards every new request. So it helps against an overload that ends by
//! itself. If callers keep asking for more than the server can do, some calls have to be rejected.
//! For this reason the controller adjusts the window here.

use std::time::Duration;

use super::window_learning::{
    FALL_MAX, FEW, FORGOTTEN, GROWTH_MAX, Responses, WINDOW_MIN, is_without_effect,
};

/// The target γ₀ of γ, the share of redundant retransmissions.
const TARGET: f64 = 0.1;
/// The first window is set when γ, the share of redundant retransmissions, exceeds its base by this
/// much.
const TRIP: f64 = 3.0 * TARGET;
/// The proportional gain of the PI controller, without unit.
const K_P: f64 = 0.3;
/// The integral gain of the PI controller, per second.
const K_I: f64 = 1.0;
/// The longest duration of an interval that the controller uses, in seconds. A longer interval
/// counts as this long, so a pause does not cause a large step.
const STEP_MAX_S: f64 = 1.0;
/// Minimum time of the quickest response in an interval at which retransmissions count as
/// redundant.
const QUEUE_MIN: Duration = Duration::from_millis(250);
/// In one interval, the base falls by this part of its excess over γ.
const DRIFT: f64 = 0.05;

/// The learned window, and the state of its controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetransmissionWindow {
    /// The maximum number of requests without a response, or infinity until γ has exceeded its base
    /// by [`TRIP`].
    pub(crate) window: f64,
    /// The base: the share of redundant retransmissions that remained when the window was reduced.
    base: f64,
    /// The control error of the previous interval: the target minus γ.
    error: f64,
    /// Window and γ when γ began to exceed the target, or `None` while it does not.
    redundant: Option<(f64, f64)>,
}

impl RetransmissionWindow {
    pub(crate) const COLD: Self =
        Self { window: f64::INFINITY, base: 0.0, error: 0.0, redundant: None };

    /// Returns the window after an interval with the responses `seen`.
    pub(crate) fn step(mut self, seen: &Responses) -> Self {
        if seen.heard < FEW {
            return self;
        }
        let ratio = share_redundant(seen);
        self.base -= DRIFT * (self.base - ratio).max(0.0);
        if self.window.is_infinite() {
            if ratio > self.base + TRIP {
                self.window = (seen.heard_per_s() * FORGOTTEN.as_secs_f64()).max(WINDOW_MIN);
            }
            return self;
        }
        let error = self.base + TARGET - ratio;
        let lasted_s = seen.lasted.as_secs_f64().min(STEP_MAX_S);
        let change = 1.0 + K_P * (error - self.error) + K_I * lasted_s * error;
        self.error = error;
        if error >= 0.0 {
            self.redundant = None;
        }
        if change < 1.0 {
            let then = *self.redundant.get_or_insert((self.window, ratio));
            self.window = (self.window * change.max(FALL_MAX)).max(WINDOW_MIN);
            if error < 0.0 && is_without_effect(then, (self.window, ratio)) {
                (self.base, self.error, self.redundant) = (ratio, TARGET, None);
            }
        } else if seen.wanted {
            self.window *= change.min(GROWTH_MAX);
        }
        self
    }
}

/// Returns the share of requests with redundant retransmissions, 0 to 1.
fn share_redundant(seen: &Responses) -> f64 {
    let is_queueing = seen.least.is_some_and(|least| least >= QUEUE_MIN);
    if is_queueing { seen.late as f64 / seen.heard as f64 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the responses of an interval of 100 ms: 100 of them, `late` of them after T1, and
    /// the quickest after `least_ms`.
    fn seen(least_ms: u64, late: u64) -> Responses {
        Responses {
            lasted: Duration::from_millis(100),
            heard: 100,
            late,
            least: Some(Duration::from_millis(least_ms)),
            lost: late,
            wanted: true,
        }
    }

    /// A law with a window of 100, at its target.
    fn limited() -> RetransmissionWindow {
        RetransmissionWindow { window: 100.0, ..RetransmissionWindow::COLD }
    }

    #[test]
    fn the_first_window_is_what_the_back_end_serves_in_t1() {
        let cold = RetransmissionWindow::COLD;
        assert!(cold.step(&seen(480, 30)).window.is_infinite());
        // 1,000 responses a second, for half a second.
        assert!((cold.step(&seen(480, 31)).window - 500.0).abs() < 1e-9);
        let few = Responses { heard: 4, late: 4, ..seen(600, 0) };
        assert!(cold.step(&few).window.is_infinite());
    }

    #[test]
    fn slow_destinations_and_losses_are_not_redundant() {
        // Nine of ten requests had to be retransmitted, and the others had their response at once.
        let law = (0..100).fold(RetransmissionWindow::COLD, |law, _| law.step(&seen(5, 90)));
        assert!(law.window.is_infinite());
        assert!(limited().step(&seen(5, 90)).window > 100.0);
        assert!(limited().step(&seen(249, 90)).window > 100.0);
        assert!(limited().step(&seen(250, 90)).window < 100.0);
    }

    #[test]
    fn it_follows_the_error_and_its_change() {
        let next = |law: RetransmissionWindow, late| law.step(&seen(490, late)).window;
        assert!((next(limited(), 10) - 100.0).abs() < 1e-9, "at the target");
        // 1 − 0.3·0.1 − 1·0.1·0.1
        assert!((next(limited(), 20) - 96.0).abs() < 1e-9);
        let before = RetransmissionWindow { error: -0.1, ..limited() };
        assert!((next(before, 20) - 99.0).abs() < 1e-9, "the error has not changed");
        assert!((next(limited(), 0) - 104.0).abs() < 1e-9);
        assert!((next(before, 0) - 105.0).abs() < 1e-9, "a twentieth is the maximum growth");
        let slow = Responses { lasted: Duration::from_secs(2), ..seen(490, 100) };
        assert!((limited().step(&slow).window - 50.0).abs() < 1e-9, "half is the minimum");
    }

    #[test]
    fn it_grows_only_while_it_is_used_up() {
        let unused = Responses { wanted: false, ..seen(490, 0) };
        assert!((limited().step(&unused).window - 100.0).abs() < 1e-9);
    }

    #[test]
    fn retransmissions_that_the_window_does_not_cause_become_the_base() {
        // All responses have come late since the path has become longer, or since others overload
        // the back end.
        let law = (0..60).fold(limited(), |law, _| law.step(&seen(600, 100)));
        assert!(law.base > 0.9 && law.window >= WINDOW_MIN, "{law:?}");
        let later = (0..60).fold(law, |law, _| law.step(&seen(600, 100)));
        assert!(later.window > law.window, "{later:?} after {law:?}");
        // The base falls again when the responses are quick.
        let law = (0..200).fold(later, |law, _| law.step(&seen(5, 0)));
        assert!(law.base < 0.01, "{law:?}");
    }
}
