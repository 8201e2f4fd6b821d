//! The start line (RFC 3261 §7.1, §7.2).

use crate::lexical::{is_visible, split_token, trim, trim_end};
use crate::{Malformed, Method};

/// The first line of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartLine<'a> {
    /// A Request-Line.
    Request {
        /// The method.
        method: Method,
        /// The method's name as written.
        method_name: &'a [u8],
        /// The Request-URI, without white space but otherwise not yet checked.
        uri: &'a [u8],
    },
    /// A Status-Line.
    Response {
        /// The Status-Code, 100 to 699.
        status: u16,
        /// The Reason-Phrase, possibly empty.
        reason: &'a [u8],
    },
}

/// A start line and the protocol version in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) line: StartLine<'a>,
    pub(crate) version: &'a [u8],
}

const VERSION: &[u8; 7] = b"SIP/2.0";

impl<'a> Start<'a> {
    /// Parses a start line that is given without its line end.
    ///
    /// Accepts any version of the form `SIP/1.2`, so that the request can be answered with 505.
    #[inline]
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, Malformed> {
        let start = match line {
            // No method contains a slash.
            [b'S' | b's', b'I' | b'i', b'P' | b'p', b'/', ..] => Self::status_line(line),
            _ => Self::request_line(line),
        };
        start.ok_or(Malformed::StartLine)
    }

    /// Parses like [`parse`](Self::parse), but accepts any text as the Request-URI, so that the
    /// request can be answered with 400.
    ///
    /// RFC 4475 §3.1.2.8, of a Request-URI with white space in it: "An element receiving this
    /// request should respond with a 400 Bad Request."
    #[inline]
    pub(crate) fn parse_to_answer(line: &'a [u8]) -> Result<Self, Malformed> {
        Self::parse(line).or_else(|malformed| Self::request_to_answer(line).ok_or(malformed))
    }

    #[cold]
    fn request_to_answer(line: &'a [u8]) -> Option<Self> {
        let line = trim_end(line);
        let (method_name, rest) = split_token(line)?;
        let (uri, version) = rest.split_at(memchr::memrchr(b' ', rest)?);
        let version = &version[1..];
        let method = Method::from_bytes(method_name);
        let line = StartLine::Request { method, method_name, uri: trim(uri) };
        is_version(version).then_some(Self { line, version })
    }

    /// Returns whether the version is 2.0. RFC 3261 §7.1: the version is compared without regard to
    /// case.
    #[inline]
    pub(crate) fn is_version_2(&self) -> bool {
        self.version.eq_ignore_ascii_case(VERSION)
    }

    #[inline]
    fn request_line(line: &'a [u8]) -> Option<Self> {
        Self::usual_request_line(line).or_else(|| Self::any_request_line(line))
    }

    /// Parses a request line with a usual method and version 2.0. Returns `None` for any other
    /// line.
    #[inline(always)]
    fn usual_request_line(line: &'a [u8]) -> Option<Self> {
        let (method, length) = match line {
            [b'I', b'N', b'V', b'I', b'T', b'E', b' ', ..] => (Method::Invite, 6),
            [b'A', b'C', b'K', b' ', ..] => (Method::Ack, 3),
            [b'B', b'Y', b'E', b' ', ..] => (Method::Bye, 3),
            [b'C', b'A', b'N', b'C', b'E', b'L', b' ', ..] => (Method::Cancel, 6),
            [b'O', b'P', b'T', b'I', b'O', b'N', b'S', b' ', ..] => (Method::Options, 7),
            _ => return None,
        };
        let (before, version) = line.split_last_chunk::<{ VERSION.len() }>()?;
        let uri = before.get(length + 1..)?.strip_suffix(b" ")?;
        let is_usual = *version == *VERSION && !uri.is_empty() && is_visible(uri);
        let line = StartLine::Request { method, method_name: &line[..length], uri };
        is_usual.then_some(Self { line, version })
    }

    fn any_request_line(line: &'a [u8]) -> Option<Self> {
        let (method_name, rest) = split_token(line)?;
        let rest = rest.strip_prefix(b" ")?;
        let space = rest.len().checked_sub(VERSION.len() + 1)?;
        let (uri, version) = if &rest[space + 1..] == VERSION {
            (&rest[..space], &rest[space + 1..])
        } else {
            let space = memchr::memrchr(b' ', rest)?;
            (&rest[..space], &rest[space + 1..])
        };
        if rest.get(uri.len()) != Some(&b' ') || !is_version(version) {
            return None;
        }
        // RFC 3261 §7.1: "The Request-URI MUST NOT contain unescaped spaces or
        // control characters".
        if uri.is_empty() || !is_visible(uri) {
            return None;
        }
        let method = Method::from_bytes(method_name);
        Some(Self { line: StartLine::Request { method, method_name, uri }, version })
    }

