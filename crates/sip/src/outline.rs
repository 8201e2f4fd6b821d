//! Reads a request in one pass, as far as needed to reject it.

use std::io::{self, Write};
use std::net::SocketAddr;

use arrayvec::ArrayVec;

use crate::field::{FIELDS_MAX, Line, Named};
use crate::forward::{Noting, Source};
use crate::message::span;
use crate::reply::{Reply, write_own_headers, write_status_line};
use crate::scan::{Identity, begin};
use crate::{HeaderName, Scan, ScanStart, Splice, Via, reply_target};

/// Maximum number of pieces of a request that a reply copies. Adjacent lines are one piece.
pub const PIECES_MAX: usize = 16;

/// The values that [`scan`](crate::scan()) finds in a request, and the positions of the lines that
/// a reply copies (RFC 3261 §8.2.6.2).
///
/// With an outline, a rejection reads the headers only once. An outline finds the same values as
/// [`Message`](crate::Message), and writes the same reply as [`write_reply`](crate::write_reply).
#[derive(Clone, Debug)]
pub struct Outline<'a> {
    /// The values that identify the request.
    pub scan: Scan<'a>,
    via: Via<'a>,
    bytes: &'a [u8],
    to_end: usize,
    pieces: ArrayVec<Piece, PIECES_MAX>,
}

/// A piece of a request that a reply copies, from `start` to `end`: complete lines that end in
/// CRLF, or one line without its end.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u16,
    end: u16,
}

impl<'a> Outline<'a> {
    /// Reads all headers of a request.
    ///
    /// Returns `None` if the message is a response, if the first Via is malformed, if there are
    /// more than [`FIELDS_MAX`] header lines, or if the lines to copy form more
    /// than [`PIECES_MAX`] pieces. Also returns `None` if [`scan`](crate::scan()) or
    /// [`Message::parse_head`](crate::Message::parse_head) fails. These functions return the exact
    /// error.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let (start, bytes, mut at, mut ends) = begin(bytes).ok()?;
        if !matches!(start, ScanStart::Request { .. }) {
            return None;
        }
        let (mut via, mut to, mut id, mut cseq, mut from) = (None, None, None, None, None);
        let mut pieces = ArrayVec::new();
        let mut fields = 0;
        while let Some(named) = Named::read(bytes, at, || ends.next_line()).ok()? {
            at = named.end();
            fields += 1;
            if fields > FIELDS_MAX {
                return None;
            }
            let seen = match named.name {
                HeaderName::Via => &mut via,
                HeaderName::To => &mut to,
                HeaderName::From => &mut from,
                HeaderName::CallId => &mut id,
                HeaderName::CSeq => &mut cseq,
                _ => continue,
            };
            let line = named.line(bytes);
            copy(&mut pieces, bytes, &line)?;
            if seen.is_none() {
                *seen = Some(line);
            }
        }
        let to_line = to?;
        let value = |line: Option<Line>| line.map(|line| line.value(bytes));
        let via = Via::first(value(via)?)?;
        let identity = Identity {
            via: via.element,
            sent_by: via.sent_by,
            branch: via.branch(),
            to: value(to),
            id: value(id),
            cseq: value(cseq),
        };
        let scan = identity.scan(start).ok()?;
        Some(Self { scan, via, bytes, to_end: to_line.value_end(), pieces })
    }

    /// Returns the destination of a reply to the request, which came from `source`, as
    /// [`reply_target`] does.
    pub fn reply_target(&self, source: SocketAddr) -> SocketAddr {
        reply_target(&self.via, source)
    }

    /// Writes a final response to the request.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    ///
    /// # Panics
    /// Panics in builds with debug assertions if the response is provisional: a 100 also copies the
    /// Timestamp (RFC 3261 §8.2.6.1), which the outline does not record.
    pub fn write_reply(
        &self,
        reply: &Reply<'_>,
        out: &mut (impl Write + ?Sized),
    ) -> io::Result<()> {
        debug_assert!(
            (200..700).contains(&reply.status),
            "not the status of a final response: {}",
            reply.status
        );
        let noting = reply.source.map(|source| (Noting::of(&self.via, source.ip()), source));
        // Formatting an address costs as much as copying the lines.
        let noting = noting.filter(|(noting, _)| noting.changes());
        let noting = noting.map(|(noting, source)| (noting, Source::new(source)));
        let mut splice = Splice::over(self.bytes);
        if let Some((noting, source)) = &noting {
            noting.edit(&mut splice, |part| span(self.bytes, part), self.via.element, source);
        }
        if let (Some(tag), None) = (reply.to_tag, self.scan.to_tag) {
            splice.insert(self.to_end, b";tag=");
            splice.insert(self.to_end, tag);
        }
        write_status_line(reply, out)?;
        for piece in &self.pieces {
            let range = usize::from(piece.start)..usize::from(piece.end);
            splice.write_part(range.clone(), out)?;
            if !self.bytes[range].ends_with(b"\r\n") {
                out.write_all(b"\r\n")?;
            }
        }
        write_own_headers(reply, out)
    }
}

