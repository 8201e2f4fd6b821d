//! Resolution of names in URIs to targets of requests (RFC 3263).
//!
//! [`Resolution`] is a pure state machine. If the records that it needs are in the cache,
//! [`locate`](Resolution::locate) returns the targets at once. Otherwise it queues a query
//! ([`poll_query`](Resolution::poll_query)) and returns a [`Ticket`], and the caller parks the
//! request with this ticket. When an answer arrives ([`on_answer`](Resolution::on_answer)), or its
//! query is given up ([`handle_timeout`](Resolution::handle_timeout)), these functions return the
//! tickets whose requests should be located again. All requests that wait for one query have the
//! same ticket. The caller limits the number of parked requests and the time for which they wait.
//!
//! If the DNS does not answer, requests to names in use are not delayed. A name is queried again
//! before its answer expires, and an expired answer is used while there is no newer one. After a
//! failure, a request waits for another attempt only if it has no other target. The numbers of
//! queries and of remembered answers are bounded.
//!
//! The result is valid for one request: "The procedures here MUST be done exactly once per
//! transaction" (RFC 3263 §4). The caller has to remember which targets have failed.

mod backlog;
mod cache;
mod locate;
mod name;
mod questions;
mod records;
mod select;
mod transport;

use std::sync::Arc;

use tidegate_world::{Counter, Query, QueryAnswer, QueryId, RecordType, Timestamp};

pub use locate::{Located, TARGETS_MAX, Target, Targets, Wanted};
pub(crate) use records::Records;
pub use transport::Transports;
pub(crate) use transport::{default_port, service_prefix, transport_of};

use cache::{Age, Cache, View};
use locate::{Found, Walk};
use questions::{Closed, Due, Open, Questions};

/// Minimum size of the cache, in answers. It is more than any single request needs.
pub(crate) const ANSWERS_MIN: usize = 256;

/// Limits and capabilities of a [`Resolution`].
#[derive(Clone, Debug)]
pub struct ResolutionSettings {
    /// Transports that the client supports, the preferred one first.
    pub transports: Transports,
    /// Types of the address records to query, in this order.
    pub address_records: &'static [RecordType],
    /// Maximum number of remembered answers, at least [`ANSWERS_MIN`].
    pub answers_max: usize,
    /// Maximum number of queries that are sent and not answered yet. A quarter of it is reserved
    /// for names that have been resolved before. Further queries wait to be sent. Including these,
    /// at most sixteen times as many queries are outstanding.
    pub questions_max: usize,
}

/// Returns the maximum number of queries of a [`Resolution`] with this
/// [`questions_max`](ResolutionSettings::questions_max) that the driver has not finished.
pub(crate) const fn unfinished_max(questions_max: usize) -> usize {
    questions_max * questions::SENT_PER_PLACE
}

/// Counts of a [`Resolution`].
#[derive(Debug, Default)]
pub struct ResolutionCounters {
    /// Queries sent.
    pub asked: Counter,
    /// Answers with records.
    pub found: Counter,
    /// Answers without records.
    pub not_found: Counter,
    /// Queries that the DNS could not answer.
    pub failed: Counter,
    /// Queries that the proxy gave up because no answer came in time.
    pub given_up: Counter,
    /// Answers that came after the proxy had given up their query.
    pub late: Counter,
    /// Queries not queued, or not sent in time, because too many others were outstanding.
    pub rejected: Counter,
    /// Names not queried because they had failed a short time before.
    pub paused: Counter,
    /// Number of times that an expired answer was used because there was no newer one.
    pub stale: Counter,
    /// Answers evicted to make room for others.
    pub evicted: Counter,
    /// Resolved addresses to which no request may be sent.
    pub unusable: Counter,
    /// Domains that offered SIP over TLS before and no longer do.
    pub security_withdrawn: Counter,
    /// Answers that are remembered now.
    pub answers: Counter,
    /// Queries that are outstanding now.
    pub outstanding: Counter,
}

/// The identifier of the query for which a parked request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) QueryId);

#[cfg(test)]
impl Ticket {
    pub(crate) fn of(number: u64) -> Self {
        Self(QueryId(number))
    }
}

/// A cache of DNS answers, and the queries for names that are not in it.
pub struct Resolution {
    transports: Transports,
    address_records: &'static [RecordType],
    cache: Cache,
    questions: Questions,
    counters: Arc<ResolutionCounters>,
}

/// The outcome of looking for the records of a name.
enum Asked {
    /// The records are known, or known not to exist.
    Known(Records),
    /// The records are unknown until an answer arrives.
    Waits(Ticket),
    /// The last query failed, and another one is outstanding.
    Retried(Ticket),
    /// No records are known, and requests should not wait, because queries fail or are not sent.
    Failed,
}

impl Resolution {
    /// Creates a resolution with an empty cache.
    pub fn new(settings: ResolutionSettings, counters: Arc<ResolutionCounters>) -> Self {
        let ResolutionSettings { transports, address_records, answers_max, questions_max } =
            settings;
        Self {
            transports,
            address_records,
            cache: Cache::new(answers_max.max(ANSWERS_MIN)),
            questions: Questions::new(questions_max),
            counters,
        }
    }

