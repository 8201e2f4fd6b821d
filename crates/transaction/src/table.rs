//! What lives: a bounded table, found by key or without any search.

use tidegate_sip::Method;
use tidegate_world::{Hashed, SlotRef, SlotTable, Timers, Timestamp};

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
/// A timer is left behind when its entry goes, or is armed for earlier. While the timers are
/// more than twice as many as the entries, and 64 more, each change drops some of those left behind:
/// memory is bounded by the entries that live, and no change takes long.
#[derive(Debug)]
pub struct Table<T> {
    entries: SlotTable<Entry<T>>,
    timers: Timers<Handle>,
    length_max: usize,
}

#[derive(Debug)]
struct Entry<T> {
    /// When its timer fires; of its entries in `timers` this one counts.
    armed: Timestamp,
    key: Key,
    /// `None` while its holder works on it.
    value: Option<T>,
}

impl<T> Hashed for Entry<T> {
    #[inline]
    fn hash(&self) -> u64 {
        self.key.identity
    }
}

impl From<Handle> for SlotRef {
    fn from(Handle { slot, generation }: Handle) -> Self {
        Self { slot, generation }
    }
}

impl From<SlotRef> for Handle {
    fn from(SlotRef { slot, generation }: SlotRef) -> Self {
        Self { slot, generation }
    }
}

impl<T> Table<T> {
    /// A table of up to `length_max` entries.
    pub fn new(length_max: usize) -> Self {
        Self {
            entries: SlotTable::new(),
            timers: Timers::default(),
            length_max: length_max.min(u32::MAX as usize),
        }
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
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
        let entry = Entry { armed: deadline, key, value: None };
        let handle = self.entries.insert(entry).into();
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
        self.entries.find(identity, |entry| will_do(entry.key.method)).map(Handle::from)
    }

    /// An entry, if it still lives.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        self.entries.get(handle.into())?.value.as_ref()
    }

    /// An entry, if it still lives.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.entries.get_mut(handle.into())?.value.as_mut()
    }

    /// Takes an entry's value to work on it; the entry stays, without a value, until that is
    /// [restored](Self::restore). It can be armed and removed meanwhile.
    pub fn lend(&mut self, handle: Handle) -> Option<T> {
        self.entries.get_mut(handle.into())?.value.take()
    }

    /// Puts back what was lent.
    ///
    /// # Panics
    /// When the entry was not lent, or was removed meanwhile.
    pub fn restore(&mut self, handle: Handle, value: T) {
        let entry = self.entries.get_mut(handle.into()).filter(|entry| entry.value.is_none());
        entry.expect("only what was lent is put back").value = Some(value);
    }

    /// Every value that is held and not lent, in no order that means anything.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.values().filter_map(|entry| entry.value.as_ref())
    }

    /// The key of an entry, if it still lives.
    pub fn key(&self, handle: Handle) -> Option<Key> {
        self.entries.get(handle.into()).map(|entry| entry.key)
    }

    /// Sees to it that the entry's timer fires at `deadline` or before.
    #[inline]
    pub fn arm(&mut self, handle: Handle, deadline: Timestamp) {
        let Some(entry) = self.entries.get_mut(handle.into()) else { return };
        if deadline < entry.armed {
            entry.armed = deadline;
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
            let entry = self.entries.get_mut(handle.into()).filter(|entry| entry.armed == at);
            if let Some(entry) = entry {
                entry.armed = Timestamp::NEVER;
                return Some(handle);
            }
        }
        None
    }

    /// Takes an entry out, and gives its value unless that is lent.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let entry = self.entries.remove(handle.into())?;
        self.drop_stale();
        entry.value
    }

    fn drop_stale(&mut self) {
        if self.timers.len() > 2 * self.len() + STALE_MIN {
            let entries = &self.entries;
            self.timers.sweep(|at, handle| {
                entries.get(handle.into()).is_some_and(|entry| entry.armed == at)
            });
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
