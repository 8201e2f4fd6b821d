//! One server that sends requests to this one: the algorithm agreed with it, the requests that it
//! sends, and the requests that it may send.

use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use super::capacity::Capacity;
use super::enforcement::Enforcement;
use super::peer_view::{PeerView, Standing};
use super::shares::Demand;
use super::told::Told;
use super::upstream_settings::{Offer, TICK, UpstreamFairness, UpstreamSettings};
use super::{Algorithm, Algorithms, Category, VALIDITY_DEFAULT};
use crate::arrival_rate::ArrivalRate;

/// A peer is assumed to send at least this share of its requests while it holds the others back. So
/// each counts as at most 1/`SHARE_MIN` requests of the load before any restriction.
const SHARE_MIN: f64 = 0.01;

/// If a peer sends less than this part of its grant for [`UNUSED`] consecutive ticks, the grant
/// does not limit the peer.
const SATURATED: f64 = 0.85;
const UNUSED: u32 = 10;

/// A peer that claims a load above its grant must send at least this part of the grant. The missing
/// requests are summed up. When they are as many as the peer may send in [`SHORTFALL_MAX`], the
/// claim counts as false: after twice this time if the peer sends nothing. An honest peer also
/// sends too little until a larger feedback value reaches it. Values travel in responses, so a peer
/// that has to hold back almost everything gets them late.
const CLAIMED_MIN: f64 = 0.5;
const SHORTFALL_MAX: Duration = Duration::from_secs(1);

/// Maximum factor by which the counted load of a peer (`counted_cps`) grows in a tick, unless more
/// requests arrive. Under `loss`, a peer could claim a large load, and then send its whole grant
/// instead of the part that it was told to send. Without this limit, its load could at once count a
/// hundred times as much.
const COUNTED_GROWTH: f64 = 1.05;

/// Time for which the claim of a peer about its original load counts. Not every request of a peer
/// contains a claim.
const CLAIMED: Duration = Duration::from_secs(5);

/// Time for which the claims of a peer are ignored after it claimed a larger load than it has.
const DISTRUSTED: Duration = Duration::from_secs(60);

/// The factor by which a peer may exceed its grant, and the requests a second that it may send in
/// addition, before it counts as disobedient.
const TOLERANCE: f64 = 1.33;
const TOLERANCE_RPS: f64 = 3.0;

/// This server limits (polices) a peer that sends too much for too long. The counter of violations
/// of a peer grows by [`VIOLATION`] in a tick with too many requests, and falls by one in any other
/// tick. Policing begins when the counter is [`VIOLATIONS_MAX`] · [`VIOLATION`], and ends when it
/// is zero.
const VIOLATIONS_MAX: u32 = 20;
const VIOLATION: u32 = 10;

/// Maximum number of requests that come with a new request: an ACK, and a CANCEL.
const WITH_NEW_MAX: f64 = 2.0;

/// If an earlier estimate of the original load is higher than the present one, each tick multiplies
/// the difference by this factor. So a wrong estimate loses 63 % of its error within two seconds.
const RESTRAINED_KEPT: f64 = 0.95;

/// Time after the start of a restriction in which a peer may send too many requests without a
/// violation. The restriction may begin before an overload, as soon as the law sets any limit. A
/// peer that is told under `rate` that there is no overload has this time when an overload begins.
const GRACE: Duration = Duration::from_secs(1);

/// Time for which an agreed algorithm is kept.
// RFC 7339 §5.8: "Once the server selects a specific overload control algorithm for a given client,
// the algorithm SHOULD NOT change the algorithm associated with that client for at least 3600 seconds
// (1 hour)."
pub(super) const AGREED: Duration = Duration::from_secs(3600);

