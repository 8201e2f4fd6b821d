//! The call table. It stores the back end of each call, and the leases that count the call and its
//! transactions in the load of the back end.
//!
//! A call is found by the fingerprint of its Call-ID. If several calls share a Call-ID, their
//! dialogs and transactions distinguish them. A call keeps its back end for at least 64·T1 after
//! its last message, so that retransmissions, CANCEL and ACK go to the same back end. Only a full
//! table removes the entries of finished calls earlier. A lease is taken once for each transaction,
//! and not for its retransmissions. The lease is returned whichever way the transaction or the call
//! ends.
//!
//! [`handle_timeout`](Calls::handle_timeout) implements the timer of paper 003, §V, which "updates
//! Session State and Load Estimates after a session has expired": an expired entry returns its
//! leases. [`expired`] is the expired table of that paper.

mod call;
mod dialogs;
mod entry;
mod expired;
mod rate;
mod transaction;

use std::time::Duration;

use tidegate_balance::{AddressGeneration, CallLease, Parties, Picker};
use tidegate_control::{Answers, Tier, Unanswered};
use tidegate_sip::Method;
use tidegate_world::{Hashed, SlotRef, SlotTable, Timers, Timestamp};

use crate::rejection::UnsentReason;
use crate::settings::BackendRef;
use crate::shares::{Amount, Shares, SourceBucket, is_scarce};
use crate::transport::budget::Budget;
pub(crate) use call::{Call, Phase};
pub(crate) use dialogs::ORDER;
use expired::{Expired, Links};
pub(crate) use rate::Price;
use rate::Rates;
use transaction::TRANSACTION_MAX;
pub(crate) use transaction::{Answer, Evidence, Transaction};

/// Maximum number of entries handled by one `handle_timeout`, so that many calls that end at the
/// same time do not delay waiting packets.
const EXPIRE_MAX: usize = 256;

/// Maximum number of entries with one Call-ID. By RFC 3261 §8.1.1.4 a UA chooses a new Call-ID for
/// each call, but a proxy before us may fork one call into several with different targets.
const SAME_MAX: usize = 8;

/// Reference to an entry of the call table. It is valid as long as the entry exists. A later entry
/// in the same slot has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallRef {
    pub(crate) slot: u32,
    pub(crate) generation: u16,
}

impl CallRef {
    /// The reference used for a request that belongs to no call. No entry has it.
    pub(crate) const NONE: Self = Self { slot: u32::MAX, generation: 0 };
}

impl From<CallRef> for SlotRef {
    fn from(CallRef { slot, generation }: CallRef) -> Self {
        Self { slot, generation }
    }
}

impl From<SlotRef> for CallRef {
    fn from(SlotRef { slot, generation }: SlotRef) -> Self {
        Self { slot, generation }
    }
}

/// A call in the table, with its place in the list of finished calls.
struct Entry {
    call: Call,
    /// Neighbours of the entry in the [list of finished calls](Expired), if the call is over.
    links: Option<Links>,
}

/// Limits an entry to 220 bytes, so that a new field cannot increase the memory use unnoticed. A
/// million calls without open transactions take 220 MB.
const _: () = assert!(SlotTable::<Entry>::SLOT_BYTES <= 220);

impl Hashed for Entry {
    #[inline]
    fn hash(&self) -> u64 {
        self.call.hash()
    }
}

/// The reason why the call table has no place for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// The table is full of calls that are not over.
    TableFull,
    /// There are already [`SAME_MAX`] entries with the Call-ID of the call.
    SameCallId,
}

/// The call table of a shard.
pub(crate) struct Calls {
    entries: SlotTable<Entry>,
    timers: Timers<CallRef>,
    expired: Expired,
    shares: Shares,
    rates: Rates,
    calls_max: usize,
    idle_max: Duration,
    open: usize,
    unacknowledged: usize,
    unanswered: Unanswered,
    evicted: u64,
    abandoned: u64,
}

