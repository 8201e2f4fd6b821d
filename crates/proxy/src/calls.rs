//! The call table: where each call's requests go, and what it weighs there.
//!
//! A call is found by the fingerprint of its Call-ID. It keeps the choice of its back
//! end for at least 64·T1 after the last message, so that retransmissions, CANCEL and
//! ACK follow it; and the leases that count it, each bound to one transaction, so that
//! no repetition counts twice and no ending counts nothing.

mod call;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use dary_heap::OctonaryHeap;
use hashbrown::HashTable;
use tidegate_balance::Picker;
use tidegate_world::Timestamp;

use call::TRANSACTION_MAX;
pub(crate) use call::{Call, Member, Phase, Transaction};

/// Entries handled by one `handle_timeout`, so that many that end together do not
/// hold up the packets that wait.
const EXPIRE_MAX: usize = 256;

/// Names an entry as long as it lives; a later entry in the same slot has another
/// generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallRef {
    pub(crate) slot: u32,
    pub(crate) generation: u16,
}

impl CallRef {
    /// Names no entry: for requests that belong to no call.
    pub(crate) const NONE: Self = Self { slot: u32::MAX, generation: 0 };
}

struct Slot {
    generation: u16,
    call: Option<Call>,
}

/// Why there is no room for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A shard's calls.
pub(crate) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_fingerprint: HashTable<u32>,
    /// Eight children to a node: among many calls each level costs a miss of the cache.
    timers: OctonaryHeap<Reverse<(Timestamp, u32, u16)>>,
    /// Entries that were over when they were put here, the oldest first: those to be
    /// given up when there is no room.
    over: VecDeque<CallRef>,
    calls_max: usize,
    idle_max: Duration,
    open: usize,
    unacknowledged: usize,
    evicted: u64,
}

