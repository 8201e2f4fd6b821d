//! One call: how far it has come, which of its transactions are open, and how long it is kept.
//!
//! What 003's session automaton (its fig. 4) miscounts is settled by two rules: a
//! transaction is known by the identity of its branch, and one that is over stays over.

use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_balance::{Lease, Parties, Picker, Place};
use tidegate_control::Tier;
use tidegate_sip::Method;
use tidegate_world::Timestamp;

use crate::amplification::Budget;
use crate::shares::Bucket;

use super::transaction::{Answer, Open, Transaction, sets_session, work_of};

/// 64·T1, RFC 3261 §17: the longest a transaction without an answer lives.
pub(crate) const TRANSACTION_MAX: Duration = Duration::from_secs(32);

/// RFC 3261 §16.6 item 11: Timer C "MUST be larger than 3 minutes".
pub(super) const TIMER_C: Duration = Duration::from_secs(190);

/// RFC 4028 §4: "The absolute minimum for the Session-Expires header field is 90 seconds."
const SESSION_MIN: Duration = Duration::from_secs(90);

/// What a longer session interval counts as: as long as the configuration lets a call be idle.
const SESSION_MAX: Duration = Duration::from_secs(86_400);

/// Transactions of one call counted at the same time.
pub(super) const OPEN_MAX: usize = 4;

/// Transactions of one call remembered after they are over.
const CLOSED_MAX: usize = 4;

/// Which back end of which pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    pub(crate) pool: u16,
    pub(crate) backend: u16,
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

impl Phase {
    /// Whether a call is being set up or up.
    pub(crate) fn goes_on(self) -> bool {
        matches!(self, Self::Trying | Self::Established)
    }
}

/// One call, or one request outside any.
pub(crate) struct Call {
    pub(super) fingerprint: u128,
    pub(crate) member: Member,
    /// Where that back end was when the call came to it.
    pub(crate) place: Place,
    pub(crate) phase: Phase,
    /// The back end has answered something in this call.
    pub(crate) answered: bool,
    /// How its requests are served.
    pub(crate) tier: Tier,
    /// What began it last went before others.
    pub(crate) has_priority: bool,
    /// Where its first request came from, or 0 if that is not known.
    pub(crate) caller: u64,
    /// What was received and sent back, without transactions.
    pub(crate) budget: Budget,
    /// Whose share of the table it is of, if it was counted when it began.
    pub(super) share: Option<Bucket>,
    pub(super) deadline: Timestamp,
    /// When the session expires unless it is refreshed, if it has a session timer.
    expires: Option<Timestamp>,
    /// A BYE has passed since it was established.
    is_leaving: bool,
    /// The last transactions that are over.
    closed: ArrayVec<u64, CLOSED_MAX>,
    /// Until when the ACK is awaited of the 2xx that set the call up.
    ack_due: Option<Timestamp>,
    /// Kept while the call counts, with the identity of the INVITE that it is counted for.
    counted: Option<(u64, Lease)>,
    open: ArrayVec<Open, OPEN_MAX>,
}

impl Call {
    /// A call that goes to `member`, of which nothing has passed yet.
    pub(super) fn new(now: Timestamp, fingerprint: u128, member: Member) -> Self {
        Self {
            fingerprint,
            member,
            place: Place::default(),
            phase: Phase::Single,
            answered: false,
            tier: Tier::default(),
            has_priority: false,
            caller: 0,
            budget: Budget::default(),
            share: None,
            deadline: now + TRANSACTION_MAX,
            expires: None,
            is_leaving: false,
            closed: ArrayVec::new(),
            ack_due: None,
            counted: None,
            open: ArrayVec::new(),
        }
    }

    /// Transactions that wait for their final response.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether it is counted at its back end.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// Whether it is counted for another INVITE than the one of this identity.
    pub(super) fn is_counted_for_another(&self, identity: u64) -> bool {
        self.counted.as_ref().is_some_and(|(invite, _)| *invite != identity)
    }

    /// Whether it is answered and not acknowledged.
    pub(super) fn is_unacknowledged(&self) -> bool {
        self.ack_due.is_some()
    }

