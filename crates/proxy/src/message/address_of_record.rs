//! Addresses of record, in the canonical form by which look-ups find a user.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

use tidegate_sip::{Host, Scheme, Uri};

/// Returns the key under which a store holds the contacts of the user in a SIP URI, or `None` if
/// the URI is not a `sip:` URI or names no user.
///
/// RFC 3261 §16.5: "When accessing the location service constructed by a registrar, the Request-URI
/// MUST first be canonicalized as described in Section 10.3 before being used as an index." §10.3
/// item 5: "all URI parameters MUST be removed (including the user-param), and any escaped
/// characters MUST be converted to their unescaped form."
///
/// The user part is case-sensitive, the host is not (§19.1.4: "Comparison of the userinfo of SIP
/// and SIPS URIs is case-sensitive. [...] Comparison of all other components of the URI is
/// case-insensitive unless explicitly defined otherwise."). The transport is removed with the
/// parameters. The port and the password are removed too, because neither identifies the user:
/// phones add the port of their outbound proxy.
pub fn address_of_record(uri: &Uri<'_>) -> Option<Arc<[u8]>> {
    if uri.scheme != Scheme::Sip {
        return None;
    }
    let (user, host) = (uri.user?, uri.host?);
    let mut key = Vec::with_capacity(b"sip:".len() + uri.text.len());
    key.extend_from_slice(b"sip:");
    key.extend_from_slice(&unescaped(user));
    key.push(b'@');
    match host {
        Host::Name(name) => {
            // RFC 3261 §25.1: a host name may end with a dot.
            let name = name.strip_suffix(b".").unwrap_or(name);
            key.extend(name.iter().map(u8::to_ascii_lowercase));
        }
        Host::V4(ip) => write!(key, "{ip}").ok()?,
        Host::V6(ip) => write!(key, "[{ip}]").ok()?,
    }
    Some(key.into())
}

/// Returns `text` with its escapes (`%` and two hexadecimal digits) resolved. A `%` without two
/// hexadecimal digits is kept.
pub(crate) fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return text.into();
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escaped = match after {
            [high, low, ..] if byte == b'%' => digit(high).zip(digit(low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                out.push(high << 4 | low);
                rest = &after[2..];
            }
            None => out.push(byte),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<String> {
        let key = address_of_record(&Uri::parse(text.as_bytes()).unwrap())?;
        Some(String::from_utf8(key.to_vec()).unwrap())
    }

    /// RFC 3261 §16.5: "When accessing the location service constructed by a registrar, the
    /// Request-URI MUST first be canonicalized as described in Section 10.3 before being used as an
    /// index."
    #[test]
    fn rfc3261_10_3_a_user_has_one_key_however_the_uri_is_written() {
        for same in [
            "sip:alice@example.com",
            "sip:%61lice@Example.COM;transport=udp",
            "sip:%61l%69ce@example.com",
            "SIP:alice@example.com:5060;user=phone",
            "sip:alice:secret@example.com.",
        ] {
            assert_eq!(key(same).as_deref(), Some("sip:alice@example.com"), "{same}");
        }
        for (other, its) in [
            ("sip:Alice@example.com", "sip:Alice@example.com"),
            ("sip:alice@example.org", "sip:alice@example.org"),
            ("sip:a%40b@example.com", "sip:a@b@example.com"),
            ("sip:50%25@example.com", "sip:50%@example.com"),
            ("sip:50%@example.com", "sip:50%@example.com"),
            ("sip:5%g0@192.0.2.1", "sip:5%g0@192.0.2.1"),
            ("sip:+1-212@[2001:DB8::0:1]:5070", "sip:+1-212@[2001:db8::1]"),
        ] {
            assert_eq!(key(other).as_deref(), Some(its), "{other}");
        }
    }

    #[test]
    fn a_uri_without_a_user_has_no_key() {
        for none in ["sip:example.com", "tel:+15551234", "urn:service:sos", "sips:a@example.com"] {
            assert_eq!(key(none), None, "{none}");
        }
    }
}
