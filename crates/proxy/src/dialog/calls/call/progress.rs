//! Progress of a call: how requests, responses and timers change its state.
//!
//! Two rules correct counting errors of the session automaton in paper 003 (fig. 4): a transaction
//! is identified by its branch, and a finished transaction does not begin again.

use std::time::Duration;

use tidegate_balance::{CallLease, Picker, TransactionLease};
use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::{
    Call, OPEN_MAX, Phase, SESSION_MAX, SESSION_MIN, TIMER_C, TRYING_MAX, UNACKNOWLEDGED_MAX,
    second,
};
use crate::dialog::calls::dialogs::Dialogs;
use crate::dialog::calls::transaction::{
    Answer, Evidence, Open, TRANSACTION_MAX, Transaction, sets_session, work_of,
};
use crate::rejection::UnsentReason;
use crate::settings::BackendRef;

impl Call {
    /// Moves the call to another back end, with the transaction that has this identity. Releases
    /// the leases of this transaction and of the call. Returns `false` if the call does not move,
    /// because it is already at that back end or is established.
    pub(in crate::dialog::calls) fn move_to(
        &mut self,
        identity: u64,
        backend_ref: BackendRef,
    ) -> bool {
        if self.phase == Phase::Established || self.backend_ref == backend_ref {
            return false;
        }
        self.backend_ref = backend_ref;
        self.counted = None;
        self.open.retain(|open| open.transaction.identity != identity);
        self.free_open();
        // At the new back end a transaction starts again, even if it was over.
        self.closed.retain(|closed| closed.wrapping_sub(identity) >= Transaction::MARKS);
        true
    }

    /// Moves the call to the back end that has answered its INVITE with a 2xx. `identity` is the
    /// identity of the INVITE, and `picker` counts the call at this back end. Returns `false` if the
    /// call does not [move](Self::move_to).
    ///
    /// The INVITE is not counted at this back end. The answer ends it, and the response time would
    /// begin with the answer, although the INVITE was sent long before.
    pub(in crate::dialog::calls) fn settle(
        &mut self,
        identity: u64,
        backend_ref: BackendRef,
        picker: &Picker,
    ) -> bool {
        let has_moved = self.move_to(identity, backend_ref);
        if has_moved {
            // The INVITE may have timed out.
            self.try_anew(Evidence::default());
            self.counted = Some((identity, picker.call_lease(backend_ref.backend.into())));
        }
        has_moved
    }

    /// Records a request to the back end. `picker` counts the request there. `held` is a lease that
    /// already counts the call at the back end. If there is none and the request begins a call,
    /// `picker` counts the call too.
    pub(in crate::dialog::calls) fn on_request(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        evidence: Evidence,
        picker: &Picker,
        held: Option<CallLease>,
        idle_max: Duration,
    ) {
        if transaction.stands_alone() && !self.is_repeated(transaction) {
            let backend = self.backend_ref.backend.into();
            let begins = self.begins(transaction, evidence);
            if begins {
                self.try_anew(evidence);
                self.answered = false;
            }
            if self.counted.is_none() {
                // A call that is established but not counted was begun by its back end. `held` is
                // then a lease only if the INVITE leads back to this back end.
                let held = held.or_else(|| begins.then(|| picker.call_lease(backend)));
                self.counted = held.map(|held| (transaction.identity, held));
            }
            let lease = picker.transaction_lease(now, backend, work_of(transaction.method));
            self.begin(now, transaction, evidence, Some(lease));
        }
        self.touch(now, transaction, evidence, true, idle_max);
    }

    /// Records a request that the back end of the call has sent.
    pub(in crate::dialog::calls) fn on_request_from_backend(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        evidence: Evidence,
        idle_max: Duration,
    ) {
        if transaction.stands_alone() && !self.is_repeated(transaction) {
            // RFC 3261 §16.11: "In particular, a retransmitted request MUST be forwarded to the
            // same destination each time it is processed." If the back end sends a call on through
            // this proxy, copies of the first INVITE must still be recognized while it is pending.
            if self.begins(transaction, evidence) && self.phase != Phase::Trying {
                self.try_anew(evidence);
            }
            self.begin(now, transaction, evidence, None);
        }
        self.touch(now, transaction, evidence, false, idle_max);
    }

