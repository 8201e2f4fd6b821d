//! Answering a request out of its own lines (RFC 3261 §8.2.6).

use std::io::{self, Write};
use std::net::SocketAddr;

use crate::forward::{Source, note_source};
use crate::{HeaderName, Message, Splice, reason};

/// A response without a body.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The Status-Code, 100 to 699.
    pub status: u16,
    /// The Reason-Phrase.
    pub reason: &'a str,
    /// A tag for the To, unless it has one. §8.2.6.2: needed in all but a 100.
    pub to_tag: Option<&'a [u8]>,
    /// Where the request came from, to be noted in the top Via (§18.2.1, RFC 3581
    /// §4); `None` if that was done when the request came in.
    pub source: Option<SocketAddr>,
    /// Further headers, by name and value.
    pub headers: &'a [(&'a str, &'a [u8])],
}

impl Reply<'_> {
    /// A response with the usual phrase for `status` and nothing optional.
    pub const fn new(status: u16) -> Self {
        Self { status, reason: reason(status), to_tag: None, source: None, headers: &[] }
    }
}

/// Writes a response to `request`.
///
/// The lines it takes from the request are copied, so that even a request that
/// [`Message::check`] refuses can be answered: what is missing there is missing here.
///
/// # Errors
/// Those of `out`.
pub fn write_reply(
    request: &Message<'_>,
    reply: &Reply<'_>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    debug_assert!((100..700).contains(&reply.status), "no SIP status: {}", reply.status);
    let source = reply.source.map(Source::new);
    let mut splice = Splice::new(request);
    if let Some(source) = &source {
        // Without a readable Via there is nothing to note the source in.
        let _ = note_source(&mut splice, request, source);
    }
    if let (Some(tag), Ok(to)) = (reply.to_tag, request.to())
        && to.tag().is_none()
    {
        let at = request.span(to.element).end;
        splice.insert(at, b";tag=");
        splice.insert(at, tag);
    }

    out.write_all(b"SIP/2.0 ")?;
    out.write_all(itoa::Buffer::new().format(reply.status).as_bytes())?;
    out.write_all(b" ")?;
    out.write_all(reply.reason.as_bytes())?;
    out.write_all(b"\r\n")?;
    for line in request.lines() {
        // RFC 3261 §8.2.6.2: all Vias in their order, From, Call-ID, CSeq and To;
        // §8.2.6.1: in a 100 the Timestamp also.
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
    for (name, value) in reply.headers {
        out.write_all(name.as_bytes())?;
        out.write_all(b": ")?;
        out.write_all(value)?;
        out.write_all(b"\r\n")?;
    }
    out.write_all(b"Content-Length: 0\r\n\r\n")
}
