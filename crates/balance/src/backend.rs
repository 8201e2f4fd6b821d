//! One server behind the balancer, with its configuration, health and counts.

mod answers;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::{Histogram, Timestamp};

use crate::finals::Finals;
use crate::health::{AdminState, Evidence, Health, Parties, Sources};
use crate::limit::Allowance;
use crate::response_time::ResponseTimes;
use crate::work::LeaseKind;
use crate::{AddressGeneration, Endpoint, Named};

/// A pause without a time limit: the back end gets no new calls until it has answered probes.
pub const UNTIL_PROBED: Duration = Duration::MAX;

/// A back end: its configuration, its health, and the counts that all shards share.
///
/// Relaxed atomics suffice, because each count is independent. If a policy reads a count that is a
/// few nanoseconds old, it selects as if the latest call had come later.
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

/// The counts and the health of a back end, on cache lines of their own, so that shards that use
/// different back ends do not slow each other down. The alignment is 128 bytes, because x86
/// prefetches lines in pairs.
///
/// The fields that every selection reads come first, within 64 bytes. So a selection reads only one
/// cache line of a back end, unless it needs response times or limits.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Load {
    calls: AtomicU64,
    transactions: AtomicU64,
    work: AtomicU64,
    weight: AtomicU32,
    priority: AtomicU16,
    /// True if the back end has a configured or a learned limit. If not, a selection need not read
    /// the [`Allowance`], which is on other cache lines.
    is_limited: AtomicBool,
    health: Health,
    assigned: AtomicU64,
    failures: AtomicU64,
    rejections: AtomicU64,
    probes_answered: AtomicU64,
    probe_failures: AtomicU64,
    /// Time of the last recorded answer in nanoseconds since the program started, or zero if there
    /// was none. An answer less than 10 ms after a recorded one is not recorded.
    answered_at: AtomicU64,
    /// Time of the last request that the back end rejected for any reason, in nanoseconds since the
    /// program started, or zero if there was none.
    rejected_at: AtomicU64,
    /// Time of the last request that the back end rejected because of overload, in nanoseconds
    /// since the program started, or zero if there was none.
    overloaded_at: AtomicU64,
    /// Number of requests assigned although the back end was busy or down
    /// ([`Pool::spare`](crate::Pool::spare)).
    spared: AtomicU64,
    /// Number of consecutive unanswered requests.
    silences: AtomicU32,
    /// Time when the last of the consecutive unanswered requests was recorded, in nanoseconds since
    /// the program started.
    silent_at: AtomicU64,
    /// Time when the first of the consecutive unanswered requests was recorded, in nanoseconds
    /// since the program started.
    silent_since: AtomicU64,
    /// Time of the last probe outside the regular schedule, in nanoseconds since the program
    /// started, or zero if there was none.
    questioned_at: AtomicU64,
    /// Number of deliveries that failed because nothing listened at the back end's port.
    unreachable: AtomicU64,
    /// Status of the response to the last failed probe, or zero if there was no response.
    probe_status: AtomicU16,
}

const _: () = assert!(std::mem::offset_of!(Load, health) == 32, "a selection reads 64 bytes");

impl Backend {
    /// Creates a back end without calls. The back end is up, unless its host name has no address
    /// yet.
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

    /// Returns a copy of the back end for a pool that the back end has left while it is still in
    /// another pool. The copy stands for the calls that the first pool still has there. It has the
    /// same name and addresses, and gets no new calls, because it counts as
    /// [removed](AdminState::Removed).
    #[must_use]
    pub fn removed_copy(&self) -> Self {
        let copy = Self::new(&self.name, self.endpoint.copy(), self.weight());
        copy.set_priority(self.priority());
        copy.set_admin_state(Timestamp::ZERO, AdminState::Removed);
        copy
    }

    /// Returns the name of the back end, for metrics and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the configured endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the host name, or `None` if the back end was configured by address.
    pub fn named(&self) -> Option<&Named> {
        match &self.endpoint {
            Endpoint::Address(_) => None,
            Endpoint::Name(named) => Some(named),
        }
    }

