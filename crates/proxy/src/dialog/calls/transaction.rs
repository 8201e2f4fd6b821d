//! The transactions of a call, and the facts about their messages that the call table uses.

use std::time::Duration;

use tidegate_balance::{Parties, TransactionLease, Work};
use tidegate_sip::{Method, Passage};
use tidegate_world::Timestamp;

use crate::rejection::UnsentReason;

/// The maximum lifetime of a transaction without any response: 64·T1 (RFC 3261 §17).
pub(crate) const TRANSACTION_MAX: Duration = Duration::from_secs(32);

/// Identifier of a message's transaction: a hash of the received branch, and the method. An ACK to
/// a non-2xx and a CANCEL have the identity of their INVITE. The call table does not count them as
/// transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) identity: u64,
    pub(crate) method: Method,
}

impl Transaction {
    /// All [marks](Self::mark) of transactions with one identity differ by less than this number.
    pub(super) const MARKS: u64 = Self::METHODS * (1 + UnsentReason::ALL.len() as u64);

    /// Number of different [marks](Self::mark) of transactions with one identity: one for an
    /// INVITE, and one for each number of a [`Method`], of which `Other` is the highest.
    const METHODS: u64 = 2 + Method::Other as u64;

    /// Returns the number that represents this transaction in a call's list of finished
    /// transactions: the identity plus a number for the method. RFC 3261 §17.2.3 distinguishes
    /// requests with the same branch by their methods. Here an INVITE, its ACK and its CANCEL have
    /// the same mark.
    pub(super) fn mark(self) -> u64 {
        let method = match self.method {
            Method::Invite | Method::Ack | Method::Cancel => 0,
            method => 1 + method as u64,
        };
        self.identity.wrapping_add(method)
    }

    /// Returns the number that replaces the [mark](Self::mark) in the list of finished transactions
    /// if the request could not be sent. Each method and reason of one identity has a different
    /// number.
    pub(super) fn unsent_mark(self, reason: UnsentReason) -> u64 {
        self.mark().wrapping_add(Self::METHODS * (1 + reason as u64))
    }

    /// Returns whether `closed`, a number in the list of finished transactions, is the
    /// [mark](Self::mark) or an [`unsent_mark`](Self::unsent_mark) of this transaction.
    pub(super) fn is_marked_by(self, closed: u64) -> bool {
        let difference = closed.wrapping_sub(self.mark());
        difference < Self::MARKS && difference.is_multiple_of(Self::METHODS)
    }

    /// Returns whether the message counts as a transaction of its own: it is neither an ACK nor a
    /// CANCEL.
    pub(super) fn stands_alone(self) -> bool {
        !matches!(self.method, Method::Ack | Method::Cancel)
    }
}

/// The facts of a response that the call table uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// True if the back end of the call sent the response.
    pub(crate) from_backend: bool,
    /// Session interval that the response sets, or `None` if it sets none.
    pub(crate) session: Option<Duration>,
    /// Keyed hash of the dialog that the response creates, or 0 if it was not computed.
    pub(crate) dialog: u32,
}

/// Evidence in a request that it belongs to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Keyed hash of the dialog of the request, or 0 if the call has no such dialog.
    pub(crate) dialog: u32,
    /// Keyed hash by which the forked copies of an INVITE outside a dialog are recognized. Copies
    /// have the same From-tag, Call-ID and CSeq (RFC 3261 §8.2.2.2), and here also the same
    /// Request-URI. 0 for any other request.
    pub(crate) copy: u32,
    pub(crate) has_to_tag: bool,
}

impl Answer {
    /// Creates an `Answer` without a session interval and a dialog.
    pub(crate) const fn new(status: u16, from_backend: bool) -> Self {
        Self { status, from_backend, session: None, dialog: 0 }
    }

    /// Returns the facts of a response, except for the dialog that it creates.
    pub(crate) fn read(response: &Passage<'_>, from_backend: bool) -> Self {
        let (method, status) = (response.cseq.method, response.status);
        let sets_session = sets_session(method, status);
        let session = sets_session.then(|| response.session_interval()).flatten();
        Self { session, ..Self::new(status, from_backend) }
    }
}

/// Returns whether a response with this status to a request with this method sets the duration of
/// the session.
///
/// RFC 4028 §2: "Session Refresh Request: An INVITE or UPDATE request processed according to the
/// rules of this specification. If the request generates a 2xx response, the session expiration is
/// increased to the current time plus the session interval obtained from the response."
pub(super) fn sets_session(method: Method, status: u16) -> bool {
    matches!(method, Method::Invite | Method::Update) && (200..300).contains(&status)
}

/// A transaction that waits for its final response.
pub(super) struct Open {
    pub(super) transaction: Transaction,
    pub(super) has_to_tag: bool,
    /// Keyed hash of the dialog that the request would end, if the request is a BYE within an
    /// established call. Otherwise 0.
    pub(super) dialog: u32,
    /// True if the BYE has the tags of its dialog in the order of the other party.
    pub(super) is_reversed: bool,
    /// Time at which the transaction is removed if it has no final response.
    pub(super) until: Timestamp,
    /// Lease that counts the request as work on the back end, if the back end has to answer it.
    pub(super) lease: Option<TransactionLease>,
    /// Caller and callee of the request, if they were recorded as evidence of overload.
    pub(super) parties: Option<Parties>,
}

impl Open {
    pub(super) fn begun_at(&self) -> Timestamp {
        self.until - TRANSACTION_MAX
    }

    /// Records a response of the back end, and measures its response time. For an INVITE, the
    /// response time ends at the first response other than 100, because a person decides when a
    /// ringing call is answered. For other requests, it ends at the final response. A 5xx gives no
    /// response time.
    pub(super) fn on_response(&mut self, now: Timestamp, status: u16) {
        let tells = match self.transaction.method {
            Method::Invite => status > 100,
            _ => status >= 200,
        };
        let Some(lease) = &mut self.lease else { return };
        lease.on_heard(now);
        if tells && status / 100 != 5 {
            lease.on_answered(now);
        }
    }
}

/// Returns the kind of work that a request with this method causes at its back end.
pub(super) fn work_of(method: Method) -> Work {
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
        // An ACK and a CANCEL do not count as transactions here.
        Method::Ack | Method::Cancel | Method::Other => Work::Other,
    }
}
