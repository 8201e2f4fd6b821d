//! What lives: a bounded table, found by key or without any search.

use std::mem;

use hashbrown::HashTable;
use tidegate_sip::Method;
use tidegate_world::{Timers, Timestamp};

use crate::Key;

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

/// Timers left behind that are not worth a search.
const STALE_MIN: usize = 64;

/// Entries by key, each with one timer.
///
/// The holder keeps when an entry is due; the table is told with [`arm`](Self::arm), and may
/// call earlier than that. A [`Handle`] finds its entry by [`get`](Self::get) without a search.
///
/// A timer is left behind when its entry goes, or is armed for earlier. As soon as the timers are
/// more than twice as many as the entries, and 64 more, those left behind are dropped: memory is
/// bounded by what lives, and the work by what left them behind.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    timers: Timers<Handle>,
    length_max: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// When its timer fires; of its entries in `timers` this one counts.
    armed: Timestamp,
    key: Key,
    generation: u16,
    content: Content<T>,
}

#[derive(Debug)]
enum Content<T> {
    Vacant,
    /// Its holder works on the value.
    Lent,
    Held(T),
}

impl<T> Slot<T> {
    fn is_live(&self, generation: u16) -> bool {
        self.generation == generation && !matches!(self.content, Content::Vacant)
    }
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
            let vacant =
                Slot { armed: Timestamp::NEVER, key, generation: 0, content: Content::Vacant };
            self.slots.push(vacant);
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        let handle = Handle { slot, generation: entry.generation };
        (entry.armed, entry.key, entry.content) = (deadline, key, Content::Lent);
        let slots = &self.slots;
        self.by_key.insert_unique(key.identity, slot, |&s| slots[s as usize].key.identity);
        if deadline < Timestamp::NEVER {
            self.timers.push(deadline, handle);
        }
        Ok(handle)
    }

    /// The entry with this key.
    #[inline]
    pub fn find(&self, key: Key) -> Option<Handle> {
        self.find_where(key.identity, |method| method == key.method)
    }

    /// An entry of this identity whose method will do.
    #[inline]
    pub fn find_where(&self, identity: u64, will_do: impl Fn(Method) -> bool) -> Option<Handle> {
        let same = |&slot: &u32| {
            let key = self.slots[slot as usize].key;
            key.identity == identity && will_do(key.method)
        };
        let &slot = self.by_key.find(identity, same)?;
        Some(Handle { slot, generation: self.slots[slot as usize].generation })
    }

    /// An entry, if it still lives.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        match self.slot(handle)?.content {
            Content::Held(ref value) => Some(value),
            Content::Lent | Content::Vacant => None,
        }
    }

    /// An entry, if it still lives.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        match self.slot_mut(handle)?.content {
            Content::Held(ref mut value) => Some(value),
            Content::Lent | Content::Vacant => None,
        }
    }

    /// Takes an entry's value to work on it; the entry stays, without a value, until that is
    /// [restored](Self::restore). It can be armed and removed meanwhile.
    pub fn lend(&mut self, handle: Handle) -> Option<T> {
        let slot = self.slot_mut(handle)?;
        match mem::replace(&mut slot.content, Content::Lent) {
            Content::Held(value) => Some(value),
            Content::Lent | Content::Vacant => None,
        }
    }

    /// Puts back what was lent.
    ///
    /// # Panics
    /// When the entry was not lent, or was removed meanwhile.
    pub fn restore(&mut self, handle: Handle, value: T) {
        let slot = self.slot_mut(handle).filter(|slot| matches!(slot.content, Content::Lent));
        slot.expect("only what was lent is put back").content = Content::Held(value);
    }

    /// Every value that is held and not lent, in no order that means anything.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| match &slot.content {
            Content::Held(value) => Some(value),
            Content::Lent | Content::Vacant => None,
        })
    }

    /// The key of an entry, if it still lives.
    pub fn key(&self, handle: Handle) -> Option<Key> {
        self.slot(handle).map(|slot| slot.key)
    }

    /// Sees to it that the entry's timer fires at `deadline` or before.
    #[inline]
    pub fn arm(&mut self, handle: Handle, deadline: Timestamp) {
        let Some(slot) = self.slot_mut(handle) else { return };
        if deadline < slot.armed {
            slot.armed = deadline;
            self.timers.push(deadline, handle);
            self.drop_stale();
        }
    }

    /// No timer fires before this.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// An entry whose timer has fired by `now`: it must be armed again, or removed.
    pub fn next_due(&mut self, now: Timestamp) -> Option<Handle> {
        while let Some((at, handle)) = self.timers.pop(now) {
            if let Some(slot) = self.slot_mut(handle).filter(|slot| slot.armed == at) {
                slot.armed = Timestamp::NEVER;
                return Some(handle);
            }
        }
        None
    }

    /// Takes an entry out, and gives its value unless that is lent.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let slot = self.slot_mut(handle)?;
        let content = mem::replace(&mut slot.content, Content::Vacant);
        slot.generation = slot.generation.wrapping_add(1);
        slot.armed = Timestamp::NEVER;
        let identity = slot.key.identity;
        if let Ok(found) = self.by_key.find_entry(identity, |&s| s == handle.slot) {
            found.remove();
        }
        self.free.push(handle.slot);
        self.drop_stale();
        match content {
            Content::Held(value) => Some(value),
            Content::Lent | Content::Vacant => None,
        }
    }

    #[inline]
    fn slot(&self, handle: Handle) -> Option<&Slot<T>> {
        self.slots.get(handle.slot as usize).filter(|slot| slot.is_live(handle.generation))
    }

    #[inline]
    fn slot_mut(&mut self, handle: Handle) -> Option<&mut Slot<T>> {
        self.slots.get_mut(handle.slot as usize).filter(|slot| slot.is_live(handle.generation))
    }

    fn drop_stale(&mut self) {
        if self.timers.len() > 2 * self.len() + STALE_MIN {
            let slots = &self.slots;
            self.timers.retain(|at, handle| {
                let slot = &slots[handle.slot as usize];
                slot.is_live(handle.generation) && slot.armed == at
            });
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
