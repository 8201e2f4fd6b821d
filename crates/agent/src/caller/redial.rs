//! People who call again after their call has failed.
//!
//! Repeated calls are a load that failures cause: the more calls fail at a server, the more calls
//! are offered to it. Queueing theory calls this a retrial queue (Falin, Templeton, Retrial Queues,
//! 1997).

use tidegate_world::{Purpose, Seed, Stream, Timers, Timestamp};

use super::{BURST, Caller};
use crate::span::Span;

/// The behaviour of people whose call was rejected, timed out or was not answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Redial {
    /// Maximum number of calls of one person, including the first. In T-Mobile's outage of June
    /// 2020 the congestion "likely required many of its subscribers to make 2-3 call attempts
    /// before successfully connecting" (FCC, PS Docket 20-183, report of October 2020).
    pub attempts_max: u32,
    /// Probability that a person calls again after a failed call, if fewer than `attempts_max`
    /// calls were made.
    pub probability: f64,
    /// Time from the failure of a call, or from the time at which the person hung up without an
    /// answer, to the next call of the same person.
    pub wait: Span,
    /// Maximum number of people who wait at the same time to call again. Further people are counted
    /// as [`overflowed`](crate::Persons::overflowed) and do not call again.
    pub waiting_max: usize,
}

/// A person who wants one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    /// Intended time of the first call.
    pub first: Timestamp,
    /// Number of calls that the person has made, including the current one.
    pub attempts: u32,
    /// True if the call is to an emergency service.
    pub is_emergency: bool,
}

/// The people who wait before they call again.
pub(super) struct Redialers {
    config: Redial,
    waiting: Timers<Person>,
    stream: Stream,
}

impl Redialers {
    pub fn new(config: Redial, seed: Seed, element: u32) -> Self {
        Self { config, waiting: Timers::new(), stream: seed.stream(Purpose::Redial, element) }
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns a time before which nobody redials, or `None` if nobody waits to redial.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.waiting.next()
    }
}

impl Caller {
    /// Decides whether and when a person redials after a call without an answer.
    pub(super) fn on_unserved(&mut self, now: Timestamp, person: Person) {
        let end = self.last_begin();
        let persons = &mut self.stats.persons;
        let Some(redialers) = &mut self.redialers else {
            persons.gave_up += 1;
            return;
        };
        let Redial { attempts_max, probability, wait, waiting_max } = redialers.config;
        if person.attempts >= attempts_max || redialers.stream.unit() >= probability {
            persons.gave_up += 1;
            return;
        }
        let at = now + wait.draw(&mut redialers.stream);
        if at > end {
            persons.cut_off += 1;
        } else if redialers.waiting() >= waiting_max {
            persons.overflowed += 1;
        } else {
            redialers.waiting.push(at, person);
            persons.waiting = redialers.waiting() as u64;
        }
    }

    /// Offers the next call of each person whose wait is over.
    pub(super) fn redial_due(&mut self, now: Timestamp) {
        for _ in 0..BURST {
            let Some(redialers) = &mut self.redialers else { return };
            let Some((at, person)) = redialers.waiting.pop(now) else { return };
            self.stats.persons.waiting = redialers.waiting() as u64;
            self.stats.persons.redials += 1;
            self.offer_call(now, at, Person { attempts: person.attempts + 1, ..person });
        }
    }

    /// Removes all people who wait to redial. From now on, nobody redials.
    pub(super) fn cut_off_redialers(&mut self) {
        let Some(redialers) = self.redialers.take() else { return };
        self.stats.persons.cut_off += redialers.waiting() as u64;
        self.stats.persons.waiting = 0;
    }
}
