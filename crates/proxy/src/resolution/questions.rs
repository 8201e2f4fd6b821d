//! Outstanding DNS queries.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{Query, QueryId, Question, RESOLVE_MAX, RecordType, Timestamp};

use super::backlog::Backlog;
use super::cache::Key;

/// The time for which requests wait for a newer answer when an expired one is known.
///
/// RFC 8767 §5 calls this the client response timer and recommends 1.8 s. Here it is shorter,
/// because a caller gets no response while it waits.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// The time after which a query is abandoned.
///
/// In this time, a resolver can try a second server after the first has not answered for 5 s.
pub(super) const ANSWERS_WITHIN: Duration = RESOLVE_MAX;

/// Maximum age at which a query is still sent. Requests would not wait long enough for the answer
/// to an older query. An older query would also be abandoned soon, and its place would go to
/// another old query. So a DNS that does not answer would get very many queries.
const SENT_WITHIN: Duration = Duration::from_secs(4);

/// Maximum number of queries on their way for each place. A query leaves its place
/// [`ANSWERS_WITHIN`] after it was asked, and is on its way for up to [`RESOLVE_MAX`] after it was
/// sent.
pub(super) const SENT_PER_PLACE: usize = {
    let held_min_s = ANSWERS_WITHIN.as_secs() - SENT_WITHIN.as_secs();
    RESOLVE_MAX.as_secs().div_ceil(held_min_s) as usize
};

/// The first id of DNS queries for requests. Lower ids are free for other parts of the core.
const IDS_FROM: u64 = 1 << 63;

/// A bounded set of outstanding queries, at most one for each name and record type.
pub(super) struct Questions {
    /// Queries by ascending id, which is also the order in which they were asked.
    outstanding: BTreeMap<u64, Asked>,
    by_name: BTreeMap<RecordType, BTreeMap<Arc<str>, u64>>,
    /// Abandoned queries, oldest first. If an answer still arrives, it is cached.
    given_up: VecDeque<(u64, Key)>,
    backlog: Backlog,
    /// The current time, as last passed by a caller.
    now: Timestamp,
    next: u64,
    /// Queries with a lower id have been outstanding for longer than [`PATIENCE`].
    overdue_before: u64,
    /// The time of the last answer that was not a failure.
    heard: Option<Timestamp>,
    is_silent: bool,
}

struct Asked {
    key: Key,
    at: Timestamp,
    is_sent: bool,
}

/// An outstanding query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) id: QueryId,
    /// True if the query has been outstanding for longer than [`PATIENCE`].
    pub(super) is_overdue: bool,
}

/// A change to an outstanding query that is due because time has passed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The query has been outstanding for longer than [`PATIENCE`]. Requests that can use an
    /// expired answer no longer wait for it.
    Overdue(QueryId, Key),
    /// The query is abandoned, because it was sent and no answer came in time.
    GivenUp(QueryId, Key),
    /// The query is abandoned before it was sent, because too many other queries had no answer.
    Unsent(QueryId),
}

/// A query that has been answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// The answer arrived in time.
    InTime(Key),
    /// The query had been abandoned before.
    Late(Key),
}

impl Questions {
    /// Creates a set in which at most `sent_max` queries are sent and not answered yet. The others
    /// wait to be sent.
    pub(super) fn new(sent_max: usize) -> Self {
        Self {
            outstanding: BTreeMap::new(),
            by_name: BTreeMap::new(),
            given_up: VecDeque::new(),
            backlog: Backlog::new(sent_max),
            now: Timestamp::ZERO,
            next: IDS_FROM,
            overdue_before: IDS_FROM,
            heard: None,
            is_silent: false,
        }
    }

    /// Returns the outstanding query for a name.
    pub(super) fn find(&self, record: RecordType, name: &str) -> Option<Open> {
        let id = *self.by_name.get(&record)?.get(name)?;
        Some(Open { id: QueryId(id), is_overdue: id < self.overdue_before })
    }

