//! State of one call: its phase, its open transactions, and its lifetime. The module [`progress`]
//! changes this state.

mod progress;

use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_balance::{AddressGeneration, CallLease, Parties};
use tidegate_control::Tier;
use tidegate_sip::Method;
pub(super) use tidegate_transaction::TIMER_C;
use tidegate_world::Timestamp;

use super::dialogs::Dialogs;
use super::rate::{Price, Rate};
use super::transaction::{Open, TRANSACTION_MAX, Transaction};
use crate::rejection::UnsentReason;
use crate::settings::BackendRef;
use crate::shares::SourceBucket;
use crate::transport::budget::Budget;

/// Maximum time that a ringing call is kept without any message. A transaction-stateful proxy
/// behind us answers with 408 after Timer C, and retransmits the 408 for 64·T1 (RFC 3261 §17.2.1).
/// The call is kept until then, because its entry limits how many of these retransmissions go to an
/// unverified caller.
pub(super) const TRYING_MAX: Duration =
    Duration::from_secs(TIMER_C.as_secs() + TRANSACTION_MAX.as_secs());

/// Maximum time that an answered call is kept without an ACK. RFC 3261 §13.3.1.4: "If the server
/// retransmits the 2xx response for 64*T1 seconds without receiving an ACK, the dialog is
/// confirmed, but the session SHOULD be terminated. This is accomplished with a BYE". The second
/// 64·T1 are for the response to the BYE.
pub(super) const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2 * TRANSACTION_MAX.as_secs());

/// Minimum session interval. RFC 4028 §4: "The absolute minimum for the Session-Expires header
/// field is 90 seconds."
const SESSION_MIN: Duration = Duration::from_secs(90);

/// Maximum session interval. Longer intervals are reduced to this value, which is also the longest
/// idle time that the configuration allows.
const SESSION_MAX: Duration = Duration::from_secs(86_400);

/// Maximum number of open transactions that a call records. Further ones are not counted.
pub(super) const OPEN_MAX: usize = 4;

/// Maximum number of finished transactions that a call remembers.
const CLOSED_MAX: usize = 4;

/// Returns the time `now` in whole seconds.
pub(super) fn second(now: Timestamp) -> u32 {
    (now.as_nanos() / 1_000_000_000) as u32
}

fn halves(fingerprint: u128) -> [u64; 2] {
    [fingerprint as u64, (fingerprint >> 64) as u64]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A request outside any call (OPTIONS, MESSAGE, REGISTER …).
    Single,
    /// The INVITE was forwarded and has no final response yet.
    Trying,
    /// The INVITE was answered by a 2xx.
    Established,
    /// The call is over, and its entry is kept for retransmissions.
    Finished,
}

impl Phase {
    /// Returns whether a call is established or still being set up.
    pub(crate) fn goes_on(self) -> bool {
        matches!(self, Self::Trying | Self::Established)
    }
}

