//! The outcomes of a request that the proxy does not forward: rejections, and the other reasons to
//! halt a request.

mod drop_reason;
pub(crate) mod reply_reason;
mod unsent_reason;

use arrayvec::ArrayVec;
use tidegate_sip::{HeaderName, Malformed};

use crate::resolution::Ticket;
pub use drop_reason::DropReason;
use reply_reason::ReplyReason;
pub(crate) use unsent_reason::UnsentReason;

/// The handling of a request that is rejected or dropped.
pub(crate) enum Rejection {
    /// A response with this status, for this reason. Its Warning contains the text.
    Reply(u16, ReplyReason, &'static str),
    /// 420: the header field with this name requires an extension that Tidegate does not have.
    BadExtension(HeaderName),
    /// No response: the request is dropped for this reason.
    Drop(DropReason),
    /// Rejection because all possible back ends are at their limits.
    PoolFull,
    /// Rejection because all possible back ends have asked for fewer requests.
    Restricted,
    /// The request is a retransmission, and its first copy could not be sent for this reason. The
    /// retransmission gets the same response as the first copy.
    Unsent(UnsentReason),
    /// 503 because all possible back ends are unavailable for new requests.
    PoolDown(Hints),
}

/// The reason why this shard does not forward a request now.
pub(crate) enum Halt {
    Rejected(Rejection),
    /// 200 to an OPTIONS whose target is this proxy itself.
    Capabilities,
    /// Handoff to the shard with this index, which may know the call.
    Redirect(u16),
    /// No response yet: the request waits for the query of this ticket.
    Park(Ticket),
}

impl From<Rejection> for Halt {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl Rejection {
    /// The call is not known (RFC 3261 §21.4.19).
    pub(crate) const UNKNOWN_CALL: Self = Self::usual(481, "no such call");
    /// The scheme of the Request-URI is not supported (RFC 3261 §21.4.14).
    pub(crate) const UNKNOWN_SCHEME: Self =
        Self::usual(416, "the scheme of the Request-URI is not supported");
    /// A SIPS URI whose target can only be reached without TLS.
    pub(crate) const INSECURE: Self =
        Self::Reply(480, ReplyReason::NoRoute, "the target cannot be reached over TLS");
    /// A stranger sent the request, and strangers may send requests only to pools and users.
    pub(crate) const RELAYING: Self = Self::usual(403, "relaying is not allowed");
    /// The name of a back end has not been resolved yet.
    pub(crate) const NO_ADDRESS: Self =
        Self::Reply(503, ReplyReason::NoAddress, "a back end has no address yet");
    pub(crate) const UNREACHABLE: Self = Self::usual(404, "no listener reaches that address");
    /// Nothing can be sent to the address in the request.
    pub(crate) const NO_SINGLE_HOST: Self =
        Self::usual(404, "the address belongs to no single host, or its port is 0");
    /// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
    /// response to the request."
    pub(crate) const FLOW_GONE: Self = Self::usual(430, "the flow to the target has ended");
    /// RFC 5626 §5.3.1: "If the flow token has been tampered with, the proxy SHOULD send a 403
    /// (Forbidden) response."
    pub(crate) const FLOW_FORGED: Self =
        Self::Reply(403, ReplyReason::FlowToken, "this proxy did not make the flow token");
    /// RFC 3261 §21.5.5: "The server did not receive a timely response from an external server it
    /// accessed in attempting to process the request."
    pub(crate) const UNRESOLVED: Self = Self::usual(504, "the DNS does not answer");
    /// The DNS has no such host, or no allowed address of it.
    pub(crate) const NO_HOST: Self = Self::usual(404, "no such host");
    /// No store has such a user.
    pub(crate) const NO_USER: Self = Self::Reply(404, ReplyReason::NoUser, "no such user");
    /// No contact of the user is known, or no known contact can be reached.
    pub(crate) const NO_CONTACT: Self = Self::usual(480, "the user cannot be reached");
    /// The store of the users did not answer. RFC 3261 §16.5: "If the target set remains empty
    /// after applying all of the above, the proxy MUST return an error response, which SHOULD be
    /// the 480 (Temporarily Unavailable) response." A 503 would mean that this whole server is
    /// overloaded, and its clients would send all their requests elsewhere (§21.5.4).
    pub(crate) const LOOKUP_FAILED: Self =
        Self::Reply(480, ReplyReason::Lookup, "the look-up of the user failed");
    /// Too many requests wait for the DNS or for look-ups of users, so the request cannot wait.
    pub(crate) const PARKED_FULL: Self =
        Self::Reply(503, ReplyReason::Parked, "too many requests wait for the DNS or a look-up");
    /// The call table has no room for another call.
    pub(crate) const CALLS_FULL: Self =
        Self::Reply(503, ReplyReason::CallTable, "call table is full");
    /// The call table has no place for another call with this Call-ID. A 503 would mean that this
    /// whole server is overloaded, and its clients would send all their requests elsewhere (RFC
    /// 3261 §21.5.4).
    pub(crate) const SAME_CALL_ID: Self =
        Self::Reply(500, ReplyReason::SameCallId, "too many calls have this Call-ID");
    /// The source has used up its share of the call table.
    pub(crate) const CALL_SHARE_USED: Self = Self::Reply(
        503,
        ReplyReason::CallTable,
        "this source has used its share of the call table",
    );
    /// The transaction table has no room for another response context.
    pub(crate) const TRANSACTIONS_FULL: Self =
        Self::Reply(503, ReplyReason::TransactionTable, "transaction table is full");
    /// The source has used up its share of the transaction table.
    pub(crate) const TRANSACTION_SHARE_USED: Self = Self::Reply(
        503,
        ReplyReason::TransactionTable,
        "this source has used its share of the transaction table",
    );

