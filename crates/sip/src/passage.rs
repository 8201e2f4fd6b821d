//! A response that a proxy forwards, parsed only as far as necessary.

use std::io::{self, Write};
use std::ops::Range;
use std::time::Duration;

use crate::field::{Line, first_line, line_end};
use crate::lexical::{decimal, trim_start};
use crate::line_ends::{LineEnds, has_only_crlf};
use crate::message::call_id;
use crate::overload_control::{can_write_overload_control, may_have_overload_control};
use crate::scan::{begin, has_letter, letters, read};
use crate::session_timer::session_interval;
use crate::start::usual_status;
use crate::tags::{dialog_tags, tag_of};
use crate::via::TopVia;
use crate::{BYTES_MAX, CSeq, HeaderName, Malformed, OverloadControl, ScanStart, Via};

/// Beginning of the Status-Line of a response.
const VERSION: &[u8] = b"SIP/2.0 ";

/// The usual beginning of a From line.
const FROM: &[u8] = b"From:";
/// The usual beginning of a To line.
const TO: &[u8] = b"To:";

/// The fields of a response that a proxy needs to forward it: RFC 3261 §16.7 items 1 to 3, and
/// §16.11 for a proxy without transactions.
///
/// Most lines are skipped after their first letter. This takes half as long as indexing them in a
/// [`Message`](crate::Message). If `Message` accepts a response, the values are the same. A
/// `Passage` accepts more responses, because it ignores lines that the proxy does not need.
#[derive(Clone, Debug)]
pub struct Passage<'a> {
    /// The Status-Code.
    pub status: u16,
    /// Host and port of the first Via, as written.
    pub sent_by: &'a [u8],
    /// True if a header line begins with `P-`, as the lines of RFC 3325 do.
    pub has_private: bool,
    /// The branch of the first Via (the Via of the proxy itself), or `None` if this Via has no
    /// branch.
    pub branch: Option<&'a [u8]>,
    /// The second Via, which determines the destination of the response, or `None` if there is
    /// none.
    pub next: Option<Via<'a>>,
    /// The value of the Call-ID header.
    pub call_id: &'a [u8],
    /// The CSeq.
    pub cseq: CSeq<'a>,
    /// True if the response has a Content-Length.
    pub has_length: bool,
    /// True if a Via after the first may have overload control parameters (RFC 7339).
    pub has_foreign_overload_control: bool,
    bytes: &'a [u8],
    /// The text of the first Via, which is the Via of the proxy itself.
    own: &'a [u8],
    /// The range of bytes that the proxy removes: the first Via, or its whole line if no other Via
    /// is on the line.
    top: Range<usize>,
    /// True if the response may have a Session-Expires.
    has_session: bool,
    /// The From line and the To line. `None` if one of them is missing or does not begin in the
    /// usual form, or if another line begins with F or T.
    parties: Option<[&'a [u8]; 2]>,
}

