//! One call: how far it has come, which of its transactions are open, and how long it is kept.
//!
//! What 003's session automaton (its fig. 4) miscounts is settled by two rules: a
//! transaction is known by the identity of its branch, and one that is over stays over.

use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_balance::{Lease, Picker, Work};
use tidegate_sip::Method;
use tidegate_world::Timestamp;

/// 64·T1, RFC 3261 §17: the longest a transaction without an answer lives.
pub(crate) const TRANSACTION_MAX: Duration = Duration::from_secs(32);

/// RFC 3261 §16.6 item 11: Timer C "MUST be larger than 3 minutes".
pub(super) const TIMER_C: Duration = Duration::from_secs(190);

/// Transactions of one call counted at the same time.
pub(super) const OPEN_MAX: usize = 4;

/// Transactions of one call remembered after they are over.
const CLOSED_MAX: usize = 4;

/// Which back end of which pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Which transaction a message belongs to: the identity of the branch that its request
/// came with, and its method. An ACK to a non-2xx and a CANCEL have the identity of
/// their INVITE and are no transactions here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) identity: u64,
    pub(crate) method: Method,
}

/// A transaction that waits for its final response.
struct Open {
    transaction: Transaction,
    until: Timestamp,
    /// What it weighs on the back end, if that is who has to answer it.
    lease: Option<Lease>,
}

/// One call, or one request outside any.
pub(crate) struct Call {
    pub(super) fingerprint: u128,
    pub(crate) member: Member,
    pub(crate) phase: Phase,
    /// The back end has answered something in this call.
    pub(crate) answered: bool,
    pub(super) deadline: Timestamp,
    /// The last transactions that are over.
    closed: ArrayVec<u64, CLOSED_MAX>,
    /// Until when the ACK is awaited of the 2xx that set the call up.
    ack_due: Option<Timestamp>,
    /// Kept while the call counts.
    counted: Option<Lease>,
    open: ArrayVec<Open, OPEN_MAX>,
}

impl Call {
    /// A call that goes to `member`, of which nothing has passed yet.
    pub(super) fn new(now: Timestamp, fingerprint: u128, member: Member) -> Self {
        Self {
            fingerprint,
            member,
            phase: Phase::Single,
            answered: false,
            deadline: now + TRANSACTION_MAX,
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

    /// Whether it is answered and not acknowledged.
    pub(super) fn is_unacknowledged(&self) -> bool {
        self.ack_due.is_some()
    }

    /// Whether nothing is to come but repetitions.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Finished | Phase::Single) && self.open.is_empty()
    }

    /// True if this transaction was seen before: still open, or over.
    pub(super) fn is_repeated(&self, identity: u64) -> bool {
        self.closed.contains(&identity)
            || self.open.iter().any(|open| open.transaction.identity == identity)
    }

    /// Goes elsewhere, and gives back what it counted. `false` if it is established, and stays.
    pub(super) fn move_to(&mut self, member: Member) -> bool {
        if self.phase == Phase::Established {
            return false;
        }
        self.member = member;
        self.counted = None;
        self.open.clear();
        true
    }

    /// A request goes to its back end, which `picker` counts.
    pub(super) fn on_request(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        picker: &Picker,
        idle_max: Duration,
    ) {
        if transaction.stands_alone() && !self.is_repeated(transaction.identity) {
            let backend = self.member.backend.into();
            if transaction.method == Method::Invite && self.phase != Phase::Established {
                self.phase = Phase::Trying;
                self.answered = false;
                self.counted.get_or_insert_with(|| picker.call_lease(backend));
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

    /// A response to `transaction` passes. Returns whether it ends an open transaction.
    pub(super) fn on_response(
        &mut self,
        now: Timestamp,
        transaction: Transaction,
        status: u16,
        from_backend: bool,
        idle_max: Duration,
    ) -> bool {
        self.answered |= from_backend;
        let position = self.open.iter().position(|open| open.transaction == transaction);
        if let Some(i) = position.filter(|_| from_backend) {
            self.open[i].on_response(now, status);
        }
        if status < 200 {
            if let (Some(i), Method::Invite) = (position, transaction.method) {
                // RFC 3261 §16.7 item 2: a provisional response resets Timer C.
                self.open[i].until = now + TIMER_C;
                self.deadline = self.deadline.max(now + TIMER_C);
            }
            return false;
        }
        let closed = position.map(|i| self.close(i));
        match (transaction.method, self.phase) {
            (Method::Invite, Phase::Trying) if status < 300 => {
                self.phase = Phase::Established;
                self.deadline = now + idle_max;
                self.ack_due = Some(now + TRANSACTION_MAX);
            }
            // A forked INVITE may be refused on one branch and ring on another.
            (Method::Invite, Phase::Trying) if !self.invites() => self.finish(now),
            // A challenged BYE is sent again with credentials; any other final
            // response ends the call (RFC 3261 §15.1.1 for 481 and 408; a caller
            // whose BYE fails otherwise does not come back to it either).
            (Method::Bye, Phase::Established) if matches!(status, 401 | 407) => {
                self.deadline = now + idle_max;
            }
            (Method::Bye, Phase::Established) => {
                self.finish(now);
                // Whoever ends a call does not wait for its ACK.
                self.ack_due = None;
            }
            _ => {}
        }
        closed.is_some()
    }

    /// Gives up what has waited too long.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.open.retain(|open| open.until > now);
        self.ack_due.take_if(|due| *due <= now);
    }

    fn touch(&mut self, now: Timestamp, method: Method, idle_max: Duration) {
        let stay = match (self.phase, method) {
            // An unanswered BYE ends the call all the same (RFC 3261 §15.1.1).
            (Phase::Established, Method::Bye) => TRANSACTION_MAX,
            (Phase::Established, _) => idle_max,
            (Phase::Trying, _) if self.answered => TIMER_C,
            _ => TRANSACTION_MAX,
        };
        self.deadline = now + stay;
        if method == Method::Ack {
            self.ack_due = None;
        }
    }

    /// A peer that opens more at once than is counted is counted low, and only it.
    fn begin(&mut self, now: Timestamp, transaction: Transaction, lease: Option<Lease>) {
        let open = Open { transaction, until: now + TRANSACTION_MAX, lease };
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

impl Open {
    /// Its back end has responded. The first response to an INVITE other than 100 tells how fast
    /// it works, and of others the final one; what comes after the ringing is a person's time. A
    /// 5xx is no measure of it.
    fn on_response(&mut self, now: Timestamp, status: u16) {
        let tells = match self.transaction.method {
            Method::Invite => status > 100,
            _ => status >= 200,
        };
        let lease = self.lease.as_mut().filter(|_| tells && status / 100 != 5);
        if let Some(lease) = lease {
            lease.on_answered(now);
        }
    }
}

/// What a request is to its back end.
fn work_of(method: Method) -> Work {
    match method {
        Method::Invite => Work::CallStart,
        Method::Bye => Work::CallEnd,
        Method::Info => Work::Info,
        Method::Message => Work::Message,
        Method::Notify => Work::Notify,
        Method::Options => Work::Options,
        Method::Prack => Work::Prack,
        Method::Publish => Work::Publish,
        Method::Refer => Work::Refer,
        Method::Register => Work::Register,
        Method::Subscribe => Work::Subscribe,
        Method::Update => Work::Update,
        // An ACK and a CANCEL are no transactions here.
        Method::Ack | Method::Cancel | Method::Other => Work::Other,
    }
}

impl Transaction {
    fn stands_alone(self) -> bool {
        !matches!(self.method, Method::Ack | Method::Cancel)
    }
}