/// Adds a line to the pieces to copy. Returns `None` if there would be more than [`PIECES_MAX`]
/// pieces.
#[inline]
fn copy(pieces: &mut ArrayVec<Piece, PIECES_MAX>, bytes: &[u8], line: &Line) -> Option<()> {
    let start = line.start() as u16;
    // The bytes after the value are not copied, unless they are exactly the line end that is
    // written anyway.
    let plain = bytes[line.value_end()..line.end()] == *b"\r\n";
    let end = if plain { line.end() } else { line.value_end() } as u16;
    match pieces.last_mut() {
        Some(last) if plain && last.end == start => last.end = end,
        _ => pieces.try_push(Piece { start, end }).ok()?,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "To: Bob <sip:bob@biloxi.example>\r\n\
        v: SIP/2.0/UDP 10.1.1.1:4540;rport;branch=z9hG4bK1 \r\n\
        Max-Forwards: 70\r\n\
        Via: SIP/2.0/UDP b;branch=z9hG4bK2,\r\n SIP/2.0/TCP c\r\n\
        From: Alice <sip:alice@atlanta.example>;tag=1\n\
        Call-ID: a84b4c76e66710\r\n\
        CSeq: 1 INVITE\r\n\
        Record-Route: <sip:p;lr>\r\n";

    fn invite(lines: &str) -> String {
        format!("INVITE sip:bob@biloxi.example SIP/2.0\r\n{lines}\r\nbody")
    }

    fn is_outlined(lines: &str) -> bool {
        Outline::of(invite(lines).as_bytes()).is_some()
    }

    /// A reply has the lines that RFC 3261 §8.2.6.2 lists, and the source of the request in its top
    /// Via (RFC 3581 §4).
    #[test]
    fn a_rejection_made_of_the_requests_lines() {
        let text = invite(LINES);
        let outline = Outline::of(text.as_bytes()).unwrap();
        let source = "192.0.2.1:9988".parse().unwrap();
        assert_eq!(outline.reply_target(source), source);
        let reply = Reply {
            to_tag: Some(b"ours"),
            source: Some(source),
            headers: &[("Server", b"x")],
            ..Reply::new(503)
        };
        let mut out = Vec::new();
        outline.write_reply(&reply, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "SIP/2.0 503 Service Unavailable\r\n\
             To: Bob <sip:bob@biloxi.example>;tag=ours\r\n\
             v: SIP/2.0/UDP 10.1.1.1:4540;rport=9988;branch=z9hG4bK1;received=192.0.2.1\r\n\
             Via: SIP/2.0/UDP b;branch=z9hG4bK2,\r\n SIP/2.0/TCP c\r\n\
             From: Alice <sip:alice@atlanta.example>;tag=1\r\n\
             Call-ID: a84b4c76e66710\r\n\
             CSeq: 1 INVITE\r\n\
             Server: x\r\n\
             Content-Length: 0\r\n\r\n"
        );
        assert_eq!(outline.scan, crate::scan(text.as_bytes()).unwrap());
    }

    #[test]
    fn lines_side_by_side_are_one_piece() {
        let text = invite(LINES);
        let pieces = Outline::of(text.as_bytes()).unwrap().pieces;
        let texts: Vec<&str> =
            pieces.iter().map(|p| &text[usize::from(p.start)..usize::from(p.end)]).collect();
        assert_eq!(
            texts.iter().map(|piece| piece.split(':').next().unwrap()).collect::<Vec<_>>(),
            // A space follows the name `v`, and a bare LF follows From.
            ["To", "v", "Via", "From", "Call-ID"]
        );
        assert!(texts[4].ends_with("CSeq: 1 INVITE\r\n"));
    }

    #[test]
    fn messages_that_need_more_than_an_outline_have_none() {
        assert!(is_outlined(LINES));
        for line in ["To", "Via", "From", "Call-ID", "CSeq"] {
            let long = LINES.replace("v:", "Via:");
            // An outline does not need a From.
            let without = long.replace(&format!("{line}:"), "Other:");
            assert_eq!(is_outlined(&without), line == "From", "{line}");
        }
        assert!(!is_outlined(&LINES.replace("10.1.1.1:4540", "10.1.1.1:x")));
        assert!(!is_outlined(&LINES.replace("Max-Forwards: 70", "Max-Forwards 70")));
        assert!(!is_outlined(&LINES.replace("Record-Route: <sip:p;lr>\r\n", "no end")));
        let text =
            invite(LINES).replacen("INVITE sip:bob@biloxi.example SIP/2.0", "SIP/2.0 200 ", 1);
        assert!(crate::scan(text.as_bytes()).is_ok() && Outline::of(text.as_bytes()).is_none());
    }

    #[test]
    fn there_are_limits_to_lines_and_pieces() {
        let own = LINES.lines().count() - 1;
        let more = |n| format!("{LINES}{}", "X: y\r\n".repeat(n));
        assert!(is_outlined(&more(FIELDS_MAX - own)));
        assert!(!is_outlined(&more(FIELDS_MAX - own + 1)));
        let more = |n| format!("{LINES}{}", "X: y\r\nVia: SIP/2.0/UDP a\r\n".repeat(n));
        assert!(is_outlined(&more(PIECES_MAX - 5)));
        assert!(!is_outlined(&more(PIECES_MAX - 4)));
    }
}