    /// Returns the address for new requests, or `None` while the host name has no address. A back
    /// end that is [up](Self::is_up) has an address, and never loses it.
    pub fn address(&self) -> Option<SocketAddr> {
        self.endpoint.address()
    }

    /// Returns whether `text` is the address or the host name of the back end, with or without the
    /// port.
    pub fn is_at(&self, text: &str) -> bool {
        let address = self.address();
        let is_host = |named: &Named| named.host().eq_ignore_ascii_case(text);
        let is_ip = |ip: IpAddr| address.is_some_and(|at| at.ip() == ip.to_canonical());
        let is_address = |asked: SocketAddr| {
            is_ip(asked.ip()) && address.is_some_and(|at| at.port() == asked.port())
        };
        self.endpoint.to_string().eq_ignore_ascii_case(text)
            || self.named().is_some_and(is_host)
            || text.parse().is_ok_and(is_address)
            || text.trim_start_matches('[').trim_end_matches(']').parse().is_ok_and(is_ip)
    }

    /// Returns the generation, which identifies the current address among those that the host name
    /// has had.
    pub fn generation(&self) -> AddressGeneration {
        self.endpoint.generation()
    }

    /// Returns the address that `generation` identifies. If that address is no longer stored,
    /// returns the current address.
    pub fn address_at(&self, generation: AddressGeneration) -> Option<SocketAddr> {
        self.endpoint.at(generation)
    }

    /// Returns whether responses and failures at `address` count for the health of the back end.
    /// Responses and failures at an earlier address of its host name do not count.
    pub fn is_present_at(&self, address: SocketAddr) -> bool {
        match &self.endpoint {
            Endpoint::Address(_) => true,
            Endpoint::Name(named) => named.address() == Some(address),
        }
    }

    /// Records that the host name resolves to `ip`, which new requests use from now on. Returns
    /// whether the address changed. If it did, the health and the learned limits of the old address
    /// are forgotten.
    pub fn move_to(&self, ip: IpAddr) -> bool {
        let has_moved = self.named().is_some_and(|named| named.move_to(ip));
        if has_moved {
            self.load.health.forget();
            self.load.silences.store(0, Relaxed);
            self.evidence.forget();
            self.forget_learned();
        }
        has_moved
    }

    /// Returns the configured weight, at least 1. A back end with weight 2 should get twice the
    /// load of a back end with weight 1.
    pub fn weight(&self) -> u32 {
        self.load.weight.load(Relaxed)
    }

    /// Sets the configured weight. Zero counts as 1.
    pub(crate) fn set_weight(&self, weight: u32) {
        // Policies divide the load by the weight.
        self.load.weight.store(weight.max(1), Relaxed);
    }

    /// Returns the weight at `now` by which policies divide the calls, in thousandths of the unit
    /// of [`weight`](Self::weight). During the [slow start](Self::set_slow_start) after an outage,
    /// it grows linearly from a tenth of its full value to the full value.
    pub fn effective_weight(&self, now: Timestamp) -> u64 {
        u64::from(self.weight()) * self.load.health.share(now)
    }

    /// Returns the priority. Calls go to the available back ends with the lowest number.
    pub fn priority(&self) -> u32 {
        self.load.priority.load(Relaxed).into()
    }

    /// Sets the priority. A priority above 65,535 counts as 65,535.
    pub(crate) fn set_priority(&self, priority: u32) {
        self.load.priority.store(priority.try_into().unwrap_or(u16::MAX), Relaxed);
    }

    /// Records that the back end did not exist before `now`.
    pub(crate) fn set_known_since(&self, now: Timestamp) {
        self.load.health.set_known_since(now);
    }

    /// Sets the time for which the weight grows after the back end has come back. Zero means full
    /// weight at once.
    pub fn set_slow_start(&self, slow_start: Duration) {
        self.load.health.set_slow_start(slow_start);
    }

    /// Returns whether the back end has neither a call nor a transaction.
    pub fn is_idle(&self) -> bool {
        self.calls() == 0 && self.work() == 0
    }

