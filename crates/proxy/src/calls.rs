//! The call table: where each call's requests go, and what it weighs there.
//!
//! A call is found by the fingerprint of its Call-ID. It keeps the choice of its back
//! end for at least 64·T1 after the last message, so that retransmissions, CANCEL and
//! ACK follow it; and the leases that count it, each bound to one transaction, so that
//! no repetition counts twice and no ending counts nothing.
//!
//! What 003's session automaton (its fig. 4) miscounts is settled by two rules: a
//! transaction is known by the identity of its branch, and one that is over stays over.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use arrayvec::ArrayVec;
use dary_heap::OctonaryHeap;
use hashbrown::HashTable;
use tidegate_balance::{Lease, Picker, Work};
use tidegate_sip::Method;
use tidegate_world::Timestamp;

/// 64·T1, RFC 3261 §17: the longest a transaction without an answer lives.
pub(crate) const TRANSACTION_MAX: Duration = Duration::from_secs(32);

/// RFC 3261 §16.6 item 11: Timer C "MUST be larger than 3 minutes".
const TIMER_C: Duration = Duration::from_secs(190);

/// Transactions of one call counted at the same time.
const OPEN_MAX: usize = 4;

/// Transactions of one call remembered after they are over.
const CLOSED_MAX: usize = 4;

/// Entries handled by one `handle_timeout`, so that many that end together do not
/// hold up the packets that wait.
const EXPIRE_MAX: usize = 256;

/// Which back end of which pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pool: u16,
    pub(crate) backend: u16,
}

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

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A request outside any call (OPTIONS, MESSAGE, REGISTER …).
    Single,
    /// INVITE forwarded, no final response yet.
    Trying,
    /// INVITE answered by a 2xx.
    Established,
    /// Over; kept for retransmissions.
    Finished,
}

/// Which transaction a message belongs to: the identity of the branch that its request
/// came with, and its method. An ACK to a non-2xx and a CANCEL have the identity of
/// their INVITE and are no transactions here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) identity: u64,
    pub(crate) method: Method,
}

impl Transaction {
    fn stands_alone(self) -> bool {
        !matches!(self.method, Method::Ack | Method::Cancel)
    }
}

/// A transaction that waits for its final response.
struct Open {
    transaction: Transaction,
    until: Timestamp,
    /// What it weighs on the back end, if that is who has to answer it.
    _lease: Option<Lease>,
}

/// One call, or one request outside any.
pub(crate) struct Call {
    fingerprint: u128,
    pub(crate) member: Member,
    pub(crate) phase: Phase,
    /// The back end has answered something in this call.
    pub(crate) answered: bool,
    deadline: Timestamp,
    /// The last transactions that are over.
    closed: ArrayVec<u64, CLOSED_MAX>,
    /// Until when the ACK is awaited of the 2xx that set the call up.
    ack_due: Option<Timestamp>,
    /// Kept while the call counts.
    counted: Option<Lease>,
    open: ArrayVec<Open, OPEN_MAX>,
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

    fn get_mut(&mut self, call: CallRef) -> Option<&mut Call> {
        let slot = self.slots.get_mut(call.slot as usize)?;
        slot.call.as_mut().filter(|_| slot.generation == call.generation)
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
        let deadline = now + TRANSACTION_MAX;
        let call = Call {
            fingerprint,
            member,
            phase: Phase::Single,
            answered: false,
            deadline,
            closed: ArrayVec::new(),
            ack_due: None,
            counted: None,
            open: ArrayVec::new(),
        };
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
        let entry = self.get_mut(call).filter(|entry| entry.phase != Phase::Established);
        let Some(entry) = entry else { return false };
        entry.member = member;
        entry.counted = None;
        let given_up = entry.open.len();
        entry.open.clear();
        self.open -= given_up;
        true
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
        // A token may lead elsewhere than the entry: such a request is no part of it.
        let Some(entry) = self.get_mut(call).filter(|entry| entry.member == member) else { return };
        if transaction.stands_alone() && !entry.is_repeated(transaction.identity) {
            let backend = member.backend.into();
            let work = match transaction.method {
                Method::Invite => Work::CallStart,
                Method::Bye => Work::CallEnd,
                _ => Work::Other,
            };
            if transaction.method == Method::Invite && entry.phase != Phase::Established {
                entry.phase = Phase::Trying;
                entry.answered = false;
                entry.counted.get_or_insert_with(|| picker.call_lease(backend));
            }
            let lease = picker.transaction_lease(backend, work);
            let opened = entry.open(now, transaction, Some(lease));
            self.open += usize::from(opened);
        }
        self.touch(now, call, transaction.method);
    }