    /// Returns whether a request is an INVITE that begins to set up the call. The request must not
    /// be a retransmission.
    fn begins(&self, transaction: Transaction, evidence: Evidence) -> bool {
        transaction.method == Method::Invite
            && evidence.dialog == 0
            && self.phase != Phase::Established
    }

    /// Begins to set up the call by a new INVITE. The dialogs of earlier requests belong to another
    /// call.
    fn try_anew(&mut self, evidence: Evidence) {
        if self.phase != Phase::Trying {
            self.dialogs = Dialogs::default();
        }
        self.phase = Phase::Trying;
        if evidence.copy != 0 {
            (self.copy, self.copies_until_s) = (evidence.copy, u32::MAX);
        }
    }

    /// Records that the back end has sent a response to `transaction`, which is not forwarded.
    pub(in crate::dialog::calls) fn on_heard(&mut self, now: Timestamp, transaction: Transaction) {
        let open = self.open.iter_mut().find(|open| open.transaction == transaction);
        if let Some(lease) = open.and_then(|open| open.lease.as_mut()) {
            lease.on_heard(now);
        }
    }

    /// Records a response to `transaction`.
    ///
    /// The whole change of state is in one function, because each step reads the state that earlier
    /// steps have left.
    pub(in crate::dialog::calls) fn on_response(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        answer: Answer,
        idle_max: Duration,
    ) {
        let Answer { status, from_backend, session, dialog } = answer;
        let method = transaction.method;
        let position = self.open.iter().position(|open| open.transaction == transaction);
        // An INVITE may be answered late or, behind a fork, by a second callee. Unexpected
        // responses to other requests are ignored.
        if position.is_none() && (method != Method::Invite || !self.has_transaction(transaction)) {
            return;
        }
        self.answered |= from_backend;
        let confirms_dialog = status < 300 && self.dialogs.note(dialog, status >= 200);
        if let Some(i) = position.filter(|_| from_backend) {
            self.open[i].on_response(now, status);
        }
        if status < 200 {
            if let (Some(i), Method::Invite) = (position, method) {
                // RFC 3261 §16.7 item 2: a provisional response resets Timer C.
                self.open[i].until = now + TIMER_C;
                self.deadline = self.deadline.max(now + TRYING_MAX);
            }
            return;
        }
        if self.has_ended(transaction) {
            // An element behind the back end has forked the INVITE, and another callee has answered
            // it. The session timer of one session must not end the call.
            if confirms_dialog && self.phase == Phase::Established {
                self.expires = Timestamp::NEVER;
                self.prolong(now, idle_max);
            }
            return;
        }
        let is_toward_backend = position.is_some_and(|i| self.open[i].lease.is_some());
        let left_dialog = position.map_or(0, |i| self.open[i].dialog);
        let is_reversed = position.is_some_and(|i| self.open[i].is_reversed);
        let is_within = position.is_some_and(|i| self.open[i].has_to_tag);
        match position {
            Some(i) => self.close(i),
            // The response is late. Retransmissions of its request still belong to the call.
            None => self.remember(transaction.mark()),
        }
        let was_established = self.phase == Phase::Established;
        match (method, self.phase) {
            (Method::Invite, Phase::Trying) if status < 300 => {
                (self.phase, self.is_acknowledged) = (Phase::Established, false);
                self.ack_due = now + TRANSACTION_MAX;
                self.copies_until_s = second(self.ack_due);
                self.deadline = now + UNACKNOWLEDGED_MAX;
            }
            // A forked INVITE may be rejected on one branch and ring on another.
            (Method::Invite, Phase::Trying) if !self.invites() => self.finish(now),
            (Method::Bye, Phase::Established) => {
                // Only the back end can report that its end of the call is over.
                let is_by_peer = from_backend || !is_toward_backend;
                if !is_reversed || status < 300 {
                    self.on_bye_answered(now, left_dialog, status, is_by_peer, idle_max);
                }
            }
            _ => {}
        }
        // A copy of the INVITE that another back end has accepted sets up another session.
        let is_of_another = was_established && !is_within && dialog == 0;
        if sets_session(method, status) && self.phase == Phase::Established && !is_of_another {
            // A party that refreshes the session considers the call established. If a call leads
            // through its back end, both legs have an INVITE, and none of these is a refresh.
            self.is_acknowledged |= was_established && is_within;
            // RFC 4028 §8.2: "The proxy computes the session expiration as the time when the 2xx
            // response is forwarded upstream, plus the session interval. This session expiration
            // MUST update any existing session expiration for the session." §9: "If the most
            // recent 2xx response had no Session-Expires header field, there is no session
            // expiration".
            let expires = |interval: Duration| now + interval.clamp(SESSION_MIN, SESSION_MAX);
            self.expires = session.map_or(Timestamp::NEVER, expires);
            self.prolong(now, idle_max);
        }
    }