impl<'a> Passage<'a> {
    /// Reads a response.
    ///
    /// # Errors
    /// Returns [`Malformed::StartLine`] for a request, [`Malformed::Version`] for a response of
    /// another version, [`Malformed::LineEnd`] for a CR or an LF that is not part of a CRLF, and
    /// [`Malformed::DuplicateHeader`] for two different Content-Lengths. Otherwise returns an error
    /// if a Via, Call-ID, CSeq or Content-Length is missing or malformed, if the body is truncated,
    /// or if the bytes are not a message. The Vias after the second one are checked only if a Via
    /// after the first may have overload control parameters.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (status, bytes, mut at, mut ends) = match usual_status(bytes) {
            Some(status) if bytes.len() <= BYTES_MAX => {
                let (_, at, ends) = first_line(bytes)?;
                (status, bytes, at, ends)
            }
            _ => Self::begin(bytes)?,
        };
        let (mut first, mut second) = (None, None);
        let (mut id, mut cseq, mut length) = (None, None, None);
        let (mut has_private, mut has_session) = (false, false);
        let mut has_foreign_overload_control = false;
        let (mut from, mut to, mut is_usual) = (None, None, true);
        loop {
            if !may_matter(bytes.get(at)) {
                let next = ends.next_line()?;
                let line = &bytes[at..next];
                match line {
                    [b'P' | b'p', b'-', ..] => has_private = true,
                    [b'S' | b's', b'E' | b'e', b'S' | b's', ..] => has_session = true,
                    [b'X' | b'x', ..] => has_session = true,
                    [b'F', ..] if from.is_none() && line.starts_with(FROM) => from = Some(line),
                    [b'T', ..] if to.is_none() && line.starts_with(TO) => to = Some(line),
                    [b'F' | b'f' | b'T' | b't', ..] => is_usual = false,
                    _ => {}
                }
                at = next;
                continue;
            }
            let Some(line) = Line::next(bytes, at, &mut ends)? else { break };
            match line.name {
                HeaderName::Via if first.is_none() => first = Some((at, line)),
                HeaderName::Via if second.is_none() => second = Some(line),
                HeaderName::Via => {
                    has_foreign_overload_control |= may_have_overload_control(line.value(bytes));
                }
                HeaderName::CallId if id.is_none() => id = Some(line),
                HeaderName::CSeq if cseq.is_none() => cseq = Some(line),
                HeaderName::ContentLength => length = Some(only_length(bytes, length, line)?),
                _ => {}
            }
            at = line.end();
        }
        let body = at + line_end(&bytes[at..]);
        if !has_only_crlf(&bytes[..body]) {
            return Err(Malformed::LineEnd);
        }
        let bytes = match length {
            None => bytes,
            // RFC 3261 §18.3: "If there are additional bytes in the transport packet beyond the
            // end of the body, they MUST be discarded."
            Some(line) => {
                let length = decimal(line.value(bytes), u32::MAX)
                    .ok_or(Malformed::BadHeader(HeaderName::ContentLength))?;
                let end = body.saturating_add(length as usize);
                bytes.get(..end).ok_or(Malformed::ContentLength)?
            }
        };
        let value = |line: Option<Line>| line.map(|line| line.value(bytes));
        let call_id = read(value(id), HeaderName::CallId, call_id)?;
        let cseq = read(value(cseq), HeaderName::CSeq, CSeq::parse)?;

        let bad_via = Malformed::BadHeader(HeaderName::Via);
        let (at, line) = first.ok_or(Malformed::MissingHeader(HeaderName::Via))?;
        let value = line.value(bytes);
        let (top, rest) = TopVia::first(value).ok_or(bad_via)?;
        let (top_range, next) = match (rest, second) {
            (Some(rest), behind) => {
                has_foreign_overload_control |=
                    behind.is_some_and(|line| may_have_overload_control(line.value(bytes)));
                let value_start = line.value_start();
                let stays = value_start + (value.len() - trim_start(rest).len());
                (value_start..stays, Some(rest))
            }
            (None, Some(second)) => (at..line.end(), Some(second.value(bytes))),
            (None, None) => (at..line.end(), None),
        };
        let next = match next {
            None => None,
            Some(value) => {
                let via = Via::first(value).ok_or(bad_via)?;
                has_foreign_overload_control |= via.may_have_overload_control()
                    || via.element.len() < value.len() && may_have_overload_control(value);
                Some(via)
            }
        };
        // RFC 7339 §5.4: "A SIP client SHOULD remove the "oc", "oc-validity", and "oc-seq"
        // parameters from all Via headers of a response received, except for the topmost Via
        // header." They cannot be removed from a Via that violates the grammar. There they would
        // reach the next upstream server, which would take them for ours.
        if has_foreign_overload_control && !can_write_overload_control(bytes) {
            return Err(bad_via);
        }
        Ok(Self {
            status,
            sent_by: top.sent_by,
            has_private,
            branch: top.branch,
            next,
            call_id,
            cseq,
            has_length: length.is_some(),
            has_foreign_overload_control,
            bytes,
            own: top.element,
            top: top_range,
            has_session,
            parties: from.zip(to).filter(|_| is_usual).map(|(from, to)| [from, to]),
        })
    }

    /// Reads a Status-Line in any form. Returns the status, the message that begins with the line, the
    /// position of its headers, and the ends of their lines.
    fn begin(bytes: &'a [u8]) -> Result<(u16, &'a [u8], usize, LineEnds<'a>), Malformed> {
        let (start, bytes, at, ends) = begin(bytes)?;
        let ScanStart::Response { status } = start else { return Err(Malformed::StartLine) };
        // RFC 3261 §7.1: "To be compliant with this specification, applications sending SIP
        // messages MUST include a SIP-Version of "SIP/2.0"." A request of another version is
        // answered 505. A response cannot be answered, and the meaning of a response of another
        // version is unknown, so it does not belong to a request of ours.
        if !bytes.get(..VERSION.len()).is_some_and(|v| v.eq_ignore_ascii_case(VERSION)) {
            return Err(Malformed::Version);
        }
        Ok((status, bytes, at, ends))
    }

    /// Returns the session interval in the Session-Expires header, or `None` if the header is
    /// missing or malformed.
    ///
    /// RFC 4028 §8.2: "if the 2xx response forwarded upstream by the proxy contains a
    /// Session-Expires header field, its value represents the session interval for the session
    /// associated with that response."
    pub fn session_interval(&self) -> Option<Duration> {
        self.has_session.then(|| session_interval(self.bytes)).flatten()
    }

    /// Returns the tags of From and To, as [`dialog_tags`] does.
    pub fn dialog_tags(&self) -> Option<(&'a [u8], &'a [u8])> {
        let Some([from, to]) = self.parties else { return dialog_tags(self.bytes) };
        Some((tag_of(from)?, tag_of(to)?))
    }

    /// Returns the value of a parameter of the first Via (the Via of the proxy itself), or `None`
    /// if this Via does not have the parameter.
    pub fn own_param(&self, name: &str) -> Option<&'a [u8]> {
        Via::parse(self.own)?.params.param(name)?.value
    }

    /// Returns the overload control parameters of the first Via (the Via of the proxy itself), or
    /// `None` if this Via has none.
    pub fn overload_control(&self) -> Option<OverloadControl<'a>> {
        OverloadControl::in_via(self.own)
    }

    /// Writes the response without its first Via (RFC 3261 §16.7 item 3).
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        out.write_all(&self.bytes[..self.top.start])?;
        out.write_all(&self.bytes[self.top.end..])
    }
}

