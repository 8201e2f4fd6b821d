//! One server that sends requests to this one: the algorithm agreed with it, the requests that it
//! sends, and the requests that it may send.

mod claim;
mod grant;
mod load;
mod policing;

use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use self::claim::Claim;
use self::grant::Grant;
use self::load::Load;
use self::policing::Policing;
use super::capacity::Capacity;
use super::enforcement::Enforcement;
use super::peer_view::{PeerView, Standing};
use super::sequence::LATE_MAX;
use super::shares::Demand;
use super::told::Told;
use super::upstream_settings::{Offer, UpstreamFairness, UpstreamSettings};
use super::{Algorithm, Algorithms, Category};

/// A peer is assumed to send at least this share of its requests while it holds the others back. So
/// each request that it sends counts as at most 1/`SHARE_MIN` requests of the load before any
/// restriction.
const SHARE_MIN: f64 = 0.01;

/// If an earlier estimate of the original load is higher than the present one, each tick multiplies
/// the difference by this factor. So a wrong estimate loses 63 % of its error within two seconds.
const RESTRAINED_KEPT: f64 = 0.95;

/// Time for which an agreed algorithm is kept.
// RFC 7339 §5.8: "Once the server selects a specific overload control algorithm for a given client,
// the algorithm SHOULD NOT change the algorithm associated with that client for at least 3600 seconds
// (1 hour)."
pub(super) const AGREED: Duration = Duration::from_secs(3600);

/// Time for which an offer stands although later requests of the peer contain none: as long as the
/// response to the request with the offer may be sent again. A peer that does not know yet whether
/// this server gives feedback offers overload control only in its probes. The calls that it sends
/// meanwhile must not withdraw the offer before the probe is answered.
// RFC 7339 §4.1 asks for a value in the response to a client that "included the "oc" parameter in
// the request".
const OFFER_STANDS: Duration = LATE_MAX;

/// The state of one peer: a server that sends requests to this one.
#[derive(Debug)]
pub(super) struct Upstream {
    /// The algorithm agreed with the peer, and the time at which it was chosen, or `None` if none
    /// is agreed.
    agreed: Option<(Algorithm, Timestamp)>,
    /// Time of the last request that offered overload control.
    offered: Timestamp,
    weight: u32,
    host: Option<u128>,
    /// Time of the last request of the peer.
    heard: Timestamp,
    /// Time of the last request that began a session, or `None` before the first.
    asked: Option<Timestamp>,
    load: Load,
    claim: Claim,
    is_active: bool,
    grant: Grant,
    /// Limits the sessions of the peer here if it does not obey.
    enforcement: Enforcement,
    policing: Policing,
    told: Told,
    rejected: u64,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            agreed: None,
            offered: Timestamp::ZERO,
            weight: 1,
            host: None,
            heard: Timestamp::ZERO,
            asked: None,
            load: Load::default(),
            claim: Claim::default(),
            is_active: false,
            grant: Grant::default(),
            enforcement: Enforcement::default(),
            policing: Policing::default(),
            told: Told::default(),
            rejected: 0,
        }
    }
}

impl Upstream {
    /// Creates the joint entry of all peers for which the table has no room. They count as
    /// [strangers](Offer::STRANGERS), because anybody can fill the table. The first call of each
    /// stranger also counts here.
    pub(super) fn stranger() -> Self {
        Self { host: Some(Offer::STRANGERS), ..Self::default() }
    }