    /// Queues a query for a name without an outstanding query. Returns `None` if too many queries
    /// are outstanding, in all or for names of the same domain. A quarter of the places is reserved
    /// for names that have been resolved before (`is_known`), so that these stay resolvable during
    /// a flood of queries for other names.
    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        record: RecordType,
        name: &str,
        is_known: bool,
    ) -> Option<Open> {
        self.now = now;
        if !self.backlog.has_room(name, is_known) {
            return None;
        }
        let (id, name) = (self.next, Arc::<str>::from(name));
        self.next += 1;
        self.backlog.push(id, &name, is_known);
        self.by_name.entry(record).or_default().insert(Arc::clone(&name), id);
        self.outstanding.insert(id, Asked { key: (record, name), at: now, is_sent: false });
        Some(Open { id: QueryId(id), is_overdue: false })
    }

    /// Closes an answered query. Returns `None` if the id is not from this set.
    pub(super) fn close(&mut self, id: QueryId) -> Option<Closed> {
        if let Some(asked) = self.remove(id.0) {
            return Some(Closed::InTime(asked.key));
        }
        let place = self.given_up.iter().position(|(given_up, _)| *given_up == id.0)?;
        self.given_up.remove(place).map(|(_, key)| Closed::Late(key))
    }

    /// Records that the DNS has answered a query, without a failure.
    pub(super) fn on_heard(&mut self, now: Timestamp) {
        self.heard = Some(now);
        self.is_silent = false;
    }

    /// Returns whether the DNS is silent. It is silent if a query was sent and became overdue or
    /// was abandoned, and the DNS has answered no query since that query was queued.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Returns a query that has become overdue, or is abandoned, at `now`. Returns `None` if there
    /// is no such query.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<Due> {
        self.now = now;
        let (&first, asked) = self.outstanding.first_key_value()?;
        if asked.at + ANSWERS_WITHIN <= now {
            let Asked { key, at, is_sent } = self.remove(first)?;
            if !is_sent {
                return Some(Due::Unsent(QueryId(first)));
            }
            self.is_silent |= self.heard.is_none_or(|heard| heard < at);
            if self.given_up.len() >= self.backlog.outstanding_max() {
                self.given_up.pop_front();
            }
            self.given_up.push_back((first, key.clone()));
            return Some(Due::GivenUp(QueryId(first), key));
        }
        let (&id, asked) = self.outstanding.range(self.overdue_before..).next()?;
        if asked.at + PATIENCE > now {
            return None;
        }
        self.overdue_before = id + 1;
        self.is_silent |= asked.is_sent && self.heard.is_none_or(|heard| heard < asked.at);
        Some(Due::Overdue(QueryId(id), asked.key.clone()))
    }

    /// Returns the time at which the next query becomes overdue or is abandoned, or `None` if no
    /// query is outstanding.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        let (_, first) = self.outstanding.first_key_value()?;
        let overdue = self.outstanding.range(self.overdue_before..).next();
        let overdue = overdue.map(|(_, asked)| asked.at + PATIENCE);
        Some(overdue.into_iter().fold(first.at + ANSWERS_WITHIN, Timestamp::min))
    }

    pub(super) fn poll_query(&mut self) -> Option<Query> {
        loop {
            let id = self.backlog.pop()?;
            let asked = self.outstanding.get_mut(&id)?;
            let (record, name) = asked.key.clone();
            if asked.at + SENT_WITHIN < self.now {
                self.backlog.take_back(&name);
                continue;
            }
            asked.is_sent = true;
            return Some(Query { id: QueryId(id), question: Question::Resolve { name, record } });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.outstanding.len()
    }

    fn remove(&mut self, id: u64) -> Option<Asked> {
        let asked = self.outstanding.remove(&id)?;
        let (record, name) = &asked.key;
        self.by_name.get_mut(record).and_then(|all| all.remove(name));
        self.backlog.remove(id, name, asked.is_sent);
        Some(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    fn ask(questions: &mut Questions, ms: u64, name: &str) -> Option<QueryId> {
        questions.ask(at(ms), RecordType::A, name, true).map(|open| open.id)
    }

    fn send(questions: &mut Questions) {
        while questions.poll_query().is_some() {}
    }

    fn key(name: &str) -> Key {
        (RecordType::A, name.into())
    }

    #[test]
    fn a_name_is_asked_for_once_and_closed_by_its_answer() {
        let mut questions = Questions::new(1);
        let a = ask(&mut questions, 0, "a.").unwrap();
        let question = Question::Resolve { name: "a.".into(), record: RecordType::A };
        assert_eq!(questions.poll_query(), Some(Query { id: a, question }));
        assert_eq!(questions.poll_query(), None);
        let open = Open { id: a, is_overdue: false };
        assert_eq!(questions.find(RecordType::A, "a."), Some(open));
        assert_eq!(questions.find(RecordType::Aaaa, "a."), None);
        for i in 1..16 {
            assert!(ask(&mut questions, 0, &format!("b{i}.")).is_some());
        }
        assert_eq!((ask(&mut questions, 0, "c."), questions.len()), (None, 16));
        assert_eq!(questions.close(a), Some(Closed::InTime(key("a."))));
        assert_eq!(questions.close(a), None);
        assert_eq!(questions.find(RecordType::A, "a."), None);
        assert!(ask(&mut questions, 0, "a.").is_some_and(|again| again != a));
        assert_eq!(questions.close(QueryId(1)), None, "another part's");
    }

    #[test]
    fn a_question_is_overdue_and_then_given_up_and_may_be_answered_late() {
        let mut questions = Questions::new(2);
        assert_eq!((questions.poll_timeout(), questions.pop_due(at(9000))), (None, None));
        let a = ask(&mut questions, 0, "a.").unwrap();
        let b = ask(&mut questions, 100, "b.").unwrap();
        send(&mut questions);
        assert_eq!(questions.poll_timeout(), Some(at(500)));
        assert_eq!(questions.pop_due(at(499)), None);
        assert_eq!(questions.pop_due(at(500)), Some(Due::Overdue(a, key("a."))));
        assert!(questions.find(RecordType::A, "a.").unwrap().is_overdue);
        assert_eq!((questions.pop_due(at(500)), questions.poll_timeout()), (None, Some(at(600))));
        assert_eq!(questions.pop_due(at(600)), Some(Due::Overdue(b, key("b."))));
        assert_eq!((questions.pop_due(at(600)), questions.poll_timeout()), (None, Some(at(8000))));
        assert_eq!(questions.pop_due(at(8000)), Some(Due::GivenUp(a, key("a."))));
        assert_eq!((questions.len(), questions.find(RecordType::A, "a.")), (1, None));
        assert_eq!(questions.close(a), Some(Closed::Late(key("a."))));
        assert_eq!(questions.close(a), None);
        assert_eq!(questions.poll_timeout(), Some(at(8100)));
    }

    #[test]
    fn the_dns_is_silent_when_it_answers_nothing_for_a_while() {
        let mut questions = Questions::new(9);
        ask(&mut questions, 0, "a.");
        let b = ask(&mut questions, 100, "b.").unwrap();
        send(&mut questions);
        questions.close(b);
        questions.on_heard(at(110));
        assert!(questions.pop_due(at(600)).is_some() && !questions.is_silent(), "one is slow");
        ask(&mut questions, 1000, "c.");
        send(&mut questions);
        assert!(questions.pop_due(at(1500)).is_some() && questions.is_silent());
        questions.on_heard(at(1600));
        assert!(!questions.is_silent());
        // A query sent before the last answer does not show that the DNS is silent.
        assert!(matches!(questions.pop_due(at(8000)), Some(Due::GivenUp(..))));
        assert!(!questions.is_silent());
    }

    /// If the DNS does not answer, each query that was sent keeps its place for 8 s. Queries that
    /// have waited nearly as long must not then be sent one after another, shortly before they end.
    #[test]
    fn a_query_that_has_waited_long_is_not_sent() {
        let mut questions = Questions::new(1);
        let a = ask(&mut questions, 0, "a.").unwrap();
        let b = ask(&mut questions, 0, "b.").unwrap();
        assert_eq!(questions.poll_query().map(|query| query.id), Some(a));
        assert_eq!(questions.poll_query(), None);
        let c = ask(&mut questions, 5000, "c.").unwrap();
        questions.close(a);
        assert_eq!(questions.poll_query().map(|query| query.id), Some(c));
        assert_eq!(questions.poll_query(), None);
        let mut due = std::iter::from_fn(|| questions.pop_due(at(8000)));
        assert!(due.any(|due| due == Due::Unsent(b)));
        assert!(ask(&mut questions, 8000, "b.").is_some());
    }

    /// The resolver has room for this many queries. If more were on their way, all queries would
    /// wait behind those without an answer.
    #[test]
    fn a_silent_dns_gets_a_limited_number_of_queries_at_a_time() {
        let mut questions = Questions::new(8);
        let mut sent = VecDeque::new();
        let mut most = 0;
        for i in 0..600 {
            let now = at(i * 100);
            for j in 0..3 {
                questions.ask(now, RecordType::A, &format!("h.{i}-{j}.example."), j == 0);
            }
            while questions.pop_due(now).is_some() {}
            while sent.front().is_some_and(|sent: &Timestamp| *sent + RESOLVE_MAX <= now) {
                sent.pop_front();
            }
            while questions.poll_query().is_some() {
                sent.push_back(now);
            }
            most = most.max(sent.len());
        }
        assert!(most > 8 && most <= 8 * SENT_PER_PLACE, "{most}");
    }

    #[test]
    fn a_part_of_the_questions_is_kept_for_known_names() {
        for (sent_max, unknown_max, all_max) in [(0, 0, 0), (1, 12, 16), (3, 36, 48), (8, 96, 128)]
        {
            let mut questions = Questions::new(sent_max);
            let mut ask = |is_known| {
                let name = |i| format!("{is_known}-{i}.");
                let asked = |i| questions.ask(at(0), RecordType::A, &name(i), is_known);
                (0..200).map_while(asked).count()
            };
            assert_eq!(ask(false), unknown_max);
            assert_eq!(ask(true), all_max - unknown_max);
        }
    }

    /// If a name server does not answer, the queries that were sent keep their places. Queries that
    /// were not sent say nothing about the DNS.
    #[test]
    fn a_question_that_is_never_sent_shows_nothing() {
        let mut questions = Questions::new(1);
        let a = ask(&mut questions, 0, "a.").unwrap();
        let b = ask(&mut questions, 1, "b.").unwrap();
        assert_eq!(questions.poll_query().map(|query| query.id), Some(a));
        assert_eq!((questions.poll_query(), questions.len()), (None, 2));
        assert_eq!(questions.close(a), Some(Closed::InTime(key("a."))));
        questions.on_heard(at(1));
        let c = ask(&mut questions, 2, "c.").unwrap();
        assert_eq!(questions.poll_query().map(|query| query.id), Some(b));
        assert_eq!(questions.pop_due(at(600)), Some(Due::Overdue(b, key("b."))));
        questions.on_heard(at(600));
        assert_eq!(questions.pop_due(at(9000)), Some(Due::GivenUp(b, key("b."))));
        assert_eq!(questions.pop_due(at(9000)), Some(Due::Unsent(c)));
        assert_eq!((questions.pop_due(at(9000)), questions.len()), (None, 0));
        assert!(!questions.is_silent());
        assert_eq!(questions.close(c), None);
    }

    #[test]
    fn questions_given_up_are_bounded() {
        let mut questions = Questions::new(16);
        let mut ids = Vec::new();
        for round in 0..40 {
            let now = round * 20_000;
            ids.extend((0..16).map(|i| ask(&mut questions, now, &format!("{i}.")).unwrap()));
            send(&mut questions);
            while questions.pop_due(at(now + 10_000)).is_some() {}
        }
        let late = ids.into_iter().filter(|id| questions.close(*id).is_some());
        assert_eq!(late.count(), 256);
    }
}
