//! The requests that a peer sends, and the load that it would send without feedback (its original
//! load).

use tidegate_world::Timestamp;

use crate::arrival_rate::ArrivalRate;
use crate::feedback::{Algorithm, Category};

/// Maximum factor by which the counted load of a peer (`counted_cps`) grows in a tick, unless more
/// requests arrive. Under `loss`, a peer could claim a large load, and then send its whole grant
/// instead of the part that it was told to send. Without this limit, its load could at once count a
/// hundred times as much.
const COUNTED_GROWTH: f64 = 1.05;

/// Maximum number of requests that come with a new request: an ACK, and a CANCEL.
const WITH_NEW_MAX: f64 = 2.0;

/// The measured load of one peer.
#[derive(Debug)]
pub(super) struct Load {
    /// Rate of requests that begin a session. Under `loss` each of them also counts for the
    /// requests that the peer held back. Single requests, such as health checks, are not included,
    /// because they cost little and take no call's place.
    original: ArrivalRate,
    /// Rate of requests outside sessions. Under `loss` each of them also counts for the requests
    /// that the peer held back.
    single: ArrivalRate,
    /// Rates of all requests, of requests that begin a session (`new`), of ACKs and CANCELs
    /// (`required`), and of other requests in existing sessions (`ongoing`).
    all: ArrivalRate,
    new: ArrivalRate,
    /// Rate of the first calls of strangers. Only the joint entry of the strangers counts them.
    newcomers: ArrivalRate,
    required: ArrivalRate,
    /// The same rate as `required`, but with the time constant of `original` and `ongoing`.
    acknowledging: ArrivalRate,
    ongoing: ArrivalRate,
    /// Calls a second that the peer would send without feedback. This rate and the other rates
    /// below are those of the last tick. A rate that is read at an arrival would give this arrival
    /// too much weight.
    original_cps: f64,
    /// The same as `original_cps`, but without the claims of the peer.
    measured_cps: f64,
    /// Calls a second that arrive from the peer.
    sends_cps: f64,
    /// Number of new strangers a second: their first calls count in this joint entry.
    newcomers_cps: f64,
    /// The part of `measured_cps` that counts when the law's share of all loads is converted to
    /// calls a second.
    counted_cps: f64,
    required_rps: f64,
    ongoing_rps: f64,
    single_rps: f64,
    /// Number of requests that come with one new request, including that request.
    with_new: f64,
    /// ACKs and CANCELs a second that belong to re-INVITEs or to calls that rang for a while, and
    /// not to new requests that arrive now.
    other_required_rps: f64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            original: ArrivalRate::over_s(1.0),
            single: ArrivalRate::over_s(1.0),
            all: ArrivalRate::default(),
            new: ArrivalRate::default(),
            newcomers: ArrivalRate::over_s(1.0),
            required: ArrivalRate::default(),
            acknowledging: ArrivalRate::over_s(1.0),
            ongoing: ArrivalRate::over_s(1.0),
            original_cps: 0.0,
            measured_cps: 0.0,
            sends_cps: 0.0,
            newcomers_cps: 0.0,
            counted_cps: 0.0,
            required_rps: 0.0,
            ongoing_rps: 0.0,
            single_rps: 0.0,
            with_new: 1.0,
            other_required_rps: 0.0,
        }
    }
}

impl Load {
    /// Counts a request. `sent_share` is the share of its requests of this category that the peer
    /// seems to send, above 0 and at most 1.
    pub(super) fn on_request(&mut self, now: Timestamp, category: Category, sent_share: f64) {
        self.all.on_arrival(now);
        match category {
            Category::Session | Category::Priority => {
                self.new.on_arrival(now);
                self.original.on_arrivals(now, 1.0 / sent_share);
            }
            Category::Single => self.single.on_arrivals(now, 1.0 / sent_share),
            Category::Required => {
                self.required.on_arrival(now);
                self.acknowledging.on_arrival(now);
            }
            Category::Ongoing => self.ongoing.on_arrival(now),
        }
    }

    /// Counts a request in a session that does not exist.
    pub(super) fn on_stray(&mut self, now: Timestamp) {
        self.all.on_arrival(now);
    }

    /// Counts the first call of a stranger, in the entry of the stranger.
    pub(super) fn on_first_call(&mut self, now: Timestamp) {
        self.all.on_arrival(now);
        self.new.on_arrival(now);
        self.original.on_arrival(now);
    }