    /// Stores the overload-control parameters of a request, and chooses the algorithm if none is
    /// agreed with the peer.
    // RFC 7339 §5.1: "If a server receives a SIP request containing the "oc" and "oc-algo" parameters,
    // the server MUST determine if it has already selected the overload control algorithm class with
    // this client. If it has, the server SHOULD use the previously selected algorithm class in its
    // response to the message." §4.2: "it chooses one algorithm from the list and MUST return the single
    // selected algorithm to the client." "The selection SHOULD stay the same for a non-trivial duration of
    // time to allow the overload control algorithm to stabilize its behavior".
    pub(super) fn on_offer(&mut self, now: Timestamp, offer: &Offer, settings: &UpstreamSettings) {
        let offered = offer.algorithms.unwrap_or_default();
        let common = offered.common(settings.accepted);
        (self.weight, self.host) = (offer.weight.max(1), offer.host);
        let claimed = offer.original_cps.filter(|cps| cps.is_finite() && *cps >= 0.0);
        // Only user-centric fairness asks for claims.
        if let Some(cps) = claimed.filter(|_| settings.fairness == UpstreamFairness::User) {
            self.claim.on_claim(now, cps);
        }
        if offer.algorithms.is_some() {
            self.offered = now;
        } else if self.agreed.is_some() && now.since(self.offered) < OFFER_STANDS {
            return;
        }
        let is_kept = self.agreed.is_some_and(|(algorithm, at)| {
            let is_wanted = algorithm == choose(common, settings.preferred).unwrap_or(algorithm);
            common.contains(algorithm) && (is_wanted || now.since(at) < AGREED)
        });
        if !is_kept {
            // RFC 7339 §5.1: "the server MUST choose one algorithm from the list of algorithms in the
            // "oc-algo" parameter."
            self.agreed = choose(common, settings.preferred).map(|algorithm| (algorithm, now));
            if self.algorithm().is_some_and(|algorithm| self.told.is_of_another(algorithm)) {
                // Values under another algorithm have another meaning.
                self.told.forget();
                self.grant.forget_use();
            }
            self.grant.change_algorithm(self.algorithm(), &self.load);
        }
    }

    /// Counts a request in a session that does not exist. The request uses up a part of the rate
    /// that the peer may send, but does not raise this rate.
    pub(super) fn on_stray(&mut self, now: Timestamp) {
        self.heard = now;
        self.load.on_stray(now);
    }

    /// Counts the first call of a stranger, in the entry of the stranger. There it only begins the
    /// measurement of the stranger's rate. As a call it counts in the joint entry, so the stranger
    /// is not active yet.
    pub(super) fn on_first_call(&mut self, now: Timestamp) {
        self.heard = now;
        self.load.on_first_call(now);
    }

    /// Counts a stranger whose first call counts in this joint entry.
    pub(super) fn on_newcomer(&mut self, now: Timestamp) {
        self.load.on_newcomer(now);
    }

    pub(super) fn on_request(&mut self, now: Timestamp, category: Category) {
        self.heard = now;
        if category.begins_session() {
            self.asked = Some(now);
        }
        self.load.on_request(now, category, self.sent_share(category));
    }

    /// Returns the share, 0 to 1, of the peer's new requests of this category that the peer seems
    /// to send. It holds back the other requests.
    fn sent_share(&self, category: Category) -> f64 {
        // Only `loss` also reduces single requests.
        let is_reduced = category != Category::Single || self.algorithm() == Some(Algorithm::Loss);
        let holds_back = match self.standing() {
            Standing::Apart => false,
            Standing::Obeys => true,
            Standing::Disobeys => !self.policing.is_too_much(),
        };
        if is_reduced && holds_back { self.grant.told_share().max(SHARE_MIN) } else { 1.0 }
    }

    pub(super) fn is_stranger(&self) -> bool {
        self.host == Some(Offer::STRANGERS)
    }

    /// Returns whether the peer is a stranger that has not sent a call yet.
    pub(super) fn is_newcomer(&self) -> bool {
        self.is_stranger() && !self.load.has_begun()
    }

    pub(super) fn obeys(&self) -> bool {
        self.standing() == Standing::Obeys
    }

    /// Returns whether the peer's share of the capacity covers new requests of this category. A
    /// peer has a share if it asked for a session shortly before the last tick. The share covers
    /// sessions. If the peer obeys and has to hold sessions back, the share also covers single
    /// requests, because the peer holds these back too. The sessions of a peer that obeys are
    /// covered even before its first tick.
    pub(super) fn has_share(&self, category: Category) -> bool {
        match (self.obeys(), category.begins_session()) {
            (true, true) => true,
            (true, false) => self.is_active && self.grant.told_share() < 1.0,
            (false, true) => self.is_active && self.load.original_cps() > 0.0,
            (false, false) => false,
        }
    }

