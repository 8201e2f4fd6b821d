//! A bounded memory of recent entries.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_world::Timestamp;

/// Minimum time for which an unused entry is kept. It is longer than Timer C (RFC 3261 §16.6 item
/// 11, more than three minutes) and all the timers that follow it.
const KEEP: Duration = Duration::from_secs(600);

/// Maximum number of entries in the young generation. When this number is reached, no new entry is
/// created. Both generations together have at most twice as many entries.
const LEN_MAX: usize = 1 << 20;

/// A bounded map that forgets entries that are not used. It has two generations, each of which
/// lasts for [`KEEP`]. An entry that is not used for a whole generation is dropped.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    young: BTreeMap<K, V>,
    old: BTreeMap<K, V>,
    turned: Timestamp,
    /// Maximum number of entries in `young`: [`LEN_MAX`], except in a test.
    len_max: usize,
    unwatched: u64,
}

impl<K: Ord + Copy, V> Recent<K, V> {
    /// Returns the value of a key, if it is still known.
    pub(super) fn get(&mut self, now: Timestamp, key: K) -> Option<&mut V> {
        self.turn(now);
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key)?;
            self.young.insert(key, value);
        }
        self.young.get_mut(&key)
    }

    /// Returns the value of a key. If the key is not known, creates a default value for it. Returns
    /// `None` if there is no room for a new entry.
    pub(super) fn entry(&mut self, now: Timestamp, key: K) -> Option<&mut V>
    where
        V: Default,
    {
        if self.get(now, key).is_none() {
            // Entries of the old generation move to the young one when they are used. So a limit on
            // the young generation alone would not bound the sum.
            let (young, old) = (self.young.len(), self.old.len());
            if young >= self.len_max || young + old >= 2 * self.len_max {
                self.unwatched += 1;
                return None;
            }
            self.young.insert(key, V::default());
        }
        self.young.get_mut(&key)
    }

    /// Forgets the entries with a key for which `is_gone` returns true.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&K) -> bool) {
        self.young.retain(|key, _| !is_gone(key));
        self.old.retain(|key, _| !is_gone(key));
    }

    /// Calls `change` for every entry.
    pub(super) fn change(&mut self, mut change: impl FnMut(&K, &mut V)) {
        for (key, value) in self.young.iter_mut().chain(&mut self.old) {
            change(key, value);
        }
    }

    /// Returns the number of entries that did not fit into the memory.
    pub(super) fn unwatched(&self) -> u64 {
        self.unwatched
    }

    /// Returns all entries, in an arbitrary but reproducible order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.young.iter().chain(&self.old)
    }

    fn turn(&mut self, now: Timestamp) {
        if now.since(self.turned) >= KEEP {
            self.turned = now;
            self.old = std::mem::take(&mut self.young);
        }
    }
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        let (young, old) = (BTreeMap::new(), BTreeMap::new());
        Self { young, old, turned: Timestamp::ZERO, len_max: LEN_MAX, unwatched: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_entries_expire_after_two_generations() {
        let at = |generations| Timestamp::ZERO + KEEP * generations;
        let mut recent: Recent<u64, char> = Recent::default();
        *recent.entry(at(0), 1).unwrap() = 'a';
        *recent.entry(at(0), 2).unwrap() = 'b';
        assert_eq!(recent.get(at(1), 1), Some(&mut 'a'));
        assert_eq!(recent.iter().count(), 2);
        assert_eq!(recent.get(at(2), 1), Some(&mut 'a'));
        assert_eq!(recent.get(at(2), 2), None);
    }

    #[test]
    fn overflow_is_counted() {
        let mut recent: Recent<usize, ()> = Recent::default();
        for key in 0..LEN_MAX {
            assert!(recent.entry(Timestamp::ZERO, key).is_some());
        }
        assert!(recent.entry(Timestamp::ZERO, LEN_MAX).is_none());
        assert!(recent.entry(Timestamp::ZERO, 7).is_some(), "what is known needs no room");
        assert_eq!(recent.unwatched(), 1);
    }

    #[test]
    fn entries_that_are_always_used_do_not_make_room_for_more() {
        let at = |generations| Timestamp::ZERO + KEEP * generations;
        let mut recent: Recent<u32, ()> = Recent { len_max: 4, ..Recent::default() };
        for generation in 0..5 {
            for key in 0..4 {
                recent.entry(at(generation), 10 * generation + key);
            }
            for key in 0..50 {
                recent.get(at(generation), key);
            }
        }
        assert_eq!((recent.iter().count(), recent.unwatched()), (8, 12));
    }
}