/// A call, or a request outside any call.
pub(crate) struct Call {
    /// The low and the high half of the fingerprint of the Call-ID. A single u128 would be aligned
    /// to 16 bytes.
    fingerprint: [u64; 2],
    pub(crate) backend_ref: BackendRef,
    /// The address of the back end that the call uses, if the back end has had several addresses.
    pub(crate) address_generation: AddressGeneration,
    pub(crate) phase: Phase,
    /// True if the back end has sent a response since it was last sent the call's initial INVITE.
    pub(crate) answered: bool,
    /// Tier that was chosen for the requests of the call: with or without transactions. It has an
    /// effect only in a pool with the mode `adaptive`.
    pub(crate) tier: Tier,
    /// True if the last initial INVITE of the call had priority.
    pub(crate) has_priority: bool,
    /// Source of the first request, as [`caller_of`](crate::network::caller_of) encodes it, or 0 if
    /// unknown.
    pub(crate) caller: u64,
    /// Bytes received and sent back in the call, if it is served without transactions.
    pub(crate) budget: Budget,
    /// The source in whose share of the table the call counts, or `None` if it counts in no share.
    pub(super) share: Option<SourceBucket>,
    /// Time at which the entry was created, in whole seconds.
    pub(super) began_s: u32,
    /// Time at which the entry is removed, unless a further message extends its lifetime.
    pub(super) deadline: Timestamp,
    /// Time at which the session expires unless it is refreshed, or `NEVER` without a session
    /// timer.
    expires: Timestamp,
    dialogs: Dialogs,
    /// Keyed hash by which forked copies of the call's INVITE are recognized
    /// ([`Evidence::copy`](super::Evidence::copy)), or 0 if no INVITE has begun the call.
    copy: u32,
    /// The second until which copies of the INVITE belong to the call, or `u32::MAX` while the
    /// INVITE has no final response.
    copies_until_s: u32,
    rate: Rate,
    /// True if an ACK or a session refresh has shown that both ends consider the call established.
    is_acknowledged: bool,
    /// The most recently finished transactions, each as its [`mark`](Transaction::mark), or as its
    /// [`unsent_mark`](Transaction::unsent_mark) if the request could not be sent.
    closed: ArrayVec<u64, CLOSED_MAX>,
    /// Deadline of the ACK to the 2xx that established the call, or `NEVER` if none is awaited.
    ack_due: Timestamp,
    /// The identity of the INVITE that began the call, and the lease that counts the call at its
    /// back end.
    counted: Option<(u64, CallLease)>,
    /// Open transactions, at most [`OPEN_MAX`]. A `Vec` takes less memory than an array, because
    /// most calls have none.
    open: Vec<Open>,
}

impl Call {
    pub(super) fn new(now: Timestamp, fingerprint: u128, backend_ref: BackendRef) -> Self {
        Self {
            fingerprint: halves(fingerprint),
            backend_ref,
            address_generation: AddressGeneration::default(),
            phase: Phase::Single,
            answered: false,
            tier: Tier::default(),
            has_priority: false,
            caller: 0,
            budget: Budget::default(),
            share: None,
            began_s: second(now),
            deadline: now + TRANSACTION_MAX,
            expires: Timestamp::NEVER,
            dialogs: Dialogs::default(),
            copy: 0,
            copies_until_s: 0,
            rate: Rate::default(),
            is_acknowledged: false,
            closed: ArrayVec::new(),
            ack_due: Timestamp::NEVER,
            counted: None,
            open: Vec::new(),
        }
    }

