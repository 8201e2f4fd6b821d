//! A table of calls, each with one alarm. Registrations and devices have such tables too, and count
//! as calls in this module.
//!
//! A call is in a slot and has a serial number. Both together find the call without a search. They
//! find nothing after the call was removed.
//!
//! The alarm of a call is the time at which its owner must handle it. Each alarm has one current
//! timer. Moving an alarm to a later time costs nothing: the timer stays, and is set again when it
//! fires too early. Moving an alarm to an earlier time leaves a stale timer. If stale timers
//! outnumber calls by more than [`STALE_MIN`], some are dropped whenever a timer is set.

use slab::Slab;
use tidegate_world::{Timers, Timestamp};

/// Number by which stale timers must exceed calls before the table drops some of them.
const STALE_MIN: usize = 64;

/// The identity of a call: its slot and its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub slot: u32,
    pub serial: u32,
}

struct Entry<T> {
    value: T,
    serial: u32,
    /// Time of the call's alarm.
    due: Timestamp,
    /// Time of the call's current timer. Any other timer of the call is stale.
    armed: Timestamp,
}

/// A set of at most `len_max` calls, each with one alarm.
pub(crate) struct Table<T> {
    entries: Slab<Entry<T>>,
    alarms: Timers<Id>,
    serial: u32,
    len_max: usize,
}

impl<T> Table<T> {
    /// Creates a table of at most `len_max` calls.
    pub fn new(len_max: usize) -> Self {
        let len_max = len_max.min(u32::MAX as usize);
        Self { entries: Slab::new(), alarms: Timers::new(), serial: 0, len_max }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.len_max
    }

    /// Adds a call whose alarm is at `due`.
    ///
    /// # Panics
    /// Panics if the table is full. Check [`is_full`](Self::is_full) first.
    pub fn insert(&mut self, due: Timestamp, value: T) -> Id {
        assert!(!self.is_full(), "the table is full; ask `is_full` first");
        let id = Id { slot: self.entries.vacant_key() as u32, serial: self.serial };
        self.serial = self.serial.wrapping_add(1);
        self.entries.insert(Entry { value, serial: id.serial, due, armed: Timestamp::NEVER });
        self.wake_at(id, due);
        id
    }

    pub fn get(&mut self, id: Id) -> Option<&mut T> {
        self.entry(id).map(|e| &mut e.value)
    }

    pub fn remove(&mut self, id: Id) -> Option<T> {
        self.entry(id)?;
        Some(self.entries.remove(id.slot as usize).value)
    }

    /// Sets the alarm of a call. [`Timestamp::NEVER`] means no alarm.
    pub(crate) fn wake_at(&mut self, id: Id, due: Timestamp) {
        let Some(entry) = self.entry(id) else { return };
        entry.due = due;
        if due < entry.armed {
            entry.armed = due;
            self.alarms.push(due, id);
            self.sweep();
        }
    }

    /// Returns the next call whose alarm is due, if there is one. The call then has no alarm until
    /// a new one is set.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<Id> {
        while let Some((at, id)) = self.alarms.pop(now) {
            let Some(entry) = self.entry(id).filter(|entry| entry.armed == at) else { continue };
            let due = std::mem::replace(&mut entry.due, Timestamp::NEVER);
            entry.armed = Timestamp::NEVER;
            if due == at {
                return Some(id);
            }
            self.wake_at(id, due);
        }
        None
    }

    /// Returns a time before which no alarm is due, or `None` if no alarm is set. The time may be
    /// that of a stale timer.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.alarms.next()
    }

    /// Drops some stale timers if there are more of them than calls, by more than [`STALE_MIN`].
    fn sweep(&mut self) {
        if self.alarms.len() <= 2 * self.entries.len() + STALE_MIN {
            return;
        }
        let entries = &self.entries;
        self.alarms.sweep(|at, id| {
            let entry = entries.get(id.slot as usize);
            entry.is_some_and(|e| e.serial == id.serial && e.armed == at)
        });
    }

    fn entry(&mut self, id: Id) -> Option<&mut Entry<T>> {
        self.entries.get_mut(id.slot as usize).filter(|e| e.serial == id.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ns: u64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    #[test]
    fn a_call_that_is_over_is_not_found_in_its_slot() {
        let mut table = Table::new(8);
        let first = table.insert(at(1), 'a');
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert(at(2), 'b');
        assert_eq!(first.slot, second.slot);
        assert_eq!(table.get(first), None);
        assert_eq!(table.get(second), Some(&mut 'b'));
    }

    #[test]
    fn an_alarm_moved_later_and_earlier_again_fires_once() {
        let mut table = Table::new(8);
        let id = table.insert(at(10), ());
        table.wake_at(id, at(30));
        table.wake_at(id, at(20));
        assert_eq!(table.pop_due(at(19)), None);
        assert!(table.next_due().is_some_and(|next| next <= at(20)));
        assert_eq!(table.pop_due(at(20)), Some(id));
        assert_eq!(table.pop_due(at(100)), None);
        assert_eq!(table.next_due(), None);
    }

    #[test]
    fn alarms_moved_earlier_leave_no_timers_behind() {
        let mut table = Table::new(2);
        let id = table.insert(at(u64::MAX - 1), ());
        for ns in (1..10_000).rev() {
            table.wake_at(id, at(ns));
            assert!(table.alarms.len() <= 2 + STALE_MIN);
        }
        assert_eq!(table.pop_due(at(1)), Some(id));
    }

    proptest! {
        /// Compares the table with a list that the test searches for each entry.
        #[test]
        fn alarms_fire_as_in_a_naive_list(steps in prop::collection::vec((0u8..4, 0usize..6, 1u64..50), 1..200)) {
            let mut table = Table::new(6);
            let mut model: Vec<(Id, u64)> = Vec::new();
            let mut now = 0;
            for (what, which, delay) in steps {
                match what {
                    0 if !table.is_full() => {
                        let id = table.insert(at(now + delay), ());
                        model.push((id, now + delay));
                    }
                    1 if which < model.len() => {
                        model[which].1 = now + delay;
                        table.wake_at(model[which].0, at(now + delay));
                    }
                    2 if which < model.len() => {
                        let (id, _) = model.remove(which);
                        prop_assert!(table.remove(id).is_some());
                    }
                    3 => {
                        now += delay;
                        while let Some(id) = table.pop_due(at(now)) {
                            let least = model.iter().map(|m| m.1).min().unwrap();
                            let fired = model.iter_mut().find(|m| m.0 == id).unwrap();
                            prop_assert_eq!(fired.1, least);
                            prop_assert!(least <= now);
                            fired.1 = u64::MAX;
                        }
                    }
                    _ => {}
                }
                let due = model.iter().map(|m| m.1).min().filter(|&ns| ns != u64::MAX);
                let is_early = |due| table.next_due().is_some_and(|next| next <= at(due));
                prop_assert!(due.is_none_or(is_early));
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }
}
