//! Finds the fields that an admission gate needs in a message, without indexing it.

use crate::field::{Line, first_line};
use crate::line_ends::LineEnds;
use crate::message::call_id;
use crate::start::{Start, skip_blank, usual_status};
use crate::via::TopVia;
use crate::{BYTES_MAX, CSeq, HeaderName, Malformed, Method, NameAddr, StartLine};

/// The start line of a message, and the values that identify the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The start line.
    pub start: ScanStart<'a>,
    /// The first Via element, trimmed.
    pub via: &'a [u8],
    /// The branch of the first Via, or `None` without one.
    pub branch: Option<&'a [u8]>,
    /// Host and port of the first Via, as written.
    pub sent_by: &'a [u8],
    /// The Call-ID.
    pub call_id: &'a [u8],
    /// The number of the CSeq.
    pub cseq: u32,
    /// The method of the CSeq.
    pub cseq_method: Method,
    /// The tag of the To, or `None` without one.
    pub to_tag: Option<&'a [u8]>,
}

/// The parts of the start line that an admission gate needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStart<'a> {
    /// A request.
    Request {
        /// The method.
        method: Method,
        /// The method's name as written.
        method_name: &'a [u8],
        /// The Request-URI.
        uri: &'a [u8],
    },
    /// A response.
    Response {
        /// The Status-Code.
        status: u16,
    },
}

/// Reads the start line, and nothing else.
///
/// # Errors
/// Returns [`Malformed`] if there is no valid start line. [`scan`] returns the same error.
#[inline]
pub fn glance(bytes: &[u8]) -> Result<ScanStart<'_>, Malformed> {
    // The line feed at the end of a message also ends its first line, if there is no other.
    match usual_status(bytes) {
        Some(status) if bytes.ends_with(b"\n") && bytes.len() <= BYTES_MAX => {
            Ok(ScanStart::Response { status })
        }
        _ => begin(bytes).map(|(start, ..)| start),
    }
}

/// Reads the start line and the first Via, To, Call-ID and CSeq, and stops there.
///
/// If [`Message::parse`](crate::Message::parse) and [`check`](crate::Message::check) accept a
/// message, `scan` finds the same values. `scan` accepts more messages, because it does not look at
/// the text after the last header that it needs, at a From, at the address of the Via, or at the
/// protocol version.
///
/// # Errors
/// Returns [`Malformed`], with [`Malformed::MissingHeader`] for the first of Via, To, Call-ID and
/// CSeq that is missing.
pub fn scan(bytes: &[u8]) -> Result<Scan<'_>, Malformed> {
    let (start, bytes, mut at, mut ends) = begin(bytes)?;
    let (mut via, mut to, mut id, mut cseq) = (None, None, None, None);
    let mut missing = 4;
    while missing > 0 {
        if !may_matter(bytes.get(at)) {
            at = ends.next_line()?;
            continue;
        }
        let Some(line) = Line::next(bytes, at, &mut ends)? else { break };
        at = line.end();
        let seen = match line.name {
            HeaderName::Via => &mut via,
            HeaderName::To => &mut to,
            HeaderName::CallId => &mut id,
            HeaderName::CSeq => &mut cseq,
            _ => continue,
        };
        if seen.is_none() {
            *seen = Some(line.value(bytes));
            missing -= 1;
        }
    }
    let (via, _) = read(via, HeaderName::Via, TopVia::first)?;
    let TopVia { element: via, sent_by, branch } = via;
    Identity { via, sent_by, branch, to, id, cseq }.scan(start)
}

/// The values from which a [`Scan`] is made, except the start line. Of these values, only the Via
/// is already parsed.
pub(crate) struct Identity<'a> {
    pub(crate) via: &'a [u8],
    pub(crate) sent_by: &'a [u8],
    pub(crate) branch: Option<&'a [u8]>,
    pub(crate) to: Option<&'a [u8]>,
    pub(crate) id: Option<&'a [u8]>,
    pub(crate) cseq: Option<&'a [u8]>,
}

