//! A window learned from delay and loss: the maximum number of requests without a response at a
//! back end.
//!
//! # Signals
//!
//! - The shortest time in an interval from a request to the first response of the back end,
//!   including a 100. A proxy or a server sends this response before it forwards the request, so
//!   the time depends only on the back end. If only the callee responds, the shortest time is that
//!   of the quickest callee. So one slow destination, or one caller with slow destinations, does
//!   not raise it.
//! - The share of requests without any response after T1. The receive buffer of an overloaded
//!   server may have room only for the requests of some ten milliseconds. All other requests are
//!   lost, and the requests that are served have a short delay.
//!
//! # Decision
//!
//! Requests should wait for a time D in the back end. At first D is [`WindowLearning::delay`]. The
//! target is the base plus D, where the base is the shortest time without overload. There is no
//! window until an interval shows overload: every response took longer than the base plus 2·D, or
//! more than 15 % of the requests were lost. A burst does not cause this, because it is over within
//! an interval. By Little's law, the number of requests in the back end is the number of responses
//! a second times the time from request to response. The first window is the rate of responses
//! times the target, or, if requests were lost, the rate times the shortest time of that interval:
//! so many requests the back end held while it lost others. This interval of loss also reduces the
//! window at once, as in the first line below. From then on, the window W changes in each interval
//! as follows. The delay is the shortest time of the interval.
//!
//! ```text
//! loss:             W ← W·(1 − share lost)·0.9, at least W/2;   D ← (delay − base)/2, at most D
//! delay > target:   W ← W·target/delay,         at least W/2
//! else, if used up: W ← W·target/delay,         at most 1.05·W
//! ```
//!
//! So if the receive buffer overflows, D becomes half of the time for which requests wait in the
//! full buffer. After that, D grows again slowly.
//!
//! # Analysis
//!
//! In equilibrium the back end always has work, and each request waits for about the target. The
//! back end determines the rate itself, so the window needs no estimate of the rate. Requests sent
//! before a decrease are not evidence about the new window. Recovery: while a window is used up, it
//! grows tenfold in 5 s.
//!
//! # Bias
//!
//! If other senders overload a back end, it is slow even if it gets few requests from here. So if
//! the window has been reduced to a quarter, and the shortest time is still more than 70 % of what
//! it was, this time becomes the base. The base also rises slowly while the window is not used up,
//! for example when a path becomes longer. The share of requests that the path loses is learned in
//! the same way. Some back ends neither respond quickly nor send a 100. If all callees of such a
//! back end become slow at the same time, it is limited although it is not overloaded. If one
//! caller calls many silent callees there, their requests count as lost. This ends when the window
//! has been reduced to a quarter, and the share of lost requests is still more than 70 % of what it
//! was. This share then counts as the loss of the path.
//!
//! # Source
//!
//! This law is our own. The minimum delay of an interval is the signal of CoDel (Nichols, Jacobson:
//! Controlling Queue Delay, ACM Queue 10(5), 2012). Vegas computes a window from the product of
//! rate and delay (Brakmo, Peterson, IEEE JSAC 13(8), 1995). Hong, Huang, Yan use the share of
//! requests that have to be repeated (A Comparative Study of SIP Overload Control Algorithms,
//! 2012).

use super::window_learning::{
    FALL_MAX, FEW, GROWTH_MAX, Responses, WINDOW_MIN, WindowLearning, is_without_effect,
};

/// The share of lost requests at which the back end counts as overloaded, in addition to the share
/// that the path loses. The first value applies before the first window is set, and the second
/// afterwards.
const LOSS_MAX: (f64, f64) = (0.15, 0.05);
/// The factor by which a loss reduces the window, in addition to the share that was not lost.
const LOSS_MARGIN: f64 = 0.9;
/// Minimum of D, the time for which requests should wait in the back end, in seconds.
const WAIT_MIN_S: f64 = 0.002;
/// The factor by which D (the time for which requests should wait) grows in an interval without
/// loss. At the default interval, D doubles in 70 s.
const WAIT_GROWTH: f64 = 1.001;
/// Delay beyond the base (the shortest delay without overload) at which the first window is set, as
/// a multiple of [`WindowLearning::delay`]. The multiple is above 1 because slow servers have such
/// delays even below their capacity.
const TRIP: f64 = 2.0;
/// In one interval, the base of the delay rises, or the base of the loss falls, by this part of its
/// distance to the measured value.
const DRIFT: f64 = 0.05;

