//! Names of back ends: queries the DNS for these names and applies the answers.
//!
//! A name with a port resolves to an address. A name without a port is a domain, whose SRV records
//! list its servers. These servers become back ends at the next reload ([`subject`]).
//!
//! One shard sends the queries for all shards, because all shards use the same addresses and the
//! same back ends. It sends queries when it starts, and whenever an answer expires. If a query
//! fails, the last successful answer stays in use for as long as the failure lasts. A stale address
//! is better than none (RFC 8767 says this of caches), and calls must not stop because the DNS is
//! down or lacks a name for a while.
//!
//! Existing calls keep the address of their back end: the route token of a call contains the
//! address, and the call table remembers it. Only new calls use a new address.

mod subject;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tidegate_balance::{AdminState, Backend};
use tidegate_world::{Query, QueryAnswer, QueryId, RecordType, Timestamp, Transport};

use crate::settings::{Moves, PoolSettings, Settings};
use subject::{Failure, Learned, Subject};

/// Minimum and maximum time for which an answer is used before the next query, regardless of its
/// TTL. The minimum prevents continual queries if the TTL is zero. The maximum ensures that a
/// change is detected within an hour even if the TTL is several days.
const HOLDS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// Pause after the first failed query for a name. Each further failure doubles the pause.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Maximum number of times that the pause is doubled, which limits it to 32 s.
const DOUBLINGS_MAX: u32 = 5;

/// Maximum time to wait for the answer to a query.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// The host names of back ends and the domains that a shard resolves.
pub(crate) struct Names {
    /// Transport of each listener, and the type of the address records that it can reach: A if its
    /// address is IPv4, AAAA if it is IPv6.
    listeners: Vec<(Transport, RecordType)>,
    entries: Vec<Entry>,
    /// True if this shard sends queries.
    asks: bool,
    /// Number of queries without an answer.
    asked: usize,
    /// Maximum number of queries without an answer. Further queries are delayed.
    asked_max: usize,
    /// Time at which the next query is to be sent, or at which a query without an answer has
    /// failed.
    next: Option<Timestamp>,
    queries: VecDeque<Query>,
    /// Number of queries sent so far.
    questions: u64,
    /// Number of changes of a back end's address, counted by the shard that sends queries and
    /// shared with the other shards.
    moves: Moves,
    /// Value of `moves` at the last call of [`have_moved`](Self::have_moved).
    moves_seen: u64,
}

/// Types of address records, each at most once.
type AddressRecords = SmallVec<[RecordType; 2]>;

struct Entry {
    subject: Subject,
    /// Types of the address records to query, in the order of the listeners. Empty for a domain.
    records: AddressRecords,
    /// Number of types in `records` that were queried in this round and gave no usable address.
    tried: usize,
    state: State,
    /// Number of failed queries for this name since the last successful one.
    failures: u32,
}

#[derive(Clone, Copy)]
enum State {
    /// No query is pending. The next one is due at this time.
    Due(Timestamp),
    /// The query with this id is pending. Without an answer by this time, it counts as failed.
    Asked(QueryId, Timestamp),
}

