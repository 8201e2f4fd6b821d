//! URIs (RFC 3261 §19.1, RFC 3966).

use std::fmt;

use crate::lexical::{find, is_visible_but};
use crate::{Host, Malformed, Params};

/// The scheme of a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `sip`.
    Sip,
    /// `sips`: TLS on every hop.
    Sips,
    /// `tel`, RFC 3966.
    Tel,
    /// `urn`, as in `urn:service:sos` (RFC 5031).
    Urn,
    /// Any other scheme.
    Other,
}

/// A URI, split into its parts but not unescaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uri<'a> {
    /// The scheme.
    pub scheme: Scheme,
    /// The whole URI.
    pub text: &'a [u8],
    /// The user part, or the number of a `tel:` URI, or `None` without one.
    pub user: Option<&'a [u8]>,
    /// The password, or `None` without one. RFC 3261 §19.1.1 advises against passwords.
    pub password: Option<&'a [u8]>,
    /// The host: always present for `sip:` and `sips:`, never for others.
    pub host: Option<Host<'a>>,
    /// The port, or `None` if none is written.
    pub port: Option<u16>,
    /// The parameters after the host, or after the number of a `tel:` URI.
    pub params: Params<'a>,
    /// The text after the `?`, or `None` without one.
    pub headers: Option<&'a [u8]>,
}

impl<'a> Uri<'a> {
    /// Parses a URI.
    ///
    /// # Errors
    /// Returns [`Malformed::Uri`] if `text` does not follow the grammar of its scheme. For an
    /// unknown scheme, only the scheme itself is checked.
    pub fn parse(text: &'a [u8]) -> Result<Self, Malformed> {
        Self::take_apart(text).ok_or(Malformed::Uri)
    }

    /// Returns whether the `lr` parameter marks a loose router (RFC 3261 §19.1.1).
    pub fn lr(&self) -> bool {
        self.params.get("lr").is_some()
    }

    /// Returns the value of the `transport` parameter, or `None` without one.
    pub fn transport(&self) -> Option<&'a [u8]> {
        self.params.value("transport")
    }

    /// Returns the value of the `maddr` parameter, or `None` without one.
    pub fn maddr(&self) -> Option<&'a [u8]> {
        self.params.value("maddr")
    }

    /// Returns the port, or the default port of the scheme: 5060, or 5061 for `sips`.
    pub fn port_or_default(&self) -> u16 {
        self.port.unwrap_or(if self.scheme == Scheme::Sips { 5061 } else { 5060 })
    }

    /// Returns the URI without port, parameters and headers. The removed parts can change the
    /// destination of a request. The field `text` still contains them.
    #[must_use]
    pub fn without_params(self) -> Self {
        Self { port: None, params: Params::new(b""), headers: None, ..self }
    }

    /// Returns whether two URIs are equal, by RFC 3261 §19.1.4 for `sip` and `sips`, by their text
    /// for other schemes. Headers in another order count as different.
    pub fn is_equal(&self, other: &Uri<'_>) -> bool {
        let (Some(host), Some(other_host)) = (self.host, other.host) else {
            return self.text == other.text;
        };
        let is_same = |a: Option<&[u8]>, b: Option<&[u8]>| match (a, b) {
            (Some(a), Some(b)) => unescaped(a).eq(unescaped(b)),
            (a, b) => a == b,
        };
        self.scheme == other.scheme
            && is_same(self.user, other.user)
            && is_same(self.password, other.password)
            && host.eq_ignore_case(&other_host)
            && self.port == other.port
            && is_matched(&self.params, &other.params)
            && is_matched(&other.params, &self.params)
            && is_same(self.headers, other.headers)
    }

    fn take_apart(text: &'a [u8]) -> Option<Self> {
        // No URI contains a space, a control character or a delimiter. Bytes from 0x80 on should be
        // escaped. They are accepted because they occur in practice, and no parser takes them for a
        // delimiter.
        if !is_visible_but(*b"<>\"", text) {
            return None;
        }
        if let Some(rest) = text.strip_prefix(b"sip:") {
            return Self::sip(Scheme::Sip, text, rest);
        }
        let colon = find(b':', text)?;
        let scheme = scheme(&text[..colon])?;
        let rest = &text[colon + 1..];
        match scheme {
            Scheme::Sip | Scheme::Sips => Self::sip(scheme, text, rest),
            Scheme::Tel => Self::bare(scheme, text).tel(rest),
            Scheme::Urn | Scheme::Other => (!rest.is_empty()).then_some(Self::bare(scheme, text)),
        }
    }

    fn bare(scheme: Scheme, text: &'a [u8]) -> Self {
        let params = Params::new(&text[text.len()..]);
        let (user, password, host, port, headers) = (None, None, None, None, None);
        Self { scheme, text, user, password, host, port, params, headers }
    }

    #[inline(always)]
    fn sip(scheme: Scheme, text: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        // RFC 3261 §25.1: an unescaped `@` occurs only after the userinfo, but the user part may
        // contain `;` and `?`. So the `@` must be searched first.
        let (mut user, mut password) = (None, None);
        let address = match find(b'@', rest) {
            None => rest,
            Some(at) => {
                let userinfo = &rest[..at];
                let end = find(b':', userinfo).unwrap_or(at);
                user = Some(&userinfo[..end]).filter(|user| !user.is_empty());
                user?;
                password = userinfo.get(end + 1..);
                // RFC 3261 §25.1: `password` does not allow a colon.
                if password.is_some_and(|password| find(b':', password).is_some()) {
                    return None;
                }
                &rest[at + 1..]
            }
        };
        let (host, port, tail) = Host::split_with_port(address)?;
        let host = Some(host);
        if tail.is_empty() {
            let (params, headers) = (Params::new(tail), None);
            return Some(Self { scheme, text, user, password, host, port, params, headers });
        }
        if !matches!(tail[0], b';' | b'?') || find(b'@', tail).is_some() {
            return None;
        }
        let (params, headers) = tail.split_at(find(b'?', tail).unwrap_or(tail.len()));
        let (params, headers) = (Params::new(params), headers.get(1..));
        Some(Self { scheme, text, user, password, host, port, params, headers })
    }

    fn tel(mut self, rest: &'a [u8]) -> Option<Self> {
        let (number, params) = rest.split_at(find(b';', rest).unwrap_or(rest.len()));
        // RFC 3966 §3: digits and visual separators. A local number may contain hex digits, `*` and
        // `#`.
        let digits = number.strip_prefix(b"+").unwrap_or(number);
        let legal =
            |b: u8| b.is_ascii_hexdigit() || matches!(b, b'*' | b'#' | b'-' | b'.' | b'(' | b')');
        if digits.is_empty() || !digits.iter().all(|&b| legal(b)) {
            return None;
        }
        self.user = Some(number);
        self.params = Params::new(params);
        Some(self)
    }
}

