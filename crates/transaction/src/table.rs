//! The bounded table of live transactions, with access by key or by handle.

use tidegate_sip::Method;
use tidegate_world::{Hashed, SlotRef, SlotTable, Timers, Timestamp};

use crate::Key;

/// A reference to an entry of a [`Table`], valid until the entry is removed. A later entry in the
/// same slot has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The number of the slot of the entry.
    pub slot: u32,
    /// Number of entries that were removed from the slot before this entry was inserted, modulo
    /// 2^16.
    pub generation: u16,
}

/// The error that a [`Table`] has no room for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Number of timers, beyond twice the number of entries, up to which the table keeps stale timers.
/// With fewer timers, a search for stale ones would find too few of them.
const STALE_MIN: usize = 64;

/// A table of entries, found by their [`Key`], each with one timer.
///
/// The owner passes the deadline of an entry to the table with [`arm`](Self::arm), which never
/// moves the timer to a later time. So a timer may fire earlier than the deadline. A [`Handle`]
/// finds its entry by [`get`](Self::get) without a search.
///
/// A timer becomes stale when its entry is removed or armed for an earlier time. While there are
/// more timers than twice the number of entries plus 64, each removal and each earlier deadline
/// drops some stale timers. So the number of live entries bounds the memory, and no operation takes
/// long.
#[derive(Debug)]
pub struct Table<T> {
    entries: SlotTable<Entry<T>>,
    timers: Timers<Handle>,
    length_max: usize,
}

#[derive(Debug)]
struct Entry<T> {
    /// The time of the entry's current timer. All other timers of the entry in `timers` are stale.
    armed: Timestamp,
    key: Key,
    /// The value of the entry, or `None` while it is [lent](Table::lend) to the owner of the table
    /// or has not been set yet.
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
    /// Creates a table of up to `length_max` entries.
    pub fn new(length_max: usize) -> Self {
        Self {
            entries: SlotTable::new(),
            timers: Timers::default(),
            length_max: length_max.min(u32::MAX as usize),
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether the table has the maximum number of entries.
    pub fn is_full(&self) -> bool {
        self.len() >= self.length_max
    }

    /// Inserts an entry whose timer is armed for `deadline`. The table must not contain its key.
    ///
    /// # Errors
    /// Returns an error if the table is full. `value` is then dropped.
    pub fn insert(&mut self, key: Key, value: T, deadline: Timestamp) -> Result<Handle, Full> {
        let handle = self.reserve(key, deadline)?;
        self.restore(handle, value);
        Ok(handle)
    }

    /// Inserts an entry without a value, for an owner that needs the handle of the entry to make
    /// the value. The owner then sets the value with [`restore`](Self::restore).
    ///
    /// # Errors
    /// Returns an error if the table is full.
    pub fn reserve(&mut self, key: Key, deadline: Timestamp) -> Result<Handle, Full> {
        if self.is_full() {
            return Err(Full);
        }
        debug_assert!(self.find(key).is_none(), "the table has an entry with this key");
        let entry = Entry { armed: deadline, key, value: None };
        let handle = self.entries.insert(entry).into();
        if deadline < Timestamp::NEVER {
            self.timers.push(deadline, handle);
        }
        Ok(handle)
    }

    /// Returns the handle of the entry with this key, or `None` if there is none.
    #[inline]
    pub fn find(&self, key: Key) -> Option<Handle> {
        self.find_where(key.identity, |method| method == key.method)
    }

    /// Returns the handle of an entry with this identity whose method `will_do` accepts, or `None`
    /// if there is none.
    #[inline]
    pub fn find_where(&self, identity: u64, will_do: impl Fn(Method) -> bool) -> Option<Handle> {
        self.entries.find(identity, |entry| will_do(entry.key.method)).map(Handle::from)
    }

    /// Returns an entry's value, or `None` if the entry was removed or its value is lent.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        self.entries.get(handle.into())?.value.as_ref()
    }

    /// Returns an entry's value, or `None` if the entry was removed or its value is lent.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.entries.get_mut(handle.into())?.value.as_mut()
    }

    /// Takes an entry's value to work on it, or returns `None` if the entry was removed or has no
    /// value. The entry has no value until one is [restored](Self::restore). Meanwhile, the entry
    /// can be armed and removed.
    pub fn lend(&mut self, handle: Handle) -> Option<T> {
        self.entries.get_mut(handle.into())?.value.take()
    }

    /// Puts back a lent value, or sets the value of a [reserved](Self::reserve) entry.
    ///
    /// # Panics
    /// Panics if the entry has a value, or if it was removed.
    pub fn restore(&mut self, handle: Handle, value: T) {
        let entry = self.entries.get_mut(handle.into()).filter(|entry| entry.value.is_none());
        entry.expect("the entry has a value, or was removed").value = Some(value);
    }

    /// Iterates over all values that are not lent, in arbitrary order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.values().filter_map(|entry| entry.value.as_ref())
    }

    /// Returns the key of an entry, or `None` if the entry was removed.
    pub fn key(&self, handle: Handle) -> Option<Key> {
        self.entries.get(handle.into()).map(|entry| entry.key)
    }

    /// Ensures that the entry's timer fires at `deadline` or before.
    #[inline]
    pub fn arm(&mut self, handle: Handle, deadline: Timestamp) {
        let Some(entry) = self.entries.get_mut(handle.into()) else { return };
        if deadline < entry.armed {
            entry.armed = deadline;
            self.timers.push(deadline, handle);
            self.drop_stale();
        }
    }

    /// Returns a time before which no timer fires, or `None` if there is no timer.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Returns the handle of an entry whose timer has expired by `now`, if there is one. The caller
    /// must arm the timer again or remove the entry.
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

    /// Removes an entry, and returns its value unless the value is lent.
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
