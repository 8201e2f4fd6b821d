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

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tidegate_balance::AdminState;
use tidegate_world::{Query, QueryAnswer, QueryId, RecordType, Timestamp};

use crate::settings::{Moves, PoolSettings, Settings};
use subject::{Learned, Subject};

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

/// Maximum number of queries without an answer. Further queries are delayed.
const ASKED_MAX: usize = 64;

/// The host names of back ends and the domains that a shard resolves.
pub(crate) struct Names {
    /// Type of the address records to query: A if the address of the first listener is IPv4, AAAA
    /// if it is IPv6.
    record: RecordType,
    entries: Vec<Entry>,
    /// True if this shard sends queries.
    asks: bool,
    /// Number of queries without an answer.
    asked: usize,
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

struct Entry {
    subject: Subject,
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
        let mut names = Self {
            record: settings
                .listeners
                .first()
                .map_or(RecordType::A, |listener| RecordType::of(listener.local.ip())),
            entries: Vec::new(),
            asks: settings.shard == 0,
            asked: 0,
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
        let before = std::mem::take(&mut self.entries);
        let mut before: HashMap<_, _> =
            before.into_iter().map(|entry| (entry.subject.identity(), entry)).collect();
        let backends = pools.iter().flat_map(|pool| pool.pool.backends());
        let hosts =
            backends.filter(|b| b.named().is_some() && b.admin_state() != AdminState::Removed);
        let subjects = hosts.cloned().map(Subject::Host);
        let services = pools.iter().flat_map(|pool| pool.pool.services().iter());
        let subjects = subjects.chain(services.cloned().map(Subject::Service));
        // A server or a service in several pools is queried once.
        let mut seen = HashSet::new();
        for subject in subjects {
            let identity = subject.identity();
            if seen.insert(identity) {
                let known = before.remove(&identity);
                let new = || Entry { subject, state: State::Due(now), failures: 0 };
                self.entries.push(known.unwrap_or_else(new));
            }
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
                entry.subject.lookups().unanswered.fetch_add(1, Relaxed);
                entry.on_failure(now);
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
                entry.failures = 0;
                entry.state = State::Due(now + holds.clamp(HOLDS.0, HOLDS.1));
                if has_moved {
                    self.moves.0.fetch_add(1, Relaxed);
                }
            }
            Err(failure) => {
                failure.of(entry.subject.lookups()).fetch_add(1, Relaxed);
                entry.on_failure(now);
            }
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

    /// Returns true if the name of a back end has resolved to a new address since this function was
    /// last called.
    pub(crate) fn have_moved(&mut self) -> bool {
        if self.entries.is_empty() {
            return false;
        }
        let moves = self.moves.0.load(Relaxed);
        std::mem::replace(&mut self.moves_seen, moves) != moves
    }

    /// Sends due queries while fewer than [`ASKED_MAX`] are pending, and sets the time of the next
    /// query.
    fn ask(&mut self, now: Timestamp) {
        if !self.asks {
            return;
        }
        for entry in &mut self.entries {
            let State::Due(at) = entry.state else { continue };
            if at <= now && self.asked < ASKED_MAX {
                self.questions += 1;
                let id = QueryId(self.questions);
                entry.state = State::Asked(id, now + ANSWERS_WITHIN);
                self.asked += 1;
                let question = entry.subject.question(self.record);
                self.queries.push_back(Query { id, question });
            }
        }
        let has_room = self.asked < ASKED_MAX;
        let next = |entry: &Entry| match entry.state {
            State::Asked(_, until) => Some(until),
            State::Due(at) => has_room.then_some(at),
        };
        self.next = self.entries.iter().filter_map(next).min();
    }
}

impl Entry {
    fn on_failure(&mut self, now: Timestamp) {
        let pause = PAUSE_MIN * (1 << self.failures.min(DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        self.state = State::Due(now + pause);
        self.subject.set_stale();
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
