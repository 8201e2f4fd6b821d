//! The counts of people. Each person wants one call, and may need several attempts.

use serde::{Deserialize, Serialize};
use tidegate_world::{Timestamp, add_fields};

use super::Caller;
use super::redial::Person;
use crate::delays::Delays;

/// Counts of people. At all times, `came` is the sum of `served`, `gave_up`, `cut_off`,
/// `overflowed`, `waiting`, and the number of people who wait for an answer or whose call is held
/// back.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Persons {
    /// People whose first call has become due.
    pub came: u64,
    /// People who were answered, at any attempt.
    pub served: u64,
    /// People who did not call again after their call had failed.
    pub gave_up: u64,
    /// People who did not call again because the load had ended.
    pub cut_off: u64,
    /// People whose call could not begin because of [`open_max`](crate::CallerConfig::open_max), or
    /// who could not wait because of [`waiting_max`](crate::Redial::waiting_max).
    pub overflowed: u64,
    /// People who wait before they call again.
    pub waiting: u64,
    /// Calls that were not the first attempt of their person. They count as offered calls too.
    pub redials: u64,
    /// Delays from the intended time of a person's first call to the answer.
    pub delay: Delays,
    /// People whose first call came in the measured time.
    pub measured_came: u64,
    /// People whose first call came in the measured time and who were answered, at any attempt.
    pub measured_served: u64,
}

/// Counts of the emergency calls of the measured time. Each attempt counts as a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Emergency {
    /// Emergency calls that have become due.
    pub offered: u64,
    /// Emergency calls set up within [`deadline`](crate::CallerConfig::deadline).
    pub set_up_in_time: u64,
}

impl Persons {
    pub(super) fn merge(&mut self, other: &Self) {
        add_fields! { self += other {
            came, served, gave_up, cut_off, overflowed, waiting, redials, measured_came,
            measured_served; merge delay
        } }
    }
}

impl Emergency {
    pub(super) fn merge(&mut self, other: &Self) {
        add_fields! { self += other { offered, set_up_in_time } }
    }
}

impl Caller {
    /// Counts a person whose first call is due.
    pub(super) fn record_person(&mut self, intended: Timestamp) {
        let is_measured = self.is_measured(intended);
        self.stats.persons.came += 1;
        self.stats.persons.measured_came += u64::from(is_measured);
    }

    /// Counts a person whose call was answered at `answered`. The call was due at `intended`.
    pub(super) fn record_served(
        &mut self,
        answered: Timestamp,
        intended: Timestamp,
        person: Person,
    ) {
        let is_measured = self.is_measured(person.first);
        let in_time = answered.since(intended) <= self.config.deadline;
        if person.is_emergency && in_time && self.is_measured(intended) {
            self.stats.emergency.set_up_in_time += 1;
        }
        self.stats.talking += 1;
        let persons = &mut self.stats.persons;
        persons.served += 1;
        persons.measured_served += u64::from(is_measured);
        persons.delay.record(answered.since(person.first));
    }
}
