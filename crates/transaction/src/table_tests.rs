//! Compares the table with a model: a map in which the test searches for each entry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_sip::Method;

use super::*;

const LENGTH_MAX: usize = 8;

fn key(number: u8) -> Key {
    // Each identity has two methods, so that different keys have the same hash.
    let method = [Method::Invite, Method::Cancel][usize::from(number % 2)];
    Key { identity: u64::from(number / 2), method }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

/// An action of the owner of the table. `which` is the index of a live entry in the order of the
/// keys, modulo the number of live entries.
#[derive(Clone, Debug)]
enum Step {
    Insert { key: u8, deadline_ms: Option<u64> },
    Reserve { key: u8, deadline_ms: Option<u64> },
    Arm { which: usize, deadline_ms: u64 },
    Remove { which: usize },
    Lend { which: usize },
    Restore { which: usize },
    Write { which: usize },
    Pass { ms: u64, rearm_ms: Vec<Option<u64>> },
}

fn step() -> impl Strategy<Value = Step> {
    let deadline = || prop::option::weighted(0.9, 0..200_u64);
    let which = || 0..LENGTH_MAX;
    prop_oneof![
        4 => (0..24_u8, deadline()).prop_map(|(key, deadline_ms)| Step::Insert { key, deadline_ms }),
        1 => (0..24_u8, deadline()).prop_map(|(key, deadline_ms)| Step::Reserve { key, deadline_ms }),
        4 => (which(), 0..200_u64)
            .prop_map(|(which, deadline_ms)| Step::Arm { which, deadline_ms }),
        3 => which().prop_map(|which| Step::Remove { which }),
        2 => which().prop_map(|which| Step::Lend { which }),
        2 => which().prop_map(|which| Step::Restore { which }),
        1 => which().prop_map(|which| Step::Write { which }),
        3 => (0..50_u64, prop::collection::vec(deadline(), LENGTH_MAX))
            .prop_map(|(ms, rearm_ms)| Step::Pass { ms, rearm_ms }),
    ]
}

struct Entry {
    handle: Handle,
    value: u32,
    is_lent: bool,
    armed: Timestamp,
}

struct Pair {
    table: Table<u32>,
    model: BTreeMap<u8, Entry>,
    /// All handles ever returned.
    given: BTreeSet<(u32, u16)>,
    now: Timestamp,
}

impl Pair {
    fn new() -> Self {
        let table = Table::new(LENGTH_MAX);
        Self { table, model: BTreeMap::new(), given: BTreeSet::new(), now: Timestamp::ZERO }
    }

    fn deadline(&self, ms: Option<u64>) -> Timestamp {
        ms.map_or(Timestamp::NEVER, |ms| self.now + Duration::from_millis(ms))
    }

    fn which(&self, which: usize) -> Option<u8> {
        self.model.keys().nth(which % self.model.len().max(1)).copied()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Insert { key, deadline_ms } => self.insert(key, deadline_ms, false),
            Step::Reserve { key, deadline_ms } => self.insert(key, deadline_ms, true),
            Step::Pass { ms, ref rearm_ms } => {
                self.now = self.now + Duration::from_millis(ms);
                self.fire(rearm_ms);
            }
            Step::Arm { which, .. }
            | Step::Remove { which }
            | Step::Lend { which }
            | Step::Restore { which }
            | Step::Write { which } => {
                if let Some(key) = self.which(which) {
                    self.touch(key, step);
                }
            }
        }
        self.compare();
    }

    fn insert(&mut self, number: u8, deadline_ms: Option<u64>, is_lent: bool) {
        if self.model.contains_key(&number) {
            return;
        }
        let armed = self.deadline(deadline_ms);
        let value = self.given.len() as u32;
        let handle = if is_lent {
            self.table.reserve(key(number), armed)
        } else {
            self.table.insert(key(number), value, armed)
        };
        assert_eq!(handle.is_err(), self.model.len() == LENGTH_MAX, "the bound is kept");
        let Ok(handle) = handle else { return };
        let is_new = self.given.insert((handle.slot, handle.generation));
        assert!(is_new, "a reused slot has another generation");
        self.model.insert(number, Entry { handle, value, is_lent, armed });
    }

    fn touch(&mut self, number: u8, step: &Step) {
        let now = self.now;
        let entry = self.model.get_mut(&number).expect("it was chosen from the model");
        let handle = entry.handle;
        match *step {
            Step::Arm { deadline_ms, .. } => {
                let deadline = now + Duration::from_millis(deadline_ms);
                self.table.arm(handle, deadline);
                entry.armed = entry.armed.min(deadline);
            }
            Step::Remove { .. } => {
                let value = (!entry.is_lent).then_some(entry.value);
                assert_eq!(self.table.remove(handle), value);
                self.model.remove(&number);
            }
            Step::Lend { .. } => {
                let value = (!entry.is_lent).then_some(entry.value);
                assert_eq!(self.table.lend(handle), value);
                entry.is_lent = true;
            }
            Step::Restore { .. } if entry.is_lent => {
                self.table.restore(handle, entry.value);
                entry.is_lent = false;
            }
            Step::Write { .. } if !entry.is_lent => {
                entry.value += 1_000;
                *self.table.get_mut(handle).expect("it lives") = entry.value;
            }
            _ => {}
        }
    }

    /// Checks that expired timers fire in order and once. Some entries are armed again.
    fn fire(&mut self, rearm_ms: &[Option<u64>]) {
        let now = self.now;
        let armed = self.model.values().map(|entry| entry.armed);
        let mut due: Vec<_> = armed.filter(|&armed| armed <= now).collect();
        due.sort_unstable();
        for armed in due {
            let fired = self.table.next_due(now).expect("it is due");
            let entry = self.model.values_mut().find(|entry| entry.handle == fired);
            let entry = entry.expect("it lives");
            assert_eq!(entry.armed, armed);
            entry.armed = Timestamp::NEVER;
        }
        assert_eq!(self.table.next_due(self.now), None, "nothing else is due");
        for (entry, ms) in self.model.values_mut().zip(rearm_ms) {
            if let (Timestamp::NEVER, Some(ms)) = (entry.armed, ms) {
                entry.armed = self.now + Duration::from_millis(1 + ms);
                self.table.arm(entry.handle, entry.armed);
            }
        }
    }

    fn compare(&mut self) {
        let Self { table, model, .. } = self;
        assert_eq!(table.len(), model.len());
        assert_eq!(table.is_empty(), model.is_empty());
        assert_eq!(table.is_full(), model.len() == LENGTH_MAX);
        for number in 0..24 {
            let handle = model.get(&number).map(|entry| entry.handle);
            assert_eq!(table.find(key(number)), handle);
        }
        for (&number, entry) in &*model {
            let value = (!entry.is_lent).then_some(entry.value);
            assert_eq!(table.get(entry.handle).copied(), value);
            assert_eq!(table.get_mut(entry.handle).copied(), value);
            assert_eq!(table.key(entry.handle), Some(key(number)));
        }
        // No handle of a removed entry and no invented handle finds an entry.
        let live: BTreeSet<_> =
            model.values().map(|entry| (entry.handle.slot, entry.handle.generation)).collect();
        let made_up =
            (0..10).flat_map(|slot| [0, 1, u16::MAX].map(|generation| (slot, generation)));
        let next = self.given.iter().map(|&(slot, generation)| (slot, generation + 1));
        let all: BTreeSet<_> = self.given.iter().copied().chain(next).chain(made_up).collect();
        for &(slot, generation) in all.difference(&live) {
            let handle = Handle { slot, generation };
            assert_eq!(table.get(handle), None);
            assert_eq!(table.get_mut(handle), None);
            assert_eq!(table.key(handle), None);
            assert_eq!(table.lend(handle), None);
            assert_eq!(table.remove(handle), None);
            table.arm(handle, Timestamp::ZERO);
        }
        let first = model.values().map(|entry| entry.armed).min().unwrap_or(Timestamp::NEVER);
        assert!(table.poll_timeout().unwrap_or(Timestamp::NEVER) <= first, "no timer is late");
        assert!(table.timers.len() <= 2 * table.len() + STALE_MIN);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn it_does_what_the_model_does(steps in prop::collection::vec(step(), 0..300)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.apply(step);
        }
    }
}