    /// Returns whether this server limits the new requests of this category to the share of the
    /// peer, even if the peer asked for no session shortly before the last tick. Otherwise a peer
    /// could send a large burst after each pause.
    pub(super) fn is_limited(&self, category: Category) -> bool {
        !self.obeys() && category.begins_session() && self.policing.is_restricted()
    }

    /// Decides whether this server accepts a new request of the peer. It accepts all requests of a
    /// peer that obeys.
    pub(super) fn passes(&mut self) -> bool {
        let passes = self.obeys() || self.enforcement.passes();
        self.rejected += u64::from(!passes);
        passes
    }

    pub(super) fn algorithm(&self) -> Option<Algorithm> {
        self.agreed.map(|(algorithm, _)| algorithm)
    }

    pub(super) fn heard(&self) -> Timestamp {
        self.heard
    }

    pub(super) fn standing(&self) -> Standing {
        match self.agreed {
            None => Standing::Apart,
            Some(_) if self.policing.is_policed() => Standing::Disobeys,
            Some(_) => Standing::Obeys,
        }
    }

    pub(super) fn demand(&self, fairness: UpstreamFairness) -> Demand {
        let (original_cps, newcomers_cps) = (self.load.original_cps(), self.load.newcomers_cps());
        let weight = match fairness {
            // Each newcomer has the weight of a stranger.
            UpstreamFairness::Provider => newcomers_cps.max(1.0),
            UpstreamFairness::User => original_cps.max(f64::MIN_POSITIVE),
            UpstreamFairness::Weighted => newcomers_cps.max(f64::from(self.weight)),
        };
        Demand { host: self.host, original_cps, weight }
    }

    /// Returns the original load as this server measures it, without claims. Its growth is limited.
    pub(super) fn counted_cps(&self) -> f64 {
        self.load.counted_cps()
    }

    /// Returns when the peer last asked for a session, if ever.
    pub(super) fn asked(&self) -> Option<Timestamp> {
        self.asked
    }

    /// Measures the requests of the peer. `is_active` says whether the peer has recently asked for
    /// a session. Returns `is_active`.
    pub(super) fn look(&mut self, now: Timestamp, is_active: bool) -> bool {
        self.is_active = is_active;
        self.load.look(now, is_active);
        if !is_active {
            return false;
        }
        // The requests a second that the peer sends and may send. Only requests that its algorithm
        // restricts count.
        let (sends, may) = match self.told.rps() {
            Some(rps) => (self.load.all_rps(now), rps),
            None => (self.load.sends_cps(), self.grant.cps()),
        };
        self.grant.look(sends, may);
        let (surely_may, may_at_most) = self.told.look(may);
        self.policing.look(now, sends, may_at_most, &self.told, self.agreed.is_some());
        self.load.estimate(now, self.algorithm(), self.used_up_cps());
        self.claim.look(now, self.grant.cps(), sends / surely_may.max(1.0));
        let is_believed = !self.claim.is_doubted() && self.obeys();
        self.load.believe(self.claim.cps().filter(|_| is_believed));
        true
    }

    /// Returns the grant in calls a second if the peer uses all of it. Then its calls do not show
    /// how many more it would send. Otherwise returns `None`, and also for a peer that this server
    /// itself limits: such a peer sends all that it has.
    fn used_up_cps(&self) -> Option<f64> {
        let is_used_up =
            self.grant.is_used_up() && !self.policing.is_policed() && !self.told.sets_no_limit();
        is_used_up.then_some(self.grant.cps())
    }

