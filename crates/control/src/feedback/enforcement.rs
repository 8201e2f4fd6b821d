//! Limits the sessions of a peer at this server, because the peer does not hold them back itself.

use std::time::Duration;

use tidegate_world::Stream;

use super::upstream_settings::TICK;
use crate::throttle::Deterministic;

/// Time whose share a peer may save up. A peer that obeys `loss` and has a burst once a second also
/// sends the share of a second at once.
const SAVED_MAX: Duration = Duration::from_secs(1);

/// The largest part of its requests that a peer without feedback may get through during an
/// overload.
const PASSED_MAX: f64 = 0.95;

/// The limit for one peer.
///
/// The throttle rejects the same share of the calls all the time, so it spreads the rejections. The
/// saved calls limit bursts. They are counted at each tick, with the rejections charged to them, and
/// not as the tokens of a bucket, whose rate would be that of the moment of the burst.
#[derive(Debug)]
pub(super) struct Enforcement {
    /// The share of arriving requests that passes. It follows from the rate before the last tick,
    /// which is low before a burst.
    passed: f64,
    /// Selects the requests that pass.
    throttle: Deterministic,
    /// The number of sessions that may still pass. It grows with time, so bursts pass no more than
    /// the same load without bursts. One more session passes while a fraction is left, so this
    /// number can be negative.
    saved: f64,
}

impl Default for Enforcement {
    fn default() -> Self {
        Self { passed: 1.0, throttle: Deterministic::default(), saved: f64::INFINITY }
    }
}

impl Enforcement {
    /// Starts to limit a peer to `level` calls a second, from a random point drawn from `starts`.
    /// Otherwise the first rejections of all peers would come at the same time.
    pub(super) fn start(&mut self, level: f64, starts: &mut Stream) {
        self.throttle.start_at(starts.unit());
        self.saved = saved_max(level) * starts.unit();
    }

    /// Saves the share of a tick. The peer is granted `level` calls a second and sends `offered`
    /// ones. `rejection` is the cost of a rejection as a fraction of the cost of a call. Returns the
    /// calls a second that are served.
    pub(super) fn save(&mut self, level: f64, offered: f64, rejection: f64) -> f64 {
        let served = ((level - offered * rejection) / (1.0 - rejection)).clamp(0.0, level);
        self.saved = (self.saved + served * TICK.as_secs_f64()).min(saved_max(level));
        served
    }

    /// Lets all requests pass that the saved share covers.
    pub(super) fn open(&mut self) {
        self.passed = 1.0;
    }

    /// Lets `served` of `offered` requests a second pass. Returns the rejections a second.
    pub(super) fn restrict(&mut self, served: f64, offered: f64) -> f64 {
        self.passed = if offered > 0.0 { (served / offered).min(PASSED_MAX) } else { PASSED_MAX };
        (1.0 - self.passed) * offered
    }

    /// Returns whether a session passes.
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
