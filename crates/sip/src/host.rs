//! Hosts in URIs and Vias.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayString;

use crate::lexical::{find, run_of, split_decimal, trim_start};

/// A host: a name or a literal address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host<'a> {
    /// A domain name, in the case in which it was written.
    Name(&'a [u8]),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, written in square brackets.
    V6(Ipv6Addr),
}

impl<'a> Host<'a> {
    /// Parses `hostname / IPv4address / IPv6reference`. Returns `None` for anything else.
    ///
    /// Underscores, and a last label that begins with a digit, are accepted: the grammar forbids
    /// them but they occur in practice. Text of only digits and dots must be an address.
    #[inline]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        Self::split(text).and_then(|(host, rest)| rest.is_empty().then_some(host))
    }

    /// Reads the host at the beginning of `text`, and returns it with the text that follows, or
    /// `None` if `text` does not begin with a host.
    #[inline]
    fn split(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        if let Some(inside) = text.strip_prefix(b"[") {
            let close = find(b']', inside)?;
            return Some((Self::V6(ipv6(&inside[..close])?), &inside[close + 1..]));
        }
        if let Some((ip, rest)) = split_ipv4(text)
            && !rest.first().is_some_and(|&b| is_name(b))
        {
            return Some((Self::V4(ip), rest));
        }
        let (name, rest) = text.split_at(run_of(&NAME, text));
        let is_numeric = name.iter().all(|&b| b.is_ascii_digit() || b == b'.');
        (!is_numeric).then_some((Self::Name(name), rest))
    }

    /// Reads `host [":" port]` at the beginning of `text`, and returns host, port and the text that
    /// follows. Returns `None` if `text` does not begin with a host, or if no port follows the
    /// colon. White space may surround the colon, as in a Via.
    #[inline]
    pub(crate) fn split_with_port(text: &'a [u8]) -> Option<(Self, Option<u16>, &'a [u8])> {
        let (host, rest) = Self::split(text)?;
        match trim_start(rest).strip_prefix(b":") {
            None => Some((host, None, rest)),
            Some(port) => {
                let (port, rest) = split_decimal(trim_start(port), u16::MAX.into())?;
                Some((host, Some(port as u16), rest))
            }
        }
    }

    /// Parses `host [":" port]`. Returns `None` for anything else.
    pub fn parse_with_port(text: &'a [u8]) -> Option<(Self, Option<u16>)> {
        let (host, port, rest) = Self::split_with_port(text)?;
        rest.is_empty().then_some((host, port))
    }

    /// Returns the IP address, or `None` for a domain name.
    #[inline]
    pub fn ip(&self) -> Option<IpAddr> {
        match *self {
            Self::Name(_) => None,
            Self::V4(ip) => Some(IpAddr::V4(ip)),
            Self::V6(ip) => Some(IpAddr::V6(ip)),
        }
    }

    /// Returns whether `self` and `other` are the same host. Names are compared without regard to
    /// case, and addresses by value.
    pub fn eq_ignore_case(&self, other: &Host<'_>) -> bool {
        match (self, other) {
            (Self::Name(a), Host::Name(b)) => a.eq_ignore_ascii_case(b),
            _ => self.ip().is_some() && self.ip() == other.ip(),
        }
    }
}

/// Parses an IP address. An IPv6 address may have brackets or not: RFC 5118 §4.5 says that both
/// forms occur in the `received` parameter.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    match Host::parse(text) {
        Some(host) => host.ip(),
        None => ipv6(text).map(IpAddr::V6),
    }
}

/// The bytes allowed in a host name.
static NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric() || matches!(b as u8, b'-' | b'.' | b'_');
        b += 1;
    }
    table
};

#[inline]
fn is_name(b: u8) -> bool {
    NAME[usize::from(b)]
}