    /// Whether nothing is to come but repetitions.
    pub(super) fn is_over(&self) -> bool {
        !self.phase.goes_on() && self.open.is_empty()
    }

    /// Whether it is answered and nobody ends it.
    pub(super) fn is_abandoned(&self) -> bool {
        self.phase == Phase::Established && !self.is_leaving
    }

    /// When there is something to [give up](Self::expire), or it is to be forgotten.
    pub(super) fn due(&self) -> Timestamp {
        let open = self.open.iter().map(|open| open.until);
        open.chain(self.ack_due).fold(self.deadline, Timestamp::min)
    }

    /// True if this transaction was seen before: still open, or over.
    pub(super) fn is_repeated(&self, identity: u64) -> bool {
        self.has_ended(identity)
            || self.open.iter().any(|open| open.transaction.identity == identity)
    }

    /// True if this transaction has had its final response.
    pub(super) fn has_ended(&self, identity: u64) -> bool {
        self.closed.contains(&identity)
    }

    /// Goes elsewhere with one transaction, and gives back what it and the call counted. `false`
    /// if it is there, or established, and stays.
    pub(super) fn move_to(&mut self, identity: u64, member: Member) -> bool {
        if self.phase == Phase::Established || self.member == member {
            return false;
        }
        self.member = member;
        self.counted = None;
        self.open.retain(|open| open.transaction.identity != identity);
        // There it begins again, if it was over.
        self.closed.retain(|closed| *closed != identity);
        true
    }

    /// When a transaction was sent to its back end, unless it is established or answered.
    pub(super) fn sent_at(&self, transaction: Transaction) -> Option<Timestamp> {
        let mut open = self.open.iter().filter(|_| self.phase != Phase::Established);
        open.find(|open| open.transaction == transaction)?.lease.as_ref()?.sent_at()
    }

    pub(super) fn set_parties(&mut self, of: Transaction, parties: Parties) {
        if let Some(open) = self.open.iter_mut().find(|open| open.transaction == of) {
            open.parties = Some(parties);
        }
    }

    pub(super) fn parties(&self, transaction: Transaction) -> Option<Parties> {
        self.open.iter().find(|open| open.transaction == transaction)?.parties
    }

    /// A request goes to its back end, which `picker` counts, and `held` if it begins the call.
    pub(super) fn on_request(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        picker: &Picker,
        held: Option<Lease>,
        idle_max: Duration,
    ) {
        if transaction.stands_alone() && !self.is_repeated(transaction.identity) {
            let backend = self.member.backend.into();
            let begins = transaction.method == Method::Invite && self.phase != Phase::Established;
            if begins {
                (self.phase, self.answered, self.is_leaving) = (Phase::Trying, false, false);
            }
            if self.counted.is_none() {
                // One that is established and holds something leads back to who has made the call.
                let held = held.or_else(|| begins.then(|| picker.call_lease(backend)));
                self.counted = held.map(|held| (transaction.identity, held));
            }
            let lease = picker.transaction_lease(now, backend, work_of(transaction.method));
            self.begin(now, transaction, Some(lease));
        }
        self.touch(now, transaction.method, idle_max);
    }

    /// A request comes from its back end.
    pub(super) fn on_request_from_backend(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        idle_max: Duration,
    ) {
        if transaction.stands_alone() && !self.is_repeated(transaction.identity) {
            if transaction.method == Method::Invite && self.phase != Phase::Established {
                self.phase = Phase::Trying;
            }
            self.begin(now, transaction, None);
        }
        self.touch(now, transaction.method, idle_max);
    }