#[inline]
fn scheme(name: &[u8]) -> Option<Scheme> {
    if name.eq_ignore_ascii_case(b"sip") {
        Some(Scheme::Sip)
    } else if name.eq_ignore_ascii_case(b"sips") {
        Some(Scheme::Sips)
    } else if name.eq_ignore_ascii_case(b"tel") {
        Some(Scheme::Tel)
    } else if name.eq_ignore_ascii_case(b"urn") {
        Some(Scheme::Urn)
    } else {
        // RFC 3986 §3.1: ALPHA *( ALPHA / DIGIT / "+" / "-" / "." )
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        let begins = name.first().is_some_and(u8::is_ascii_alphabetic);
        (begins && name.iter().all(|&b| legal(b))).then_some(Scheme::Other)
    }
}

impl fmt::Display for Uri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.text))
    }
}

/// Returns whether each of these parameters matches the parameter of the same name in `others`.
///
/// RFC 3261 §19.1.4: "Any uri-parameter appearing in both URIs must match." If only one URI has a
/// parameter `user`, `ttl`, `method` or `maddr`, the URIs do not match. According to the examples
/// in the RFC, the same is true for `transport`.
fn is_matched(params: &Params<'_>, others: &Params<'_>) -> bool {
    let decides = |name: &[u8]| {
        ["user", "ttl", "method", "maddr", "transport"]
            .iter()
            .any(|n| name.eq_ignore_ascii_case(n.as_bytes()))
    };
    let lower = |value: Option<&[u8]>| -> Vec<_> {
        let bytes = unescaped(value.unwrap_or_default());
        bytes.map(|(byte, is_escaped)| (byte.to_ascii_lowercase(), is_escaped)).collect()
    };
    params.iter().all(|param| {
        let mut of_name = others.iter().filter(|other| other.name.eq_ignore_ascii_case(param.name));
        match of_name.next() {
            Some(other) => lower(other.value) == lower(param.value),
            None => !decides(param.name),
        }
    })
}