    /// A request comes from the call's back end: it does not weigh there, but it
    /// keeps the call alive, and a BYE ends it.
    pub(crate) fn on_request_from_backend(
        &mut self,
        now: Timestamp,
        call: CallRef,
        transaction: Transaction,
    ) {
        let Some(entry) = self.get_mut(call) else { return };
        if transaction.stands_alone() && !entry.is_repeated(transaction.identity) {
            if transaction.method == Method::Invite && entry.phase != Phase::Established {
                entry.phase = Phase::Trying;
            }
            let opened = entry.open(now, transaction, None);
            self.open += usize::from(opened);
        }
        self.touch(now, call, transaction.method);
    }

    fn touch(&mut self, now: Timestamp, call: CallRef, method: Method) {
        let idle_max = self.idle_max;
        let Some(entry) = self.get_mut(call) else { return };
        let stay = match (entry.phase, method) {
            // An unanswered BYE ends the call all the same (RFC 3261 §15.1.1).
            (Phase::Established, Method::Bye) => TRANSACTION_MAX,
            (Phase::Established, _) => idle_max,
            (Phase::Trying, _) if entry.answered => TIMER_C,
            _ => TRANSACTION_MAX,
        };
        entry.deadline = now + stay;
        if method == Method::Ack && entry.ack_due.take().is_some() {
            self.unacknowledged -= 1;
        }
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
        let Some(entry) = self.get_mut(call) else { return };
        entry.answered |= from_backend;
        let position = entry.open.iter().position(|open| open.transaction == transaction);
        if status < 200 {
            if let (Some(i), Method::Invite) = (position, transaction.method) {
                // RFC 3261 §16.7 item 2: a provisional response resets Timer C.
                entry.open[i].until = now + TIMER_C;
                entry.deadline = entry.deadline.max(now + TIMER_C);
            }
            return;
        }
        let closed = position.map(|i| entry.close(i));
        let awaited = entry.ack_due.is_some();
        match (transaction.method, entry.phase) {
            (Method::Invite, Phase::Trying) if status < 300 => {
                entry.phase = Phase::Established;
                entry.deadline = now + idle_max;
                entry.ack_due = Some(now + TRANSACTION_MAX);
            }
            // A forked INVITE may be refused on one branch and ring on another.
            (Method::Invite, Phase::Trying) if !entry.invites() => entry.finish(now),
            // A challenged BYE is sent again with credentials; any other final
            // response ends the call (RFC 3261 §15.1.1 for 481 and 408; a caller
            // whose BYE fails otherwise does not come back to it either).
            (Method::Bye, Phase::Established) if matches!(status, 401 | 407) => {
                entry.deadline = now + idle_max;
            }
            (Method::Bye, Phase::Established) => {
                entry.finish(now);
                // Whoever ends a call does not wait for its ACK.
                entry.ack_due = None;
            }
            _ => {}
        }
        let (is_over, awaits) = (entry.is_over(), entry.ack_due.is_some());
        self.unacknowledged += usize::from(awaits);
        self.unacknowledged -= usize::from(awaited);
        self.open -= usize::from(closed.is_some());
        if is_over && closed.is_some() {
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
            let Some(call) = self.get_mut(reference) else { continue };
            if call.deadline <= now {
                self.remove(reference);
                continue;
            }
            let before = call.open.len();
            call.open.retain(|open| open.until > now);
            let expired = before - call.open.len();
            let given_up = call.ack_due.take_if(|due| *due <= now).is_some();
            // Never armed further than a finished call stays: so a deadline that
            // comes nearer needs no second timer.
            let at = call.deadline.min(now + TRANSACTION_MAX);
            self.open -= expired;
            self.unacknowledged -= usize::from(given_up);
            self.timers.push(Reverse((at, slot, generation)));
        }
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
        self.open -= entry.open.len();
        self.unacknowledged -= usize::from(entry.ack_due.is_some());
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

impl Call {
    fn is_repeated(&self, identity: u64) -> bool {
        self.closed.contains(&identity)
            || self.open.iter().any(|open| open.transaction.identity == identity)
    }

    /// Whether there was room to count it: a peer that opens more at once than is
    /// counted is counted low, and only it.
    fn open(&mut self, now: Timestamp, transaction: Transaction, lease: Option<Lease>) -> bool {
        let open = Open { transaction, until: now + TRANSACTION_MAX, _lease: lease };
        self.open.try_push(open).is_ok()
    }

    fn close(&mut self, position: usize) {
        if self.closed.is_full() {
            self.closed.remove(0);
        }
        self.closed.push(self.open.swap_remove(position).transaction.identity);
    }

    /// Whether an INVITE waits for its final response.
    fn invites(&self) -> bool {
        self.open.iter().any(|open| open.transaction.method == Method::Invite)
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Finished | Phase::Single) && self.open.is_empty()
    }

    fn finish(&mut self, now: Timestamp) {
        self.phase = Phase::Finished;
        self.counted = None;
        self.deadline = now + TRANSACTION_MAX;
    }
}

#[cfg(test)]
mod tests;
