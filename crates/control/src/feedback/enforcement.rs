//! Limits the sessions that this server accepts from a peer that does not hold them back itself.

use std::time::Duration;

use tidegate_world::Stream;

use super::upstream_settings::TICK;
use crate::throttle::Deterministic;

/// Time for which a peer may save calls that it is granted but does not send. A peer that obeys
/// `loss` and sends a burst once a second may also send its calls of one second at once.
const SAVED_MAX: Duration = Duration::from_secs(1);

/// Maximum part of a limited peer's sessions, 0 to 1, that this server accepts.
const PASSED_MAX: f64 = 0.95;

/// The limit on the sessions that this server accepts from one peer.
///
/// The throttle accepts an evenly spread share of the sessions. The number of saved calls limits
/// bursts. At each tick, this number grows by the granted calls less the cost of rejections. A
/// token bucket would also fill for the time before a burst, but at the rate that is granted during
/// the burst.
#[derive(Debug)]
pub(super) struct Enforcement {
    /// The share of arriving sessions to accept, 0 to 1. It is computed from the rate before the
    /// last tick, which is low before a burst.
    passed: f64,
    /// Selects the sessions to accept.
    throttle: Deterministic,
    /// The number of sessions that may still be accepted. It grows with time, so a peer with bursts
    /// gets no more sessions accepted than a peer without bursts. A session is accepted only while
    /// the number is above 0. A fraction is enough, so the number can become negative.
    saved: f64,
}

impl Default for Enforcement {
    fn default() -> Self {
        Self { passed: 1.0, throttle: Deterministic::default(), saved: f64::INFINITY }
    }
}

impl Enforcement {
    /// Starts to limit a peer to `level` calls a second. The throttle begins at a random point
    /// drawn from `starts`. Otherwise the first rejections of all peers would come at the same
    /// time.
    pub(super) fn start(&mut self, level: f64, starts: &mut Stream) {
        self.throttle.start_at(starts.unit());
        self.saved = saved_max(level) * starts.unit();
    }

    /// Adds the calls that can be served in one tick to the saved calls. The peer is granted
    /// `level` calls a second and sends `offered` calls a second. `rejection` is the cost of a
    /// rejection as a fraction of the cost of a call. Returns the calls a second that can be served
    /// in the time that rejections leave.
    pub(super) fn save(&mut self, level: f64, offered: f64, rejection: f64) -> f64 {
        let served = ((level - offered * rejection) / (1.0 - rejection)).clamp(0.0, level);
        self.saved = (self.saved + served * TICK.as_secs_f64()).min(saved_max(level));
        served
    }

    /// Accepts each session while saved calls are left.
    pub(super) fn open(&mut self) {
        self.passed = 1.0;
    }

    /// Accepts `served` of `offered` sessions a second. Returns the rejections a second.
    pub(super) fn restrict(&mut self, served: f64, offered: f64) -> f64 {
        self.passed = if offered > 0.0 { (served / offered).min(PASSED_MAX) } else { PASSED_MAX };
        (1.0 - self.passed) * offered
    }

    /// Decides whether a session is accepted.
    pub(super) fn passes(&mut self) -> bool {
        let passes = self.throttle.passes(self.passed) && self.saved > 0.0;
        self.saved -= f64::from(u8::from(passes));
        passes
    }
}

/// Returns the number of calls that a peer with `level` calls a second may save up.
fn saved_max(level: f64) -> f64 {
    (level * SAVED_MAX.as_secs_f64()).max(1.0)
}
