//! Look-ups: questions to stores outside the core, such as where a user is reached.
//!
//! [`Lookups`] is a pure state machine, as [`Resolution`](crate::resolution::Resolution) is for
//! names. [`find`](Lookups::find) answers at once when the answer is there; else it asks and returns
//! a [`Ticket`], with which the caller parks the request. An answer is held for a short time: so the
//! requests that have waited for it find it when they are served again, and a flood of requests for
//! one key asks once. It is no cache: what a store says counts at once, or nearly so.
//!
//! Questions are bounded in number and time. A store that does not answer delays only requests that
//! ask it.

mod contacts;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{
    Counter, KEY_MAX, LookupKind, Query, QueryAnswer, QueryId, Question, Timestamp,
};

pub use contacts::CONTACTS_MAX;
pub(crate) use contacts::{Unknown, reach};

use crate::resolution::Ticket;

/// Time after which a question is given up. It is shorter than a request is parked.
const ANSWERS_WITHIN: Duration = Duration::from_secs(4);

/// Time for which an answer is held.
const HELD_FOR: Duration = Duration::from_secs(1);

/// The largest number of answers that are held; the oldest makes room for another one.
const HELD_MAX: usize = 1024;

/// The largest number of keys whose answer is not known: as many as requests are parked.
const OUTSTANDING_MAX: usize = 1024;

/// The largest number of questions that the world has at the same time; others wait to be asked.
const ASKED_MAX: usize = 128;

/// Ids of these questions: from here to twice that, which no other part of the core uses.
const IDS_FROM: u64 = 1 << 62;

/// Counts of the look-ups of a shard, for others to read.
#[derive(Debug, Default)]
pub struct LookupCounters {
    /// Questions with a value.
    pub found: Counter,
    /// Questions for a key that the store does not have.
    pub not_found: Counter,
    /// Questions that could not be answered.
    pub failed: Counter,
    /// Questions given up because no answer came.
    pub given_up: Counter,
    /// Answers to questions that had been given up.
    pub late: Counter,
    /// Keys not asked for because too many were outstanding.
    pub refused: Counter,
    /// Questions that are outstanding now.
    pub outstanding: Counter,
}

/// The outcome of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookedUp {
    /// The store has this value.
    Found(Arc<[u8]>),
    /// The store does not have the key.
    NotFound,
    /// The store could not say, or has not answered in time.
    Failed,
    /// The request has to wait until this ticket may go on.
    Pending(Ticket),
    /// Too many questions are outstanding.
    Refused,
}

/// A key of a store.
type Subject = (LookupKind, Arc<[u8]>);

/// The state of a key.
enum Entry {
    /// Asked for under this id.
    Open(u64),
    /// Answered.
    Held(LookedUp),
}

/// A question without an answer.
struct Open {
    subject: Subject,
    since: Timestamp,
    /// Whether the world has it.
    is_asked: bool,
}

/// The look-ups of a shard.
pub(crate) struct Lookups {
    entries: BTreeMap<Subject, Entry>,
    /// By rising id, so also by the time at which they began.
    outstanding: BTreeMap<u64, Open>,
    /// Questions for the world, the oldest first; some may have been given up.
    outgoing: VecDeque<u64>,
    /// The keys of answers that are held, and until when: the first is forgotten first.
    held: VecDeque<(Timestamp, Subject)>,
    /// Questions that the world has.
    asked: usize,
    next: u64,
    counters: Arc<LookupCounters>,
}

impl Lookups {
    /// Creates one that has asked for nothing.
    pub(crate) fn new(counters: Arc<LookupCounters>) -> Self {
        Self {
            entries: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            outgoing: VecDeque::new(),
            held: VecDeque::new(),
            asked: 0,
            next: IDS_FROM,
            counters,
        }
    }

    /// Returns the value of a key, or asks for it.
    pub(crate) fn find(&mut self, now: Timestamp, kind: LookupKind, key: &Arc<[u8]>) -> LookedUp {
        // A store has no longer ones.
        if key.len() > KEY_MAX {
            return LookedUp::NotFound;
        }
        while self.held.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
        let subject = (kind, Arc::clone(key));
        match self.entries.get(&subject) {
            Some(Entry::Held(answer)) => return answer.clone(),
            Some(Entry::Open(id)) => return LookedUp::Pending(Ticket(QueryId(*id))),
            None => {}
        }
        if self.outstanding.len() >= OUTSTANDING_MAX {
            self.counters.refused.add(1);
            return LookedUp::Refused;
        }
        let id = self.next;
        self.next += 1;
        self.entries.insert(subject.clone(), Entry::Open(id));
        self.outstanding.insert(id, Open { subject, since: now, is_asked: false });
        self.outgoing.push_back(id);
        self.gauge();
        LookedUp::Pending(Ticket(QueryId(id)))
    }

    /// Takes the answer to a question; returns the ticket that may go on. Answers to other
    /// questions of the same core change nothing.
    pub(crate) fn on_answer(
        &mut self,
        now: Timestamp,
        id: QueryId,
        answer: &QueryAnswer,
    ) -> Option<Ticket> {
        if !(IDS_FROM..IDS_FROM << 1).contains(&id.0) {
            return None;
        }
        let Some(open) = self.outstanding.remove(&id.0) else {
            self.counters.late.add(1);
            return None;
        };
        let (outcome, answer) = match answer {
            QueryAnswer::Found(value) => (&self.counters.found, LookedUp::Found(Arc::clone(value))),
            QueryAnswer::NotFound(_) => (&self.counters.not_found, LookedUp::NotFound),
            _ => (&self.counters.failed, LookedUp::Failed),
        };
        outcome.add(1);
        self.settle(now, open, answer);
        Some(Ticket(id))
    }

    /// Gives up questions that are overdue; returns the tickets that may go on.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        while let Some(first) = self.outstanding.first_entry()
            && first.get().since + ANSWERS_WITHIN <= now
        {
            let (id, open) = first.remove_entry();
            self.counters.given_up.add(1);
            self.settle(now, open, LookedUp::Failed);
            tickets.push(Ticket(QueryId(id)));
        }
        tickets
    }

    /// Forgets all answers: from now on the stores say something else.
    pub(crate) fn forget(&mut self) {
        while !self.held.is_empty() {
            self.forget_oldest();
        }
    }

    /// Returns the next question for the world.
    pub(crate) fn poll_query(&mut self) -> Option<Query> {
        while self.asked < ASKED_MAX {
            let id = self.outgoing.pop_front()?;
            let Some(open) = self.outstanding.get_mut(&id) else { continue };
            open.is_asked = true;
            self.asked += 1;
            let (kind, key) = open.subject.clone();
            return Some(Query { id: QueryId(id), question: Question::Lookup { kind, key } });
        }
        None
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.outstanding.first_key_value().map(|(_, open)| open.since + ANSWERS_WITHIN)
    }

    /// Holds the answer to a question that is not outstanding any more.
    fn settle(&mut self, now: Timestamp, open: Open, answer: LookedUp) {
        self.asked -= usize::from(open.is_asked);
        if self.held.len() == HELD_MAX {
            self.forget_oldest();
        }
        self.held.push_back((now + HELD_FOR, open.subject.clone()));
        self.entries.insert(open.subject, Entry::Held(answer));
        self.gauge();
    }

    fn forget_oldest(&mut self) {
        if let Some((_, subject)) = self.held.pop_front() {
            self.entries.remove(&subject);
        }
    }

    fn gauge(&self) {
        self.counters.outstanding.set(self.outstanding.len() as u64);
    }
}

#[cfg(test)]
mod tests;