impl<'a> Identity<'a> {
    #[inline(always)]
    pub(crate) fn scan(self, start: ScanStart<'a>) -> Result<Scan<'a>, Malformed> {
        let Self { via, sent_by, branch, to, id, cseq } = self;
        let to = read(to, HeaderName::To, NameAddr::parse)?;
        let call_id = read(id, HeaderName::CallId, call_id)?;
        let cseq = read(cseq, HeaderName::CSeq, CSeq::parse)?;
        Ok(Scan {
            start,
            via,
            branch,
            sent_by,
            call_id,
            cseq: cseq.number,
            cseq_method: cseq.method,
            to_tag: to.tag(),
        })
    }
}

/// The fields of an ACK that identify the reply it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckScan<'a> {
    /// The branch of the first Via, or `None` without one. This branch is that of the INVITE,
    /// unless the reply was a 2xx (RFC 3261 §17.1.1.3).
    pub branch: Option<&'a [u8]>,
    /// The Call-ID.
    pub call_id: &'a [u8],
    /// The tag of the To, which the reply set.
    pub to_tag: &'a [u8],
}

/// Reads the fields of an ACK that identify the reply it acknowledges: the first Via, To and
/// Call-ID. Reads neither the Request-URI nor the CSeq.
///
/// For an ACK in which [`scan`] finds a To-tag, this returns the same values. Returns `None` for
/// anything but an ACK, for an ACK without a To-tag, and for a malformed ACK.
pub fn scan_ack(bytes: &[u8]) -> Option<AckScan<'_>> {
    let bytes = skip_blank(bytes).ok()?;
    if !bytes.starts_with(b"ACK ") || bytes.len() > BYTES_MAX {
        return None;
    }
    let (_, mut at, mut ends) = first_line(bytes).ok()?;
    let (mut via, mut to_tag, mut id) = (None, None, None);
    loop {
        if !may_matter(bytes.get(at)) {
            at = ends.next_line().ok()?;
            continue;
        }
        let line = Line::next(bytes, at, &mut ends).ok()??;
        at = line.end();
        match line.name {
            HeaderName::To if to_tag.is_none() => {
                to_tag = Some(NameAddr::parse(line.value(bytes))?.tag()?);
            }
            HeaderName::Via if via.is_none() => via = Some(line.value(bytes)),
            HeaderName::CallId if id.is_none() => id = Some(line.value(bytes)),
            _ => continue,
        }
        if let (Some(via), Some(to_tag), Some(id)) = (via, to_tag, id) {
            let branch = TopVia::first(via)?.0.branch;
            return Some(AckScan { branch, call_id: call_id(id)?, to_tag });
        }
    }
}

/// Returns the branch of the first Via of a truncated request, such as the request that an ICMP
/// error quotes. Returns `None` if there is no branch, or if the text ends before the Via is
/// complete.
pub fn branch_in_quote(bytes: &[u8]) -> Option<&[u8]> {
    let (start, bytes, mut at, mut ends) = begin(bytes).ok()?;
    if !matches!(start, ScanStart::Request { .. }) {
        return None;
    }
    loop {
        let line = Line::next(bytes, at, &mut ends).ok()??;
        if line.name == HeaderName::Via {
            return TopVia::first(line.value(bytes))?.0.branch;
        }
        at = line.end();
    }
}

/// Returns the start line, the message that begins with it, the position of its headers, and the
/// ends of their lines.
#[inline]
pub(crate) fn begin(
    bytes: &[u8],
) -> Result<(ScanStart<'_>, &[u8], usize, LineEnds<'_>), Malformed> {
    let bytes = skip_blank(bytes)?;
    if bytes.len() > BYTES_MAX {
        return Err(Malformed::TooLong);
    }
    let (first, at, ends) = first_line(bytes)?;
    let start = match Start::parse(first)?.line {
        StartLine::Request { method, method_name, uri } => {
            ScanStart::Request { method, method_name, uri }
        }
        StartLine::Response { status, .. } => ScanStart::Response { status },
    };
    Ok((start, bytes, at, ends))
}

/// Returns false if a line with this first letter cannot be Via, To, Call-ID or CSeq, nor the empty
/// line.
#[inline]
fn may_matter(first: Option<&u8>) -> bool {
    // Via or v, To or t, Call-ID or i, CSeq.
    const LETTERS: u32 = letters(b"vtic");
    first.is_none_or(|&letter| has_letter(LETTERS, letter))
}

/// Returns the set of the lower-case letters in `all`, one bit each.
pub(crate) const fn letters(all: &[u8]) -> u32 {
    let (mut set, mut i) = (0, 0);
    while i < all.len() {
        set |= 1 << (all[i] - b'a');
        i += 1;
    }
    set
}