    #[inline]
    fn status_line(line: &'a [u8]) -> Option<Self> {
        let space = match line.get(VERSION.len()) {
            Some(b' ') => VERSION.len(),
            _ => memchr::memchr(b' ', line)?,
        };
        let (version, rest) = line.split_at(space);
        let &[_, hundreds @ b'1'..=b'6', tens, units, ref reason @ ..] = rest else { return None };
        if !is_version(version) || !tens.is_ascii_digit() || !units.is_ascii_digit() {
            return None;
        }
        let digit = |b: u8| u16::from(b - b'0');
        let status = digit(hundreds) * 100 + digit(tens) * 10 + digit(units);
        let reason = match reason {
            // RFC 4475 §3.1.1.13: the space before an empty reason is required, and
            // "a liberal receiver would accept it anyway".
            [] => reason,
            [b' ', reason @ ..] => reason,
            _ => return None,
        };
        Some(Self { line: StartLine::Response { status, reason }, version })
    }
}

/// Returns the Status-Code of a message that begins with a Status-Line of version 2.0 in the usual
/// form, or `None` for any other message.
#[inline(always)]
pub(crate) fn usual_status(bytes: &[u8]) -> Option<u16> {
    let rest = bytes.strip_prefix(b"SIP/2.0 ")?;
    let &[hundreds @ b'1'..=b'6', tens @ b'0'..=b'9', units @ b'0'..=b'9', b' ', ..] = rest else {
        return None;
    };
    let digit = |b: u8| u16::from(b - b'0');
    Some(digit(hundreds) * 100 + digit(tens) * 10 + digit(units))
}

#[inline]
fn is_version(text: &[u8]) -> bool {
    text == VERSION || is_other_version(text)
}

fn is_other_version(text: &[u8]) -> bool {
    let digits = |d: &[u8]| !d.is_empty() && d.iter().all(u8::is_ascii_digit);
    let Some((protocol, number)) = text.split_at_checked(4) else { return false };
    let mut parts = number.splitn(2, |&b| b == b'.');
    protocol.eq_ignore_ascii_case(b"SIP/") && parts.all(digits) && number.contains(&b'.')
}

/// Returns the bytes from the start line on, without the line ends that may precede it.
///
/// RFC 3261 §7.5: "Implementations processing SIP messages over stream-oriented transports MUST
/// ignore any CRLF appearing before the start-line". Over datagrams this is harmless.
#[inline]
pub(crate) fn skip_blank(bytes: &[u8]) -> Result<&[u8], Malformed> {
    match bytes.first() {
        Some(&b) if b > b' ' => Ok(bytes),
        _ => skip_blank_slowly(bytes),
    }
}