    /// Returns the number of calls at the back end.
    pub fn calls(&self) -> u64 {
        self.load.calls.load(Relaxed)
    }

    /// Returns the number of open transactions at the back end.
    pub fn transactions(&self) -> u64 {
        self.load.transactions.load(Relaxed)
    }

    /// Returns the sum of the weights of the open transactions, in hundredths. By default, a BYE
    /// has the weight 100.
    pub fn work(&self) -> u64 {
        self.load.work.load(Relaxed)
    }

    /// Returns the weighted mean of the last 20 response times to requests that start calls, or
    /// zero if there was no response. The newest response time has the largest weight.
    pub fn start_response_time(&self) -> Duration {
        self.response_times.start()
    }

    /// Returns the weighted mean of the last 20 response times to requests that end calls, or zero
    /// if there was no response.
    pub fn end_response_time(&self) -> Duration {
        self.response_times.end()
    }

    /// Returns the cost of starting a call as a multiple (1 to 4) of the cost of ending one, or
    /// `None` until it is learned, or if the policy of the pool does not learn it.
    pub fn cost_ratio(&self) -> Option<f64> {
        self.response_times.cost_ratio()
    }

    /// Returns the number of calls, and of requests outside calls, that were assigned to the back
    /// end so far.
    pub fn assigned(&self) -> u64 {
        self.load.assigned.load(Relaxed)
    }

    /// Returns the number of failed deliveries so far: nothing listened at the back end's port, or
    /// the back end responded neither to the request nor to a later one.
    pub fn failures(&self) -> u64 {
        self.load.failures.load(Relaxed)
    }

    /// Returns the number of deliveries so far that failed because nothing listened at the back
    /// end's port.
    pub fn unreachable(&self) -> u64 {
        self.load.unreachable.load(Relaxed)
    }

    /// Returns whether the sources and destinations of requests to the back end are recorded,
    /// because a back end of its pool has recently rejected a request.
    pub fn is_watched(&self, now: Timestamp) -> bool {
        self.evidence.is_watched(now)
    }

    /// Records that the back end gets a new request with this source and this destination. Called
    /// while the back end is [watched](Self::is_watched).
    pub fn on_given(&self, now: Timestamp, parties: Parties) {
        self.evidence.on_given(now, parties);
    }

    /// Starts or prolongs the recording of the sources and destinations of requests
    /// ([`is_watched`](Self::is_watched)). Returns the sources of the recent requests to the back
    /// end.
    pub(crate) fn watch(&self, now: Timestamp) -> Sources {
        self.evidence.watch(now)
    }

    /// Records that the back end did not serve a new request. `parties` are the source and the
    /// destination of the request, if they are known. `of` are the sources that
    /// [`watch`](crate::Pool::watch) returned for the pool of the back end. Returns whether the
    /// recent requests and rejections show that the back end is overloaded.
    pub fn on_unserved(&self, now: Timestamp, parties: Option<Parties>, of: Sources) -> bool {
        self.evidence.on_rejected(now, parties, of).teaches
    }

    /// Records that the back end answered a new request with 503. The parameters and the result are
    /// those of [`on_unserved`](Self::on_unserved). If the back end is overloaded and rejects most
    /// requests, it gets no new calls for `wait`. If `wait` is `None`, there is no pause.
    pub fn on_rejected(
        &self,
        now: Timestamp,
        parties: Option<Parties>,
        of: Sources,
        wait: Option<Duration>,
    ) -> bool {
        self.count_rejection();
        let verdict = self.evidence.on_rejected(now, parties, of);
        if let Some(wait) = wait.filter(|_| verdict.pauses) {
            self.load.health.pause(now, wait);
        }
        self.load.rejected_at.store(now.as_nanos().max(1), Relaxed);
        if verdict.teaches {
            self.load.overloaded_at.store(now.as_nanos().max(1), Relaxed);
        }
        verdict.teaches
    }