/// Returns whether `byte` is one of `letters` in upper or lower case, or is not a letter. The set
/// is made by [`letters()`].
#[inline(always)]
pub(crate) fn has_letter(letters: u32, byte: u8) -> bool {
    let letter = (byte | 0x20).wrapping_sub(b'a');
    letter >= 26 || letters >> letter & 1 == 1
}

#[inline]
pub(crate) fn read<'a, T>(
    value: Option<&'a [u8]>,
    name: HeaderName,
    parse: impl Fn(&'a [u8]) -> Option<T>,
) -> Result<T, Malformed> {
    let value = value.ok_or(Malformed::MissingHeader(name))?;
    parse(value).ok_or(Malformed::BadHeader(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Message F1 of RFC 3261 §24.2, up to the last header that a scan reads.
    const INVITE: &str = "INVITE sip:bob@biloxi.com SIP/2.0\r\n\
        Via: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bKnashds8\r\n\
        Max-Forwards: 70\r\n\
        To: Bob <sip:bob@biloxi.com>\r\n\
        From: Alice <sip:alice@atlanta.com>;tag=1928301774\r\n\
        Call-ID: a84b4c76e66710\r\n\
        CSeq: 314159 INVITE\r\n";

    #[test]
    fn a_request() {
        assert_eq!(
            scan(INVITE.as_bytes()),
            Ok(Scan {
                start: ScanStart::Request {
                    method: Method::Invite,
                    method_name: b"INVITE",
                    uri: b"sip:bob@biloxi.com"
                },
                via: b"SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bKnashds8",
                branch: Some(b"z9hG4bKnashds8"),
                sent_by: b"pc33.atlanta.com",
                call_id: b"a84b4c76e66710",
                cseq: 314_159,
                cseq_method: Method::Invite,
                to_tag: None,
            })
        );
    }

    #[test]
    fn a_response_with_compact_forms_and_a_list() {
        let bytes =
            b"SIP/2.0 200 OK\nv: SIP/2.0/TCP a : 5070 ;rport=1;Branch = x , SIP/2.0/UDP b\n\
            i:1\nt: <sip:b>;tag=y\ncseq: 7 BYE\n";
        let found = scan(bytes).unwrap();
        assert_eq!(found.start, ScanStart::Response { status: 200 });
        assert_eq!(found.via, b"SIP/2.0/TCP a : 5070 ;rport=1;Branch = x");
        assert_eq!((found.branch, found.sent_by), (Some(&b"x"[..]), &b"a : 5070"[..]));
        assert_eq!((found.call_id, found.to_tag), (&b"1"[..], Some(&b"y"[..])));
        assert_eq!((found.cseq, found.cseq_method), (7, Method::Bye));
    }

    #[test]
    fn the_first_of_each_counts_and_what_follows_is_not_read() {
        let more = format!("{INVITE}Call-ID: other\r\nVia: other\r\n\0\0\0 no header, no end");
        assert_eq!(scan(more.as_bytes()), scan(INVITE.as_bytes()));
    }

    #[test]
    fn missing_parts_are_named() {
        for (line, name) in [
            ("Via", HeaderName::Via),
            ("To", HeaderName::To),
            ("Call-ID", HeaderName::CallId),
            ("CSeq", HeaderName::CSeq),
        ] {
            let without: String =
                INVITE.split_inclusive('\n').filter(|l| !l.starts_with(line)).collect();
            assert_eq!(scan(without.as_bytes()), Err(Malformed::NoEnd));
            let ended = format!("{without}\r\n{line}: in the body\r\n");
            assert_eq!(scan(ended.as_bytes()), Err(Malformed::MissingHeader(name)));
        }
    }

    #[test]
    fn malformed_parts_are_named() {
        let with = |from: &str, to: &str| {
            let bytes = INVITE.replace(from, to);
            assert_ne!(bytes, INVITE);
            scan(bytes.as_bytes()).unwrap_err()
        };
        assert_eq!(with("SIP/2.0/UDP pc33", "pc33"), Malformed::BadHeader(HeaderName::Via));
        assert_eq!(with("a84b4c76e66710", "a84b 4c76"), Malformed::BadHeader(HeaderName::CallId));
        assert_eq!(with("314159 INV", "INV"), Malformed::BadHeader(HeaderName::CSeq));
        assert_eq!(with("<sip:bob@biloxi.com>", "<"), Malformed::BadHeader(HeaderName::To));
        assert_eq!(with("SIP/2.0\r\n", "HTTP/1.1\r\n"), Malformed::StartLine);
        assert_eq!(with("Via:", "Via"), Malformed::Header { offset: 35 });
        assert_eq!(scan(b"\r\n\r\n"), Err(Malformed::Keepalive));
        assert_eq!(scan(&[b'A'; BYTES_MAX + 1]), Err(Malformed::TooLong));
    }

    #[test]
    fn the_branch_in_a_quote_that_is_cut_off() {
        let branch = Some(&b"z9hG4bKnashds8"[..]);
        let end = INVITE.find("Max-Forwards").unwrap();
        // The line after the Via must have begun: otherwise the Via might continue.
        for length in [end + 1, end + 5, INVITE.len()] {
            assert_eq!(branch_in_quote(&INVITE.as_bytes()[..length]), branch, "{length}");
        }
        for length in 0..end {
            assert_eq!(branch_in_quote(&INVITE.as_bytes()[..length]), None, "{length}");
        }
        let later = INVITE.replacen("Via:", "X: y\r\nv:", 1);
        assert_eq!(branch_in_quote(later.as_bytes()), branch);
        for (from, to) in [
            ("INVITE sip:bob@biloxi.com SIP/2.0", "SIP/2.0 200 OK"),
            ("Via:", "Via"),
            ("Via:", "X:"),
            (";branch=z9hG4bKnashds8", ""),
            ("SIP/2.0/UDP", "UDP"),
        ] {
            assert_eq!(branch_in_quote(INVITE.replacen(from, to, 1).as_bytes()), None, "{to}");
        }
        assert_eq!(branch_in_quote(&[0xff; 600]), None);
        assert_eq!(branch_in_quote(b""), None);
    }

    const ACK: &str = "ACK sip:bob@biloxi.com SIP/2.0\r\n\
        Call-ID: a84b4c76e66710\r\n\
        Max-Forwards: 70\r\n\
        t: <sip:bob@biloxi.com>;tag=ours\r\n\
        v: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bKnashds8\r\n";

    #[test]
    fn an_ack_identifies_the_reply_that_it_acknowledges() {
        let found = AckScan {
            branch: Some(b"z9hG4bKnashds8"),
            call_id: b"a84b4c76e66710",
            to_tag: b"ours",
        };
        // Neither the CSeq nor the end of the headers is needed.
        assert_eq!(scan_ack(ACK.as_bytes()), Some(found));
        let first = format!("\r\n{ACK}To: <sip:x>;tag=y\r\nVia: x\r\n");
        assert_eq!(scan_ack(first.as_bytes()), Some(found));
        // The first Via counts, even if a second one comes before the other fields that are needed.
        let twice = ACK.replacen("t: <", "v: SIP/2.0/UDP a;branch=first\r\nv: x\r\nt: <", 1);
        assert_eq!(scan_ack(twice.as_bytes()).unwrap().branch, Some(&b"first"[..]));
        // A datagram of maximum length is accepted.
        let longest = format!("{ACK}X: {}", "x".repeat(BYTES_MAX - ACK.len() - 3));
        assert_eq!((longest.len(), scan_ack(longest.as_bytes())), (BYTES_MAX, Some(found)));
        assert_eq!(scan_ack(format!("{longest}x").as_bytes()), None);
    }

    #[test]
    fn not_an_ack_of_a_reply() {
        for (from, to) in [
            ("ACK ", "BYE "),
            ("ACK ", "ACKS "),
            (";tag=ours", ""),
            (";tag=ours", ";tag="),
            ("Call-ID:", "Call-IDs:"),
            ("v:", "w:"),
            ("v:", "v"),
            ("a84b4c76e66710", "a84b 4c76"),
            ("SIP/2.0/UDP", "UDP"),
        ] {
            let bytes = ACK.replace(from, to);
            assert_ne!(bytes, ACK);
            assert_eq!(scan_ack(bytes.as_bytes()), None, "{from:?} as {to:?}");
        }
        assert_eq!(scan_ack(ACK.strip_suffix("\r\n").unwrap().as_bytes()), None);
    }
}
