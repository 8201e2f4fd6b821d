//! What a gate needs to know of a message, found without indexing it.

use crate::element::split_element;
use crate::field::{Line, first_line};
use crate::message::call_id;
use crate::start::{Start, skip_blank};
use crate::via::Parts;
use crate::{BYTES_MAX, CSeq, HeaderName, Malformed, Method, NameAddr, StartLine};

/// A message's start line and its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The start line.
    pub start: ScanStart<'a>,
    /// The first Via element, trimmed.
    pub via: &'a [u8],
    /// Its branch.
    pub branch: Option<&'a [u8]>,
    /// Its host and port as written.
    pub sent_by: &'a [u8],
    /// The Call-ID.
    pub call_id: &'a [u8],
    /// The number of the CSeq.
    pub cseq: u32,
    /// The method of the CSeq.
    pub cseq_method: Method,
    /// The tag of the To.
    pub to_tag: Option<&'a [u8]>,
}

/// The start line as a gate sees it.
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

/// Reads the start line and the first Via, To, Call-ID and CSeq, and stops there.
///
/// Of a message that [`Message::parse`](crate::Message::parse) and
/// [`check`](crate::Message::check) accept it finds what they find. It accepts more:
/// what follows the last header it needs is not looked at, nor is a From, nor the
/// address of the Via, nor the protocol version.
///
/// # Errors
/// [`Malformed`], with [`Malformed::MissingHeader`] for the first of Via, To,
/// Call-ID, CSeq that the headers lack.
pub fn scan(bytes: &[u8]) -> Result<Scan<'_>, Malformed> {
    let bytes = skip_blank(bytes)?;
    if bytes.len() > BYTES_MAX {
        return Err(Malformed::TooLong);
    }
    let (first, mut at) = first_line(bytes)?;
    let start = match Start::parse(first)?.line {
        StartLine::Request { method, method_name, uri } => {
            ScanStart::Request { method, method_name, uri }
        }
        StartLine::Response { status, .. } => ScanStart::Response { status },
    };
    let (mut via, mut to, mut id, mut cseq) = (None, None, None, None);
    while via.is_none() || to.is_none() || id.is_none() || cseq.is_none() {
        let Some(line) = Line::read(bytes, at)? else { break };
        at = line.end();
        let seen = match line.name {
            HeaderName::Via => &mut via,
            HeaderName::To => &mut to,
            HeaderName::CallId => &mut id,
            HeaderName::CSeq => &mut cseq,
            _ => continue,
        };
        seen.get_or_insert(line.value(bytes));
    }
    let (via, _) = read(via, HeaderName::Via, split_element)?;
    let parts = read(Some(via), HeaderName::Via, Parts::of)?;
    let to = read(to, HeaderName::To, NameAddr::parse)?;
    let call_id = read(id, HeaderName::CallId, call_id)?;
    let cseq = read(cseq, HeaderName::CSeq, CSeq::parse)?;
    Ok(Scan {
        start,
        via,
        branch: parts.branch(),
        sent_by: parts.sent_by,
        call_id,
        cseq: cseq.number,
        cseq_method: cseq.method,
        to_tag: to.tag(),
    })
}

#[inline]
fn read<'a, T>(
    value: Option<&'a [u8]>,
    name: HeaderName,
    parse: impl Fn(&'a [u8]) -> Option<T>,
) -> Result<T, Malformed> {
    let value = value.ok_or(Malformed::MissingHeader(name))?;
    parse(value).ok_or(Malformed::BadHeader(name))
}
