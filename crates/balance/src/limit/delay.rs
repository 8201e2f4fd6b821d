//! A window learned from delay and loss: the maximum number of requests without a response at a
//! back end.
//!
//! # Signals
//!
//! - The shortest time, in an interval, from a request to the first response of the back end,
//!   including a 100. A proxy or a server sends this response itself before it asks others, so the
//!   time is its own. If only the callee responds, the shortest time is that of the quickest
//!   callee: one slow destination, or one caller with slow destinations, does not raise it.
//! - The share of requests without any response after T1. The receive buffer of an overloaded
//!   server may hold only the requests of some ten milliseconds. The rest is lost, and the served
//!   requests look quick.
//!
//! # Decision
//!
//! Requests should wait for a time D in the back end; at first D is [`WindowLearning::delay`]. The
//! target is the base plus D, where the base is the shortest time without overload. There is no
//! window until an interval trips: every response took longer than the base plus 2·D, or more than
//! 15 % of the requests were lost. A burst does not cause this, because it is over within an
//! interval. By Little's law, the number of waiting requests is the responses a second times their
//! waiting time. The first window is that number for the target, or the number of requests that the
//! back end held when it lost others. From then on, in each interval:
//!
//! ```text
//! loss:             W ← W·(1 − share lost)·0.9, at least W/2;   D ← (delay − base)/2, at most D
//! delay > target:   W ← W·target/delay,         at least W/2
//! else, if used up: W ← W·target/delay,         at most 1.05·W
//! ```
//!
//! So if the receive buffer is short, requests wait for half of the time that the buffer can hold.
//! D grows again slowly.
//!
//! # Analysis
//!
//! In equilibrium the back end always has work, each request waits for about the target, and the
//! back end sets the rate itself: the window needs no estimate of the rate. Requests sent before a
//! decrease say nothing about the new window. Recovery: a window grows tenfold in 5 s while it is
//! used up.
//!
//! # Bias
//!
//! A back end that other senders overload looks slow however few requests it gets from here. So if
//! reducing the window to a quarter has made no difference to the time, the base rises to the
//! measured time. The base also rises slowly while the window is not used up, for example when a
//! path becomes longer. The share of requests that the path loses is learned in the same way. A
//! back end that neither responds quickly nor sends 100, and whose callees all become slow at once,
//! is limited although it is not overloaded. Behind such a back end one caller with many silent
//! callees looks like loss, until a smaller window has made no difference.
//!
//! # Source
//!
//! Ours. The least delay of an interval is the signal of CoDel (Nichols, Jacobson: Controlling Queue
//! Delay, ACM Queue 10(5), 2012), a window from the product of rate and delay that of Vegas (Brakmo,
//! Peterson, IEEE JSAC 13(8), 1995). The share of requests that have to be repeated is the signal of
//! Hong, Huang, Yan: A Comparative Study of SIP Overload Control Algorithms, 2012.

use std::time::Duration;

/// The largest growth of the window in one interval.
pub const GROWTH_MAX: f64 = 1.05;
/// The smallest part of a window that remains after an interval.
const FALL_MAX: f64 = 0.5;
/// The share of lost requests, beyond the share that the path loses, at which the back end counts
/// as overloaded: first without a window, then with one.
const LOSS_MAX: (f64, f64) = (0.15, 0.05);
/// The part of the window that remains after a loss, beyond the share that was not lost.
const LOSS_MARGIN: f64 = 0.9;
/// The shortest time for which requests should wait, in seconds.
const WAIT_MIN_S: f64 = 0.002;
/// The growth of that time in an interval without loss: it doubles in 70 s.
const WAIT_GROWTH: f64 = 1.001;
/// The smallest window.
pub const WINDOW_MIN: f64 = 10.0;
/// Delay beyond the base that sets the first window, as a multiple of [`WindowLearning::delay`].
/// Slow servers have such waits even below their capacity.
const TRIP: f64 = 2.0;
/// If the window falls to the first part and the delay or loss stays above the second part, the
/// window does not cause it.
const WITHOUT_EFFECT: (f64, f64) = (0.25, 0.7);
/// The part of the excess over the base by which the base rises in one interval.
const DRIFT: f64 = 0.05;

/// Minimum number of responses in an interval, and how long it waits for them.
const ENOUGH: u64 = 10;
/// Minimum number of responses, or of requests without one, that shows overload.
const FEW: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(2);

/// Parameters for learning the window of a back end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowLearning {
    /// Time between steps; longer if fewer than ten responses arrive.
    pub interval: Duration,
    /// The delay beyond the base at which requests count as waiting.
    pub delay: Duration,
}

impl Default for WindowLearning {
    fn default() -> Self {
        Self { interval: Duration::from_millis(100), delay: Duration::from_millis(50) }
    }
}

/// The counts of one interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responses {
    pub(crate) lasted: Duration,
    /// Requests with a response.
    pub(crate) heard: u64,
    /// The shortest time to the first response; `None` without a response.
    pub(crate) least: Option<Duration>,
    /// Requests left without a response for [`FORGOTTEN`](super::window::FORGOTTEN).
    pub(crate) lost: u64,
    /// Whether the window kept requests away from the back end.
    pub(crate) wanted: bool,
}

/// A window, and knowledge about the back end without overload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayWindow {
    /// The maximum number of requests without a response; infinite before an interval has tripped.
    pub(crate) window: f64,
    /// The shortest delay without overload, in seconds.
    base_s: f64,
    /// The share of requests that the path loses.
    base_lost: f64,
    /// Window and delay when the delay last exceeded the target.
    delayed: Option<(f64, f64)>,
    /// Window and lost share when requests were last lost.
    lossy: Option<(f64, f64)>,
    /// The time for which requests should wait since the last loss, in seconds; infinite before any
    /// loss.
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

    /// Returns the next window, with the updated knowledge.
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
            // The number of requests that the back end held while it lost others.
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

/// Returns whether a window that is much smaller than `then` has made little difference to the sign
/// of overload. Each pair contains a window and the sign.
fn is_without_effect(then: (f64, f64), now: (f64, f64)) -> bool {
    let (part, effect) = WITHOUT_EFFECT;
    now.0 <= (part * then.0).max(WINDOW_MIN) && now.1 > effect * then.1
}

impl Responses {
    fn heard_per_s(&self) -> f64 {
        self.heard as f64 / self.lasted.as_secs_f64()
    }

    fn share_lost(&self) -> f64 {
        self.lost as f64 / (self.lost + self.heard).max(1) as f64
    }
}

impl WindowLearning {
    /// Returns whether an interval of this length with this many responses is complete.
    pub(crate) fn is_over(&self, lasted: Duration, heard: u64) -> bool {
        lasted >= self.interval && (heard >= ENOUGH || lasted >= PATIENCE)
    }
}

#[cfg(test)]
mod tests;
