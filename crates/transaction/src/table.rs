//! What lives: a bounded table, found by key or without any search.

use hashbrown::HashTable;
use tidegate_world::Timestamp;

use crate::Key;
use crate::timers::Timers;

/// Names an entry as long as it lives; a later one in the same slot has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Where it stands.
    pub slot: u32,
    /// Which of those that stood there.
    pub generation: u16,
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Entries by key, each with one timer.
///
/// The holder keeps when an entry is due; the table is told with [`arm`](Self::arm), and may
/// call earlier than that. An entry's slot and generation can be written into a branch: what
/// comes back with it finds the entry by [`get`](Self::get) alone.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    timers: Timers,
    length_max: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// When its timer fires; of its entries in `timers` this one counts.
    armed: Timestamp,
    key: Key,
    generation: u16,
    value: Option<T>,
}

impl<T> Table<T> {
    /// A table of up to `length_max` entries.
    pub fn new(length_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            timers: Timers::default(),
            length_max: length_max.min(u32::MAX as usize),
        }
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// True if nothing is held.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// True if there is no room for another one.
    pub fn is_full(&self) -> bool {
        self.len() >= self.length_max
    }

    /// A new entry, whose timer is armed for `deadline`; none of the same key may be held.
    ///
    /// # Errors
    /// When there is no room; `value` is dropped then.
    pub fn insert(&mut self, key: Key, value: T, deadline: Timestamp) -> Result<Handle, Full> {
        let handle = self.reserve(key, deadline)?;
        self.restore(handle, value);
        Ok(handle)
    }

    /// As [`insert`](Self::insert) of a value that has yet to be made, for which it has to be
    /// known where it will stand: it is [restored](Self::restore) then.
    ///
    /// # Errors
    /// When there is no room.
    pub fn reserve(&mut self, key: Key, deadline: Timestamp) -> Result<Handle, Full> {
        if self.is_full() {
            return Err(Full);
        }
        debug_assert!(self.find(key).is_none(), "one entry a key");
        let slot = self.free.pop().unwrap_or_else(|| {
            let vacant = Slot { armed: Timestamp::NEVER, key, generation: 0, value: None };
            self.slots.push(vacant);
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        let handle = Handle { slot, generation: entry.generation };
        (entry.armed, entry.key) = (deadline, key);
        let slots = &self.slots;
        self.by_key.insert_unique(key.identity, slot, |&s| slots[s as usize].key.identity);
        self.timers.push(deadline, handle);
        Ok(handle)
    }

    /// The entry with this key.
    #[inline]
    pub fn find(&self, key: Key) -> Option<Handle> {
        let same = |&slot: &u32| self.slots[slot as usize].key == key;
        let &slot = self.by_key.find(key.identity, same)?;
        Some(Handle { slot, generation: self.slots[slot as usize].generation })
    }

    /// An entry, if it still lives.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.slot as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == handle.generation)
    }

    /// An entry, if it still lives.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == handle.generation)
    }

    /// Takes an entry's value to work on it; the entry stays, without a value, until that is
    /// [restored](Self::restore).
    pub fn lend(&mut self, handle: Handle) -> Option<T> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        if slot.generation == handle.generation { slot.value.take() } else { None }
    }

    /// Puts back what was lent.
    pub fn restore(&mut self, handle: Handle, value: T) {
        let slot = &mut self.slots[handle.slot as usize];
        debug_assert!(slot.generation == handle.generation && slot.value.is_none());
        slot.value = Some(value);
    }

    /// The key of an entry, if it still lives.
    pub fn key(&self, handle: Handle) -> Option<Key> {
        let slot = self.slots.get(handle.slot as usize)?;
        (slot.generation == handle.generation).then_some(slot.key)
    }

    /// Sees to it that the entry's timer fires at `deadline` or before.
    #[inline]
    pub fn arm(&mut self, handle: Handle, deadline: Timestamp) {
        if self.get(handle).is_none() {
            return;
        }
        let slot = &mut self.slots[handle.slot as usize];
        if deadline < slot.armed {
            slot.armed = deadline;
            self.timers.push(deadline, handle);
        }
    }

    /// When the next timer fires.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// An entry whose timer has fired by `now`: it must be armed again, or removed.
    pub fn next_due(&mut self, now: Timestamp) -> Option<Handle> {
        while let Some((at, handle)) = self.timers.pop(now) {
            let Some(slot) = self.slots.get_mut(handle.slot as usize) else { continue };
            // A timer that was set again for earlier leaves the later one behind.
            let is_current = slot.generation == handle.generation && slot.armed == at;
            if is_current && slot.value.is_some() {
                slot.armed = Timestamp::NEVER;
                return Some(handle);
            }
        }
        None
    }

    /// Takes an entry out, lent or not.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        self.key(handle)?;
        let slot = &mut self.slots[handle.slot as usize];
        let value = slot.value.take();
        slot.generation = slot.generation.wrapping_add(1);
        slot.armed = Timestamp::NEVER;
        let found = self.by_key.find_entry(slot.key.identity, |&s| s == handle.slot);
        if let Ok(found) = found {
            found.remove();
        }
        self.free.push(handle.slot);
        value
    }
}