impl Names {
    /// Collects the names to resolve from these settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        let listeners = settings.listeners.iter();
        let mut names = Self {
            listeners: listeners.map(|l| (l.transport, RecordType::of(l.local.ip()))).collect(),
            entries: Vec::new(),
            asks: settings.shard == 0,
            asked: 0,
            asked_max: settings.queries.backends,
            next: None,
            queries: VecDeque::new(),
            questions: 0,
            moves: settings.moves.clone(),
            moves_seen: 0,
        };
        names.enlist(Timestamp::ZERO, &settings.pools);
        names
    }

    /// Replaces the list of names by the host names and domains in these pools. A name that was
    /// listed before keeps the time of its next query. A new name is queried at once. A removed
    /// name is not queried again.
    pub(crate) fn enlist(&mut self, now: Timestamp, pools: &[PoolSettings]) {
        let Self { listeners, entries, .. } = self;
        let before = std::mem::take(entries);
        let mut before: HashMap<_, _> =
            before.into_iter().map(|entry| (entry.subject.identity(), entry)).collect();
        let is_host = |b: &Backend| b.named().is_some() && b.admin_state() != AdminState::Removed;
        // A server or a service in several pools is queried once.
        let mut seen = HashMap::new();
        let mut enlist = |subject: Subject, records: AddressRecords| {
            let place = *seen.entry(subject.identity()).or_insert(entries.len());
            if place == entries.len() {
                entries.push(match before.remove(&subject.identity()) {
                    Some(known) => Entry { subject, records, ..known },
                    None => Entry::new(now, subject, records),
                });
                return;
            }
            let known = &mut entries[place].records;
            let further: AddressRecords =
                records.into_iter().filter(|record| !known.contains(record)).collect();
            known.extend(further);
        };
        let services = || pools.iter().flat_map(|pool| pool.pool.services().iter());
        let servers: Vec<_> = services().filter_map(|service| service.servers()).collect();
        let listed = servers.iter().flat_map(|servers| servers.iter());
        // A name with one label has its final dot in the back end too.
        let listed: BTreeSet<(&str, u16)> =
            listed.filter_map(|at| Some((at.target.strip_suffix('.')?, at.port))).collect();
        for pool in pools {
            for backend in pool.pool.backends().iter().filter(|backend| is_host(backend)) {
                let is_listed = backend
                    .named()
                    .is_some_and(|named| listed.contains(&(&**named.host(), named.port())));
                let subject = Subject::Host { backend: Arc::clone(backend), is_listed };
                enlist(subject, address_records(listeners, pool));
            }
        }
        for service in services() {
            enlist(Subject::Service(Arc::clone(service)), AddressRecords::new());
        }
        let is_asked = |entry: &&Entry| matches!(entry.state, State::Asked(..));
        self.asked -= before.values().filter(is_asked).count();
        self.next = (self.asks && !self.entries.is_empty()).then_some(now);
    }

    /// Sends due queries. Queries that were not answered in time count as failed.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        for entry in &mut self.entries {
            if let State::Asked(_, until) = entry.state
                && until <= now
            {
                self.asked -= 1;
                entry.on_failure(now, Failure::Unanswered);
            }
        }
        self.ask(now);
    }

    /// Handles an answer to a query. An address in the answer is used only if `may_be` accepts it
    /// as a possible address of a back end.
    pub(crate) fn on_answer(
        &mut self,
        now: Timestamp,
        id: QueryId,
        answer: &QueryAnswer,
        may_be: impl Fn(SocketAddr) -> bool,
    ) {
        // An answer to an abandoned query matches no entry.
        let is_asked = |entry: &&mut Entry| matches!(entry.state, State::Asked(of, _) if of == id);
        let Some(entry) = self.entries.iter_mut().find(is_asked) else { return };
        self.asked -= 1;
        match entry.subject.learn(answer, may_be) {
            Ok(Learned { holds, has_moved }) => {
                (entry.failures, entry.tried) = (0, 0);
                entry.state = State::Due(now + holds.clamp(HOLDS.0, HOLDS.1));
                if has_moved {
                    self.moves.0.fetch_add(1, Relaxed);
                }
            }
            Err(failure) => entry.on_failure(now, failure),
        }
        self.ask(now);
    }

    /// Stops sending queries, because no new calls will come. The addresses for existing calls are
    /// known.
    pub(crate) fn on_drain(&mut self) {
        self.asks = false;
        self.next = None;
    }

    pub(crate) fn poll_query(&mut self) -> Option<Query> {
        self.queries.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.next
    }

    /// Returns whether the name of a back end has resolved to a new address since this function was
    /// last called.
    pub(crate) fn have_moved(&mut self) -> bool {
        if self.entries.is_empty() {
            return false;
        }
        let moves = self.moves.0.load(Relaxed);
        std::mem::replace(&mut self.moves_seen, moves) != moves
    }

    /// Sends due queries while fewer than `asked_max` are pending, and sets the time of the next
    /// query.
    fn ask(&mut self, now: Timestamp) {
        if !self.asks {
            return;
        }
        for entry in &mut self.entries {
            let State::Due(at) = entry.state else { continue };
            if at <= now && self.asked < self.asked_max {
                self.questions += 1;
                let id = QueryId(self.questions);
                entry.state = State::Asked(id, now + ANSWERS_WITHIN);
                self.asked += 1;
                let question = entry.subject.question(entry.record());
                self.queries.push_back(Query { id, question });
            }
        }
        let has_room = self.asked < self.asked_max;
        let next = |entry: &Entry| match entry.state {
            State::Asked(_, until) => Some(until),
            State::Due(at) => has_room.then_some(at),
        };
        self.next = self.entries.iter().filter_map(next).min();
    }
}

/// Returns the types of the address records by which the back ends of a pool can be reached. Their
/// families are the family of the pool's listener, or the families of the listeners with its
/// transport.
fn address_records(listeners: &[(Transport, RecordType)], pool: &PoolSettings) -> AddressRecords {
    let of_pool = listeners.get(pool.listener.unwrap_or_default()).or(listeners.first());
    let transport = pool.transport.or(of_pool.map(|&(transport, _)| transport));
    let reaches = |&&(of, _): &&(Transport, RecordType)| Some(of) == transport;
    let configured = pool.listener.and_then(|index| listeners.get(index)).filter(reaches);
    let mut records = AddressRecords::new();
    for &(_, record) in listeners.iter().filter(reaches) {
        let record = configured.map_or(record, |&(_, record)| record);
        if !records.contains(&record) {
            records.push(record);
        }
    }
    records
}

impl Entry {
    fn new(now: Timestamp, subject: Subject, records: AddressRecords) -> Self {
        Self { subject, records, tried: 0, state: State::Due(now), failures: 0 }
    }

    /// Returns the type of the address records for the next query. The type of the address in use
    /// comes first, so the back end keeps its address while the name has it.
    fn record(&self) -> RecordType {
        let present = self.subject.present();
        let is_present = |record: &RecordType| Some(*record) == present;
        let first = self.records.iter().position(is_present).unwrap_or_default();
        let mut records = self.records.iter().cycle().skip(first + self.tried);
        records.next().copied().unwrap_or(RecordType::A)
    }

    /// Handles a query that found no usable address or server. The address records of another type
    /// are queried at once, unless the present address stays in use because no answer came.
    ///
    /// RFC 3263 §4.2: "If the TARGET was not a numeric IP address, but a port is present in the
    /// URI, the client performs an A or AAAA record lookup of the domain name."
    fn on_failure(&mut self, now: Timestamp, failure: Failure) {
        let stays = matches!(failure, Failure::Unanswered) && self.subject.present().is_some();
        if !stays && self.tried + 1 < self.records.len() {
            self.tried += 1;
            self.state = State::Due(now);
            return;
        }
        self.tried = 0;
        failure.of(self.subject.lookups()).fetch_add(1, Relaxed);
        let pause = PAUSE_MIN * (1 << self.failures.min(DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        self.state = State::Due(now + pause);
        self.subject.set_stale();
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