    /// Grants the peer up to `level` calls a second. If the peer does not obey, its rejections are
    /// charged to the grant. `rejection` is the cost of a rejection as a fraction of the cost of a
    /// call. Returns the calls a second that could be served in the time for the peer's rejections, at
    /// most `level`.
    ///
    /// If the peer had no finite grant before, its limit starts at a random point drawn from
    /// `starts`.
    // RFC 7339 §5.10.2: "It would be fair to devote the same amount of processing at the overloaded
    // server to the combination of rejection and processing from a non-participating client as the
    // overloaded server would devote to processing requests from a participating client."
    pub(super) fn grant(
        &mut self,
        now: Timestamp,
        level: f64,
        rejection: f64,
        starts: &mut Stream,
    ) -> f64 {
        if self.policing.on_grant(now, level.is_finite()) {
            self.enforcement.start(level, starts);
        }
        // A peer that was policed may again hold back requests as it is told. This server must not
        // apply the share a second time to the requests that still arrive.
        let offered = self.load.sends_cps();
        let served = self.enforcement.save(level, offered, rejection);
        let (original, obeys) = (self.load.original_cps(), self.obeys());
        let is_unlimited = level.is_infinite() || !self.is_active || original <= 0.0;
        let restrained_cps = (!is_unlimited).then(|| self.restrained_by(original));
        self.grant.set(level, restrained_cps);
        self.grant.round(self.algorithm(), &self.load);
        if is_unlimited || obeys {
            self.enforcement.open();
            return 0.0;
        }
        // The caller adds this time to the capacity, and the peer gets its share of the sum. The
        // rejections of a flood take longer than the share of its sender. If all this time were
        // added, the other peers would together be granted more than the capacity.
        (self.enforcement.restrict(served, offered) * rejection).min(level)
    }

    /// Returns the load before any restriction of a peer with the original load `original`, in calls
    /// a second.
    fn restrained_by(&self, original: f64) -> f64 {
        if self.obeys() {
            return original;
        }
        // The peer must not be told to hold back a smaller part than its whole load requires.
        // Otherwise a peer that begins to obey would still send too much.
        let least = original.max(self.claim.cps().unwrap_or(0.0));
        // A peer that seems to obey again shows its original load. A larger load that was seen before
        // may be wrong: each request that the peer sent in spite of its share may have counted for
        // many that it seemed to hold back. If such a load were kept, the peer would be told to send
        // next to nothing until it counts as obedient again.
        let kept = if self.policing.is_too_much() { 1.0 } else { RESTRAINED_KEPT };
        least + (self.grant.restrained_cps() - least).max(0.0) * kept
    }

    /// Returns the feedback value to send to the peer.
    pub(super) fn value(&self, capacity: &Capacity) -> u32 {
        self.algorithm().map_or(0, |algorithm| self.grant.value(algorithm, capacity, &self.load))
    }

    /// Records the feedback value that is sent to the peer. Returns whether it differs from the
    /// previous value.
    pub(super) fn tell(&mut self, now: Timestamp, algorithm: Algorithm, value: u32) -> bool {
        self.told.tell(now, algorithm, value)
    }

    /// Returns the state of the peer `key`. Without an overload nothing limits the peer, even if no
    /// response has told it so since the overload ended.
    pub(super) fn view(&self, key: Option<u128>, is_overloaded: bool) -> PeerView {
        PeerView {
            key,
            standing: self.standing(),
            algorithm: self.algorithm(),
            value: if is_overloaded { self.told.value() } else { 0 },
            original_cps: self.load.original_cps(),
            claimed_cps: self.claim.cps(),
            is_doubted: self.claim.is_doubted(),
            granted_cps: if is_overloaded { self.grant.cps() } else { f64::INFINITY },
            rejected: self.rejected,
        }
    }
}

/// Chooses one of the algorithms that both sides support: `preferred`, then `loss`, then `rate`.
fn choose(common: Algorithms, preferred: Algorithm) -> Option<Algorithm> {
    let in_order = [preferred, Algorithm::Loss, Algorithm::Rate];
    in_order.into_iter().find(|&algorithm| common.contains(algorithm))
}