impl Calls {
    /// Creates a table of at most `calls_max` entries. An established call is removed after
    /// `idle_max` without any message, or when its session timer expires.
    pub(crate) fn new(calls_max: usize, idle_max: Duration) -> Self {
        Self {
            entries: SlotTable::new(),
            timers: Timers::new(),
            expired: Expired::new(),
            shares: Shares::default(),
            rates: Rates::new(),
            // The slot number u32::MAX is reserved for `CallRef::NONE`.
            calls_max: calls_max.min(u32::MAX as usize - 1),
            idle_max,
            open: 0,
            unacknowledged: 0,
            unanswered: Unanswered::default(),
            evicted: 0,
            abandoned: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of finished calls whose entries are kept for retransmissions.
    pub(crate) fn over(&self) -> usize {
        self.expired.len()
    }

    /// Returns the number of transactions that wait for their final response.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Returns the number of calls whose INVITE was answered by a 2xx that waits for its ACK. RFC
    /// 3261 §13.3.1.4: the callee retransmits its 2xx until the ACK arrives, and after 64·T1 ends
    /// the call.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    /// Returns the number of finished calls whose entries were removed early to make room for new
    /// calls.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Returns the back end of each call in the table.
    pub(crate) fn backend_refs(&self) -> impl Iterator<Item = BackendRef> {
        self.entries.values().map(|entry| entry.call.backend_ref)
    }

    /// Returns the number of answered calls that were removed without a BYE: when their session
    /// expired, or after `idle_max`.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Returns any call whose Call-ID has this fingerprint.
    pub(crate) fn find(&self, fingerprint: u128) -> Option<CallRef> {
        self.find_where(fingerprint, |_| true)
    }

    /// Returns a call whose Call-ID has this fingerprint and for which `is_it` returns true.
    pub(crate) fn find_where(
        &self,
        fingerprint: u128,
        is_it: impl Fn(&Call) -> bool,
    ) -> Option<CallRef> {
        let same = |entry: &Entry| entry.call.has_fingerprint(fingerprint) && is_it(&entry.call);
        self.entries.find(fingerprint as u64, same).map(CallRef::from)
    }

    /// Returns the call, if the table still has it.
    pub(crate) fn get(&self, call: CallRef) -> Option<&Call> {
        self.entries.get(call.into()).map(|entry| &entry.call)
    }

    /// Returns a call whose Call-ID has this fingerprint and that has this transaction. Prefers a
    /// call in which the transaction waits for its final response.
    pub(crate) fn find_of(&self, fingerprint: u128, transaction: Transaction) -> Option<CallRef> {
        self.find_where(fingerprint, |call| call.awaits(transaction))
            .or_else(|| self.find_where(fingerprint, |call| call.has_transaction(transaction)))
    }

    /// Adds an entry for a new call that goes to `backend_ref`. Other entries may have the same
    /// fingerprint.
    ///
    /// # Errors
    /// Returns the errors of [`check_room`](Self::check_room).
    pub(crate) fn insert(
        &mut self,
        now: Timestamp,
        fingerprint: u128,
        backend_ref: BackendRef,
    ) -> Result<CallRef, NoPlace> {
        self.check_room(fingerprint)?;
        if self.len() >= self.calls_max {
            self.evict();
        }
        let call = Call::new(now, fingerprint, backend_ref);
        let deadline = call.deadline;
        let reference = self.entries.insert(Entry { call, links: None });
        self.timers.push(deadline, reference.into());
        // The entry may be evicted until its request is counted, because nothing is lost then.
        self.expired.push(&mut self.entries, reference.slot);
        Ok(reference.into())
    }

    /// Moves the call to another back end, together with its transaction of this identity, because
    /// the first back end does not serve it. The call is no longer counted at the first back end,
    /// but its other transactions still are. Returns `false` if the call stays at its back end.
    /// There are three reasons: it is already at `backend_ref`, it is established (the request only
    /// has the same Call-ID), or its entry no longer exists.
    pub(crate) fn move_to(
        &mut self,
        now: Timestamp,
        call: CallRef,
        identity: u64,
        backend_ref: BackendRef,
    ) -> bool {
        self.change_at(now, call, |entry| entry.move_to(identity, backend_ref)).unwrap_or(false)
    }

    /// Moves the call like [`move_to`](Self::move_to), to the back end that has answered its INVITE
    /// with a 2xx. `identity` is the identity of the INVITE, and `picker` counts the call at this
    /// back end. Returns `false` if the call stays at its back end.
    pub(crate) fn settle(
        &mut self,
        now: Timestamp,
        call: CallRef,
        identity: u64,
        backend_ref: BackendRef,
        picker: &Picker,
    ) -> bool {
        self.change_at(now, call, |entry| entry.settle(identity, backend_ref, picker))
            .unwrap_or(false)
    }

    /// Sets the tier in which the call is served from now on: with or without transactions.
    pub(crate) fn serve_in(&mut self, call: CallRef, tier: Tier) {
        self.change(call, |entry| entry.tier = tier);
    }

    /// Records which address of its back end the call uses. A back end whose DNS name changes its
    /// address has several address generations.
    pub(crate) fn set_address_generation(
        &mut self,
        call: CallRef,
        address_generation: AddressGeneration,
    ) {
        if let Some(entry) = self.get_mut(call) {
            entry.address_generation = address_generation;
        }
    }

    /// Records whether the initial INVITE of a call has priority. Ignores a retransmission, for
    /// which `has_priority` is meaningless, because the gate does not decide on it again.
    pub(crate) fn record_priority(&mut self, call: CallRef, identity: u64, has_priority: bool) {
        let invite = Transaction { identity, method: Method::Invite };
        if let Some(entry) = self.get_mut(call).filter(|entry| !entry.is_repeated(invite)) {
            entry.has_priority = has_priority;
        }
    }

    /// Returns the number of calls that are not finished.
    fn active(&self) -> usize {
        self.len() - self.expired.len()
    }

    /// Returns whether the table is so full that each source of calls may only use a
    /// [share](Shares) of the table.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        is_scarce(self.active(), self.calls_max)
    }

    /// Returns whether the sources in a bucket have used up their [share](Shares) of the table.
    pub(crate) fn is_exhausted(&self, bucket: SourceBucket) -> bool {
        let entries = self.calls_max - self.active();
        self.shares.is_exhausted(bucket, Amount { entries, bytes: usize::MAX })
    }

    /// Records the caller, and the share of the table in which the call counts until it is
    /// finished. Both come from the source of the request that begins the call.
    pub(crate) fn set_source(&mut self, call: CallRef, caller: u64, share: Option<SourceBucket>) {
        let Some(Entry { call: entry, links }) = self.entries.get_mut(call.into()) else { return };
        entry.caller = caller;
        let before = std::mem::replace(&mut entry.share, share);
        // A finished call counts in no share.
        if links.is_none() {
            if let Some(bucket) = before {
                self.shares.remove_entry(bucket, 0);
            }
            if let Some(bucket) = share {
                self.shares.add_entry(bucket);
            }
        }
    }

    /// Records the bytes that were received and sent back in a call that is served without
    /// transactions.
    pub(crate) fn set_budget(&mut self, call: CallRef, budget: Budget) {
        if let Some(entry) = self.get_mut(call) {
            entry.budget = budget;
        }
    }

    /// Checks that the table has room for a new call with this fingerprint, if necessary by evicting
    /// a finished call.
    pub(crate) fn check_room(&self, fingerprint: u128) -> Result<(), NoPlace> {
        let alike = self.entries.with_hash(fingerprint as u64);
        if alike.filter(|entry| entry.call.has_fingerprint(fingerprint)).count() >= SAME_MAX {
            return Err(NoPlace::SameCallId);
        }
        if self.len() >= self.calls_max && self.expired.first().is_none() {
            return Err(NoPlace::TableFull);
        }
        Ok(())
    }

    /// Returns whether this transaction was seen before. It does not matter whether the transaction
    /// still waits for its final response.
    pub(crate) fn is_repeated(&self, call: CallRef, transaction: Transaction) -> bool {
        self.get(call).is_some_and(|entry| entry.is_repeated(transaction))
    }

    /// Returns whether this transaction got its final response.
    pub(crate) fn has_ended(&self, call: CallRef, transaction: Transaction) -> bool {
        self.get(call).is_some_and(|entry| entry.has_ended(transaction))
    }

    /// Returns the reason why the request of this transaction could not be sent. Returns `None` if
    /// the request was not rejected for such a reason.
    pub(crate) fn unsent_reason(
        &self,
        call: CallRef,
        transaction: Transaction,
    ) -> Option<UnsentReason> {
        self.get(call)?.unsent_reason(transaction)
    }

    /// Records the caller and callee of a transaction, for the evidence that its back end is
    /// overloaded.
    pub(crate) fn set_parties(&mut self, call: CallRef, of: Transaction, parties: Parties) {
        self.change(call, |entry| entry.set_parties(of, parties));
    }

    /// Returns whether the rate limit of a call allows one more message at this `price`. If so,
    /// counts the message. If `call` is not in the table, the call is identified by `number`.
    pub(crate) fn take_rate(
        &mut self,
        now: Timestamp,
        call: CallRef,
        number: u64,
        price: Price,
    ) -> bool {
        match self.get_mut(call) {
            Some(entry) => entry.take_rate(now, price),
            None => self.rates.take(now, number, price),
        }
    }

    /// Returns whether the rate limit of a call that is not in the table is used up.
    pub(crate) fn unknown_floods(&self, now: Timestamp, number: u64) -> bool {
        self.rates.is_used_up(now, number)
    }

    /// Records a request to `backend_ref`. `picker` counts the transaction at this back end. `held`
    /// is a lease that already counts the call at this back end. If `held` is `None` and the
    /// request begins a call, `picker` counts the call too.
    #[allow(clippy::too_many_arguments, reason = "a request and where it goes")]
    pub(crate) fn on_request(
        &mut self,
        now: Timestamp,
        call: CallRef,
        transaction: Transaction,
        evidence: Evidence,
        backend_ref: BackendRef,
        picker: &Picker,
        held: Option<CallLease>,
    ) {
        let idle_max = self.idle_max;
        self.change_at(now, call, |entry| {
            // A token may lead to another back end than the entry does. Then the request is not
            // part of the entry's call.
            if entry.backend_ref == backend_ref {
                entry.on_request(now, transaction, evidence, picker, held, idle_max);
            }
        });
    }

    /// Records a request that the call's back end has sent. The request adds no load there, but it
    /// prolongs the call, and a BYE ends the call.
    pub(crate) fn on_request_from_backend(
        &mut self,
        now: Timestamp,
        call: CallRef,
        transaction: Transaction,
        evidence: Evidence,
    ) {
        let idle_max = self.idle_max;
        self.change(call, |entry| {
            entry.on_request_from_backend(now, transaction, evidence, idle_max);
        });
    }

    /// Records a response to `transaction`, which the back end of the call has sent or will
    /// receive.
    pub(crate) fn on_response(
        &mut self,
        now: Timestamp,
        call: CallRef,
        transaction: Transaction,
        answer: Answer,
    ) {
        let idle_max = self.idle_max;
        self.change_at(now, call, |entry| entry.on_response(now, transaction, answer, idle_max));
    }

    /// Records that the back end of the call has sent a response to `transaction`, which is not
    /// forwarded.
    pub(crate) fn on_heard(&mut self, now: Timestamp, call: CallRef, transaction: Transaction) {
        self.change(call, |entry| entry.on_heard(now, transaction));
    }

    /// Records that the request of a transaction was rejected because it could not be sent.
    pub(crate) fn on_unsent(
        &mut self,
        now: Timestamp,
        call: CallRef,
        transaction: Transaction,
        reason: UnsentReason,
    ) {
        let idle_max = self.idle_max;
        self.change_at(now, call, |entry| entry.on_unsent(now, transaction, reason, idle_max));
    }

    /// Returns the counts of the INVITEs that were sent to back ends, and of their answers.
    pub(crate) fn answers(&mut self, now: Timestamp) -> Answers {
        self.unanswered.answers(now)
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) has to be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Removes entries past their deadline. Removes overdue transactions from other entries.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        for _ in 0..EXPIRE_MAX {
            let Some((_, reference)) = self.timers.pop(now) else { return };
            let due = self.change(reference, |call| {
                call.expire(now);
                (call.deadline > now).then(|| call.due())
            });
            match due {
                None => {}
                Some(None) => {
                    let is_abandoned = self.get(reference).is_some_and(Call::is_abandoned);
                    self.abandoned += u64::from(is_abandoned);
                    self.remove(reference);
                }
                // The timer fires after 64·T1 at the latest. A transaction that begins before that,
                // or a call that ends, is due no earlier, so it needs no second timer.
                Some(Some(due)) => {
                    let at = due.min(now + TRANSACTION_MAX);
                    self.timers.push(at, reference);
                }
            }
        }
    }