impl Calls {
    /// A table of at most `calls_max` entries, which forgets an established call
    /// after `idle_max` without any message.
    pub(crate) fn new(calls_max: usize, idle_max: Duration) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_fingerprint: HashTable::new(),
            timers: OctonaryHeap::new(),
            over: VecDeque::new(),
            // u32::MAX is CallRef::NONE.
            calls_max: calls_max.min(u32::MAX as usize - 1),
            idle_max,
            open: 0,
            unacknowledged: 0,
            evicted: 0,
        }
    }

    /// Entries held.
    pub(crate) fn len(&self) -> usize {
        self.by_fingerprint.len()
    }

    /// Transactions that wait for their final response.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Calls that are answered and not acknowledged: they are not set up yet. RFC 3261
    /// §13.3.1.4: the callee repeats its 2xx until the ACK comes, and after 64·T1 ends
    /// the call.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    /// Finished entries that were given up early to make room.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The back end of each entry.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        self.slots.iter().filter_map(|slot| slot.call.as_ref().map(|call| call.member))
    }

    /// The call with that fingerprint.
    pub(crate) fn find(&self, fingerprint: u128) -> Option<CallRef> {
        let same = |&slot: &u32| {
            self.slots[slot as usize].call.as_ref().is_some_and(|c| c.fingerprint == fingerprint)
        };
        let &slot = self.by_fingerprint.find(fingerprint as u64, same)?;
        Some(CallRef { slot, generation: self.slots[slot as usize].generation })
    }

    /// The entry, if it still lives.
    pub(crate) fn get(&self, call: CallRef) -> Option<&Call> {
        let slot = self.slots.get(call.slot as usize)?;
        slot.call.as_ref().filter(|_| slot.generation == call.generation)
    }

    /// A new entry for a call that goes to `member`; `fingerprint` must not be held.
    ///
    /// # Errors
    /// When the table is full of calls that are not over.
    pub(crate) fn insert(
        &mut self,
        now: Timestamp,
        fingerprint: u128,
        member: Member,
    ) -> Result<CallRef, Full> {
        debug_assert!(self.find(fingerprint).is_none(), "one entry for each Call-ID");
        if self.len() >= self.calls_max && !self.evict() {
            return Err(Full);
        }
        let call = Call::new(now, fingerprint, member);
        let deadline = call.deadline;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, call: None });
            self.slots.len() as u32 - 1
        });
        let generation = self.slots[slot as usize].generation;
        self.slots[slot as usize].call = Some(call);
        self.by_fingerprint.insert_unique(fingerprint as u64, slot, |&slot| {
            self.slots[slot as usize].call.as_ref().map_or(0, |c| c.fingerprint as u64)
        });
        self.timers.push(Reverse((deadline, slot, generation)));
        Ok(CallRef { slot, generation })
    }

    /// Sends the call elsewhere: nothing has come from its back end, and that back
    /// end is down. What it counted there is given back. `false` if it stays: one that is
    /// established is not what another request with its Call-ID is about.
    pub(crate) fn move_to(&mut self, call: CallRef, member: Member) -> bool {
        self.change(call, |entry| entry.move_to(member)).unwrap_or(false)
    }

    /// Whether a new call would find room.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.calls_max || !self.over.is_empty()
    }

    /// True if this transaction was seen before: still open, or over.
    pub(crate) fn is_repeated(&self, call: CallRef, identity: u64) -> bool {
        self.get(call).is_some_and(|entry| entry.is_repeated(identity))
    }

    /// A request goes to `member`, which `picker` is for.
    pub(crate) fn on_request(
        &mut self,
        now: Timestamp,
        call: CallRef,
        transaction: Transaction,
        member: Member,
        picker: &Picker,
    ) {
        let idle_max = self.idle_max;
        self.change(call, |entry| {
            // A token may lead elsewhere than the entry: such a request is no part of it.
            if entry.member == member {
                entry.on_request(now, transaction, picker, idle_max);
            }
        });
    }

    /// A request comes from the call's back end: it does not weigh there, but it
    /// keeps the call alive, and a BYE ends it.
    pub(crate) fn on_request_from_backend(
        &mut self,
        now: Timestamp,
        call: CallRef,
        transaction: Transaction,
    ) {
        let idle_max = self.idle_max;
        self.change(call, |entry| entry.on_request_from_backend(now, transaction, idle_max));
    }

    /// A response to `transaction` passed, from the back end or to it.
    pub(crate) fn on_response(
        &mut self,
        now: Timestamp,
        call: CallRef,
        transaction: Transaction,
        status: u16,
        from_backend: bool,
    ) {
        let idle_max = self.idle_max;
        let is_over = self.change(call, |entry| {
            let closed = entry.on_response(now, transaction, status, from_backend, idle_max);
            closed && entry.is_over()
        });
        if is_over == Some(true) {
            // One that began anew or is gone by then is passed over when it comes up.
            if self.over.len() >= self.calls_max {
                self.over.pop_front();
            }
            self.over.push_back(call);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is next due.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.peek().map(|Reverse((at, ..))| *at)
    }

    /// Forgets what is past its deadline.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        for _ in 0..EXPIRE_MAX {
            match self.timers.peek() {
                Some(Reverse((at, ..))) if *at <= now => {}
                _ => return,
            }
            let Some(Reverse((_, slot, generation))) = self.timers.pop() else { return };
            let reference = CallRef { slot, generation };
            let deadline = self.change(reference, |call| {
                call.expire(now);
                call.deadline
            });
            let Some(deadline) = deadline else { continue };
            if deadline <= now {
                self.remove(reference);
                continue;
            }
            // Never armed further than a finished call stays: so a deadline that
            // comes nearer needs no second timer.
            let at = deadline.min(now + TRANSACTION_MAX);
            self.timers.push(Reverse((at, slot, generation)));
        }
    }

    /// Changes an entry, if it still lives, and counts anew what it has open.
    fn change<R>(&mut self, call: CallRef, change: impl FnOnce(&mut Call) -> R) -> Option<R> {
        let slot = self.slots.get_mut(call.slot as usize)?;
        let entry = slot.call.as_mut().filter(|_| slot.generation == call.generation)?;
        let held = |entry: &Call| (entry.open(), usize::from(entry.is_unacknowledged()));
        let before = held(entry);
        let result = change(entry);
        let after = held(entry);
        self.open = self.open - before.0 + after.0;
        self.unacknowledged = self.unacknowledged - before.1 + after.1;
        Some(result)
    }

    fn remove(&mut self, call: CallRef) {
        let Some(slot) = self.slots.get_mut(call.slot as usize) else { return };
        let Some(entry) = slot.call.take() else { return };
        slot.generation = slot.generation.wrapping_add(1);
        let hash = entry.fingerprint as u64;
        if let Ok(found) = self.by_fingerprint.find_entry(hash, |&s| s == call.slot) {
            found.remove();
        }
        self.free.push(call.slot);
        self.open -= entry.open();
        self.unacknowledged -= usize::from(entry.is_unacknowledged());
    }

    /// Makes room by giving up one entry that is over, ahead of its time.
    fn evict(&mut self) -> bool {
        while let Some(call) = self.over.pop_front() {
            if self.get(call).is_some_and(Call::is_over) {
                self.remove(call);
                self.evicted += 1;
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