/// The state of one peer: a server that sends requests to this one.
#[derive(Debug)]
pub(super) struct Upstream {
    /// The algorithm agreed with the peer, and the time at which it was chosen, or `None` if none
    /// is agreed.
    agreed: Option<(Algorithm, Timestamp)>,
    /// The original load that the peer claimed last, and the time of this claim.
    claimed: Option<(f64, Timestamp)>,
    /// The last time at which the claim of the peer was found to be larger than its load.
    lied: Option<Timestamp>,
    is_doubted: bool,
    weight: u32,
    host: Option<u128>,
    /// Time of the last request of the peer.
    heard: Timestamp,
    /// Time of the last request that began a session, or `None` before the first.
    asked: Option<Timestamp>,
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
    /// Strangers a second whose first call is counted here, in the joint entry.
    newcomers_cps: f64,
    /// The part of `measured_cps` that counts when the law's share of all loads is converted to
    /// calls a second.
    counted_cps: f64,
    required_rps: f64,
    ongoing_rps: f64,
    single_rps: f64,
    /// Number of requests that come with one new request, including that request.
    with_new: f64,
    /// ACKs and CANCELs a second that do not belong to new requests that arrive now, but to
    /// re-INVITEs, or to calls that rang for a while.
    other_required_rps: f64,
    is_active: bool,
    /// Calls a second that the peer may send.
    granted_cps: f64,
    /// The share of its load before any restriction that the peer is told to send, 0 to 1.
    told_share: f64,
    /// The load before any restriction to which `told_share` applies. While the peer sends too
    /// much, this is the largest load that was estimated or claimed.
    restrained_cps: f64,
    /// Limits the sessions of the peer here if it does not obey.
    enforcement: Enforcement,
    /// The time since which the peer has to respect a finite grant: the time at which the grant
    /// became finite, or a later time at which no feedback value was valid. `None` while the grant
    /// is infinite.
    restricted: Option<Timestamp>,
    /// Consecutive ticks in which the peer used less than [`SATURATED`] of its grant.
    unused: u32,
    /// The requests missing from [`CLAIMED_MIN`] of the grant while the peer claimed a larger load,
    /// in seconds of the grant. It falls while the peer sends more or claims less.
    shortfall: f64,
    /// True if the peer exceeded its grant by more than the tolerance in the last tick.
    is_too_much: bool,
    /// Counts ticks with too many requests: each adds [`VIOLATION`], and each other tick subtracts
    /// one.
    violations: u32,
    is_policed: bool,
    /// The percentage of its requests that the peer has to hold back, as of the last tick.
    percent: u32,
    /// The maximum number of requests a second that the peer may send, as of the last tick.
    rps: u32,
    /// The fraction by which `percent` or `rps` was last rounded down. It is added to the next
    /// value.
    carried: f64,
    told: Told,
    rejected: u64,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            agreed: None,
            claimed: None,
            lied: None,
            is_doubted: false,
            weight: 1,
            host: None,
            heard: Timestamp::ZERO,
            asked: None,
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
            is_active: false,
            granted_cps: f64::INFINITY,
            told_share: 1.0,
            restrained_cps: 0.0,
            enforcement: Enforcement::default(),
            restricted: None,
            unused: 0,
            shortfall: 0.0,
            is_too_much: false,
            violations: 0,
            is_policed: false,
            percent: 0,
            rps: 0,
            carried: 0.0,
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
            self.claimed = Some((cps, now));
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
                self.unused = 0;
            }
            // The value of the last tick belongs to another algorithm.
            self.carried = 0.0;
            self.round();
        }
    }

    /// Counts a request in a session that does not exist. The request uses up a part of the rate
    /// that the peer may send, but does not raise this rate.
    pub(super) fn on_stray(&mut self, now: Timestamp) {
        self.heard = now;
        self.all.on_arrival(now);
    }

    /// Counts the first call of a stranger, in the entry of the stranger. It only begins the
    /// measurement of the stranger's rate. The call itself counts in the joint entry, so the stranger
    /// is not active yet.
    pub(super) fn on_first_call(&mut self, now: Timestamp) {
        self.heard = now;
        self.all.on_arrival(now);
        self.new.on_arrival(now);
        self.original.on_arrival(now);
    }

    /// Counts a stranger whose first call counts in this joint entry.
    pub(super) fn on_newcomer(&mut self, now: Timestamp) {
        self.newcomers.on_arrival(now);
    }

    pub(super) fn on_request(&mut self, now: Timestamp, category: Category) {
        self.heard = now;
        self.all.on_arrival(now);
        match category {
            Category::Session | Category::Priority => {
                self.asked = Some(now);
                self.new.on_arrival(now);
                self.original.on_arrivals(now, 1.0 / self.sent_share());
            }
            Category::Single => {
                let is_reduced = self.algorithm() == Some(Algorithm::Loss);
                let share = if is_reduced { self.sent_share() } else { 1.0 };
                self.single.on_arrivals(now, 1.0 / share);
            }
            Category::Required => {
                self.required.on_arrival(now);
                self.acknowledging.on_arrival(now);
            }
            Category::Ongoing => self.ongoing.on_arrival(now),
        }
    }

    /// Returns the share of its new requests that the peer seems to send.
    fn sent_share(&self) -> f64 {
        let holds_back = match self.standing() {
            Standing::Apart => false,
            Standing::Obeys => true,
            Standing::Disobeys => !self.is_too_much,
        };
        if holds_back { self.told_share.max(SHARE_MIN) } else { 1.0 }
    }

    pub(super) fn is_stranger(&self) -> bool {
        self.host == Some(Offer::STRANGERS)
    }

    /// Returns whether the peer is a stranger that has not sent a call yet.
    pub(super) fn is_newcomer(&self) -> bool {
        self.is_stranger() && !self.new.has_begun()
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
            (true, false) => self.is_active && self.told_share < 1.0,
            (false, true) => self.is_active && self.original_cps > 0.0,
            (false, false) => false,
        }
    }

    /// Returns whether this server limits the new requests of this category to the share of the
    /// peer, even if the peer asked for no session shortly before the last tick. Otherwise a peer
    /// could send a large burst after each pause.
    pub(super) fn is_limited(&self, category: Category) -> bool {
        !self.obeys() && category.begins_session() && self.restricted.is_some()
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
            Some(_) if self.is_policed => Standing::Disobeys,
            Some(_) => Standing::Obeys,
        }
    }

    pub(super) fn demand(&self, fairness: UpstreamFairness) -> Demand {
        let weight = match fairness {
            // Each newcomer has the weight of a stranger.
            UpstreamFairness::Provider => self.newcomers_cps.max(1.0),
            UpstreamFairness::User => self.original_cps.max(f64::MIN_POSITIVE),
            UpstreamFairness::Weighted => self.newcomers_cps.max(f64::from(self.weight)),
        };
        Demand { host: self.host, original_cps: self.original_cps, weight }
    }

    /// Returns the original load as this server measures it, without claims. [`COUNTED_GROWTH`]
    /// limits its growth.
    pub(super) fn counted_cps(&self) -> f64 {
        self.counted_cps
    }

    /// Returns when the peer last asked for a session, if ever.
    pub(super) fn asked(&self) -> Option<Timestamp> {
        self.asked
    }

    /// Measures the requests of the peer. `is_active` says whether the peer has recently asked for
    /// a session. Returns `is_active`.
    pub(super) fn look(&mut self, now: Timestamp, is_active: bool) -> bool {
        self.is_active = is_active;
        self.ongoing_rps = self.ongoing.rate_at(now);
        self.single_rps = self.single.rate_at(now);
        self.required_rps = self.acknowledging.rate_at(now);
        let required_rps = self.required.rate_at(now);
        if !is_active {
            self.other_required_rps = required_rps;
            (self.original_cps, self.measured_cps, self.counted_cps) = (0.0, 0.0, 0.0);
            (self.sends_cps, self.newcomers_cps) = (0.0, 0.0);
            return false;
        }
        let sends_cps = self.new.rate_at(now);
        (self.sends_cps, self.newcomers_cps) = (sends_cps, self.newcomers.rate_at(now));
        if sends_cps > 0.0 {
            let with_each = (required_rps / sends_cps).min(WITH_NEW_MAX);
            self.with_new = 1.0 + with_each;
        }
        self.other_required_rps = (required_rps - WITH_NEW_MAX * sends_cps).max(0.0);
        // The requests a second that the peer sends and may send. Only requests that its algorithm
        // restricts count.
        let (sends, may) = match self.told.rps() {
            Some(rps) => (self.all.rate_at(now), rps),
            None => (sends_cps, self.granted_cps),
        };
        self.unused = if sends + 1.0 < SATURATED * may { self.unused + 1 } else { 0 };
        let (surely_may, may_at_most) = self.told.look(may);
        self.is_too_much = sends > TOLERANCE * may_at_most + TOLERANCE_RPS;
        self.police(now);
        self.measured_cps = match self.agreed {
            Some((Algorithm::Loss, _)) => self.original.rate_at(now),
            // The peer uses its whole grant, so it does not show how much more it would send.
            // A peer that does not obey sends all that it has.
            Some(_)
                if self.granted_cps.is_finite()
                    && self.unused < UNUSED
                    && !self.is_policed
                    && !self.told.sets_no_limit() =>
            {
                self.measured_cps.max(sends_cps.min(self.granted_cps))
            }
            _ => sends_cps,
        };
        self.counted_cps = self.measured_cps.min(sends_cps.max(self.counted_cps * COUNTED_GROWTH));
        // Check whether the peer claims a load above its grant, but does not use the grant.
        self.claimed = self.claimed.filter(|&(_, at)| now.since(at) <= CLAIMED);
        let claimed_cps = self.claimed.map(|(cps, _)| cps);
        let wants_more = claimed_cps.is_some_and(|claimed| claimed > self.granted_cps);
        // The shortfall is not reset at a smaller claim. Otherwise a peer could reset it at will.
        let short = if wants_more { CLAIMED_MIN - sends / surely_may.max(1.0) } else { -1.0 };
        self.shortfall = (self.shortfall + short * TICK.as_secs_f64()).max(0.0);
        if self.shortfall > SHORTFALL_MAX.as_secs_f64() {
            self.lied = Some(now);
        }
        self.is_doubted = self.lied.is_some_and(|at| now.since(at) <= DISTRUSTED);
        let is_believed = !self.is_doubted && self.obeys();
        // The calls that arrive are a lower bound, whatever the peer claims. A smaller claim would
        // end the overload.
        self.original_cps =
            claimed_cps.filter(|_| is_believed).map_or(self.measured_cps, |cps| cps.max(sends_cps));
        true
    }

    /// Checks whether the peer sends too much for so long that this server itself must limit it.
    fn police(&mut self, now: Timestamp) {
        // RFC 7339 §4.3: a value that is not renewed ends. After that the peer may send any number
        // of requests. The same holds if the last rate was 0, which ends a restriction
        // (RFC 7339 §5.7).
        if now.since(self.told.at()) > VALIDITY_DEFAULT || self.told.sets_no_limit() {
            self.restricted = self.restricted.map(|_| now);
        }
        let Some(since) = self.restricted.filter(|_| self.agreed.is_some()) else { return };
        if self.is_too_much && now.since(since) > GRACE {
            self.violations = (self.violations + VIOLATION).min(VIOLATIONS_MAX * VIOLATION);
        } else {
            self.violations = self.violations.saturating_sub(1);
        }
        self.is_policed = match self.violations {
            0 => false,
            most if most >= VIOLATIONS_MAX * VIOLATION => true,
            _ => self.is_policed,
        };
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
        self.granted_cps = level;
        if level.is_finite() && self.restricted.is_none() {
            self.enforcement.start(level, starts);
        }
        self.restricted = level.is_finite().then(|| self.restricted.unwrap_or(now));
        // A peer that was policed may again hold back requests as it is told. This server must not
        // apply the share a second time to the requests that still arrive.
        let offered = self.sends_cps;
        let served = self.enforcement.save(level, offered, rejection);
        let (original, obeys) = (self.original_cps, self.obeys());
        if level.is_infinite() || !self.is_active || original <= 0.0 {
            (self.told_share, self.restrained_cps) = (1.0, 0.0);
            self.enforcement.open();
            self.round();
            return 0.0;
        }
        self.restrained_cps = self.restrained_by(original);
        self.told_share = (level / self.restrained_cps).min(1.0);
        self.round();
        if obeys {
            self.enforcement.open();
            return 0.0;
        }
        // The caller adds this time to the capacity, and the peer gets its share of the sum. The
        // rejections of a flood take longer than the share of its sender. If all this time were
        // added, the other peers would together be granted more than the capacity.
        (self.enforcement.restrict(served, offered) * rejection).min(level)
    }

    /// Returns the load to which `told_share` applies, for a peer with the original load
    /// `original`, in calls a second.
    fn restrained_by(&self, original: f64) -> f64 {
        if self.obeys() {
            return original;
        }
        // The peer must not be told to hold back a smaller part than its whole load requires.
        // Otherwise a peer that begins to obey would still send too much.
        let claimed_cps = self.claimed.map_or(0.0, |(cps, _)| cps);
        let least = original.max(claimed_cps);
        // A peer that seems to obey again shows its original load. A larger load that was seen before
        // may be wrong: each request that the peer sent in spite of its share may have counted for
        // many that it seemed to hold back. If such a load were kept, the peer would be told to send
        // next to nothing until it counts as obedient again.
        let kept = if self.is_too_much { 1.0 } else { RESTRAINED_KEPT };
        least + (self.restrained_cps - least).max(0.0) * kept
    }

    /// Rounds the feedback value for the peer to a whole number.
    // A rate that is always rounded down loses a tenth of the calls of a peer that may send only a
    // few requests a second. At ten times the capacity, one percent of the requests is a tenth of
    // those that pass. So the fraction by which a value was rounded down is added to the next.
    fn round(&mut self) {
        let (exact, value) = match self.algorithm() {
            Some(Algorithm::Loss) => (self.loss_percent(), &mut self.percent),
            Some(Algorithm::Rate) => (self.rate_rps(self.granted_cps), &mut self.rps),
            None => return,
        };
        if exact.is_finite() {
            let carrying = exact + self.carried;
            (*value, self.carried) = (carrying as u32, carrying.fract());
        }
    }

    /// Returns the requests a second that the peer may send if it is granted `granted_cps` calls a
    /// second.
    // RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire
    // stream of SIP requests, even though throttling may only affect a particular subset of the
    // requests".
    fn rate_rps(&self, granted_cps: f64) -> f64 {
        let others_rps = self.single_rps + self.ongoing_rps + self.other_required_rps;
        granted_cps * self.with_new + others_rps
    }

    /// Returns the percentage of the requests that the peer has to hold back. ACKs count at the
    /// rate at which they arrive, because they come later than their INVITEs.
    // RFC 7339 §5.3: clients "apply" the value "to all downstream SIP requests (dialogue forming as
    // well as in-dialogue) to this SIP server." The law limits only new work. RFC 7339 §7.1: "This
    // value MUST be in the range of [0, 100], inclusive."
    fn loss_percent(&self) -> f64 {
        // The peer holds back sessions and single requests by the same percentage.
        let new = self.restrained_cps + self.single_rps;
        let all = new + self.required_rps + self.ongoing_rps;
        let new = if all > 0.0 { new / all } else { 1.0 };
        (100.0 * (1.0 - self.told_share) * new).clamp(0.0, 100.0)
    }

    /// Returns the feedback value to send to the peer.
    pub(super) fn value(&self, capacity: &Capacity) -> u32 {
        match self.agreed {
            Some((Algorithm::Loss, _)) => self.percent,
            // A rate of zero would hold back all requests, even BYEs.
            Some((Algorithm::Rate, _)) if self.granted_cps.is_finite() => self.rps.max(1),
            // The peer has no grant yet, or no limit.
            Some((Algorithm::Rate, _)) => (self.rate_rps(capacity.cps()) as u32).max(1),
            None => 0,
        }
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
            original_cps: self.original_cps,
            claimed_cps: self.claimed.map(|(cps, _)| cps),
            is_doubted: self.is_doubted,
            granted_cps: if is_overloaded { self.granted_cps } else { f64::INFINITY },
            rejected: self.rejected,
        }
    }
}

/// Chooses one of the algorithms that both sides support: `preferred`, then `loss`, then `rate`.
fn choose(common: Algorithms, preferred: Algorithm) -> Option<Algorithm> {
    let in_order = [preferred, Algorithm::Loss, Algorithm::Rate];
    in_order.into_iter().find(|&algorithm| common.contains(algorithm))
}