    /// Returns the entry, for changes that do not affect the counts of the table.
    fn get_mut(&mut self, call: CallRef) -> Option<&mut Call> {
        self.entries.get_mut(call.into()).map(|entry| &mut entry.call)
    }

    /// Changes a call like [`change`](Self::change). Also records whether its back end now gets or
    /// answers an INVITE.
    fn change_at<R>(
        &mut self,
        now: Timestamp,
        call: CallRef,
        change: impl FnOnce(&mut Call) -> R,
    ) -> Option<R> {
        let (before, after, result) = self.change(call, |call| {
            let before = call.unanswered_since();
            let result = change(call);
            (before, call.unanswered_since(), result)
        })?;
        if before != after {
            if let Some(sent) = before {
                self.unanswered.on_ended(now, sent);
            }
            if let Some(sent) = after {
                self.unanswered.on_sent(now, sent);
            }
        }
        Some(result)
    }

    /// Changes a call, if the table still has it, and updates the counts of the table and the list
    /// of finished calls accordingly.
    fn change<R>(&mut self, call: CallRef, change: impl FnOnce(&mut Call) -> R) -> Option<R> {
        let Entry { call: entry, links } = self.entries.get_mut(call.into())?;
        let held = |entry: &Call| (entry.open(), usize::from(entry.is_unacknowledged()));
        let before = held(entry);
        let result = change(entry);
        let after = held(entry);
        self.open = self.open - before.0 + after.0;
        self.unacknowledged = self.unacknowledged - before.1 + after.1;
        match (links, entry.is_over()) {
            (None, true) => {
                if let Some(bucket) = entry.share {
                    self.shares.remove_entry(bucket, 0);
                }
                self.expired.push(&mut self.entries, call.slot);
            }
            (Some(_), false) => {
                if let Some(bucket) = entry.share {
                    self.shares.add_entry(bucket);
                }
                self.expired.take(&mut self.entries, call.slot);
            }
            _ => {}
        }
        Some(result)
    }

    fn remove(&mut self, call: CallRef) {
        let Some(Entry { call: entry, links }) = self.entries.get(call.into()) else { return };
        self.open -= entry.open();
        self.unacknowledged -= usize::from(entry.is_unacknowledged());
        if let Some(bucket) = entry.share.filter(|_| links.is_none()) {
            self.shares.remove_entry(bucket, 0);
        }
        self.expired.take(&mut self.entries, call.slot);
        self.entries.remove(call.into());
    }

    /// Removes the call that finished longest ago, if any call has finished.
    fn evict(&mut self) {
        let oldest = self.expired.first().and_then(|slot| self.entries.at(slot));
        let Some((oldest, _)) = oldest else { return };
        self.remove(oldest.into());
        self.evicted += 1;
    }
}

#[cfg(test)]
mod tests;