/// Returns the characters of a URI component. For each character, also returns whether it is the
/// escape of a reserved character, which is not equivalent to the character itself.
///
/// RFC 3261 §19.1.4: "Characters other than those in the "reserved" set (see RFC 2396 \[5\]) are
/// equivalent to their ""%" HEX HEX" encoding."
fn unescaped(mut text: &[u8]) -> impl Iterator<Item = (u8, bool)> {
    std::iter::from_fn(move || {
        let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
        if let (Some(b'%'), Some(high), Some(low)) = (text.first(), digit(1), digit(2)) {
            let byte = (high * 16 + low) as u8;
            text = &text[3..];
            return Some((byte, b";/?:@&=+$,%".contains(&byte)));
        }
        let (&byte, rest) = text.split_first()?;
        text = rest;
        Some((byte, false))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri<'_> {
        Uri::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// Examples of RFC 3261 §19.1.3.
    #[test]
    fn examples_of_the_rfc() {
        let u = uri("sip:alice:secretword@atlanta.com;transport=tcp");
        assert_eq!((u.user, u.password), (Some(&b"alice"[..]), Some(&b"secretword"[..])));
        assert_eq!((u.host, u.port), (Some(Host::Name(b"atlanta.com")), None));
        assert_eq!(u.transport(), Some(&b"tcp"[..]));

        let u = uri("sips:alice@atlanta.com?subject=project%20x&priority=urgent");
        assert_eq!((u.scheme, u.port_or_default()), (Scheme::Sips, 5061));
        assert_eq!(u.headers, Some(&b"subject=project%20x&priority=urgent"[..]));

        let u = uri("sip:+1-212-555-1212:1234@gateway.com;user=phone");
        assert_eq!(u.user, Some(&b"+1-212-555-1212"[..]));
        assert_eq!(u.params.get("user"), Some(Some(&b"phone"[..])));

        let u = uri("sip:atlanta.com;method=REGISTER?to=alice%40atlanta.com");
        assert_eq!((u.user, u.params.text()), (None, &b";method=REGISTER"[..]));

        // "The escaping rules defined above allow a semicolon to appear unescaped in this field."
        let u = uri("sip:alice;day=tuesday@atlanta.com");
        assert_eq!(u.user, Some(&b"alice;day=tuesday"[..]));
        assert!(u.params.iter().next().is_none());
    }

    /// The examples of RFC 3261 §19.1.4.
    #[test]
    fn uris_are_compared_by_their_components() {
        for (a, b) in [
            ("sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtLanTa.CoM;Transport=tcp"),
            ("sip:carol@chicago.com", "sip:carol@chicago.com;newparam=5"),
            ("sip:carol@chicago.com;newparam=5", "sip:carol@chicago.com;security=on"),
            (
                "sip:biloxi.com;transport=tcp;method=REGISTER?to=sip:bob%40biloxi.com",
                "sip:biloxi.com;method=REGISTER;transport=tcp?to=sip:bob%40biloxi.com",
            ),
            ("tel:+1", "tel:+1"),
        ] {
            assert!(uri(a).is_equal(&uri(b)) && uri(b).is_equal(&uri(a)), "{a} {b}");
        }
        for (a, b) in [
            ("SIP:ALICE@AtLanTa.CoM;Transport=udp", "sip:alice@AtLanTa.CoM;Transport=UDP"),
            ("sip:bob@biloxi.com", "sip:bob@biloxi.com:5060"),
            ("sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp"),
            ("sip:bob@biloxi.com", "sip:bob@biloxi.com:6000;transport=tcp"),
            ("sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting"),
            ("sip:bob@phone21.boxesbybob.com", "sip:bob@192.0.2.4"),
            ("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off"),
            ("sip:bob@a", "sip:bob@a;maddr=b"),
            ("sip:a%40b@c", "sip:ab@c"),
            ("sip:bob@a", "sips:bob@a"),
            ("tel:+1", "tel:+2"),
        ] {
            assert!(!uri(a).is_equal(&uri(b)) && !uri(b).is_equal(&uri(a)), "{a} {b}");
        }
    }

    #[test]
    fn loose_routers_ports_and_ipv6() {
        let u = uri("SIP:[2001:db8::10]:5070;LR");
        assert_eq!(u.host.and_then(|h| h.ip()), Some("2001:db8::10".parse().unwrap()));
        assert_eq!((u.port, u.lr()), (Some(5070), true));
        assert!(!uri("sip:a;lrx").lr());
        assert_eq!(uri("sip:a;maddr=192.0.2.1;lr").maddr(), Some(&b"192.0.2.1"[..]));
        assert_eq!(uri("sip:a;lr").maddr(), None);
        // RFC 5118 §4.3: the URI is well-formed, although its author meant 5070 as the port.
        let u = uri("sip:[2001:db8::10:5070]");
        assert_eq!(u.port, None);
    }

    #[test]
    fn other_schemes() {
        let u = uri("tel:+1-201-555-0123;phone-context=example.com");
        assert_eq!((u.scheme, u.user), (Scheme::Tel, Some(&b"+1-201-555-0123"[..])));
        assert_eq!(u.params.get("phone-context"), Some(Some(&b"example.com"[..])));
        assert_eq!(uri("urn:service:sos").scheme, Scheme::Urn);
        let u = uri("nobodyKnowsThisScheme:totallyopaquecontent");
        assert_eq!((u.scheme, u.host), (Scheme::Other, None));
    }

    #[test]
    fn not_a_uri() {
        let bad = [
            "",
            ":",
            "sip",
            "sip:",
            "sip:@host",
            "sip::pw@host",
            "sip:user@",
            "sip:user@host:",
            "alice",
            "sip:user@host:99999",
            "sip:a@b@c",
            "sip:a@b;x=@",
            "sip:2001:db8::10",
            "sip:a b@c",
            "sip:a@b\r\n c",
            "<sip:a@b>",
            "sip:a@b>",
            "5ip:a",
            "tel:",
            "tel:+",
            "tel:alice",
            "urn:",
            "sip:a@[::1",
            "sip:\0@b",
            "*",
        ];
        for text in bad {
            assert_eq!(Uri::parse(text.as_bytes()), Err(Malformed::Uri), "{text:?}");
        }
    }
}