    /// A response to `transaction` passes.
    pub(super) fn on_response(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        answer: Answer,
        idle_max: Duration,
    ) {
        let Answer { status, from_backend, session } = answer;
        let method = transaction.method;
        self.answered |= from_backend;
        let position = self.open.iter().position(|open| open.transaction == transaction);
        if let Some(i) = position.filter(|_| from_backend) {
            self.open[i].on_response(now, status);
        }
        if status < 200 {
            if let (Some(i), Method::Invite) = (position, method) {
                // RFC 3261 §16.7 item 2: a provisional response resets Timer C.
                self.open[i].until = now + TIMER_C;
                self.deadline = self.deadline.max(now + TIMER_C);
            }
            return;
        }
        if self.has_ended(transaction.identity) {
            return;
        }
        let was_open = position.is_some();
        if let Some(i) = position {
            self.close(i);
        }
        match (method, self.phase) {
            (Method::Invite, Phase::Trying) if status < 300 => {
                (self.phase, self.is_leaving) = (Phase::Established, false);
                self.ack_due = Some(now + TRANSACTION_MAX);
            }
            // A forked INVITE may be refused on one branch and ring on another.
            (Method::Invite, Phase::Trying) if !self.invites() => self.finish(now),
            // A challenged BYE is sent again with credentials; any other final
            // response ends the call (RFC 3261 §15.1.1 for 481 and 408; a caller
            // whose BYE fails otherwise does not come back to it either).
            // The BYE of a dialog that another back end of a fork has answered too, and which the
            // caller does not keep, was never counted here.
            (Method::Bye, Phase::Established) if !was_open => {}
            (Method::Bye, Phase::Established) if matches!(status, 401 | 407) => {
                self.is_leaving = false;
                self.deadline = self.established_until(now, idle_max);
            }
            (Method::Bye, Phase::Established) => {
                self.finish(now);
                // Whoever ends a call does not wait for its ACK.
                self.ack_due = None;
            }
            _ => {}
        }
        if sets_session(method, status) {
            // RFC 4028 §8.2: "The proxy computes the session expiration as the time when the 2xx
            // response is forwarded upstream, plus the session interval. This session expiration
            // MUST update any existing session expiration for the session." §9: "If the most
            // recent 2xx response had no Session-Expires header field, there is no session
            // expiration".
            self.expires = session.map(|interval| now + interval.clamp(SESSION_MIN, SESSION_MAX));
            if self.phase == Phase::Established && !self.is_leaving {
                self.deadline = self.established_until(now, idle_max);
            }
        }
    }

    /// Gives up what has waited too long.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.open.retain(|open| open.until > now);
        self.ack_due.take_if(|due| *due <= now);
    }

    fn touch(&mut self, now: Timestamp, method: Method, idle_max: Duration) {
        // RFC 3261 §15.1.1: whoever sends a BYE considers the session ended, answered or not. So
        // nothing that comes after it keeps the call for longer.
        self.is_leaving |= self.phase == Phase::Established && method == Method::Bye;
        self.deadline = match self.phase {
            Phase::Established if !self.is_leaving => self.established_until(now, idle_max),
            Phase::Trying if self.answered => now + TIMER_C,
            _ => now + TRANSACTION_MAX,
        };
        if method == Method::Ack {
            self.ack_due = None;
        }
    }

    /// Until when an established call of which something passes now is kept.
    ///
    /// RFC 4028 §8.3: "When the current time equals or passes the session expiration for a
    /// session, the proxy MAY remove associated call state, and MAY free any resources associated
    /// with the call." We do so 64·T1 later, for a refresh that was sent in time may be answered
    /// as late as that; and §10: "only a 2xx response to a session refresh request extends the
    /// session expiration", so that nothing else keeps the call.
    fn established_until(&self, now: Timestamp, idle_max: Duration) -> Timestamp {
        match self.expires {
            Some(expires) => expires.max(now) + TRANSACTION_MAX,
            None => now + idle_max,
        }
    }

    /// A peer that opens more at once than is counted is counted low, and only it.
    fn begin(&mut self, now: Timestamp, transaction: Transaction, lease: Option<Lease>) {
        let open = Open { transaction, until: now + TRANSACTION_MAX, lease, parties: None };
        let _ = self.open.try_push(open);
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

    fn finish(&mut self, now: Timestamp) {
        self.phase = Phase::Finished;
        self.counted = None;
        self.deadline = now + TRANSACTION_MAX;
    }
}