#[cold]
fn skip_blank_slowly(bytes: &[u8]) -> Result<&[u8], Malformed> {
    let begin = bytes.iter().position(|&b| !matches!(b, b'\r' | b'\n')).unwrap_or(bytes.len());
    // Known NAT keep-alives are: CRLF CRLF (RFC 5626 §4.4.1), one CRLF, four zero bytes, blanks, an
    // empty datagram.
    if bytes[begin..].iter().all(|&b| matches!(b, 0 | b' ' | b'\t' | b'\r' | b'\n')) {
        return Err(Malformed::Keepalive);
    }
    Ok(&bytes[begin..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str) -> Option<StartLine<'_>> {
        Start::parse(line.as_bytes()).ok().map(|start| start.line)
    }

    #[test]
    fn request_lines() {
        let uri = &b"sip:bob@biloxi.example"[..];
        assert_eq!(
            parse("INVITE sip:bob@biloxi.example SIP/2.0"),
            Some(StartLine::Request { method: Method::Invite, method_name: b"INVITE", uri })
        );
        // RFC 4475 §3.1.1.2: `IN%56ITE` is not INVITE, because nothing is unescaped in a method.
        assert_eq!(
            parse("IN%56ITE sip:bob@biloxi.example sip/2.0"),
            Some(StartLine::Request { method: Method::Other, method_name: b"IN%56ITE", uri })
        );
        let bad = [
            "",
            "INVITE",
            "INVITE ",
            "INVITE sip:a",
            "INVITE sip:a ",
            "INVITE SIP/2.0",
            "INVITE  SIP/2.0",
            " INVITE sip:a SIP/2.0",
            "INVITE  sip:a SIP/2.0",
            "INVITE sip:a  SIP/2.0",
            "INVITE sip:a SIP/2.0 ",
            "INVITE sip:a b SIP/2.0",
            "INVITE sip:\0 SIP/2.0",
            "INVITE sip:a HTTP/1.1",
            "INV@ITE sip:a SIP/2.0",
            "INVITE sip:aSIP/2.0",
            "INVITE\tsip:a SIP/2.0",
            "INVITE sip:a SIP/2",
            "INVITE sip:a SIP/2.",
        ];
        for line in bad {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn requests_with_a_broken_uri_can_be_answered() {
        for (line, uri) in [
            ("INVITE sip:a; lr SIP/2.0", "sip:a; lr"),
            ("INVITE  sip:a  SIP/2.0", "sip:a"),
            ("INVITE sip:a SIP/2.0 \t", "sip:a"),
            ("INVITE sip:\0 SIP/2.0", "sip:\0"),
            ("INVITE SIP/2.0", ""),
        ] {
            assert_eq!(parse(line), None, "{line:?}");
            let start = Start::parse_to_answer(line.as_bytes()).unwrap();
            let uri = uri.as_bytes();
            let expected =
                StartLine::Request { method: Method::Invite, method_name: b"INVITE", uri };
            assert_eq!(start.line, expected, "{line:?}");
            assert!(start.is_version_2());
        }
        for line in ["", "INVITE", " INVITE sip:a SIP/2.0", "INVITE sip:a", "SIP/2.0 2x0 OK"] {
            assert!(Start::parse_to_answer(line.as_bytes()).is_err(), "{line:?}");
        }
    }

    #[test]
    fn status_lines() {
        let ok = |status, reason| Some(StartLine::Response { status, reason });
        assert_eq!(parse("SIP/2.0 200 OK"), ok(200, b"OK"));
        assert_eq!(parse("SIP/2.0 486 Busy Here"), ok(486, b"Busy Here"));
        assert_eq!(parse("SIP/2.0 100 "), ok(100, b""));
        assert_eq!(parse("SIP/2.0 100"), ok(100, b""));
        for line in [
            "SIP/2.0",
            "SIP/2.0 ",
            "SIP/2.0 20",
            "SIP/2.0 2000 x",
            "SIP/2.0 099 x",
            "SIP/2.0 700 x",
            "SIP/2.0 4294967301 better not break the receiver",
            "SIP/2.0  200 OK",
            "SIP/2.0 2x0 OK",
            "SIP/x 200 OK",
            "SIP/2.0\t200 OK",
            "SIP/ 200 OK",
        ] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    proptest! {
        /// The fast path for usual request lines gives the same result as the path for all request
        /// lines.
        #[test]
        fn usual_request_lines_are_read_like_all_others(
            line in "(INVITE|ACK|BYE|CANCEL|OPTIONS|INFO|INVITED|Bye) {0,2}(sip:a@b(;lr)?|sip:a b|\u{1}| )? {0,2}(SIP/2\\.0|sip/2\\.0|SIP/3\\.0|SIP/2\\.0 )?",
        ) {
            let found = Start::request_line(line.as_bytes());
            let expected = Start::any_request_line(line.as_bytes());
            prop_assert_eq!(found.map(|start| start.line), expected.map(|start| start.line));
            prop_assert_eq!(found.map(|start| start.version), expected.map(|start| start.version));
        }
    }

    proptest! {
        /// The fast path for usual status lines gives the same result as the path for all status
        /// lines.
        #[test]
        fn usual_status_lines_are_read_like_all_others(
            line in "(SIP/2\\.0|sip/2\\.0|SIP/3\\.0) ?[0-9]{1,4}( OK| |x)?",
        ) {
            let found = usual_status(line.as_bytes());
            let expected = Start::parse(line.as_bytes()).ok();
            if let Some(status) = found {
                let start = expected.unwrap();
                let is_same = matches!(start.line, StartLine::Response { status: same, .. } if same == status);
                prop_assert!(is_same && start.is_version_2());
            }
        }
    }

    #[test]
    fn other_versions_are_parsed_and_distinguished() {
        for (line, ours) in [
            ("OPTIONS sip:a SIP/2.0", true),
            ("OPTIONS sip:a Sip/2.0", true),
            ("OPTIONS sip:a SIP/7.0", false),
            ("OPTIONS sip:a SIP/2.00", false),
            ("SIP/3.14 200 OK", false),
            ("sip/2.0 200 OK", true),
        ] {
            assert_eq!(Start::parse(line.as_bytes()).unwrap().is_version_2(), ours, "{line}");
        }
    }

    #[test]
    fn keepalives_and_leading_line_ends() {
        for bytes in ["", "\r\n", "\r\n\r\n", "\n", "\0\0\0\0", "  ", "\r\n\0"] {
            assert_eq!(skip_blank(bytes.as_bytes()), Err(Malformed::Keepalive), "{bytes:?}");
        }
        assert_eq!(skip_blank(b"\r\n\r\nACK"), Ok(&b"ACK"[..]));
        assert_eq!(skip_blank(b"\0ACK"), Ok(&b"\0ACK"[..]));
    }
}
