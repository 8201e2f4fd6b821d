//! The parameters for learning a window (the maximum number of requests without a response), and
//! the counts from which the laws compute it.

use std::time::Duration;

use tidegate_world::unit_enum;

/// Time after which a request without a response no longer counts. It is T1 of RFC 3261, after
/// which the request is sent again.
pub const FORGOTTEN: Duration = Duration::from_millis(500);
/// The largest factor by which a window changes in one interval.
pub(super) const GROWTH_MAX: f64 = 1.05;
/// The smallest factor by which a window changes in one interval.
pub(super) const FALL_MAX: f64 = 0.5;
/// Minimum size of a window, in requests.
pub(super) const WINDOW_MIN: f64 = 10.0;
/// The two shares that show that a smaller window has no effect. The window is at most the first
/// share of its earlier size, and the delay, the loss or the share of retransmissions is still
/// above the second share of its earlier value.
const WITHOUT_EFFECT: (f64, f64) = (0.25, 0.7);

/// Minimum number of responses in an interval. The interval waits for them for at most
/// [`PATIENCE`].
const ENOUGH: u64 = 10;
/// Minimum number of responses, or of requests without a response, that can show overload.
pub(super) const FEW: u64 = 5;
/// Maximum time for which an interval waits for enough responses.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

unit_enum! {
    /// A law that computes the window of a back end. The configuration uses these names. The
    /// default law is the first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum WindowLaw {
        /// The law uses the time of the quickest response, and the loss (`delay.rs`).
        #[default]
        Delay = "delay",
        /// The law compares the time of the quickest response with its average (`gradient.rs`).
        Gradient = "gradient",
        /// The law uses the share of requests that are retransmitted although the back end has them
        /// (`retransmissions.rs`).
        Retransmissions = "retransmissions",
    }
}

/// Parameters for learning the window of a back end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowLearning {
    /// The law that computes the window.
    pub law: WindowLaw,
    /// Time between two changes of the window. It is longer if fewer than ten responses arrive.
    pub interval: Duration,
    /// Maximum time for which requests should wait in the back end. Only [`WindowLaw::Delay`] uses
    /// it.
    pub delay: Duration,
}

impl Default for WindowLearning {
    fn default() -> Self {
        Self {
            law: WindowLaw::default(),
            interval: Duration::from_millis(100),
            delay: Duration::from_millis(50),
        }
    }
}

/// The counts of one interval, from which a law computes the next window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responses {
    pub(crate) lasted: Duration,
    /// Requests with a response.
    pub(crate) heard: u64,
    /// The requests in `heard` that had been retransmitted, because their first response came after
    /// [`FORGOTTEN`].
    pub(crate) late: u64,
    /// The shortest time from a request to its first response, or `None` without a response.
    pub(crate) least: Option<Duration>,
    /// Requests that had no response within [`FORGOTTEN`].
    pub(crate) lost: u64,
    /// True if the window held requests back.
    pub(crate) wanted: bool,
}

/// Returns whether the delay, loss or share of retransmissions is nearly the same although the
/// window is much smaller. `then` and `now` are pairs of a window and one of these values.
pub(super) fn is_without_effect(then: (f64, f64), now: (f64, f64)) -> bool {
    let (part, effect) = WITHOUT_EFFECT;
    now.0 <= (part * then.0).max(WINDOW_MIN) && now.1 > effect * then.1
}

impl Responses {
    pub(super) fn heard_per_s(&self) -> f64 {
        self.heard as f64 / self.lasted.as_secs_f64()
    }

    pub(super) fn share_lost(&self) -> f64 {
        self.lost as f64 / (self.lost + self.heard).max(1) as f64
    }
}

impl WindowLearning {
    /// Returns whether an interval of this length with this many responses is complete.
    pub(crate) fn is_over(&self, lasted: Duration, heard: u64) -> bool {
        lasted >= self.interval && (heard >= ENOUGH || lasted >= PATIENCE)
    }
}
