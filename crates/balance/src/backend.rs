//! One server behind the balancer, and what is known of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::{Histogram, Timestamp};

use crate::finals::Finals;
use crate::health::{AdminState, Evidence, Health, Parties, Sources, State};
use crate::limit::Allowance;
use crate::response_time::ResponseTimes;
use crate::work::LeaseKind;
use crate::{AddressGeneration, Endpoint, Named};

/// A pause that only answered probes end.
pub const UNTIL_PROBED: Duration = Duration::MAX;

/// A back end: its configuration, its health, and the counts all shards share.
///
/// Relaxed atomics suffice: each count stands alone, and a policy that reads one
/// a few nanoseconds old merely picks as if the other call had come later.
#[derive(Debug)]
pub struct Backend {
    name: Box<str>,
    endpoint: Endpoint,
    load: Load,
    evidence: Evidence,
    allowance: Allowance,
    response_times: ResponseTimes,
    finals: Finals,
}

/// On cache lines of their own, so that shards counting on different back ends
/// do not disturb each other. 128 bytes: x86 prefetches lines in pairs.
///
/// In the order of their declaration: what a policy asks of each back end at each choice is in
/// the first 64 bytes, so that a choice among many touches one line of each.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Load {
    calls: AtomicU64,
    transactions: AtomicU64,
    work: AtomicU64,
    weight: AtomicU32,
    priority: AtomicU16,
    /// Whether there is anything to ask its allowance for, which lies elsewhere.
    is_limited: AtomicBool,
    health: Health,
    assigned: AtomicU64,
    failures: AtomicU64,
    refusals: AtomicU64,
    probes: AtomicU64,
    probe_failures: AtomicU64,
    /// When it last answered, rounded; zero if it never did.
    answered_at: AtomicU64,
    /// Times of the last rejected request, and of the last one rejected for overload.
    refused_at: AtomicU64,
    overloaded_at: AtomicU64,
    /// Requests given to it while it was spared.
    spared: AtomicU64,
    /// Requests that it left unanswered in a row, by the time of the last of them.
    silences: AtomicU32,
    silent_at: AtomicU64,
    /// Time of the last probe out of turn; zero if there was none.
    questioned_at: AtomicU64,
    /// Deliveries that were refused.
    unreachable: AtomicU64,
}

const _: () = assert!(std::mem::offset_of!(Load, health) == 32, "half of them are its");

/// Answers are noted no more often than this: a store on every one would make the cache line
/// go back and forth between the shards.
const ANSWERED_STEP_NS: u64 = 10_000_000;

impl Backend {
    /// A back end of which nothing is known: it is up, if it has an address.
    pub fn new(name: &str, endpoint: impl Into<Endpoint>, weight: u32) -> Self {
        let backend = Self {
            name: name.into(),
            endpoint: endpoint.into(),
            load: Load::default(),
            evidence: Evidence::default(),
            allowance: Allowance::default(),
            response_times: ResponseTimes::default(),
            finals: Finals::default(),
        };
        backend.set_weight(weight);
        backend
    }

    /// Its name, for metrics and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is, as it was configured.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its host name, if it was configured by that.
    pub fn named(&self) -> Option<&Named> {
        match &self.endpoint {
            Endpoint::Address(_) => None,
            Endpoint::Name(named) => Some(named),
        }
    }

