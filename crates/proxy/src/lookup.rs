//! Look-ups: queries to external stores, such as for the contacts of a user.
//!
//! [`Lookups`] does no input or output, like [`Resolution`](crate::resolution::Resolution). If the
//! answer for a key is stored, [`find`](Lookups::find) returns it at once. Otherwise `find` queries
//! the key and returns a [`Ticket`], with which the caller parks the request. An answer is stored
//! for a short time, so that parked requests find it when they are served again, and a flood of
//! requests for one key causes one query. A change in a store takes effect after a second at most.
//!
//! Queries are bounded in number and time. A store that does not answer delays only requests that
//! need it. Requests of strangers (neither back ends nor trusted sources) may use at most half of
//! the queries. The queries of back ends and trusted sources are sent first. Nothing is queried for
//! a request that could not be parked.

mod contacts;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{
    Counter, KEY_MAX, LookupKind, Query, QueryAnswer, QueryId, Question, Timestamp,
};

pub use contacts::CONTACTS_MAX;
pub(crate) use contacts::{NoTargets, reach};

use crate::resolution::Ticket;

/// Time after which a query without an answer counts as failed. It is shorter than the time for
/// which a request is parked.
const ANSWERS_WITHIN: Duration = Duration::from_secs(4);

/// Lifetime of a stored answer. During this time, requests for the same key need no new query.
const HELD_FOR: Duration = Duration::from_secs(1);

/// Maximum number of stored answers. If there are more, the oldest is removed.
const HELD_MAX: usize = 1024;

/// Maximum number of keys that were queried and whose answer has not arrived. It equals the number
/// of requests that can be parked.
const OUTSTANDING_MAX: usize = 1024;

/// Maximum number of queries that were sent and are not answered yet. Further queries wait until an
/// answer arrives.
const ASKED_MAX: usize = 128;

/// Maximum number of unanswered queries, sent or not, for requests of strangers.
const STRANGERS_OUTSTANDING_MAX: usize = OUTSTANDING_MAX / 2;

/// Maximum number of queries for requests of strangers that were sent and are not answered yet.
const STRANGERS_ASKED_MAX: usize = ASKED_MAX / 2;

/// Lowest [`QueryId`] of a look-up. The ids from `IDS_FROM` to below `2 * IDS_FROM` are reserved
/// for look-ups.
const IDS_FROM: u64 = 1 << 62;

/// Counts of the look-ups of a shard.
#[derive(Debug, Default)]
pub struct LookupCounters {
    /// Queries for which the store returned a value.
    pub found: Counter,
    /// Queries for a key that the store does not contain.
    pub not_found: Counter,
    /// Queries that the store could not answer.
    pub failed: Counter,
    /// Queries that the proxy abandoned because no answer came in time.
    pub given_up: Counter,
    /// Answers that came after the proxy had abandoned their query.
    pub late: Counter,
    /// Look-ups without a query, because too many queries were outstanding or the request could not
    /// be parked.
    pub rejected: Counter,
    /// Queries without an answer at the moment.
    pub outstanding: Counter,
}

/// Outcome of the look-up of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookupOutcome {
    /// The store has this value for the key.
    Found(Arc<[u8]>),
    /// The store does not have the key.
    NotFound,
    /// The store failed, or has not answered in time.
    Failed,
    /// The request has to wait for the answer to the query of this ticket.
    Pending(Ticket),
    /// The key is not queried: too many queries are outstanding, or the request cannot wait.
    Rejected,
}

/// The properties of a request for which a key is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupRequester {
    /// True if the sender of the request is neither a back end nor a trusted source.
    pub(crate) is_stranger: bool,
    /// True if the request can be parked until the answer arrives.
    pub(crate) may_wait: bool,
}

type Subject = (LookupKind, Arc<[u8]>);

enum Entry {
    /// The key was queried, with this query id, and the answer has not arrived.
    Open(u64),
    /// The answer has arrived, and is stored for [`HELD_FOR`].
    Held(LookupOutcome),
}

/// A query that is not answered yet.
struct Open {
    subject: Subject,
    since: Timestamp,
    /// True if all requests that wait for the answer come from strangers.
    is_strangers: bool,
    /// True if the query was sent.
    is_asked: bool,
}

/// Queries for the requests of one group of senders: strangers, or back ends and trusted sources.
#[derive(Default)]
struct QuestionQueue {
    outstanding: usize,
    /// Ids of the queries to send, the oldest first. Some of these queries may have been sent or
    /// given up meanwhile.
    outgoing: VecDeque<u64>,
    /// Number of queries that were sent and are not answered yet.
    asked: usize,
}

/// The look-ups of a shard: unanswered queries, and stored answers.
pub(crate) struct Lookups {
    entries: BTreeMap<Subject, Entry>,
    /// Unanswered queries by id. The order of the ids is the order in which the queries began.
    outstanding: BTreeMap<u64, Open>,
    strangers: QuestionQueue,
    others: QuestionQueue,
    /// Keys of the stored answers with their expiry times, the earliest first.
    held: VecDeque<(Timestamp, Subject)>,
    next: u64,
    counters: Arc<LookupCounters>,
}

impl Lookups {
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

    /// Returns the stored answer for a key, or queries the store for it.
    pub(crate) fn find(
        &mut self,
        now: Timestamp,
        kind: LookupKind,
        key: &Arc<[u8]>,
        requester: LookupRequester,
    ) -> LookupOutcome {
        // No store has longer keys.
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
            self.counters.rejected.add(1);
            return LookupOutcome::Rejected;
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

    /// Handles an answer. Returns the ticket of the requests that may continue. Ignores answers to
    /// queries of other parts of the core.
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

    /// Ends overdue queries as failed. Returns the tickets of the requests that may continue.
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

    /// Discards all stored answers. Called when the external stores may have changed.
    pub(crate) fn forget(&mut self) {
        while !self.held.is_empty() {
            self.forget_oldest();
        }
    }

    /// Returns the next query to send.
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

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) has to be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.outstanding.first_key_value().map(|(_, open)| open.since + ANSWERS_WITHIN)
    }

    /// Stores the answer to a query that was answered or has failed, and updates the counts.
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

    /// Moves a query to the group of back ends and trusted sources, because such a sender needs the
    /// answer too.
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