    /// Counts a 503 of the back end, but does not use it as evidence of an overload.
    pub fn count_rejection(&self) {
        self.load.rejections.fetch_add(1, Relaxed);
    }

    /// Returns whether no failure and no pause excludes the back end from new calls.
    pub fn is_clear(&self, now: Timestamp) -> bool {
        self.load.health.is_clear(now)
    }

    /// Records that failed or rejected requests are a reason to exclude the back end from new
    /// calls. If too many back ends of a pool are excluded, those with the oldest record get calls
    /// nevertheless ([`Pool::spare`](crate::Pool::spare)).
    pub fn record_excluded(&self, now: Timestamp) {
        self.load.health.record_excluded(now);
    }

    /// Returns whether the back end is in service and has an address.
    pub(crate) fn is_in_service(&self) -> bool {
        self.admin_state() == AdminState::InService && self.is_somewhere()
    }

    /// Returns whether only failed or rejected requests exclude the back end from new calls, and no
    /// failed probes. Such a back end may be [spared](crate::Pool::spare).
    pub fn is_excluded_by_requests(&self, now: Timestamp) -> bool {
        self.load.health.excluded_by_requests_at(now).is_some()
    }

    pub(crate) fn health(&self) -> &Health {
        &self.load.health
    }

    /// Returns whether the back end gets calls although it is busy or down.
    pub fn is_spared(&self) -> bool {
        self.load.health.is_spared()
    }

    /// Returns the number of requests that were assigned although the back end was busy or down,
    /// because too many back ends of its pool were busy or down.
    pub fn spared(&self) -> u64 {
        self.load.spared.load(Relaxed)
    }

    /// Returns whether the back end rejected a request for any reason within the time `within`
    /// before `now`.
    pub fn has_rejected(&self, now: Timestamp, within: Duration) -> bool {
        is_within(&self.load.rejected_at, now, within)
    }

    /// Returns whether the back end rejected a request because of overload within the time `within`
    /// before `now`.
    pub fn was_overloaded(&self, now: Timestamp, within: Duration) -> bool {
        is_within(&self.load.overloaded_at, now, within)
    }

    /// Counts the first final response to a request.
    #[inline]
    pub fn on_final(&self, is_invite: bool, status: u16) {
        self.finals.add(is_invite, status);
    }

    /// Returns the counts of the final responses of the back end. Each item is `invite` or `other`
    /// (the method), the status or its class, and the count. A response that is counted by its
    /// status is not counted in its class.
    pub fn finals(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.finals.each()
    }

    /// Returns the histogram of the response times to requests that start calls.
    pub fn start_response_times(&self) -> &Histogram {
        self.response_times.starts()
    }

    /// Returns the number of requests that the back end answered with 503 so far.
    pub fn rejections(&self) -> u64 {
        self.load.rejections.load(Relaxed)
    }

    pub(crate) fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.load.is_limited.load(Relaxed)
    }

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

    /// Counts one more call, unless the back end already has `calls_max` calls. Returns whether the
    /// call was counted.
    pub(crate) fn take_call(&self, calls_max: u64) -> bool {
        let next = |calls: u64| (calls < calls_max).then(|| calls + 1);
        self.load.calls.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    pub(crate) fn give_back(&self, weighs: LeaseKind) {
        let calls = self.load.calls.fetch_sub(weighs.calls.into(), Relaxed);
        let transactions = self.load.transactions.fetch_sub(weighs.transactions.into(), Relaxed);
        let work = self.load.work.fetch_sub(weighs.work.into(), Relaxed);
        // Only a lease subtracts from the counts, and only what it has added.
        debug_assert!(calls >= weighs.calls.into() && work >= weighs.work.into());
        debug_assert!(transactions >= weighs.transactions.into());
    }
}

/// Returns whether the time stored in `at` is less than `within` before `now`. A stored zero means
/// that there is no time.
fn is_within(at: &AtomicU64, now: Timestamp, within: Duration) -> bool {
    let at = at.load(Relaxed);
    at != 0 && now.since(Timestamp::from_nanos(at)) < within
}
