//! A bounded table with an entry for each source.
//!
//! Source addresses can be forged, so the table is bounded and its hash is keyed. Sources for which
//! there is no room share one entry. [`sweep`](SourceTable::sweep) makes room by removing the
//! entries that its caller no longer needs.

use std::hash::BuildHasher;

use hashbrown::HashMap;
use siphasher::sip::SipHasher13;
use tidegate_world::Stream;

/// The index of a source's entry. It is valid until [`sweep`](SourceTable::sweep) removes the
/// entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

/// A table with an entry for each source, and one entry that is shared by all sources that do not
/// fit.
#[derive(Debug)]
pub(crate) struct SourceTable<T> {
    slots: HashMap<u128, Slot, Keyed>,
    /// The entries. All sources that do not fit into the table share the first one.
    entries: Vec<Entry<T>>,
    free: Vec<Slot>,
    count_max: usize,
    overflowed: u64,
}

#[derive(Debug)]
struct Entry<T> {
    /// The source, or `None` for a free entry and for the shared entry.
    source: Option<u128>,
    value: T,
}

impl<T: Default> SourceTable<T> {
    /// Creates a table for `count_max` sources. The key of its hash is drawn from `stream`.
    pub(crate) fn new(count_max: usize, stream: &mut Stream) -> Self {
        Self {
            slots: HashMap::with_hasher(Keyed { keys: [stream.next_u64(), stream.next_u64()] }),
            entries: vec![Entry { source: None, value: T::default() }],
            free: Vec::new(),
            count_max: count_max.min(u32::MAX as usize - 1),
            overflowed: 0,
        }
    }

    /// The slot that is shared by all sources that do not fit into the table.
    pub(crate) const SHARED: Slot = Slot(0);

    /// Returns the number of sources with their own entry.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns how often a source did not fit into the table.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Returns the slot of a source, or `None` if the source has no entry of its own.
    pub(crate) fn find(&self, source: u128) -> Option<Slot> {
        self.slots.get(&source).copied()
    }

    /// Returns the slot of a source. Adds an entry if the table is not full. Otherwise returns the
    /// shared slot.
    pub(crate) fn slot(&mut self, source: u128) -> Slot {
        if let Some(&slot) = self.slots.get(&source) {
            return slot;
        }
        if self.slots.len() >= self.count_max {
            return self.overflow();
        }
        let entry = Entry { source: Some(source), value: T::default() };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot.0 as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                Slot((self.entries.len() - 1) as u32)
            }
        };
        self.slots.insert(source, slot);
        slot
    }

    /// Returns the shared slot for a source that gets no entry, and counts this source as
    /// [overflowed](Self::overflowed).
    pub(crate) fn overflow(&mut self) -> Slot {
        self.overflowed += 1;
        Self::SHARED
    }

    pub(crate) fn get(&self, slot: Slot) -> &T {
        &self.entries[slot.0 as usize].value
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut T {
        &mut self.entries[slot.0 as usize].value
    }

    /// Returns all entries with their sources. The shared entry comes first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Option<u128>, &T)> {
        let shared = std::iter::once((None, &self.entries[0].value));
        let own = self.entries[1..].iter().filter(|entry| entry.source.is_some());
        shared.chain(own.map(|entry| (entry.source, &entry.value)))
    }

    /// Returns all entries with their sources, to change them. The shared entry comes first.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Option<u128>, &mut T)> {
        let entries = self.entries.iter_mut().enumerate();
        let used = entries.filter(|(index, entry)| *index == 0 || entry.source.is_some());
        used.map(|(_, entry)| (entry.source, &mut entry.value))
    }

    /// Calls `keep` for each entry, including the shared one. Removes the sources for which it
    /// returns false.
    pub(crate) fn sweep(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if index > 0 && entry.source.is_none() {
                continue;
            }
            if !keep(&mut entry.value)
                && let Some(source) = entry.source.take()
            {
                self.slots.remove(&source);
                self.free.push(Slot(index as u32));
            }
        }
    }
}

/// SipHash with a random key, so that peers cannot choose sources that collide.
#[derive(Clone, Copy, Debug)]
struct Keyed {
    keys: [u64; 2],
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.keys[0], self.keys[1])
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;

    fn table(count_max: usize) -> SourceTable<u32> {
        SourceTable::new(count_max, &mut Seed(1).stream(Purpose::Sources, 0))
    }

    #[test]
    fn each_source_has_an_entry_and_the_excess_shares_one() {
        let mut table = table(2);
        let slots = [7, 8, 9, 10, 7].map(|source| {
            let slot = table.slot(source);
            *table.get_mut(slot) += 1;
            slot
        });
        assert_eq!(slots.map(|slot| *table.get(slot)), [2, 1, 2, 2, 2]);
        assert_eq!((slots[0], slots[2], slots[3]), (slots[4], Slot(0), Slot(0)));
        assert_eq!((table.len(), table.overflowed()), (2, 2));
    }

    #[test]
    fn swept_entries_make_room() {
        let mut table = table(2);
        let kept = table.slot(7);
        *table.get_mut(kept) = 5;
        let gone = table.slot(8);
        *table.get_mut(gone) = 4;
        let mut seen = Vec::new();
        table.sweep(|value| {
            seen.push(*value);
            *value > 4
        });
        assert_eq!(seen, [0, 5, 4], "the shared one first");
        assert_eq!(table.len(), 1);
        let next = table.slot(9);
        assert_eq!((next, *table.get(next)), (gone, 0), "its place is used again, as new");
        assert_eq!((table.slot(7), *table.get(kept)), (kept, 5));
        assert_eq!(table.entries.len(), 3);
        let mut count = 0;
        table.sweep(|_| {
            count += 1;
            false
        });
        assert_eq!((count, table.len(), table.free.len()), (3, 0, 2));
        table.sweep(|_| {
            count += 1;
            false
        });
        assert_eq!((count, table.free.len()), (4, 2), "what is free is passed over");
    }
}
