//! Host names of back ends: who asks where they lead, when, and what follows from the answer.
//!
//! One shard asks for all, because all send to the same addresses and know who comes from there.
//! It asks at its start, and again when the time is over for which an answer holds. Of several
//! addresses one is used: the present one while it is among them, else the first; so a name whose
//! addresses are given in turn does not move with each answer. When asking again fails, the last
//! address is used on, for as long as that lasts: a server that was there is worth more than none
//! (RFC 8767 says so of caches), and a DNS that is down, or lacks a name for a while, must not
//! stop calls.
//!
//! Calls stay at the address where they are: their token names it, and the call table remembers
//! the place. Only new ones follow the name.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tidegate_balance::{Backend, Duty, Named};
use tidegate_world::{Query, QueryAnswer, QueryId, Question, RecordType, Timestamp};

use crate::settings::{Moves, PoolSettings, Settings};

/// The shortest and the longest time for which an answer holds, whatever it says: a name without
/// any is not asked for at each moment, and one that lasts for days is found out after an hour.
const HOLDS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// The pause after the first answer in vain; each further one doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// How often it is doubled: to 32 s.
const DOUBLINGS_MAX: u32 = 5;

/// Whoever has not answered within this time does not answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// Questions that wait for answers at the same time; others wait to be asked.
const ASKED_MAX: usize = 64;

/// The names of a shard's back ends.
pub(crate) struct Names {
    record: RecordType,
    entries: Vec<Entry>,
    /// Whether it is this shard that asks, and goes on asking.
    asks: bool,
    /// Questions that wait for answers.
    asked: usize,
    /// When the next question is due, or an answer overdue.
    next: Option<Timestamp>,
    queries: VecDeque<Query>,
    /// Questions asked.
    questions: u64,
    moves: Moves,
    moves_seen: u64,
}

struct Entry {
    backend: Arc<Backend>,
    state: State,
    /// Answers in vain since the last that was not.
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
    /// The names in these settings.
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

    /// From now on the names are those of these pools. Who stays is asked for when it would have
    /// been; who is new, at once. Nobody asks for who is configured no more.
    pub(crate) fn enlist(&mut self, now: Timestamp, pools: &[PoolSettings]) {
        let before = std::mem::take(&mut self.entries);
        let mut before: HashMap<_, _> =
            before.into_iter().map(|entry| (Arc::as_ptr(&entry.backend), entry)).collect();
        let backends = pools.iter().flat_map(|pool| pool.pool.backends());
        // A server in several pools is asked for once.
        let mut seen = HashSet::new();
        for backend in backends.filter(|b| b.named().is_some() && b.duty() != Duty::Removed) {
            if !seen.insert(Arc::as_ptr(backend)) {
                continue;
            }
            let known = before.remove(&Arc::as_ptr(backend));
            let new =
                || Entry { backend: Arc::clone(backend), state: State::Due(now), failures: 0 };
            self.entries.push(known.unwrap_or_else(new));
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
        for index in 0..self.entries.len() {
            if let State::Asked(_, until) = self.entries[index].state
                && until <= now
            {
                self.asked -= 1;
                self.entries[index].named().lookups.unanswered.fetch_add(1, Relaxed);
                self.entries[index].on_failure(now);
            }
        }
        self.ask(now);
    }

    /// What became of a question. An address must be one that `may_be` a back end's.
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
        let named = entry.named();
        let lookups = &named.lookups;
        let failure = match answer {
            QueryAnswer::Addresses(addresses, ttl) if !addresses.is_empty() => {
                match choose(named, addresses, may_be) {
                    Some(ip) => {
                        lookups.found.fetch_add(1, Relaxed);
                        named.set_stale(false);
                        if entry.backend.move_to(ip) {
                            lookups.moved.fetch_add(1, Relaxed);
                            self.moves.0.fetch_add(1, Relaxed);
                        }
                        entry.failures = 0;
                        entry.state = State::Due(now + (*ttl).clamp(HOLDS.0, HOLDS.1));
                        return self.ask(now);
                    }
                    None => &lookups.unusable,
                }
            }
            QueryAnswer::NoAnswer => &lookups.unanswered,
            _ => &lookups.not_found,
        };
        failure.fetch_add(1, Relaxed);
        entry.on_failure(now);
        self.ask(now);
    }

    /// Asks for nothing more: what is held has its addresses.
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

    /// Whether a name has come to lead elsewhere since this was last asked.
    pub(crate) fn have_moved(&mut self) -> bool {
        if self.entries.is_empty() {
            return false;
        }
        let moves = self.moves.0.load(Relaxed);
        std::mem::replace(&mut self.moves_seen, moves) != moves
    }

    /// Asks for what is due, as far as there may be questions, and says when it is next due.
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
                let name = Arc::clone(entry.named().host());
                let question = Question::Resolve { name, record: self.record };
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
    fn named(&self) -> &Named {
        self.backend.named().expect("only those with a name are entered")
    }

    fn on_failure(&mut self, now: Timestamp) {
        let pause = PAUSE_MIN * (1 << self.failures.min(DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        self.state = State::Due(now + pause);
        let named = self.named();
        named.set_stale(named.is_known());
    }
}

/// The address to use of those that were found: the present one, else the first that may be.
fn choose(
    named: &Named,
    addresses: &[IpAddr],
    may_be: impl Fn(SocketAddr) -> bool,
) -> Option<IpAddr> {
    let present = named.address().map(|address| address.ip());
    let can = |ip: &IpAddr| may_be(SocketAddr::new(*ip, named.port()));
    let found = addresses.iter().copied();
    found.clone().find(|ip| Some(*ip) == present && can(ip)).or_else(|| found.clone().find(can))
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
