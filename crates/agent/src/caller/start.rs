//! Starts calls when they are due, or when another call ends.

use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::call::{Action, Call, Intent};
use super::redial::Person;
use super::{BURST, Caller};

/// Maximum number of calls that wait for another call to end. Further calls are not started.
const HELD_BACK_MAX: usize = 1_000_000;

/// A call that waits for another call to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayedCall {
    intended: Timestamp,
    intent: Intent,
}

impl Caller {
    /// Offers the calls that are due.
    pub(super) fn start_due(&mut self, now: Timestamp) {
        for _ in 0..BURST {
            let Some(intended) = self.next_arrival.filter(|&at| at <= now) else { return };
            self.next_arrival = self.arrivals.as_mut().and_then(Iterator::next);
            self.arrive(now, intended);
        }
    }

    /// Starts calls that were held back, as long as fewer calls are open than
    /// [`open_limit`](crate::CallerConfig::open_limit). After the end of the load, removes them
    /// instead.
    pub(super) fn start_delayed(&mut self, now: Timestamp) {
        if now > self.last_begin() {
            self.give_up_held_back();
        }
        while !self.is_at_limit()
            && let Some(DelayedCall { intended, intent }) = self.held_back.pop_front()
        {
            self.stats.waiting = self.held_back.len() as u64;
            self.start_call(now, intended, intent);
        }
    }

    /// Removes all calls that are held back.
    pub(super) fn give_up_held_back(&mut self) {
        self.stats.expired += self.held_back.len() as u64;
        self.stats.persons.cut_off += self.held_back.len() as u64;
        self.stats.waiting = 0;
        self.held_back.clear();
    }

    /// Returns the time at which the calls that are held back are removed, or `None` if there are
    /// none, or if they are never removed.
    pub(super) fn gives_up_at(&self) -> Option<Timestamp> {
        let at = self.last_begin() + Duration::from_nanos(1);
        (!self.held_back.is_empty() && at < Timestamp::NEVER).then_some(at)
    }

    /// Returns whether a call with this intended time is measured.
    pub(super) fn is_measured(&self, intended: Timestamp) -> bool {
        self.config.is_measured(self.stats.start, intended)
    }

    /// Offers the first call of a person.
    fn arrive(&mut self, now: Timestamp, intended: Timestamp) {
        let share = self.config.emergency;
        let is_emergency = share > 0.0 && self.emergency.unit() < share;
        self.record_person(intended);
        self.offer_call(now, intended, Person { first: intended, attempts: 1, is_emergency });
    }

    /// Returns the time until which the delays of measured calls are recorded. If the load goes on
    /// after the measured time, this is the end of the load. A call that is set up later, and not
    /// in time, is set up because the load has ended. So its delay says nothing about this load.
    pub(super) fn delays_until(&self) -> Timestamp {
        let goes_on = self.config.measured_until < self.config.load.duration;
        if goes_on { self.last_begin() } else { Timestamp::NEVER }
    }

    /// Starts a call that has been due since `intended`, or holds it back if too many calls are
    /// open.
    pub(super) fn offer_call(&mut self, now: Timestamp, intended: Timestamp, person: Person) {
        self.stats.offered += 1;
        self.stats.last_intended = self.stats.last_intended.max(intended);
        let is_measured = self.is_measured(intended);
        self.stats.measured.offered += u64::from(is_measured);
        self.stats.emergency.offered += u64::from(person.is_emergency && is_measured);
        let intent = Intent {
            patience: self.config.patience.draw(&mut self.patience),
            hold: self.config.hold.draw(&mut self.hold),
            person,
        };
        if !self.is_at_limit() && self.held_back.is_empty() {
            if !self.calls.is_full() {
                self.stats.lateness.record(now.since(intended));
            }
            return self.start_call(now, intended, intent);
        }
        if self.held_back.len() == HELD_BACK_MAX {
            return self.record_not_begun(intended);
        }
        self.held_back.push_back(DelayedCall { intended, intent });
        self.stats.held_back += 1;
        self.stats.waiting = self.held_back.len() as u64;
    }

    fn start_call(&mut self, now: Timestamp, intended: Timestamp, intent: Intent) {
        if self.calls.is_full() {
            return self.record_not_begun(intended);
        }
        self.stats.begun += 1;
        self.stats.last_begun = now;
        let call = Call::new(intended, now, intent, &self.config.timing);
        let id = self.calls.insert(call.due(), call);
        self.stats.open = self.calls.len() as u64;
        self.action(now, self.namer.mark(id), Action::Send(Method::Invite));
    }

    /// Records a call that was not started, because too many calls were open, or because too many
    /// calls already waited for another call to end.
    fn record_not_begun(&mut self, intended: Timestamp) {
        self.stats.not_begun += 1;
        self.stats.measured.not_begun += u64::from(self.is_measured(intended));
        self.stats.persons.overflowed += 1;
    }

    fn is_at_limit(&self) -> bool {
        self.config.open_limit.is_some_and(|limit| self.calls.len() >= limit)
    }

    /// Returns the end of the load. No call begins later.
    pub(super) fn last_begin(&self) -> Timestamp {
        self.stats.start + self.config.load.duration
    }
}