/// Returns `line`, a Content-Length line, or an error if its value differs from that of `before`,
/// the Content-Length line before it.
///
/// RFC 3261 §7.3.1 allows several lines of a name only if its value is a list. If there are two
/// different lengths, the next hop and this proxy may find different ends of the body. On a stream,
/// the next hop would then read the rest of the body as its next message.
///
/// RFC 3261 §18.3: "If the message is a response, it MUST be discarded."
#[inline(always)]
fn only_length(bytes: &[u8], before: Option<Line>, line: Line) -> Result<Line, Malformed> {
    match before {
        Some(before) if before.value(bytes) != line.value(bytes) => {
            Err(Malformed::DuplicateHeader(HeaderName::ContentLength))
        }
        _ => Ok(line),
    }
}

/// The first letters of the header lines that [`may_matter`] looks for.
const LETTERS: u32 = letters(b"vcil");

/// Returns false if a line with this first letter cannot be Via, Call-ID, CSeq, Content-Length (or
/// their short forms `v`, `i` and `l`) or the empty line.
#[inline]
fn may_matter(first: Option<&u8>) -> bool {
    first.is_none_or(|&letter| has_letter(LETTERS, letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Oc;

    fn passed(text: &str) -> String {
        let mut out = Vec::new();
        Passage::parse(text.as_bytes()).unwrap().write_to(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const REST: &str = "i: x\r\nCSeq: 1 INVITE\r\nTo: a\r\nl: 2\r\n\r\nxy";

    /// RFC 3261 §16.7: "The proxy MUST NOT add to, modify, or remove the message body."
    ///
    /// RFC 3261 §16.11: "The proxy MUST NOT add to, modify, or remove the message body."
    #[test]
    fn the_first_via_is_removed_wherever_it_stands() {
        let via = "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKours";
        let next = "SIP/2.0/UDP 192.0.2.2;received=192.0.2.3";
        for (lines, left) in [
            (format!("Via: {via}\r\nVia: {next}\r\n"), format!("Via: {next}\r\n")),
            (format!("From: b\r\nv: {via} ,\r\n {next}\r\n"), format!("From: b\r\nv: {next}\r\n")),
            (format!("Via: {via}\r\n"), String::new()),
        ] {
            let text = format!("SIP/2.0 200 OK\r\n{lines}{REST}");
            assert_eq!(passed(&text), format!("SIP/2.0 200 OK\r\n{left}{REST}"));
            let passage = Passage::parse(text.as_bytes()).unwrap();
            assert_eq!((passage.status, passage.branch), (200, Some(&b"z9hG4bKours"[..])));
            assert_eq!(passage.next.is_some(), !left.is_empty());
            assert_eq!(passage.cseq.number, 1);
        }
    }

    /// RFC 7339 §11: "If this feedback is added to the second Via header (or all Via headers), it will
    /// reach the next upstream proxy."
    #[test]
    fn foreign_overload_control_is_noticed_in_every_via() {
        let of = |lines: &str| {
            let text = format!("SIP/2.0 200 OK\r\n{lines}{REST}");
            let passage = Passage::parse(text.as_bytes()).unwrap();
            let own = passage.overload_control().and_then(|own| own.oc);
            (own, passage.has_foreign_overload_control)
        };
        let (us, a) = ("SIP/2.0/UDP us;branch=z;oc=3", "SIP/2.0/UDP a");
        let own = Some(Oc::Value(3));
        assert_eq!(of(&format!("Via: {us}\r\nVia: {a};rport;branch=b\r\n")), (own, false));
        for lines in [
            format!("Via: {us}\r\nVia: {a};branch=b;oc\r\n"),
            format!("Via: {us}\r\nVia: {a}\r\nVia: {a}\r\nv: {a};oc=1\r\n"),
            format!("Via: {us}\r\nVia: {a}, {a};OC-seq=1\r\n"),
            format!("Via: {us}, {a}\r\nVia: {a};oc=1\r\n"),
            format!("Via: {us}, {a};oc=1\r\n"),
        ] {
            assert_eq!(of(&lines), (own, true), "{lines}");
        }
        assert_eq!(of(&format!("Via: {a}\r\n")), (None, false));
    }

    /// RFC 7339 §5.4: "A SIP client SHOULD remove the "oc", "oc-validity", and "oc-seq" parameters
    /// from all Via headers of a response received, except for the topmost Via header."
    #[test]
    fn foreign_overload_control_that_cannot_be_removed_is_malformed() {
        let (us, a) = ("SIP/2.0/UDP us;branch=z;oc=3", "SIP/2.0/UDP a");
        for (lines, is_malformed) in [
            (format!("Via: {us}\r\nVia: {a};x=<y>;oc=1\r\n"), true),
            (format!("Via: {us}\r\nVia: {a};oc=1;x=\"y\">\r\n"), true),
            (format!("Via: {us}, {a};x=<y>;oc=1\r\n"), true),
            (format!("Via: {us}\r\nVia: {a}\r\nVia: {a};x=<y>;oc=1\r\n"), true),
            (format!("Via: {us}\r\nVia: {a}, , {a};oc=1\r\n"), true),
            (format!("Via: {us}\r\nVia: {a};x=\"<y>\";oc=1\r\n"), false),
            (format!("Via: {us}\r\nVia: {a};x=<y>\r\n"), false),
        ] {
            let text = format!("SIP/2.0 200 OK\r\n{lines}{REST}");
            let found = Passage::parse(text.as_bytes()).err();
            let expected = is_malformed.then_some(Malformed::BadHeader(HeaderName::Via));
            assert_eq!(found, expected, "{lines}");
        }
    }

    /// RFC 3261 §18.3.
    ///
    /// RFC 3261 §18.3: "If there are additional bytes in the transport packet beyond the end of the
    /// body, they MUST be discarded." "If the message is a response, it MUST be discarded."
    #[test]
    fn a_body_ends_where_its_length_says() {
        let text = format!("SIP/2.0 200 OK\r\nv: A/1/B a\r\n{REST}");
        assert_eq!(passed(&format!("{text}more")), passed(&text));
        let short = Passage::parse(&text.as_bytes()[..text.len() - 1]);
        assert_eq!(short.unwrap_err(), Malformed::ContentLength);
    }

    /// RFC 3261 §7.3.1. If the next hop took the second length, the rest of the body would be its
    /// next message on the stream.
    #[test]
    fn two_different_lengths_are_malformed() {
        let with = |length: &str| {
            format!("SIP/2.0 200 OK\r\nv: A/1/B a\r\n{}", REST.replace("l: 2", length))
        };
        for lengths in ["l: 2\r\nl: 0", "l: 0\r\nContent-Length: 2", "l: 2\r\nl: 2\r\nl: x"] {
            let text = with(lengths);
            let found = Passage::parse(text.as_bytes()).unwrap_err();
            assert_eq!(found, Malformed::DuplicateHeader(HeaderName::ContentLength), "{lengths:?}");
        }
        assert!(passed(&with("l: 2\r\nContent-Length: 2")).ends_with("\r\n\r\nxy"));
    }

    /// RFC 3261 §7: "The start-line, each message-header line, and the empty line MUST be terminated by
    /// a carriage-return line-feed sequence (CRLF)."
    #[test]
    fn a_response_with_a_cr_or_an_lf_outside_a_crlf_is_malformed() {
        let text = format!("SIP/2.0 200 OK\r\nv: A/1/B a\r\n{REST}");
        assert!(Passage::parse(text.as_bytes()).is_ok());
        for (from, to) in [
            ("OK", "OK\rP-Asserted-Identity: <sip:b>"),
            ("To: a", "To: a\rP-Asserted-Identity: <sip:b>"),
            ("To: a", "To: a\nP-Asserted-Identity: <sip:b>"),
            ("OK\r\n", "OK\n"),
            ("To: a\r\n", "To: a\n"),
            ("\r\n\r\n", "\r\n\n"),
        ] {
            let text = text.replacen(from, to, 1);
            let found = Passage::parse(text.as_bytes()).unwrap_err();
            assert_eq!(found, Malformed::LineEnd, "{to:?}");
        }
        assert!(Passage::parse(text.replace("xy", "\r\n").as_bytes()).is_ok());
        assert!(Passage::parse(text.replace("xy", "\n\r").as_bytes()).is_ok());
    }

    /// RFC 3261 §7.1: "applications sending SIP messages MUST include a SIP-Version of "SIP/2.0"".
    #[test]
    fn a_response_of_another_version_is_rejected() {
        let of = |version: &str| {
            let text = format!("{version} 200 OK\r\nv: A/1/B a\r\n{REST}");
            Passage::parse(text.as_bytes()).map(|passage| passage.status)
        };
        assert_eq!(of("sip/2.0"), Ok(200));
        for version in ["SIP/3.0", "SIP/2.00", "SIP/2.1", "SIP/02.0"] {
            assert_eq!(of(version), Err(Malformed::Version), "{version}");
        }
    }

    #[test]
    fn missing_required_headers_are_named() {
        let of = |text: &str| Passage::parse(text.as_bytes()).unwrap_err();
        let (via, cseq) = (HeaderName::Via, HeaderName::CSeq);
        assert_eq!(
            of("SIP/2.0 200 OK\r\ni: x\r\nCSeq: 1 A\r\n\r\n"),
            Malformed::MissingHeader(via)
        );
        assert_eq!(
            of("SIP/2.0 200 OK\r\ni: x\r\nv: A/1/B a\r\n\r\n"),
            Malformed::MissingHeader(cseq)
        );
        assert_eq!(
            of("SIP/2.0 200 OK\r\nv: ,\r\ni: x\r\nCSeq: 1 A\r\n\r\n"),
            Malformed::BadHeader(via)
        );
        assert_eq!(
            of("SIP/2.0 200 OK\r\nv: A/1/B a, ?\r\ni: x\r\nCSeq: 1 A\r\n\r\n"),
            Malformed::BadHeader(via)
        );
        assert_eq!(of("OPTIONS sip:a SIP/2.0\r\nv: A/1/B a\r\n\r\n"), Malformed::StartLine);
        assert_eq!(of("SIP/2.0 200 OK\r\nv: A/1/B a"), Malformed::NoEnd);
    }
}