    /// Records that the request of a transaction was rejected because it could not be sent.
    pub(in crate::dialog::calls) fn on_unsent(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        reason: UnsentReason,
        idle_max: Duration,
    ) {
        self.on_response(now, transaction, Answer::new(503, false), idle_max);
        // A CANCEL has the mark of its INVITE, which was sent. For other methods, the response has
        // just added the mark of the transaction.
        if transaction.stands_alone()
            && let Some(closed) = self.closed.last_mut()
            && *closed == transaction.mark()
        {
            *closed = transaction.unsent_mark(reason);
        }
    }

    /// Handles the final response to a BYE within the dialog with this hash. The transaction of the
    /// BYE is already closed.
    fn on_bye_answered(
        &mut self,
        now: Timestamp,
        dialog: u32,
        status: u16,
        is_by_peer: bool,
        idle_max: Duration,
    ) {
        let open = &self.open;
        // An open transaction may be overdue, because the timer that removes it may be late.
        let is_open =
            |dialog: u32| open.iter().any(|open| open.dialog == dialog && now < open.until);
        match status {
            // A response that the other party has not sent is ignored, except our own 408.
            _ if !is_by_peer && status != 408 => {}
            // RFC 3261 §15.1.1: "If the response for the BYE is a 481 (Call/Transaction Does Not
            // Exist) or a 408 (Request Timeout) or no response at all is received for the BYE
            // [...], the UAC MUST consider the session and the dialog terminated."
            200..=299 | 408 | 481 => {
                if self.dialogs.on_bye_answered(dialog, is_open) {
                    self.finish(now);
                    // A party that ends a call does not wait for its ACK.
                    self.ack_due = Timestamp::NEVER;
                }
            }
            // An overloaded server does not process the BYE. The call ends by its timer, as without
            // a response.
            501..=599 => {}
            // A BYE that the other end rejects does not end its dialog. A challenged BYE is sent
            // again with credentials. A BYE whose CSeq is too low (§12.2.2), or that requires an
            // unknown extension, changes nothing there. If both ends have sent a BYE, the other BYE
            // may still end the dialog.
            _ => {
                if !is_open(dialog) {
                    self.dialogs.on_bye_failed(dialog);
                }
                self.prolong(now, idle_max);
            }
        }
    }

    /// Removes open transactions that have timed out. Stops waiting for the ACK if its deadline has
    /// passed. Ends a call whose INVITE got no final response in time.
    ///
    /// The entry of such a call is kept, because the next proxy may still reject the INVITE: its
    /// transaction times out later than ours. RFC 3261 §17.2.1: the rejection is retransmitted for
    /// 64·T1.
    pub(in crate::dialog::calls) fn expire(&mut self, now: Timestamp) {
        self.open.retain(|open| open.until > now);
        self.free_open();
        let is_trying = self.phase == Phase::Trying && self.counted.is_some();
        if is_trying && self.deadline <= now {
            self.finish(now);
        }
        if self.ack_due <= now {
            self.ack_due = Timestamp::NEVER;
        }
    }

    /// Extends the lifetime of the call after a request. Also records an ACK or a BYE of an
    /// established call.
    fn touch(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        evidence: Evidence,
        is_toward_backend: bool,
        idle_max: Duration,
    ) {
        let is_within = evidence.dialog != 0;
        if !transaction.stands_alone() && !is_within && !self.has_branch(transaction.identity) {
            return;
        }
        if self.phase == Phase::Established && is_within {
            match transaction.method {
                // RFC 3261 §15.1.1: a UA that sends a BYE considers the session ended, answered or
                // not. Later messages do not prolong the call.
                Method::Bye if self.has_ended(transaction) => {}
                Method::Bye => self.on_bye(transaction, evidence.dialog, is_toward_backend),
                Method::Ack => {
                    self.is_acknowledged = true;
                    self.ack_due = Timestamp::NEVER;
                }
                _ => {}
            }
        }
        match self.phase {
            Phase::Established if self.dialogs.are_leaving() => {
                self.deadline = now + TRANSACTION_MAX;
            }
            // A message that matches only by its Call-ID does not prolong the call, and messages
            // from only one end do not either.
            Phase::Established if is_within && self.is_acknowledged => {
                self.deadline = self.established_until(now, idle_max);
            }
            Phase::Established => {}
            Phase::Trying if self.answered => self.deadline = now + TRYING_MAX,
            _ => self.deadline = now + TRANSACTION_MAX,
        }
    }

