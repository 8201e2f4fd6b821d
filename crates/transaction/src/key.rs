//! The key by which a request matches its server transaction: RFC 3261 §17.2.3.

use tidegate_sip::{Essentials, Method};

/// The magic cookie of the branch parameter. A branch that begins with the cookie is unique to its
/// request (RFC 3261 §8.1.1.7).
pub const COOKIE: &[u8] = b"z9hG4bK";

/// The key of a server transaction. A request, its retransmissions and the ACK to its rejection
/// have the same key. The key of its CANCEL differs only in the method. The ACK to a 2xx has
/// another key, because it is another request (RFC 3261 §13.2.2.4).
///
/// The identity is a keyed hash, so that no peer can make the keys of two requests equal. The
/// probability that two of a million live transactions have the same 64 bits is 3·10⁻⁸.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The [`identity`] of the request.
    pub identity: u64,
    /// The method of the request, or INVITE for an ACK.
    pub method: Method,
}

impl Key {
    /// Returns the key of a request with this identity and method.
    ///
    /// RFC 3261 §17.2.3: "the method of the request matches the one that created the
    /// transaction, except for ACK, where the method of the request that created the
    /// transaction is INVITE."
    pub fn new(identity: u64, method: Method) -> Self {
        let method = if method == Method::Ack { Method::Invite } else { method };
        Self { identity, method }
    }

    /// Returns the key of the INVITE that a CANCEL with this identity cancels.
    ///
    /// RFC 3261 §9.2: "The TU determines the transaction to be cancelled by taking the CANCEL
    /// request, and then assuming that the request method is anything but CANCEL or ACK and
    /// applying the transaction matching procedures of Section 17.2.3." For methods other than
    /// INVITE a CANCEL has no effect: "A CANCEL request has no impact on the processing of
    /// transactions with any other method defined in this specification."
    pub fn cancelled(identity: u64) -> Self {
        Self { identity, method: Method::Invite }
    }
}

/// Returns the identity of a request: a hash that is equal for all its copies, for the ACK to its
/// rejection and for its CANCEL, and different for any other request. `hash` computes the keyed
/// hash of a list of parts. `name` is the name of the method, and `uri` is the Request-URI.
/// `to_tag` is the To-tag of the request. For an ACK, the caller passes the To-tag of the INVITE.
///
/// RFC 3261 §17.2.3: "1. the branch parameter in the request is equal to the one in the top Via
/// header field of the request that created the transaction, and 2. the sent-by value in the top
/// Via of the request is equal to the one in the request that created the transaction". The third
/// condition compares the methods, which are in the [`Key`]. A [`Key`] does not distinguish
/// extension methods, so the hash includes their names.
///
/// Without the magic cookie, as in RFC 2543, the identity follows §16.11: "a hash of the topmost
/// Via, the tag in the To header field, the tag in the From header field, the Call-ID header field,
/// the CSeq number (but not method), and the Request-URI from the received request". The same
/// applies to a branch that is only the cookie. RFC 4475 §3.2.1: "An element receiving this request
/// [...] could fall back to the RFC 2543-style transaction identifier."
///
/// RFC 3261 §16.11: "However, the following procedure is RECOMMENDED."
pub fn identity(
    essentials: &Essentials<'_>,
    method: Method,
    name: &[u8],
    uri: &[u8],
    to_tag: Option<&[u8]>,
    hash: impl Fn(&[&[u8]]) -> u64,
) -> u64 {
    let Essentials { via, from_tag, call_id, cseq, .. } = essentials;
    let branch = via.branch().unwrap_or_default();
    if let Some(identity) = identity_of_branch(branch, via.sent_by, method, name, &hash) {
        return identity;
    }
    let (from_tag, to_tag) = (from_tag.unwrap_or_default(), to_tag.unwrap_or_default());
    let number = cseq.number.to_be_bytes();
    hash(&[via.element, to_tag, from_tag, call_id, &number, uri, extension(method, name)])
}

/// Returns the identity of a request by its branch, or `None` if the branch is not
/// [unique](is_unique). `name` is the name of the method.
pub fn identity_of_branch(
    branch: &[u8],
    sent_by: &[u8],
    method: Method,
    name: &[u8],
    hash: impl Fn(&[&[u8]]) -> u64,
) -> Option<u64> {
    is_unique(branch).then(|| match extension(method, name) {
        b"" => hash(&[branch, sent_by]),
        name => hash(&[branch, sent_by, name]),
    })
}

/// Returns whether a branch consists of the magic cookie and at least one more character.
pub fn is_unique(branch: &[u8]) -> bool {
    branch.len() > COOKIE.len() && branch.starts_with(COOKIE)
}

/// Returns the name of an extension method, which [`Method`] does not list, or an empty name for
/// any other method.
fn extension(method: Method, name: &[u8]) -> &[u8] {
    if method == Method::Other { name } else { b"" }
}