    /// Returns the rejection by a response with this status, for the
    /// [usual reason](ReplyReason::usual) of the status.
    pub(crate) const fn usual(status: u16, text: &'static str) -> Self {
        Self::Reply(status, ReplyReason::usual(status), text)
    }
}

impl From<Malformed> for Rejection {
    fn from(malformed: Malformed) -> Self {
        Self::usual(status_of(malformed), "malformed")
    }
}

/// Returns the status of the response to a malformed request.
pub(crate) fn status_of(malformed: Malformed) -> u16 {
    match malformed {
        // RFC 3261 §21.5.6.
        Malformed::Version => 505,
        // RFC 3261 §21.5.7: "The server was unable to process the request since the message length
        // exceeded its capabilities."
        Malformed::TooManyHeaders => 513,
        _ => 400,
    }
}

/// Maximum number of header fields in [`ReplyHeaders`].
pub(crate) const HEADERS_MAX: usize = 5;

/// Header fields of a reply, besides those that every reply has.
pub(crate) type ReplyHeaders<'a> = ArrayVec<(&'a str, &'a [u8]), HEADERS_MAX>;

/// Optional header fields of a rejection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    /// RFC 3261 §20.33: number of seconds after which the client may try again.
    pub(crate) retry_after_s: Option<u32>,
    /// RFC 3261 §20.43: the value of Warning.
    pub(crate) warning: Option<&'static str>,
}

impl Hints {
    /// Returns the header fields to add to the rejection.
    pub(crate) fn headers<'a>(&self, digits: &'a mut itoa::Buffer) -> ReplyHeaders<'a> {
        let wait = self.retry_after_s.map(|seconds| digits.format(seconds).as_bytes());
        let wait = wait.map(|seconds| ("Retry-After", seconds));
        let warning = self.warning.map(|text| ("Warning", text.as_bytes()));
        wait.into_iter().chain(warning).collect()
    }
}

/// Returns the quoted text in the value of a Warning, or the whole value if it has no quotes, or
/// the empty text for `None`.
pub(crate) fn text_of(warning: Option<&'static str>) -> &'static str {
    let warning = warning.unwrap_or_default();
    warning.split('"').nth(1).unwrap_or(warning)
}
