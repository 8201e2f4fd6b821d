//! Names of back ends: when the DNS is asked for them, and the effect of its answers.
//!
//! A name with a port leads to an address. A name without one is a domain, whose SRV records list
//! its servers; these are back ends of their own from the next reload on ([`subject`]).
//!
//! One shard asks for all, because all send to the same addresses and know the same back ends. It
//! asks at its start, and again when an answer ends. When asking again fails, the last answer is
//! used on for as long as that lasts: a server that was there is better than none (RFC 8767 says
//! so of caches), and a DNS that is down, or lacks a name for a while, must not stop calls.
//!
//! Calls stay at the address where they are: their token names it, and the call table remembers
//! the place. Only new ones follow the name.

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

/// The shortest and the longest time for which an answer holds, whatever it says: a name without
/// any is not asked for at each moment, and one that lasts for days is found out after an hour.
const HOLDS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// The pause after the first failure; each further one doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The largest number of doublings: to 32 s.
const DOUBLINGS_MAX: u32 = 5;

/// The longest time in which an answer is waited for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// The largest number of questions that wait for answers; others wait to be asked.
const ASKED_MAX: usize = 64;

/// The names of a shard's back ends.
pub(crate) struct Names {
    /// Type of the records that hold addresses of the family of the first listener.
    record: RecordType,
    entries: Vec<Entry>,
    /// Whether it is this shard that asks, and goes on asking.
    asks: bool,
    /// Questions that wait for answers.
    asked: usize,
    /// Time at which the next question is due, or an answer overdue.
    next: Option<Timestamp>,
    queries: VecDeque<Query>,
    /// Questions asked.
    questions: u64,
    moves: Moves,
    moves_seen: u64,
}

struct Entry {
    subject: Subject,
    state: State,
    /// Failures since the last success.
    failures: u32,
}

#[derive(Clone, Copy)]
enum State {
    /// To be asked for then.
    Due(Timestamp),
    /// Asked for by this question; the answer is overdue then.
    Asked(QueryId, Timestamp),
}

impl Names {
    /// Collects the names in these settings.
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

    /// Goes on with the names of the back ends, and the domains, in these pools. A name that stays is
    /// asked for when it would have been; a new one, at once; one that has left, never.
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
        // A server or a service in several pools is asked for once.
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

    /// Asks for what is due, and gives up what is overdue.
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

    /// Takes the answer to a question. An address must be one that `may_be` a back end's.
    pub(crate) fn on_answer(
        &mut self,
        now: Timestamp,
        id: QueryId,
        answer: &QueryAnswer,
        may_be: impl Fn(SocketAddr) -> bool,
    ) {
        // An answer to a question that was given up is to none of these.
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

    /// Asks for nothing more: the answers for held calls are there.
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

    /// Returns whether a name has come to lead elsewhere since this was last asked.
    pub(crate) fn have_moved(&mut self) -> bool {
        if self.entries.is_empty() {
            return false;
        }
        let moves = self.moves.0.load(Relaxed);
        std::mem::replace(&mut self.moves_seen, moves) != moves
    }

    /// Asks for what is due, as far as there may be questions, and sets when it is next due.
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
