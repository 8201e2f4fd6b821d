//! Look-ups: questions to stores outside the core, such as where a user is reached.
//!
//! [`Lookups`] is a pure state machine, as [`Resolution`](crate::resolution::Resolution) is for
//! names. [`find`](Lookups::find) answers at once when the answer is there; else it asks and returns
//! a [`Ticket`], with which the caller parks the request. An answer is held for a short time: so the
//! requests that have waited for it find it when they are served again, and a flood of requests for
//! one key asks once. It is no cache: what a store says counts at once, or nearly so.
//!
//! Questions are bounded in number and time. A store that does not answer delays only requests that
//! ask it. Strangers have at most half of the questions, those that the world has among them, and
//! those of back ends and trusted sources are asked first. Nothing is asked for a request that could
//! not be parked.

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

/// Of both, those of strangers at the most.
const STRANGERS_OUTSTANDING_MAX: usize = OUTSTANDING_MAX / 2;
const STRANGERS_ASKED_MAX: usize = ASKED_MAX / 2;

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
    /// Keys not asked for because too many were outstanding, or because no request for them could
    /// have been parked.
    pub refused: Counter,
    /// Questions that are outstanding now.
    pub outstanding: Counter,
}

/// The outcome of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookupOutcome {
    /// The store has this value.
    Found(Arc<[u8]>),
    /// The store does not have the key.
    NotFound,
    /// The store could not say, or has not answered in time.
    Failed,
    /// The request has to wait until this ticket may go on.
    Pending(Ticket),
    /// Too many questions are outstanding, or the request cannot wait.
    Refused,
}

/// A request for which a key is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupRequester {
    /// Whether a stranger sent it, and no back end or trusted source.
    pub(crate) is_stranger: bool,
    /// Whether it can be parked until the answer comes.
    pub(crate) may_wait: bool,
}

/// A key of a store.
type Subject = (LookupKind, Arc<[u8]>);

/// The state of a key.
enum Entry {
    /// Asked for under this id.
    Open(u64),
    /// Answered.
    Held(LookupOutcome),
}

/// A question without an answer.
struct Open {
    subject: Subject,
    since: Timestamp,
    /// Whether only strangers have asked for it.
    is_strangers: bool,
    /// Whether the world has it.
    is_asked: bool,
}

/// The questions of strangers, or those of all others.
#[derive(Default)]
struct QuestionQueue {
    outstanding: usize,
    /// Questions for the world, the oldest first; some may have been given up or asked.
    outgoing: VecDeque<u64>,
    /// Questions that the world has.
    asked: usize,
}

/// The look-ups of a shard.
pub(crate) struct Lookups {
    entries: BTreeMap<Subject, Entry>,
    /// By rising id, so also by the time at which they began.
    outstanding: BTreeMap<u64, Open>,
    strangers: QuestionQueue,
    others: QuestionQueue,
    /// The keys of answers that are held, and until when: the first is forgotten first.
    held: VecDeque<(Timestamp, Subject)>,
    next: u64,
    counters: Arc<LookupCounters>,
}

impl Lookups {
    /// Creates one that has asked for nothing.
    pub(crate) fn new(counters: Arc<LookupCounters>) -> Self {
        Self {
            entries: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            strangers: QuestionQueue::default(),
            others: QuestionQueue::default(),
            held: VecDeque::new(),
            next: IDS_FROM,
            counters,
        }
    }

    /// Returns the value of a key, or asks for it.
    pub(crate) fn find(
        &mut self,
        now: Timestamp,
        kind: LookupKind,
        key: &Arc<[u8]>,
        requester: LookupRequester,
    ) -> LookupOutcome {
        // A store has no longer ones.
        if key.len() > KEY_MAX {
            return LookupOutcome::NotFound;
        }
        while self.held.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
        let subject = (kind, Arc::clone(key));
        match self.entries.get(&subject) {
            Some(Entry::Held(answer)) => return answer.clone(),
            Some(&Entry::Open(id)) => {
                if !requester.is_stranger {
                    self.promote(id);
                }
                return LookupOutcome::Pending(Ticket(QueryId(id)));
            }
            None => {}
        }
        let is_strangers = requester.is_stranger;
        let has_room = self.outstanding.len() < OUTSTANDING_MAX
            && (!is_strangers || self.strangers.outstanding < STRANGERS_OUTSTANDING_MAX);
        if !has_room || !requester.may_wait {
            self.counters.refused.add(1);
            return LookupOutcome::Refused;
        }
        let id = self.next;
        self.next += 1;
        self.entries.insert(subject.clone(), Entry::Open(id));
        let open = Open { subject, since: now, is_strangers, is_asked: false };
        self.outstanding.insert(id, open);
        let queue = self.queue_of(is_strangers);
        queue.outstanding += 1;
        queue.outgoing.push_back(id);
        self.gauge();
        LookupOutcome::Pending(Ticket(QueryId(id)))
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
            QueryAnswer::Found(value) => {
                (&self.counters.found, LookupOutcome::Found(Arc::clone(value)))
            }
            QueryAnswer::NotFound(_) => (&self.counters.not_found, LookupOutcome::NotFound),
            _ => (&self.counters.failed, LookupOutcome::Failed),
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
            self.settle(now, open, LookupOutcome::Failed);
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
        while self.strangers.asked + self.others.asked < ASKED_MAX {
            let next = self.others.outgoing.pop_front();
            let may_ask = self.strangers.asked < STRANGERS_ASKED_MAX;
            let id = match next {
                None if may_ask => self.strangers.outgoing.pop_front(),
                next => next,
            }?;
            let open = self.outstanding.get_mut(&id).filter(|open| !open.is_asked);
            let Some(open) = open else { continue };
            open.is_asked = true;
            let (is_strangers, (kind, key)) = (open.is_strangers, open.subject.clone());
            self.queue_of(is_strangers).asked += 1;
            return Some(Query { id: QueryId(id), question: Question::Lookup { kind, key } });
        }
        None
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.outstanding.first_key_value().map(|(_, open)| open.since + ANSWERS_WITHIN)
    }

    /// Holds the answer to a question that is not outstanding any more.
    fn settle(&mut self, now: Timestamp, open: Open, answer: LookupOutcome) {
        let queue = self.queue_of(open.is_strangers);
        queue.outstanding -= 1;
        queue.asked -= usize::from(open.is_asked);
        if self.held.len() == HELD_MAX {
            self.forget_oldest();
        }
        self.held.push_back((now + HELD_FOR, open.subject.clone()));
        self.entries.insert(open.subject, Entry::Held(answer));
        self.gauge();
    }

    fn queue_of(&mut self, is_strangers: bool) -> &mut QuestionQueue {
        if is_strangers { &mut self.strangers } else { &mut self.others }
    }

    /// Makes a question one that others than strangers have asked.
    fn promote(&mut self, id: u64) {
        let Some(open) = self.outstanding.get_mut(&id).filter(|open| open.is_strangers) else {
            return;
        };
        open.is_strangers = false;
        let is_asked = open.is_asked;
        let asked = usize::from(is_asked);
        self.strangers.outstanding -= 1;
        self.strangers.asked -= asked;
        self.others.outstanding += 1;
        self.others.asked += asked;
        if !is_asked {
            self.others.outgoing.push_back(id);
        }
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
