//! The transactions of a call, and what their responses say to the call table.

use std::time::Duration;

use tidegate_balance::{Parties, TransactionLease, Work};
use tidegate_sip::{Method, Passage};
use tidegate_world::Timestamp;

/// 64·T1, RFC 3261 §17: the longest a transaction without an answer lives.
pub(crate) const TRANSACTION_MAX: Duration = Duration::from_secs(32);

/// Which transaction a message belongs to: the identity of the branch that its request
/// came with, and its method. An ACK to a non-2xx and a CANCEL have the identity of
/// their INVITE and are no transactions here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) identity: u64,
    pub(crate) method: Method,
}

impl Transaction {
    /// Marks of transactions with one identity lie so close together.
    pub(super) const MARKS: u64 = 64;

    /// The transaction in one number, as hashes are compared: RFC 3261 §17.2.3 tells requests with
    /// one branch apart by their methods, but for an INVITE with its ACK and CANCEL.
    pub(super) fn mark(self) -> u64 {
        let method = match self.method {
            Method::Invite | Method::Ack | Method::Cancel => 0,
            method => 1 + method as u64,
        };
        self.identity.wrapping_add(method)
    }

    pub(super) fn stands_alone(self) -> bool {
        !matches!(self.method, Method::Ack | Method::Cancel)
    }
}

/// What a response says to the call table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether the call's back end has sent it.
    pub(crate) from_backend: bool,
    /// The session interval that it sets.
    pub(crate) session: Option<Duration>,
    /// The keyed hash of the dialog that it creates; 0 if that was not looked for.
    pub(crate) dialog: u32,
}

/// Evidence in a request that it belongs to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// The keyed hash of the dialog that it is within; 0 if the call has no such dialog.
    pub(crate) dialog: u32,
    /// What an INVITE that begins something has in common with its copies, as a keyed hash: RFC
    /// 3261 §8.2.2.2 has them by From-tag, Call-ID and CSeq, and what they ask for by the
    /// Request-URI. 0 for any other request.
    pub(crate) copy: u32,
}

impl Answer {
    /// One that sets no session interval and creates no dialog.
    pub(crate) const fn new(status: u16, from_backend: bool) -> Self {
        Self { status, from_backend, session: None, dialog: 0 }
    }

    /// Reads a response, except for the dialog that it creates.
    pub(crate) fn read(response: &Passage<'_>, from_backend: bool) -> Self {
        let (method, status) = (response.cseq.method, response.status);
        let sets_session = sets_session(method, status);
        let session = sets_session.then(|| response.session_interval()).flatten();
        Self { session, ..Self::new(status, from_backend) }
    }
}

/// Whether such a response says how long the session lasts.
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
    pub(super) until: Timestamp,
    /// What it weighs on the back end, if that is who has to answer it.
    pub(super) lease: Option<TransactionLease>,
    /// Caller and callee, if its back end was watched when it was sent.
    pub(super) parties: Option<Parties>,
}

impl Open {
    pub(super) fn begun_at(&self) -> Timestamp {
        self.until - TRANSACTION_MAX
    }

    /// Its back end has responded. The first response to an INVITE other than 100 tells how fast
    /// it works, and of others the final one; what comes after the ringing is a person's time. A
    /// 5xx is no measure of it.
    pub(super) fn on_response(&mut self, now: Timestamp, status: u16) {
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
        // An ACK and a CANCEL are no transactions here.
        Method::Ack | Method::Cancel | Method::Other => Work::Other,
    }
}