    /// Counts a stranger whose first call counts in this joint entry.
    pub(super) fn on_newcomer(&mut self, now: Timestamp) {
        self.newcomers.on_arrival(now);
    }

    /// Returns whether the peer has sent a call.
    pub(super) fn has_begun(&self) -> bool {
        self.new.has_begun()
    }

    /// Measures the requests that arrive from the peer. `is_active` says whether the peer has
    /// recently asked for a session. If not, it has no original load.
    pub(super) fn look(&mut self, now: Timestamp, is_active: bool) {
        self.ongoing_rps = self.ongoing.rate_at(now);
        self.single_rps = self.single.rate_at(now);
        self.required_rps = self.acknowledging.rate_at(now);
        let required_rps = self.required.rate_at(now);
        if !is_active {
            self.other_required_rps = required_rps;
            (self.original_cps, self.measured_cps, self.counted_cps) = (0.0, 0.0, 0.0);
            (self.sends_cps, self.newcomers_cps) = (0.0, 0.0);
            return;
        }
        let sends_cps = self.new.rate_at(now);
        (self.sends_cps, self.newcomers_cps) = (sends_cps, self.newcomers.rate_at(now));
        if sends_cps > 0.0 {
            let with_each = (required_rps / sends_cps).min(WITH_NEW_MAX);
            self.with_new = 1.0 + with_each;
        }
        self.other_required_rps = (required_rps - WITH_NEW_MAX * sends_cps).max(0.0);
    }

    /// Estimates the original load, after [`look`](Self::look). `algorithm` is the algorithm agreed
    /// with the peer, if any. `used_up_cps` is the grant of the peer if the peer uses all of it.
    /// The peer then does not show how much more it would send.
    pub(super) fn estimate(
        &mut self,
        now: Timestamp,
        algorithm: Option<Algorithm>,
        used_up_cps: Option<f64>,
    ) {
        self.measured_cps = match (algorithm, used_up_cps) {
            (Some(Algorithm::Loss), _) => self.original.rate_at(now),
            (Some(Algorithm::Rate), Some(granted_cps)) => {
                self.measured_cps.max(self.sends_cps.min(granted_cps))
            }
            (Some(Algorithm::Rate), None) | (None, _) => self.sends_cps,
        };
        let most_cps = self.sends_cps.max(self.counted_cps * COUNTED_GROWTH);
        self.counted_cps = self.measured_cps.min(most_cps);
    }

    /// Sets the original load to the load that the peer claims. If the peer claims nothing, sets it
    /// to the estimate.
    pub(super) fn believe(&mut self, claimed_cps: Option<f64>) {
        // The calls that arrive are a lower bound, whatever the peer claims. A smaller claim would
        // end the overload.
        self.original_cps =
            claimed_cps.map_or(self.measured_cps, |claimed| claimed.max(self.sends_cps));
    }

    /// Returns the calls a second that the peer would send without feedback.
    pub(super) fn original_cps(&self) -> f64 {
        self.original_cps
    }

    /// Returns the calls a second that arrive from the peer.
    pub(super) fn sends_cps(&self) -> f64 {
        self.sends_cps
    }

    /// Returns the requests a second of all kinds that arrive from the peer.
    pub(super) fn all_rps(&self, now: Timestamp) -> f64 {
        self.all.rate_at(now)
    }

    /// Returns the number of new strangers a second: their first calls count in this joint entry.
    pub(super) fn newcomers_cps(&self) -> f64 {
        self.newcomers_cps
    }

    /// Returns the original load without claims. [`COUNTED_GROWTH`] limits its growth.
    pub(super) fn counted_cps(&self) -> f64 {
        self.counted_cps
    }

    /// Returns the requests a second of all kinds that the peer sends if it sends `cps` calls a
    /// second.
    pub(super) fn rps_with(&self, cps: f64) -> f64 {
        let others_rps = self.single_rps + self.ongoing_rps + self.other_required_rps;
        cps * self.with_new + others_rps
    }

    /// Returns the share of new requests (sessions and single requests) among all requests of the
    /// peer, 0 to 1, if it would send `cps` calls a second. ACKs count at the rate at which they
    /// arrive, because they come later than their INVITEs.
    pub(super) fn share_of_new(&self, cps: f64) -> f64 {
        let new = cps + self.single_rps;
        let all = new + self.required_rps + self.ongoing_rps;
        if all > 0.0 { new / all } else { 1.0 }
    }
}