#[test]
fn timers_of_entries_that_have_gone_do_not_pile_up() {
    let mut table = Table::new(1_000);
    let stays = table.insert(key(0), 0, at(60_000)).expect("there is room");
    for round in 1..10_000 {
        let goes = table.insert(key(1), round, at(32_000)).expect("there is room");
        assert_eq!(table.remove(goes), Some(round));
        assert!(table.timers.len() <= 2 + STALE_MIN, "{}", table.timers.len());
    }
    assert_eq!(table.next_due(at(59_999)), None);
    assert_eq!(table.next_due(at(60_000)), Some(stays));
}

#[test]
fn timers_left_behind_are_dropped_when_a_search_is_worth_it() {
    let mut table = Table::new(1_000);
    let handles: Vec<_> =
        (0..101).map(|n| table.insert(key(n), (), at(32_000)).expect("there is room")).collect();
    let mut lengths = Vec::new();
    for &handle in &handles[..100] {
        table.remove(handle);
        lengths.push(table.timers.len());
    }
    // The 101 timers are more than 2·18 + 64 when 83 of the 101 entries have been removed.
    assert_eq!(lengths[..82], [101; 82]);
    assert_eq!(lengths[82..], [18; 18]);
    let mut insert_and_remove = || {
        let goes = table.insert(key(200), (), at(32_000)).expect("there is room");
        table.remove(goes);
        table.timers.len()
    };
    // One entry is live, so up to 2·1 + 64 timers are kept.
    let lengths: Vec<_> = (0..50).map(|_| insert_and_remove()).collect();
    assert_eq!(lengths[..48], *(19..=66).collect::<Vec<_>>());
    assert_eq!(lengths[48..], [1, 2]);
    assert_eq!(std::iter::from_fn(|| table.next_due(at(32_000))).count(), 1);
}

