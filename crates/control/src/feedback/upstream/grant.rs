//! The load that a peer may send, and the feedback value that tells it so.

use super::load::Load;
use crate::feedback::Algorithm;
use crate::feedback::capacity::Capacity;

/// If a peer sends less than this part of its grant for [`UNUSED`] consecutive ticks, the grant
/// does not limit the peer.
const SATURATED: f64 = 0.85;
const UNUSED: u32 = 10;

/// The rate of calls that one peer may send, and the feedback value that tells it so.
#[derive(Debug)]
pub(super) struct Grant {
    /// Calls a second that the peer may send.
    cps: f64,
    /// The share of its load before any restriction that the peer is told to send, 0 to 1.
    told_share: f64,
    /// The load before any restriction to which `told_share` applies. While the peer sends too
    /// much, this is the largest load that was estimated or claimed.
    restrained_cps: f64,
    /// Consecutive ticks in which the peer used less than [`SATURATED`] of its grant.
    unused: u32,
    /// The percentage of its requests that the peer has to hold back, as of the last tick.
    percent: u32,
    /// The maximum number of requests a second that the peer may send, as of the last tick.
    rps: u32,
    /// The fraction by which `percent` or `rps` was last rounded down. It is added to the next
    /// value.
    carried: f64,
}

impl Default for Grant {
    fn default() -> Self {
        Self {
            cps: f64::INFINITY,
            told_share: 1.0,
            restrained_cps: 0.0,
            unused: 0,
            percent: 0,
            rps: 0,
            carried: 0.0,
        }
    }
}

impl Grant {
    /// Records how much of its grant the peer uses: it sends `sends` requests a second and may send
    /// `may`.
    pub(super) fn look(&mut self, sends: f64, may: f64) {
        self.unused = if sends + 1.0 < SATURATED * may { self.unused + 1 } else { 0 };
    }

    /// Begins to observe again how much of its grant the peer uses.
    pub(super) fn forget_use(&mut self) {
        self.unused = 0;
    }

    /// Returns whether the grant is finite and the peer uses all of it.
    pub(super) fn is_used_up(&self) -> bool {
        self.cps.is_finite() && self.unused < UNUSED
    }

    /// Grants the peer `cps` calls a second. `restrained_cps` is the load before any restriction,
    /// above 0, or `None` if the peer is not restricted.
    pub(super) fn set(&mut self, cps: f64, restrained_cps: Option<f64>) {
        self.cps = cps;
        self.restrained_cps = restrained_cps.unwrap_or(0.0);
        self.told_share = restrained_cps.map_or(1.0, |restrained| (cps / restrained).min(1.0));
    }

    /// Returns the calls a second that the peer may send.
    pub(super) fn cps(&self) -> f64 {
        self.cps
    }

    /// Returns the share of its load before any restriction that the peer is told to send, 0 to 1.
    pub(super) fn told_share(&self) -> f64 {
        self.told_share
    }

    /// Returns the load before any restriction to which [`told_share`](Self::told_share) applies,
    /// in calls a second.
    pub(super) fn restrained_cps(&self) -> f64 {
        self.restrained_cps
    }

    /// Begins to compute values of another algorithm.
    pub(super) fn change_algorithm(&mut self, algorithm: Option<Algorithm>, load: &Load) {
        // The value of the last tick belongs to another algorithm.
        self.carried = 0.0;
        self.round(algorithm, load);
    }

    /// Rounds the feedback value for the peer to a whole number. `load` is the load of the peer.
    // A rate that is always rounded down loses a tenth of the calls of a peer that may send only a
    // few requests a second. At ten times the capacity, one percent of the requests is a tenth of
    // those that pass. So the fraction by which a value was rounded down is added to the next.
    pub(super) fn round(&mut self, algorithm: Option<Algorithm>, load: &Load) {
        let (exact, value) = match algorithm {
            Some(Algorithm::Loss) => (self.loss_percent(load), &mut self.percent),
            Some(Algorithm::Rate) => (rate_rps(self.cps, load), &mut self.rps),
            None => return,
        };
        if exact.is_finite() {
            let carrying = exact + self.carried;
            (*value, self.carried) = (carrying as u32, carrying.fract());
        }
    }

    /// Returns the percentage of the requests that the peer has to hold back.
    // RFC 7339 §5.3: clients "apply" the value "to all downstream SIP requests (dialogue forming as
    // well as in-dialogue) to this SIP server." The law limits only new work. RFC 7339 §7.1: "This
    // value MUST be in the range of [0, 100], inclusive."
    fn loss_percent(&self, load: &Load) -> f64 {
        // The peer holds back sessions and single requests by the same percentage.
        let new = load.share_of_new(self.restrained_cps);
        (100.0 * (1.0 - self.told_share) * new).clamp(0.0, 100.0)
    }

    /// Returns the feedback value to send to the peer.
    pub(super) fn value(&self, algorithm: Algorithm, capacity: &Capacity, load: &Load) -> u32 {
        match algorithm {
            Algorithm::Loss => self.percent,
            // A rate of zero would hold back all requests, even BYEs.
            Algorithm::Rate if self.cps.is_finite() => self.rps.max(1),
            // The peer has no grant yet, or no limit.
            Algorithm::Rate => (rate_rps(capacity.cps(), load) as u32).max(1),
        }
    }
}

/// Returns the requests a second that a peer may send if it is granted `granted_cps` calls a second.
// RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire
// stream of SIP requests, even though throttling may only affect a particular subset of the
// requests".
fn rate_rps(granted_cps: f64, load: &Load) -> f64 {
    load.rps_with(granted_cps)
}