/// The learned window, and the delay and loss of the back end without overload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayWindow {
    /// The maximum number of requests without a response, or infinity until an interval has shown
    /// overload.
    pub(crate) window: f64,
    /// The shortest delay without overload, in seconds.
    base_s: f64,
    /// The estimated share of requests that the path to the back end loses, 0 to 1, even without
    /// overload.
    base_lost: f64,
    /// Window and delay when the delay began to exceed the target, or `None` while it does not.
    delayed: Option<(f64, f64)>,
    /// Window and share of lost requests when losses began, or `None` while there are none.
    lossy: Option<(f64, f64)>,
    /// D after the last loss (the time for which requests should wait in the back end), in seconds,
    /// or infinity if there was no loss.
    wait_s: f64,
}

impl DelayWindow {
    pub(crate) const COLD: Self = Self {
        window: f64::INFINITY,
        base_s: f64::INFINITY,
        base_lost: 0.0,
        delayed: None,
        lossy: None,
        wait_s: f64::INFINITY,
    };

    /// Returns the window after an interval with the responses `seen`, with the updated delay and
    /// loss without overload.
    pub(crate) fn step(mut self, learning: &WindowLearning, seen: &Responses) -> Self {
        let least_s = seen.least.map(|least| least.as_secs_f64().max(1e-6));
        self.base_s = self.base_s.min(least_s.unwrap_or(f64::INFINITY));
        let lost_max = if self.window.is_infinite() { LOSS_MAX.0 } else { LOSS_MAX.1 };
        if seen.lost >= FEW && seen.share_lost() > self.base_lost + lost_max {
            return self.on_loss(seen);
        }
        self.lossy = None;
        self.base_lost -= DRIFT * (self.base_lost - seen.share_lost()).max(0.0);
        let Some(least_s) = least_s else { return self };
        let delay_s = learning.delay.as_secs_f64();
        self.wait_s *= WAIT_GROWTH;
        let target_s = self.base_s + self.wait_s.min(delay_s);
        let limit_s =
            if self.window.is_infinite() { self.base_s + TRIP * delay_s } else { target_s };
        if least_s > limit_s {
            return if seen.heard >= FEW { self.on_delay(least_s, target_s, seen) } else { self };
        }
        self.delayed = None;
        if seen.wanted {
            self.window *= (target_s / least_s).min(GROWTH_MAX);
        } else {
            self.base_s += DRIFT * (least_s - self.base_s);
        }
        self
    }

    fn on_loss(mut self, seen: &Responses) -> Self {
        if let Some(least) = seen.least {
            let waited_s = least.as_secs_f64() - self.base_s;
            self.wait_s = self.wait_s.min((waited_s / 2.0).max(WAIT_MIN_S));
        }
        if self.window.is_infinite() {
            // Little's law gives the number of requests that the back end held while it lost
            // others.
            self.window = seen.heard_per_s() * seen.least.unwrap_or_default().as_secs_f64();
        }
        let share = seen.share_lost();
        let then = *self.lossy.get_or_insert((self.window, share));
        let kept = ((1.0 - share) * LOSS_MARGIN).max(FALL_MAX);
        self.window = (self.window * kept).max(WINDOW_MIN);
        if is_without_effect(then, (self.window, share)) {
            (self.base_lost, self.lossy) = (share, None);
        }
        self
    }

    fn on_delay(mut self, least_s: f64, target_s: f64, seen: &Responses) -> Self {
        if self.window.is_infinite() {
            self.window = (seen.heard_per_s() * target_s).max(WINDOW_MIN);
            self.delayed = Some((self.window, least_s));
            return self;
        }
        let then = *self.delayed.get_or_insert((self.window, least_s));
        self.window = (self.window * (target_s / least_s).max(FALL_MAX)).max(WINDOW_MIN);
        if is_without_effect(then, (self.window, least_s)) {
            (self.base_s, self.delayed) = (least_s, None);
        }
        self
    }
}

#[cfg(test)]
mod tests;
