//! The callee of a request, for policies that select a back end by callee.

use arrayvec::ArrayVec;
use tidegate_sip::{Host, NameAddr};

use crate::keys::Keyed;
use crate::message::address_of_record::unescaped;

/// Returns a hash of the callee: the user and host in the To header field. Paper 003
/// (docs/papers.md), §II, calls this user the receiver of the call.
///
/// RFC 3261 §19.1.4: the user is case-sensitive, and the host is not. §10.3 item 5: "any escaped
/// characters MUST be converted to their unescaped form". §25.1: a host name may end with a dot.
/// Port and parameters are ignored, because they do not distinguish users. For a `tel:` URI, which has no host, the number
/// is hashed, and for any other URI without a host the whole text.
pub(crate) fn callee(keyed: &Keyed, to: &NameAddr<'_>) -> u64 {
    let Ok(uri) = to.parse_uri() else { return keyed.hash(&[to.uri]) };
    let user = &*unescaped(uri.user.unwrap_or_default());
    match uri.host {
        Some(Host::Name(name)) => {
            let name = name.strip_suffix(b".").unwrap_or(name);
            let lower: ArrayVec<u8, NAME_MAX> =
                name.iter().take(NAME_MAX).map(u8::to_ascii_lowercase).collect();
            keyed.hash(&[user, &lower])
        }
        Some(Host::V4(ip)) => keyed.hash(&[user, &ip.octets()]),
        Some(Host::V6(ip)) => keyed.hash(&[user, &ip.octets()]),
        None if uri.user.is_some() => keyed.hash(&[user]),
        None => keyed.hash(&[to.uri]),
    }
}

/// Maximum length of a host name in bytes (RFC 1035 §2.3.4).
const NAME_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(to: &str) -> u64 {
        callee(&Keyed::derive(&[7; 32], "call"), &NameAddr::parse(to.as_bytes()).unwrap())
    }

    #[test]
    fn one_user_is_one_callee_in_any_spelling() {
        let alice = hash("<sip:alice@example.com>");
        for same in [
            "\"Alice\" <sip:alice@EXAMPLE.com>",
            "<sip:alice@example.com:5070;transport=udp>",
            "sip:alice@example.com;tag=1",
            "<sips:alice@example.com>",
            "<sip:al%69ce@example.com.>",
        ] {
            assert_eq!(hash(same), alice, "{same}");
        }
        for other in [
            "<sip:Alice@example.com>",
            "<sip:bob@example.com>",
            "<sip:alice@example.org>",
            "<sip:alice@192.0.2.1>",
            "<sip:alice@[2001:db8::1]>",
            "<sip:example.com>",
            "<urn:service:sos>",
            "<tel:+15551234>",
        ] {
            assert_ne!(hash(other), alice, "{other}");
        }
        assert_ne!(hash("<urn:service:sos>"), hash("<urn:service:other>"));
        assert_ne!(hash("<tel:+15551234>"), hash("<tel:+15551235>"));
    }
}