#[test]
fn timers_that_were_set_for_earlier_do_not_pile_up() {
    let mut table = Table::new(1_000);
    let handle = table.insert(key(0), (), at(200_000)).expect("there is room");
    for round in 0..10_000 {
        table.arm(handle, at(180_000 - round));
        assert!(table.timers.len() <= 2 + STALE_MIN, "{}", table.timers.len());
    }
    assert_eq!(table.poll_timeout(), Some(at(170_001)));
    assert_eq!(table.next_due(at(170_000)), None);
    assert_eq!(table.next_due(at(170_001)), Some(handle));
    assert_eq!(table.next_due(at(1_000_000)), None, "it fires once");
}

#[test]
fn an_entry_without_a_deadline_has_no_timer() {
    let mut table = Table::new(1_000);
    let handle = table.insert(key(0), (), Timestamp::NEVER).expect("there is room");
    assert_eq!(table.poll_timeout(), None);
    table.arm(handle, Timestamp::NEVER);
    assert_eq!(table.poll_timeout(), None);
    table.arm(handle, at(5));
    assert_eq!(table.poll_timeout(), Some(at(5)));
}

#[test]
fn timers_that_count_are_kept_when_others_are_dropped() {
    let mut table = Table::new(1_000);
    let mut rounds = 0;
    let handles: Vec<_> = (0..40)
        .map(|n| table.insert(key(n), (), at(1_000 + u64::from(n))).expect("there is room"))
        .collect();
    while rounds < 200 {
        let goes = table.insert(key(200), (), at(500)).expect("there is room");
        table.remove(goes);
        rounds += 1;
    }
    assert!(table.timers.len() < 40 + rounds, "some were dropped");
    let fired: Vec<_> = std::iter::from_fn(|| table.next_due(at(2_000))).collect();
    assert_eq!(fired, handles);
}

#[test]
#[should_panic(expected = "the entry has a value, or was removed")]
fn removed_entries_are_not_restored() {
    let mut table = Table::new(1);
    let handle = table.insert(key(0), (), Timestamp::NEVER).expect("there is room");
    table.lend(handle);
    table.remove(handle);
    table.restore(handle, ());
}

#[test]
fn a_table_of_no_length_holds_nothing() {
    let mut table = Table::new(0);
    assert!(table.is_full() && table.is_empty());
    assert_eq!(table.insert(key(0), (), Timestamp::ZERO), Err(Full));
    assert_eq!(table.next_due(Timestamp::NEVER), None);
}