    /// Where its new requests are sent; `None` while its host name has no address. Whoever is
    /// [up](Self::is_up) has one, and who has one keeps one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.endpoint.address()
    }

    /// Which of its addresses that is.
    pub fn generation(&self) -> AddressGeneration {
        self.endpoint.generation()
    }

    /// The address at a place; the present one if that place is forgotten.
    pub fn address_at(&self, generation: AddressGeneration) -> Option<SocketAddr> {
        self.endpoint.at(generation)
    }

    /// Whether what is known of `address` is known of it: of one that has moved, what comes from
    /// an address before says nothing of the present one.
    pub fn is_present_at(&self, address: SocketAddr) -> bool {
        match &self.endpoint {
            Endpoint::Address(_) => true,
            Endpoint::Name(named) => named.address() == Some(address),
        }
    }

    /// Its host name leads to `ip`: new requests are sent there. Returns whether it led elsewhere
    /// before. Nothing is known against it there.
    pub fn move_to(&self, ip: IpAddr) -> bool {
        let has_moved = self.named().is_some_and(|named| named.move_to(ip));
        if has_moved {
            self.load.health.forget();
            self.evidence.forget();
            self.forget_learned();
        }
        has_moved
    }

    /// Its share of the load against its fellows'; at least 1.
    pub fn weight(&self) -> u32 {
        self.load.weight.load(Relaxed)
    }

    /// Gives it another weight.
    pub fn set_weight(&self, weight: u32) {
        // A weight of zero would make every comparison of ratios a tie.
        self.load.weight.store(weight.max(1), Relaxed);
    }

    /// Its weight as it counts at `now`, in thousandths of [`weight`](Self::weight): what a policy
    /// divides calls by. At least 100. It grows evenly for a while after a return.
    pub fn effective_weight(&self, now: Timestamp) -> u64 {
        u64::from(self.weight()) * self.load.health.share(now)
    }

    /// Which back ends come before it: calls go to those of the lowest number that may have them.
    pub fn priority(&self) -> u32 {
        self.load.priority.load(Relaxed).into()
    }

    /// Gives it another priority, at most 65,535.
    pub fn set_priority(&self, priority: u32) {
        self.load.priority.store(priority.try_into().unwrap_or(u16::MAX), Relaxed);
    }

    /// It is known since `now`, and was not there before.
    pub(crate) fn set_known_since(&self, now: Timestamp) {
        self.load.health.set_known_since(now);
    }

    /// For how long its weight grows after a return; zero: it is whole at once.
    pub fn set_slow_start(&self, slow_start: Duration) {
        self.load.health.set_slow_start(slow_start);
    }

    /// Whether it holds nothing: neither a call nor a transaction.
    pub fn is_idle(&self) -> bool {
        self.calls() == 0 && self.work() == 0
    }

    /// Calls held now.
    pub fn calls(&self) -> u64 {
        self.load.calls.load(Relaxed)
    }

    /// Transactions open now.
    pub fn transactions(&self) -> u64 {
        self.load.transactions.load(Relaxed)
    }

    /// Weighted transactions open now, in hundredths of a BYE's.
    pub fn work(&self) -> u64 {
        self.load.work.load(Relaxed)
    }

    /// Mean of its last 20 response times to requests that begin calls, the newest weighing most;
    /// zero if there is none.
    pub fn start_response_time(&self) -> Duration {
        self.response_times.start()
    }

    /// The same of requests that end calls.
    pub fn end_response_time(&self) -> Duration {
        self.response_times.end()
    }

    /// What the beginning of a call costs it, as a multiple (1 to 4) of its end; `None` before that
    /// is learned, and if the policy of its pool does not learn it.
    pub fn cost_ratio(&self) -> Option<f64> {
        self.response_times.cost_ratio()
    }

    /// Calls and stand-alone requests assigned since the start.
    pub fn assigned(&self) -> u64 {
        self.load.assigned.load(Relaxed)
    }

    /// Deliveries that failed since the start: those that were refused, and those not answered.
    pub fn failures(&self) -> u64 {
        self.load.failures.load(Relaxed)
    }

    /// Deliveries that its host refused since the start, because nobody listens there.
    pub fn unreachable(&self) -> u64 {
        self.load.unreachable.load(Relaxed)
    }

    /// Whether it may be given new calls: it answers, has not asked for a pause, and is in service.
    pub fn is_up(&self, now: Timestamp) -> bool {
        self.load.health.takes_calls(now) && self.is_somewhere()
    }

    /// When that is so again, or was, if nothing else happens; `None` if nobody knows.
    pub fn returns_at(&self) -> Option<Timestamp> {
        self.load.health.returns_at().filter(|_| self.is_somewhere())
    }

    /// Whether it has an address.
    fn is_somewhere(&self) -> bool {
        self.named().is_none_or(Named::is_known)
    }

    /// Whether it answers, as far as is known. If it does, requests of calls that it holds go to
    /// it, whatever its duty.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.load.health.is_alive(now)
    }

    /// Its state, and since when. While its name has no address it is down.
    pub fn state(&self, now: Timestamp) -> (State, Timestamp) {
        if self.admin_state() == AdminState::InService && !self.is_somewhere() {
            return (State::Down, Timestamp::ZERO);
        }
        match self.load.health.state(now) {
            (State::Up, since) if self.silences() > 0 => (State::Suspect, since),
            state => state,
        }
    }

    /// What it is there for.
    pub fn admin_state(&self) -> AdminState {
        self.load.health.admin_state().0
    }

    /// Gives it a duty.
    pub fn set_admin_state(&self, now: Timestamp, admin_state: AdminState) {
        if self.load.health.set_admin_state(now, admin_state) == AdminState::Maintenance
            && admin_state != AdminState::Maintenance
        {
            self.forget_learned();
        }
    }

    /// How often it was taken down, and how often it came back by an answer.
    pub fn transitions(&self) -> (u64, u64) {
        self.load.health.transitions()
    }

    /// A delivery to it failed: it gets no new calls for `pause`, unless it
    /// answers before. [`UNTIL_PROBED`]: until it has answered probes.
    pub fn on_failed(&self, now: Timestamp, pause: Duration) {
        self.load.failures.fetch_add(1, Relaxed);
        self.load.unreachable.fetch_add(1, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_failed(now, pause));
    }

    /// Records that a request has had no answer since `since`, and returns how many requests in a
    /// row that makes: 0 if something else was answered meanwhile.
    ///
    /// Silence takes no back end down, for a request that it does not like brings it about as well
    /// as its death. A probe tells the two apart.
    pub fn on_silent(&self, now: Timestamp, since: Timestamp) -> u32 {
        if self.has_answered(since) {
            return 0;
        }
        self.load.failures.fetch_add(1, Relaxed);
        // Of two shards that come at once one may not be counted, which delays a probe by a
        // request.
        let silences = self.silences() + 1;
        self.load.silences.store(silences, Relaxed);
        self.load.silent_at.store(now.as_nanos(), Relaxed);
        silences
    }

    /// Requests in a row that it has left unanswered since it last answered anything.
    fn silences(&self) -> u32 {
        let silent_at = Timestamp::from_nanos(self.load.silent_at.load(Relaxed));
        if self.has_answered(silent_at) { 0 } else { self.load.silences.load(Relaxed) }
    }

    /// Returns whether it may be asked out of turn now; then nobody else may for `interval`.
    ///
    /// # Errors
    /// When it may be asked next.
    pub fn question(&self, now: Timestamp, interval: Duration) -> Result<(), Timestamp> {
        let at = now.as_nanos().max(1);
        let next = |last: u64| match last {
            0 => Some(at),
            _ => (Timestamp::from_nanos(last) + interval <= now).then_some(at),
        };
        let asked = self.load.questioned_at.fetch_update(Relaxed, Relaxed, next);
        asked.map(drop).map_err(|last| Timestamp::from_nanos(last) + interval)
    }

    /// Records that it was asked out of turn, for what makes it suspect, and has not answered: it
    /// gets no new calls for `pause`. If it `is_probed`, an answer ends that soon, so that the pool
    /// need not [spare](crate::Pool::spare) it.
    pub fn on_question_unanswered(&self, now: Timestamp, pause: Duration, is_probed: bool) {
        self.load.probes.fetch_add(1, Relaxed);
        self.load.probe_failures.fetch_add(1, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_failed(now, pause));
        self.load.health.set_failing_probes(is_probed);
    }

    /// It has answered, so it is there.
    pub fn on_answered(&self, now: Timestamp) {
        self.load.health.change(now, |liveness| liveness.on_answered(now));
        self.record_answered(now);
    }

    /// It has answered a probe; `rise` in a row bring it back.
    pub fn on_probe_answered(&self, now: Timestamp, rise: u32) {
        self.load.probes.fetch_add(1, Relaxed);
        self.load.health.set_failing_probes(false);
        self.load.silences.store(0, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_probe_answered(now, rise));
        self.record_answered(now);
    }

    /// It has not answered a probe, or not as it should; `fall` in a row take it down until it
    /// answers them.
    pub fn on_probe_failed(&self, now: Timestamp, fall: u32) {
        self.load.probes.fetch_add(1, Relaxed);
        self.load.probe_failures.fetch_add(1, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_unanswered(now, fall, UNTIL_PROBED));
        self.load.health.set_failing_probes(true);
    }

    /// Nothing probes it from now on: what would bring it back comes by itself after `pause`.
    pub fn on_unprobed(&self, now: Timestamp, pause: Duration) {
        self.load.health.change(now, |liveness| liveness.on_unprobed(now, pause));
    }

    /// Probes it was sent that came to an end, and those of them that it did not answer as it
    /// should.
    pub fn probes(&self) -> (u64, u64) {
        (self.load.probes.load(Relaxed), self.load.probe_failures.load(Relaxed))
    }

    fn record_answered(&self, now: Timestamp) {
        let now = now.as_nanos();
        if now.saturating_sub(self.load.answered_at.load(Relaxed)) >= ANSWERED_STEP_NS {
            self.load.answered_at.store(now, Relaxed);
        }
    }

    /// Whether it has answered anything after `since`.
    pub fn has_answered(&self, since: Timestamp) -> bool {
        self.load.answered_at.load(Relaxed) > since.as_nanos()
    }

    /// Returns whether it matters who the requests are from and for that it is given: it has
    /// refused something a moment ago.
    pub fn is_watched(&self, now: Timestamp) -> bool {
        self.evidence.is_watched(now)
    }

    /// It is given a new request of these parties, while it is [watched](Self::is_watched).
    pub fn on_given(&self, now: Timestamp, parties: Parties) {
        self.evidence.on_given(now, parties);
    }

    /// It is watched from now on. The sources of what it was given of late.
    pub(crate) fn watch(&self, now: Timestamp) -> Sources {
        self.evidence.watch(now)
    }

    /// It has left a new request of these parties unserved, in a pool that
    /// [`watch`](crate::Pool::watch) has seen these sources of. Whether that is a sign of its load,
    /// by all that it was given and did not serve of late.
    pub fn on_unserved(&self, now: Timestamp, parties: Option<Parties>, of: Sources) -> bool {
        self.evidence.on_refused(now, parties, of).teaches
    }

    /// The same of one that it has answered with 503. If that is a sign of its load, and most of
    /// what it was given is refused, it gets no new calls for `wait`.
    pub fn on_refused(
        &self,
        now: Timestamp,
        parties: Option<Parties>,
        of: Sources,
        wait: Option<Duration>,
    ) -> bool {
        self.load.refusals.fetch_add(1, Relaxed);
        let verdict = self.evidence.on_refused(now, parties, of);
        if let Some(wait) = wait.filter(|_| verdict.pauses) {
            self.load.health.pause(now, wait);
        }
        self.load.refused_at.store(now.as_nanos().max(1), Relaxed);
        if verdict.teaches {
            self.load.overloaded_at.store(now.as_nanos().max(1), Relaxed);
        }
        verdict.teaches
    }

    /// Returns whether no failure of its own excludes it from new calls.
    pub fn is_clear(&self, now: Timestamp) -> bool {
        self.load.health.is_clear(now)
    }

    /// Requests have shown what excludes it: the last time counts when its pool decides who is
    /// [spared](crate::Pool::spare).
    pub fn record_excluded(&self, now: Timestamp) {
        self.load.health.record_excluded(now);
    }

    /// Returns whether it can have calls: it is in service and has an address.
    pub(crate) fn is_in_service(&self) -> bool {
        self.admin_state() == AdminState::InService && self.is_somewhere()
    }

    pub(crate) fn health(&self) -> &Health {
        &self.load.health
    }

    /// Returns whether it is given calls although it is busy or down.
    pub fn is_spared(&self) -> bool {
        self.load.health.is_spared()
    }

    /// Requests that it was given although it was busy or down, because too many of its pool were.
    pub fn spared(&self) -> u64 {
        self.load.spared.load(Relaxed)
    }

    /// Returns whether it refused anything within the last `within`, for whatever reason.
    pub fn has_refused(&self, now: Timestamp, within: Duration) -> bool {
        is_within(&self.load.refused_at, now, within)
    }

    /// Returns whether it refused for overload within the last `within`.
    pub fn was_overloaded(&self, now: Timestamp, within: Duration) -> bool {
        is_within(&self.load.overloaded_at, now, within)
    }

    /// It has answered a request with a final response, for the first time.
    #[inline]
    pub fn on_final(&self, is_invite: bool, status: u16) {
        self.finals.add(is_invite, status);
    }

    /// The final responses that it has sent to requests, each counted once: `invite` or `other`,
    /// the status or its class, and how many.
    pub fn finals(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.finals.each()
    }

    /// The response times to requests that begin calls.
    pub fn start_response_times(&self) -> &Histogram {
        self.response_times.starts()
    }

    /// Requests it answered with 503 since the start.
    pub fn refusals(&self) -> u64 {
        self.load.refusals.load(Relaxed)
    }

    pub(crate) fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.load.is_limited.load(Relaxed)
    }

    /// Nothing that was learned holds any more.
    fn forget_learned(&self) {
        if self.is_limited() {
            self.allowance.forget_learned();
        }
    }

    pub(crate) fn set_limited(&self, is_limited: bool) {
        self.load.is_limited.store(is_limited, Relaxed);
    }

    pub(crate) fn record_assigned(&self, now: Timestamp) {
        self.load.assigned.fetch_add(1, Relaxed);
        if self.load.health.is_spared() && !self.load.health.is_clear(now) {
            self.load.spared.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn response_times(&self) -> &ResponseTimes {
        &self.response_times
    }

    pub(crate) fn take(&self, weighs: LeaseKind) {
        self.load.calls.fetch_add(weighs.calls.into(), Relaxed);
        self.load.transactions.fetch_add(weighs.transactions.into(), Relaxed);
        self.load.work.fetch_add(weighs.work.into(), Relaxed);
    }

    /// Takes one call, unless `calls_max` are held; whether it did.
    pub(crate) fn take_call(&self, calls_max: u64) -> bool {
        let next = |calls: u64| (calls < calls_max).then(|| calls + 1);
        self.load.calls.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    pub(crate) fn give_back(&self, weighs: LeaseKind) {
        let calls = self.load.calls.fetch_sub(weighs.calls.into(), Relaxed);
        let transactions = self.load.transactions.fetch_sub(weighs.transactions.into(), Relaxed);
        let work = self.load.work.fetch_sub(weighs.work.into(), Relaxed);
        // Only a lease gives back, and only what it took.
        debug_assert!(calls >= weighs.calls.into() && work >= weighs.work.into());
        debug_assert!(transactions >= weighs.transactions.into());
    }
}

/// Returns whether something that was at that time, if ever, was within the last `within`.
fn is_within(at: &AtomicU64, now: Timestamp, within: Duration) -> bool {
    let at = at.load(Relaxed);
    at != 0 && now.since(Timestamp::from_nanos(at)) < within
}
