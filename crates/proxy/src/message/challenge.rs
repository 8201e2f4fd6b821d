//! Challenges: 401 and 407 responses, and the requests with credentials that answer them.
//!
//! RFC 3261 §22.2: a UAC that sends a request again with credentials increments the CSeq number. So
//! the new request has another branch. By §8.1.3.5 its Call-ID, From and To are those of the
//! challenged request.

use std::net::IpAddr;

use tidegate_sip::{HeaderName, Message};

use crate::keys::Keys;

/// Returns whether a response with this status asks for credentials.
pub(crate) fn is_challenge(status: u16) -> bool {
    matches!(status, 401 | 407)
}

/// Returns a keyed hash that is the same for a challenged request of `source` and for the request
/// with credentials that answers the challenge.
pub(crate) fn challenge_of(keys: &Keys, method: &[u8], call_id: &[u8], source: IpAddr) -> u64 {
    let source = match source {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    keys.identity.hash(&[b"challenge", method, call_id, &source.octets()])
}

pub(crate) fn has_credentials(request: &[u8]) -> bool {
    let credentials = [HeaderName::Authorization, HeaderName::ProxyAuthorization];
    Message::parse(request)
        .is_ok_and(|message| credentials.into_iter().any(|name| message.field(name).is_some()))
}
