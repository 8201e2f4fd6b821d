//! One server behind the balancer, and what is known of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::{Histogram, Timestamp};

use crate::finals::Finals;
use crate::health::{Duty, Health, State};
use crate::lease::Weighs;
use crate::limit::Allowance;
use crate::response_time::ResponseTimes;
use crate::{Location, Named, Place};

/// A pause that only answered probes end.
pub const UNTIL_PROBED: Duration = Duration::MAX;

/// A back end: its configuration, its health, and the counts all shards share.
///
/// Relaxed atomics suffice: each count stands alone, and a policy that reads one
/// a few nanoseconds old merely picks as if the other call had come later.
#[derive(Debug)]
pub struct Backend {
    name: Box<str>,
    location: Location,
    load: Load,
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
    /// When it last refused for overload.
    refused_at: AtomicU64,
}

const _: () = assert!(std::mem::offset_of!(Load, health) == 32, "half of them are its");

/// Answers are noted no more often than this: a store on every one would make the cache line
/// go back and forth between the shards.
const ANSWERED_STEP_NS: u64 = 10_000_000;

impl Backend {
    /// A back end of which nothing is known: it is up, if it has an address.
    pub fn new(name: &str, location: impl Into<Location>, weight: u32) -> Self {
        let backend = Self {
            name: name.into(),
            location: location.into(),
            load: Load::default(),
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
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Its host name, if it was configured by that.
    pub fn named(&self) -> Option<&Named> {
        match &self.location {
            Location::Address(_) => None,
            Location::Name(named) => Some(named),
        }
    }

    /// Where its new requests are sent; `None` while its host name has no address. Whoever is
    /// [up](Self::is_up) has one, and who has one keeps one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.location.address()
    }

    /// Which of its addresses that is.
    pub fn place(&self) -> Place {
        self.location.place()
    }

    /// The address at a place; the present one if that place is forgotten.
    pub fn address_at(&self, place: Place) -> Option<SocketAddr> {
        self.location.at(place)
    }

    /// Whether what is known of `address` is known of it: of one that has moved, what comes from
    /// an address before says nothing of the present one.
    pub fn is_present_at(&self, address: SocketAddr) -> bool {
        match &self.location {
            Location::Address(_) => true,
            Location::Name(named) => named.address() == Some(address),
        }
    }

    /// Its host name leads to `ip`: new requests are sent there. Returns whether it led elsewhere
    /// before. Nothing is known against it there.
    pub fn move_to(&self, ip: IpAddr) -> bool {
        let has_moved = self.named().is_some_and(|named| named.move_to(ip));
        if has_moved {
            self.load.health.forget();
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

    /// Deliveries that failed since the start.
    pub fn failures(&self) -> u64 {
        self.load.failures.load(Relaxed)
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
        if self.duty() == Duty::InService && !self.is_somewhere() {
            return (State::Down, Timestamp::ZERO);
        }
        self.load.health.state(now)
    }

    /// What it is there for.
    pub fn duty(&self) -> Duty {
        self.load.health.duty().0
    }

    /// Gives it a duty.
    pub fn set_duty(&self, now: Timestamp, duty: Duty) {
        if self.load.health.set_duty(now, duty) == Duty::Maintenance && duty != Duty::Maintenance {
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
        self.load.health.change(now, |liveness| liveness.on_failed(now, pause));
    }

    /// A request to it has had no answer since `since`. If nothing else had one either, it has
    /// failed; `limit` failures in a row are as a delivery that failed. One request that it does
    /// not like is not enough. Whether it has failed.
    pub fn on_silent(&self, now: Timestamp, since: Timestamp, limit: u32, pause: Duration) -> bool {
        if self.has_answered(since) {
            return false;
        }
        self.load.failures.fetch_add(1, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_unanswered(now, limit, pause));
        true
    }

    /// It has answered, so it is there.
    pub fn on_answered(&self, now: Timestamp) {
        self.load.health.change(now, |liveness| liveness.on_answered(now));
        self.note_answered(now);
    }

    /// It has answered a probe; `rise` in a row bring it back.
    pub fn on_probe_answered(&self, now: Timestamp, rise: u32) {
        self.load.probes.fetch_add(1, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_probe_answered(now, rise));
        self.note_answered(now);
    }

    /// It has not answered a probe, or not as it should; `fall` in a row take it down until it
    /// answers them.
    pub fn on_probe_failed(&self, now: Timestamp, fall: u32) {
        self.load.probes.fetch_add(1, Relaxed);
        self.load.probe_failures.fetch_add(1, Relaxed);
        self.load.health.change(now, |liveness| liveness.on_unanswered(now, fall, UNTIL_PROBED));
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

    fn note_answered(&self, now: Timestamp) {
        let now = now.as_nanos();
        if now.saturating_sub(self.load.answered_at.load(Relaxed)) >= ANSWERED_STEP_NS {
            self.load.answered_at.store(now, Relaxed);
        }
    }

    /// Whether it has answered anything after `since`.
    pub fn has_answered(&self, since: Timestamp) -> bool {
        self.load.answered_at.load(Relaxed) > since.as_nanos()
    }

    /// It has answered 503: it has more than it can do. It gets no new calls for `wait`.
    pub fn on_refused(&self, now: Timestamp, wait: Option<Duration>) {
        self.load.refusals.fetch_add(1, Relaxed);
        if let Some(wait) = wait {
            self.load.health.pause(now, wait);
        }
        self.load.refused_at.store(now.as_nanos().max(1), Relaxed);
    }

    /// Whether it refused for overload within the last `within`.
    pub fn has_refused(&self, now: Timestamp, within: Duration) -> bool {
        let at = self.load.refused_at.load(Relaxed);
        at != 0 && now.since(Timestamp::from_nanos(at)) < within
    }

    /// It has answered a request with a final response, for the first time.
    #[inline]
    pub fn on_final(&self, is_invite: bool, status: u16) {
        self.finals.add(is_invite, status);
    }

    /// The final responses that it has sent to requests, each counted once: `invite` or `other`, the
    /// status or its class, and how many.
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

    pub(crate) fn set_limited(&self, is_limited: bool) {
        self.load.is_limited.store(is_limited, Relaxed);
    }

    pub(crate) fn note_assigned(&self) {
        self.load.assigned.fetch_add(1, Relaxed);
    }

    pub(crate) fn response_times(&self) -> &ResponseTimes {
        &self.response_times
    }

    pub(crate) fn take(&self, weighs: Weighs) {
        self.load.calls.fetch_add(weighs.calls.into(), Relaxed);
        self.load.transactions.fetch_add(weighs.transactions.into(), Relaxed);
        self.load.work.fetch_add(weighs.work.into(), Relaxed);
    }

    /// Takes one call, unless `calls_max` are held; whether it did.
    pub(crate) fn take_call(&self, calls_max: u64) -> bool {
        let next = |calls: u64| (calls < calls_max).then(|| calls + 1);
        self.load.calls.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    pub(crate) fn give_back(&self, weighs: Weighs) {
        let calls = self.load.calls.fetch_sub(weighs.calls.into(), Relaxed);
        let transactions = self.load.transactions.fetch_sub(weighs.transactions.into(), Relaxed);
        let work = self.load.work.fetch_sub(weighs.work.into(), Relaxed);
        // Only a lease gives back, and only what it took.
        debug_assert!(calls >= weighs.calls.into() && work >= weighs.work.into());
        debug_assert!(transactions >= weighs.transactions.into());
    }
}