/// Returns the IPv4 address at the beginning of `text` and the text that follows it, or `None` if
/// `text` does not begin with one.
#[inline]
fn split_ipv4(text: &[u8]) -> Option<(Ipv4Addr, &[u8])> {
    let digit = |at: usize| {
        let digit = text.get(at)?.wrapping_sub(b'0');
        (digit < 10).then_some(u32::from(digit))
    };
    let mut octets = [0; 4];
    let mut at = 0;
    for (i, octet) in octets.iter_mut().enumerate() {
        if i > 0 {
            (text.get(at) == Some(&b'.')).then_some(())?;
            at += 1;
        }
        let mut value = digit(at)?;
        at += 1;
        // Some parsers read a number with a leading zero as octal, others as decimal.
        let is_zero = value == 0;
        while let Some(next) = digit(at) {
            value = value * 10 + next;
            if value > u8::MAX.into() || is_zero {
                return None;
            }
            at += 1;
        }
        *octet = value as u8;
    }
    Some((Ipv4Addr::from(octets), &text[at..]))
}

fn ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().or_else(|| three_colons(text))
}

/// Parses an IPv6 address with three colons: the grammar of RFC 3261 allows a third colon before an
/// IPv4 part (`2001:db8:::192.0.2.1`). RFC 5118 §4.10: "an implementation must tolerate both".
#[cold]
fn three_colons(text: &str) -> Option<Ipv6Addr> {
    let (before, after) = text.split_once(":::")?;
    let _: Ipv4Addr = after.parse().ok()?;
    let mut corrected = ArrayString::<48>::new();
    for part in [before, "::", after] {
        corrected.try_push_str(part).ok()?;
    }
    corrected.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses() {
        assert_eq!(Host::parse(b"192.0.2.1"), Some(Host::V4(Ipv4Addr::new(192, 0, 2, 1))));
        assert_eq!(Host::parse(b"[2001:db8::1]"), Some(Host::V6("2001:db8::1".parse().unwrap())));
        // RFC 5118 §4.9: an IPv4 address mapped into IPv6.
        assert_eq!(
            Host::parse(b"[::ffff:192.0.2.1]"),
            Some(Host::V6("::ffff:192.0.2.1".parse().unwrap()))
        );
        // RFC 5118 §4.10.
        assert_eq!(Host::parse(b"[2001:db8:::192.0.2.1]"), Host::parse(b"[2001:db8::192.0.2.1]"));
        assert_eq!(Host::parse(b"[2001:db8:::1]"), None);
        for name in ["example.com", "a", "8ab3c9f2e1d0", "my_host.local", "example.com."] {
            assert_eq!(Host::parse(name.as_bytes()), Some(Host::Name(name.as_bytes())));
        }
    }

    #[test]
    fn other_values_are_rejected() {
        let bad = [
            "",
            "256.0.0.1",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "1..2.3",
            "[1.2.3.4]",
            "[]",
            "[::1",
            "::1",
            "a b",
            "a\0b",
            "h\u{f6}st",
            "[fe80::1%eth0]",
            "a/b",
        ];
        for text in bad {
            assert_eq!(Host::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn ports() {
        let split = |t: &'static str| Host::split_with_port(t.as_bytes());
        let name = Host::Name(b"h");
        assert_eq!(split("h:5060;x"), Some((name, Some(5060), &b";x"[..])));
        assert_eq!(split("h : 5060 ;x"), Some((name, Some(5060), &b" ;x"[..])));
        assert_eq!(split("h?x:1"), Some((name, None, &b"?x:1"[..])));
        assert_eq!(split("[::1]:1"), Some((Host::V6(Ipv6Addr::LOCALHOST), Some(1), &b""[..])));
        for bad in ["h:", ":1", "h:65536", "h:+1", "[::1", ";x", ""] {
            assert_eq!(split(bad), None, "{bad}");
        }
        // RFC 5118 §4.4: without brackets, the address cannot be distinguished from the port.
        assert_eq!(split("2001:db8::10:5070"), None);
    }

    #[test]
    fn one_host_in_two_spellings() {
        let host = |t: &'static str| Host::parse(t.as_bytes()).unwrap();
        assert!(host("Example.COM").eq_ignore_case(&host("example.com")));
        assert!(host("[2001:DB8:0::1]").eq_ignore_case(&host("[2001:db8::1]")));
        assert!(!host("a").eq_ignore_case(&host("b")));
        assert!(!host("127.0.0.1").eq_ignore_case(&host("localhost")));
        assert_eq!(address(b"2001:db8::9:255"), address(b"[2001:db8::9:255]"));
        assert_eq!(address(b"example.com"), None);
    }
}
