//! Builds a reply from the lines of the request (RFC 3261 §8.2.6).

use std::io::{self, Write};
use std::net::SocketAddr;

use crate::forward::{Source, record_source};
use crate::{HeaderName, Message, Splice, Via, reason};

/// A response without a body.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The Status-Code, 100 to 699.
    pub status: u16,
    /// The Reason-Phrase.
    pub reason: &'a str,
    /// The tag to add to a To without a tag, or `None` to add none. By RFC 3261 §8.2.6.2 every
    /// response except a 100 needs a tag.
    pub to_tag: Option<&'a [u8]>,
    /// The source of the request, to be recorded in the top Via (§18.2.1, RFC 3581 §4), or `None`
    /// if it was recorded when the request arrived.
    pub source: Option<SocketAddr>,
    /// Additional headers of the response, each as name and value.
    pub headers: &'a [(&'a str, &'a [u8])],
}

impl Reply<'_> {
    /// Creates a response with the usual phrase for `status`, and with no tag, source or further
    /// headers.
    pub const fn new(status: u16) -> Self {
        Self { status, reason: reason(status), to_tag: None, source: None, headers: &[] }
    }
}

/// Writes a response to `request`.
///
/// The response copies lines of the request, so that even a request that [`Message::check`] rejects
/// can be answered. Headers missing from the request are missing from the response.
///
/// # Errors
/// Returns the errors of `out`.
pub fn write_reply(
    request: &Message<'_>,
    reply: &Reply<'_>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    // Without a readable Via, there is no place to record the source.
    let via = reply.source.and_then(|_| request.top_via().ok());
    write_reply_by_via(request, via.as_ref(), reply, out)
}

/// Writes a response to `request`, whose first Via was parsed as `via`. If `via` is `None`, the
/// source of the request is not recorded in the response.
///
/// # Errors
/// Returns the errors of `out`.
pub fn write_reply_by_via(
    request: &Message<'_>,
    via: Option<&Via<'_>>,
    reply: &Reply<'_>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    debug_assert!((100..700).contains(&reply.status), "not a SIP status: {}", reply.status);
    let source = reply.source.map(Source::new);
    let mut splice = Splice::new(request);
    if let (Some(source), Some(via)) = (&source, via) {
        record_source(&mut splice, request, via, source);
    }
    if let (Some(tag), Ok(to)) = (reply.to_tag, request.to())
        && to.tag().is_none()
    {
        let at = request.span(to.element).end;
        splice.insert(at, b";tag=");
        splice.insert(at, tag);
    }

    write_status_line(reply, out)?;
    for line in request.lines() {
        // RFC 3261 §8.2.6.2: all Vias in their order, From, Call-ID, CSeq and To. §8.2.6.1: in a
        // 100 also the Timestamp.
        let copied = match line.name {
            HeaderName::Via
            | HeaderName::From
            | HeaderName::To
            | HeaderName::CallId
            | HeaderName::CSeq => true,
            HeaderName::Timestamp => reply.status == 100,
            _ => false,
        };
        if copied {
            splice.write_part(request.span(line.content(request.bytes())), out)?;
            out.write_all(b"\r\n")?;
        }
    }
    write_own_headers(reply, out)
}

#[inline]
pub(crate) fn write_status_line(
    reply: &Reply<'_>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    out.write_all(b"SIP/2.0 ")?;
    out.write_all(itoa::Buffer::new().format(reply.status).as_bytes())?;
    out.write_all(b" ")?;
    out.write_all(reply.reason.as_bytes())?;
    out.write_all(b"\r\n")
}

/// Writes the headers that do not come from the request, and the end of the response.
#[inline]
pub(crate) fn write_own_headers(
    reply: &Reply<'_>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    for (name, value) in reply.headers {
        out.write_all(name.as_bytes())?;
        out.write_all(b": ")?;
        out.write_all(value)?;
        out.write_all(b"\r\n")?;
    }
    out.write_all(b"Content-Length: 0\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"INVITE sip:bob@biloxi.example SIP/2.0\r\n\
        v: SIP/2.0/UDP 10.1.1.1:4540;rport;branch=z9hG4bK1\r\n\
        Max-Forwards: 70\r\n\
        Via: SIP/2.0/UDP b;branch=z9hG4bK2,\r\n SIP/2.0/TCP c\n\
        t: Bob <sip:bob@biloxi.example> \r\n\
        From: Alice <sip:alice@atlanta.example>;tag=1\r\n\
        Call-ID: a84b4c76e66710\r\n\
        CSeq: 1 INVITE\r\n\
        Timestamp: 54\r\n\
        Record-Route: <sip:p;lr>\r\n\
        Content-Length: 4\r\n\r\nbody";

    fn reply(reply: &Reply<'_>) -> String {
        let mut out = Vec::new();
        write_reply(&Message::parse(REQUEST).unwrap(), reply, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// RFC 3261 §8.2.6.2 lists the headers that a response copies from its request.
    #[test]
    fn a_rejection_made_of_the_requests_lines() {
        let text = reply(&Reply {
            to_tag: Some(b"ours"),
            source: "192.0.2.1:9988".parse().ok(),
            headers: &[("Retry-After", b"10"), ("Server", b"x")],
            ..Reply::new(503)
        });
        assert_eq!(
            text,
            "SIP/2.0 503 Service Unavailable\r\n\
             v: SIP/2.0/UDP 10.1.1.1:4540;rport=9988;branch=z9hG4bK1;received=192.0.2.1\r\n\
             Via: SIP/2.0/UDP b;branch=z9hG4bK2,\r\n SIP/2.0/TCP c\r\n\
             t: Bob <sip:bob@biloxi.example>;tag=ours\r\n\
             From: Alice <sip:alice@atlanta.example>;tag=1\r\n\
             Call-ID: a84b4c76e66710\r\n\
             CSeq: 1 INVITE\r\n\
             Retry-After: 10\r\n\
             Server: x\r\n\
             Content-Length: 0\r\n\r\n"
        );
    }

    /// RFC 3261 §8.2.6.1: a 100 copies the Timestamp.
    #[test]
    fn a_trying_has_the_timestamp_and_needs_no_tag() {
        let text = reply(&Reply::new(100));
        assert!(text.starts_with("SIP/2.0 100 Trying\r\nv: SIP/2.0/UDP 10.1.1.1:4540;rport;"));
        assert!(text.contains("\r\nTimestamp: 54\r\n"));
        assert!(text.contains("\r\nt: Bob <sip:bob@biloxi.example>\r\n"));
    }

    #[test]
    fn a_tag_that_is_there_stays() {
        let bytes = b"BYE sip:b SIP/2.0\r\nTo: <sip:b>;tag=theirs;x\r\nFrom:\r\nTimestamp:\r\n\r\n";
        let request = Message::parse(bytes).unwrap();
        let mut out = Vec::new();
        let answer = Reply { to_tag: Some(b"ours"), reason: "No", ..Reply::new(100) };
        write_reply(&request, &answer, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "SIP/2.0 100 No\r\nTo: <sip:b>;tag=theirs;x\r\nFrom:\r\nTimestamp:\r\nContent-Length: 0\r\n\r\n"
        );
    }
}