    /// Records a BYE within the dialog with this hash.
    ///
    /// A caller could send the back end a BYE with exchanged tags, as if the callee had sent it.
    /// The back end knows no such dialog and answers with 481 (RFC 3261 §12.2.2), and the call goes
    /// on. So if a BYE with exchanged tags goes to the back end of a counted call, only a 2xx ends
    /// the call. Such a BYE is correct if the call leads from the back end through this proxy to
    /// the callee.
    fn on_bye(&mut self, transaction: Transaction, dialog: u32, is_toward_backend: bool) {
        let Some(recorded) = self.dialogs.recorded(dialog) else { return };
        let is_reversed = recorded != dialog && is_toward_backend && self.counted.is_some();
        // The BYE is not recorded if too many transactions are open.
        if let Some(open) = self.open.iter_mut().find(|open| open.transaction == transaction) {
            (open.dialog, open.is_reversed) = (recorded, is_reversed);
        }
        if !is_reversed {
            self.dialogs.on_bye(recorded);
        }
    }

    /// Extends the lifetime of an established call that is acknowledged, unless a BYE will end it.
    fn prolong(&mut self, now: Timestamp, idle_max: Duration) {
        if self.is_acknowledged && !self.dialogs.are_leaving() {
            self.deadline = self.established_until(now, idle_max);
        }
    }

    /// Returns the time until which an established call is kept after a message at `now`.
    ///
    /// RFC 4028 §8.3: "When the current time equals or passes the session expiration for a session,
    /// the proxy MAY remove associated call state, and MAY free any resources associated with the
    /// call." We do so 64·T1 later, because the response to a refresh may take that long. Other
    /// messages do not extend the lifetime of a call with a session timer. §10: "only a 2xx
    /// response to a session refresh request extends the session expiration".
    fn established_until(&self, now: Timestamp, idle_max: Duration) -> Timestamp {
        match self.expires {
            Timestamp::NEVER => now + idle_max,
            expires => expires.max(now) + TRANSACTION_MAX,
        }
    }

    /// Adds a transaction to the open ones. At most [`OPEN_MAX`] transactions of a call are
    /// counted. If a peer opens more at once, its load is underestimated.
    fn begin(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        evidence: Evidence,
        lease: Option<TransactionLease>,
    ) {
        if self.open.len() < OPEN_MAX {
            self.open.reserve_exact(1);
            let (until, has_to_tag) = (now + TRANSACTION_MAX, evidence.has_to_tag);
            let (dialog, is_reversed, parties) = (0, false, None);
            self.open.push(Open {
                transaction,
                has_to_tag,
                dialog,
                is_reversed,
                until,
                lease,
                parties,
            });
        }
    }

    fn close(&mut self, position: usize) {
        let transaction = self.open[position].transaction;
        if self.open.len() == 1 {
            self.open = Vec::new();
        } else {
            self.open.swap_remove(position);
        }
        self.remember(transaction.mark());
    }

    /// Frees the memory of the list of open transactions, if the list is empty.
    fn free_open(&mut self) {
        if self.open.is_empty() {
            self.open = Vec::new();
        }
    }

    /// Remembers a finished transaction by its [mark](Transaction::mark).
    fn remember(&mut self, mark: u64) {
        if self.closed.is_full() {
            self.closed.remove(0);
        }
        self.closed.push(mark);
    }

    /// Returns whether an INVITE of the call waits for its final response.
    fn invites(&self) -> bool {
        self.open.iter().any(|open| open.transaction.method == Method::Invite)
    }

    fn finish(&mut self, now: Timestamp) {
        if self.phase == Phase::Trying {
            self.copies_until_s = second(now + TRANSACTION_MAX);
        }
        self.phase = Phase::Finished;
        self.counted = None;
        self.deadline = now + TRANSACTION_MAX;
    }
}