    /// Finds the targets of a request.
    ///
    /// `hash` is the identity of the request: the same for its retransmissions, its CANCEL and its
    /// ACK, and not predictable by its senders. Requests with the same hash get the same targets as
    /// long as the records are the same (RFC 3263 §4.4). Returns only targets that `may_be`
    /// accepts.
    pub fn locate(
        &mut self,
        now: Timestamp,
        wanted: &Wanted<'_>,
        hash: u64,
        may_be: impl Fn(&Target) -> bool,
    ) -> Located {
        let found = Found::default();
        let located = Walk { resolution: self, now, hash, may_be, found }.locate(wanted);
        self.gauge();
        located
    }

    /// Handles an answer of the DNS. Returns the ticket whose requests may continue, or `None` if
    /// the query was given up before.
    ///
    /// An answer to a query of another part of the core changes nothing.
    pub fn on_answer(
        &mut self,
        now: Timestamp,
        id: QueryId,
        answer: &QueryAnswer,
    ) -> Option<Ticket> {
        let (key, in_time) = match self.questions.close(id)? {
            Closed::InTime(key) => (key, true),
            Closed::Late(key) => (key, false),
        };
        if !in_time {
            self.counters.late.add(1);
        }
        match Records::of(key.0, answer) {
            Some((records, ttl)) => {
                let is_absent = records == Records::Absent;
                let outcome =
                    if is_absent { &self.counters.not_found } else { &self.counters.found };
                outcome.add(1);
                self.questions.on_heard(now);
                let is_secure = records.offers_security();
                let before = self.cache.learn(now, &key, records, ttl);
                // RFC 3263 §7: "A client which frequently contacts the same domain SHOULD cache
                // whether or not its NAPTR records contain SIPS in the services field. If such
                // records were present, but in later queries cease to appear, it is a sign of a
                // potential attack. In this case, the client SHOULD generate some kind of alert".
                if before.is_some_and(|before| before.offers_security()) && !is_secure {
                    self.counters.security_withdrawn.add(1);
                }
            }
            None => {
                self.counters.failed.add(1);
                if in_time {
                    self.cache.fail(now, &key);
                }
            }
        }
        self.gauge();
        in_time.then_some(Ticket(id))
    }

    /// Gives up queries that were not answered in time. Returns the tickets whose requests may
    /// continue. Requests that have an expired answer continue before their query is given up.
    pub fn handle_timeout(&mut self, now: Timestamp) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        while let Some(due) = self.questions.pop_due(now) {
            match due {
                Due::Overdue(id, key) if self.cache.is_known(now, &key) => tickets.push(Ticket(id)),
                Due::Overdue(..) => {}
                Due::GivenUp(id, key) => {
                    self.counters.given_up.add(1);
                    self.cache.fail(now, &key);
                    tickets.push(Ticket(id));
                }
                // The query was not sent, so the name has not failed. The targets of the waiting
                // requests are located again, which may queue another query.
                Due::Unsent(id) => {
                    self.counters.rejected.add(1);
                    tickets.push(Ticket(id));
                }
            }
        }
        self.gauge();
        tickets
    }

    /// Returns the next query to send.
    pub fn poll_query(&mut self) -> Option<Query> {
        let query = self.questions.poll_query()?;
        self.counters.asked.add(1);
        Some(query)
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is needed next.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.questions.poll_timeout()
    }

    /// Returns the records of a name if they are known, and queries them if they are unknown,
    /// expired or about to expire.
    fn ask(&mut self, now: Timestamp, record: RecordType, name: &str) -> Asked {
        let View { records, age, failing, paused } = self.cache.touch(now, record, name);
        let records = match records {
            Some(records) if age == Age::Fresh => return Asked::Known(records),
            records => records,
        };
        let open = self.questions.find(record, name).or_else(|| {
            let is_known = records.is_some();
            let may_ask = !paused;
            may_ask.then(|| self.questions.ask(now, record, name, is_known)).flatten()
        });
        let Some(records) = records else {
            return match open {
                // After a failure, requests do not wait for a silent DNS. The query stays queued.
                Some(_) if failing && self.questions.is_silent() => Asked::Failed,
                Some(Open { id, .. }) if failing => Asked::Retried(Ticket(id)),
                Some(Open { id, .. }) => Asked::Waits(Ticket(id)),
                None => {
                    let why = if paused { &self.counters.paused } else { &self.counters.rejected };
                    why.add(1);
                    Asked::Failed
                }
            };
        };
        if age == Age::Stale {
            match open {
                Some(Open { id, is_overdue: false }) if !failing && !self.questions.is_silent() => {
                    return Asked::Waits(Ticket(id));
                }
                _ => self.counters.stale.add(1),
            }
        }
        Asked::Known(records)
    }

    fn gauge(&self) {
        self.counters.answers.set(self.cache.len() as u64);
        self.counters.outstanding.set(self.questions.len() as u64);
        self.counters.evicted.set(self.cache.evicted());
    }
}

#[cfg(test)]
mod tests;
