//! Incoming calls and the indices to find them.

use hashbrown::HashTable;
use tidegate_world::Timestamp;

use crate::answerer::call::Call;
use crate::table::{Id, Table};

/// The calls of an answerer, found by [`Id`] or by the transaction of their INVITE.
pub(crate) struct Calls {
    table: Table<Call>,
    /// The call of each INVITE transaction. The key is a fingerprint of the transaction: a keyed
    /// hash of 128 bits, so that different transactions have different keys. The map uses a part of
    /// the key as its own hash.
    transactions: HashTable<(u128, Id)>,
    open: usize,
}

impl Calls {
    /// Creates a table of at most `len_max` calls.
    pub fn new(len_max: usize) -> Self {
        Self { table: Table::new(len_max), transactions: HashTable::new(), open: 0 }
    }

    /// Returns the number of calls, including ended calls that are still in the table.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_full(&self) -> bool {
        self.table.is_full()
    }

    /// Returns the number of calls that have not ended.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Adds a new call.
    ///
    /// # Panics
    /// Panics if the table is full.
    pub fn insert(&mut self, call: Call) -> Id {
        let key = call.key;
        let id = self.table.insert(call.due(), call);
        self.transactions.insert_unique(hash(key), (key, id), |&(key, _)| hash(key));
        self.open += 1;
        id
    }

    /// Returns the call whose INVITE has this fingerprint, or `None` if there is none.
    pub fn find(&self, key: u128) -> Option<Id> {
        self.transactions.find(hash(key), |entry| entry.0 == key).map(|entry| entry.1)
    }

    pub fn get(&mut self, id: Id) -> Option<&mut Call> {
        self.table.get(id)
    }

    /// Changes a call with `change`, and then sets the call's alarm to its new due time. Returns
    /// the result of `change`, or `None` if the call is not in the table.
    pub fn change<R>(&mut self, id: Id, change: impl FnOnce(&mut Call) -> R) -> Option<R> {
        let call = self.table.get(id)?;
        let was_over = call.is_over();
        let result = change(call);
        let due = call.due();
        if call.is_over() && !was_over {
            self.open -= 1;
        }
        self.table.wake_at(id, due);
        Some(result)
    }

    pub fn remove(&mut self, id: Id) {
        let Some(call) = self.table.remove(id) else { return };
        if !call.is_over() {
            self.open -= 1;
        }
        let entry = self.transactions.find_entry(hash(call.key), |entry| entry.1 == id);
        entry.expect("every call is in the map").remove();
    }

    /// Returns the next call whose alarm is due, if there is one. The call has no alarm until
    /// [`change`](Self::change) sets one.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<Id> {
        self.table.pop_due(now)
    }

    /// Returns a time before which no alarm is due, or `None` if no call has an alarm.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.table.next_due()
    }
}

fn hash(key: u128) -> u64 {
    key as u64
}