    /// Returns the time at which the entry was created, rounded down to a whole second.
    pub(crate) fn began(&self) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(self.began_s.into())
    }

    /// Returns whether the Call-ID of the call has this fingerprint.
    pub(super) fn has_fingerprint(&self, fingerprint: u128) -> bool {
        self.fingerprint == halves(fingerprint)
    }

    /// Returns the low half of the fingerprint, by which the table finds the call.
    pub(super) fn hash(&self) -> u64 {
        self.fingerprint[0]
    }

    /// Returns the number of transactions that wait for their final response.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the time at which the INVITE of the call was sent to the back end, if the back end has
    /// not sent a response other than 100 to it. An INVITE within the call does not count, because
    /// it is no new call.
    pub(super) fn unanswered_since(&self) -> Option<Timestamp> {
        let begins = |open: &&Open| open.transaction.method == Method::Invite && !open.has_to_tag;
        self.open.iter().filter(begins).find_map(|open| open.lease.as_ref()?.sent_at())
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// Returns whether the call is counted at its back end because of an INVITE with another
    /// identity.
    pub(crate) fn is_counted_for_another(&self, identity: u64) -> bool {
        self.counted.as_ref().is_some_and(|(invite, _)| *invite != identity)
    }

    /// Returns whether the call is answered but not acknowledged.
    pub(super) fn is_unacknowledged(&self) -> bool {
        self.ack_due != Timestamp::NEVER
    }

    /// Returns whether the call is finished, so that only retransmissions are still expected.
    pub(super) fn is_over(&self) -> bool {
        !self.phase.goes_on() && self.open.is_empty()
    }

    /// Returns whether the call is established and no pending BYE will end it. If such a call is
    /// removed, it counts as abandoned.
    pub(super) fn is_abandoned(&self) -> bool {
        self.phase == Phase::Established && !self.dialogs.are_leaving()
    }

    /// Returns when an open transaction or the deadline of the ACK next [expires](Self::expire), or
    /// when the call is to be forgotten, if that is earlier.
    pub(super) fn due(&self) -> Timestamp {
        let open = self.open.iter().map(|open| open.until);
        open.fold(self.deadline.min(self.ack_due), Timestamp::min)
    }

    /// Returns whether an INVITE outside a dialog has begun the call in this process, and the call
    /// is not established: it is being set up or is over.
    pub(crate) fn has_invited(&self) -> bool {
        matches!(self.phase, Phase::Trying | Phase::Finished)
    }

    /// Returns whether this transaction was seen before. It does not matter whether the transaction
    /// still waits for its final response.
    pub(crate) fn is_repeated(&self, transaction: Transaction) -> bool {
        let mark = transaction.mark();
        self.has_ended(transaction) || self.open.iter().any(|open| open.transaction.mark() == mark)
    }

    /// Returns whether a request with this identity was seen before, with any method: an ACK or a
    /// CANCEL has the identity of its INVITE.
    pub(crate) fn has_branch(&self, identity: u64) -> bool {
        let is_closed = |closed: &u64| closed.wrapping_sub(identity) < Transaction::MARKS;
        self.closed.iter().any(is_closed)
            || self.open.iter().any(|open| open.transaction.identity == identity)
    }

    /// Returns whether a request outside a dialog has the branch of an earlier request. An INVITE
    /// must also have the same `copy`, a hash of From-tag, CSeq number and Request-URI, and must
    /// arrive while the UAS knows the INVITE.
    pub(crate) fn is_repetition(
        &self,
        now: Timestamp,
        transaction: Transaction,
        copy: u32,
    ) -> bool {
        let is_copy = || self.copy == copy && self.takes_copies(now);
        self.is_repeated(transaction) && (transaction.method != Method::Invite || is_copy())
    }

    /// Returns whether the UAS may still know the INVITE of the call. RFC 6026 §7.1: it knows an
    /// answered INVITE for 64·T1, and then takes a copy for a new call.
    fn takes_copies(&self, now: Timestamp) -> bool {
        second(now) <= self.copies_until_s
    }

    /// Returns whether an INVITE with the hash `copy` is another copy of the INVITE that is
    /// pending, or that has established the call.
    ///
    /// RFC 3261 §8.2.2.2: "If the From tag, Call-ID, and CSeq exactly match those associated with
    /// an ongoing transaction, but the request does not match that transaction [...]. The same
    /// request has arrived at the UAS more than once, following different paths, most likely due to
    /// forking." The copy goes to the back end of the first INVITE. The UAS there answers it with
    /// 482. A copy that arrives [too late](Self::takes_copies) begins another call. When
    /// [`OPEN_MAX`] transactions are open, no further copies are recognized.
    pub(crate) fn is_copied_by(&self, now: Timestamp, copy: u32) -> bool {
        let may_be_copied = self.phase.goes_on() && self.takes_copies(now);
        copy != 0 && self.copy == copy && may_be_copied && self.open.len() < OPEN_MAX
    }

    /// Returns whether a new INVITE may begin another call in this entry: no call is in progress,
    /// or the call in progress is not counted at its back end.
    pub(crate) fn may_begin(&self) -> bool {
        !self.phase.goes_on() || !self.is_counted()
    }

    pub(crate) fn has_dialog(&self, dialog: u32) -> bool {
        self.dialogs.contains(dialog)
    }

    /// Returns whether a response with this status to the call's INVITE could create a dialog that
    /// the entry has to record.
    pub(crate) fn wants_dialog(&self, status: u16) -> bool {
        let may_create = status >= 200 || self.phase == Phase::Trying;
        may_create && self.dialogs.want(status)
    }

    /// Returns whether the rate limit of the call allows one more request. If so, counts the
    /// request.
    pub(super) fn take_rate(&mut self, now: Timestamp, price: Price) -> bool {
        self.rate.take(now, price)
    }

    /// Returns whether the rate limit of the call is used up.
    pub(crate) fn floods(&self, now: Timestamp) -> bool {
        self.rate.is_used_up(now)
    }

    /// Returns whether this transaction waits for its final response.
    pub(super) fn awaits(&self, transaction: Transaction) -> bool {
        self.open.iter().any(|open| open.transaction == transaction)
    }

    /// Returns whether this transaction waits for its final response and has not timed out, so that
    /// its server transaction would still exist.
    pub(crate) fn is_pending(&self, now: Timestamp, transaction: Transaction) -> bool {
        self.open.iter().any(|open| open.transaction == transaction && now < open.until)
    }

    /// Returns whether the request of this transaction had no To-tag, and waits for its final
    /// response.
    pub(crate) fn awaits_outside(&self, transaction: Transaction) -> bool {
        self.open.iter().any(|open| open.transaction == transaction && !open.has_to_tag)
    }

    /// Returns whether this transaction belongs to the call, as one of its open or remembered
    /// transactions or as the INVITE that began it.
    pub(super) fn has_transaction(&self, transaction: Transaction) -> bool {
        let counted = self.counted.as_ref().map(|(invite, _)| *invite);
        self.is_repeated(transaction) || counted == Some(transaction.identity)
    }

    /// Returns whether this transaction got its final response.
    pub(super) fn has_ended(&self, transaction: Transaction) -> bool {
        self.closed.iter().any(|&closed| transaction.is_marked_by(closed))
    }

    /// Returns the reason why the request of this transaction could not be sent. Returns `None` if
    /// the request was not rejected for such a reason.
    pub(super) fn unsent_reason(&self, transaction: Transaction) -> Option<UnsentReason> {
        let is_it = |&reason: &UnsentReason| self.closed.contains(&transaction.unsent_mark(reason));
        UnsentReason::ALL.into_iter().find(is_it)
    }

    /// Returns whether the request of this transaction went to the back end of the call, and waits
    /// for its final response or was its first INVITE.
    pub(crate) fn went_to_backend(&self, transaction: Transaction) -> bool {
        let is_leased = |open: &Open| open.transaction == transaction && open.lease.is_some();
        let counted = self.counted.as_ref().map(|(invite, _)| *invite);
        counted == Some(transaction.identity) || self.open.iter().any(is_leased)
    }

    /// Returns the start time of a transaction, or `None` if it does not wait for its final
    /// response. The transaction must not be an INVITE.
    pub(crate) fn begun_at(&self, transaction: Transaction) -> Option<Timestamp> {
        self.open.iter().find(|open| open.transaction == transaction).map(Open::begun_at)
    }

    /// Returns the time at which the request of a transaction was sent to the back end. Returns
    /// `None` if the call is established or the back end has answered the request.
    pub(crate) fn sent_at(&self, transaction: Transaction) -> Option<Timestamp> {
        let mut open = self.open.iter().filter(|_| self.phase != Phase::Established);
        open.find(|open| open.transaction == transaction)?.lease.as_ref()?.sent_at()
    }

    pub(super) fn set_parties(&mut self, of: Transaction, parties: Parties) {
        if let Some(open) = self.open.iter_mut().find(|open| open.transaction == of) {
            open.parties = Some(parties);
        }
    }

    pub(crate) fn parties(&self, transaction: Transaction) -> Option<Parties> {
        self.open.iter().find(|open| open.transaction == transaction)?.parties
    }
}
