//! A message that is indexed in one pass and parsed on demand.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::element::Elements;
use crate::field::{FIELDS_INLINE, FIELDS_MAX, Field, Line, first_line, line_end};
use crate::lexical::{decimal, is_visible, split_decimal, trim_start};
use crate::line_ends::LineEnds;
use crate::start::{Start, skip_blank};
use crate::{CSeq, HeaderName, Malformed, Method, NameAddr, StartLine, Via};

/// Maximum size of a message in bytes, from the start line to the end of the body: the capacity of
/// a datagram.
///
/// RFC 3261 §18.1.1: "However, implementations MUST be able to handle messages up to the maximum
/// datagram packet size."
pub const BYTES_MAX: usize = 65_535;

/// A SIP message over borrowed bytes.
///
/// Parsing only finds the lines. Each accessor parses its header when it is called, and handles
/// folds, compact forms and comma lists. Results are slices of the original bytes, so
/// [`span`](Self::span) can locate them.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    start: Start<'a>,
    headers: usize,
    body: usize,
    lines: Index,
    /// The set of the names of the header lines, with one [bit](HeaderName::bit) for each name.
    seen: u64,
    /// The set of the names that occur on more than one header line.
    repeated: u64,
}

impl<'a> Message<'a> {
    /// Indexes the message in a datagram and cuts it at the end of its body.
    ///
    /// RFC 3261 §18.3: bytes beyond Content-Length are discarded. Without Content-Length the body
    /// reaches to the end of the datagram.
    ///
    /// Parsing fails only if the input cannot be read as a message. [`check`](Self::check) finds
    /// all other faults, so that a server can answer a request that it rejects.
    ///
    /// # Errors
    /// Returns an error if there is no start line, a line is not a header line, the empty line is
    /// missing, there are too many lines or bytes, or the Content-Length is not a number. Returns
    /// [`Malformed::ContentLength`] for a truncated body. To answer such a request with 400, read
    /// it with [`parse_head`](Self::parse_head).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let begun = Begun::of(bytes, Start::parse)?;
        begun.index(FIELDS_MAX, Self::cut)
    }

    /// Indexes start line and headers and takes all that follows as the body, ignoring
    /// Content-Length. Accepts any text as the Request-URI and any number of lines. Use this
    /// function to answer a request that is rejected.
    ///
    /// # Errors
    /// Returns the errors of [`parse`](Self::parse), except those about Content-Length, the
    /// Request-URI and the number of lines.
    pub fn parse_head(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let begun = Begun::of(bytes, Start::parse_to_answer)?;
        // Each line takes at least two bytes, so the size of a datagram limits their number.
        begun.index(BYTES_MAX, |_| Ok(()))
    }

    /// Returns the message from its start line to the end of its body.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the parsed start line.
    #[inline]
    pub fn start(&self) -> StartLine<'a> {
        self.start.line
    }

    /// Returns the protocol version as written. [`check`](Self::check) rejects all but `SIP/2.0`.
    pub fn version(&self) -> &'a [u8] {
        self.start.version
    }

    /// Returns whether the message is a request.
    #[inline]
    pub fn is_request(&self) -> bool {
        matches!(self.start.line, StartLine::Request { .. })
    }

    /// Returns the method of a request, or `None` for a response.
    #[inline]
    pub fn method(&self) -> Option<Method> {
        match self.start.line {
            StartLine::Request { method, .. } => Some(method),
            StartLine::Response { .. } => None,
        }
    }

    /// Returns the Request-URI of a request, or `None` for a response.
    #[inline]
    pub fn request_uri(&self) -> Option<&'a [u8]> {
        match self.start.line {
            StartLine::Request { uri, .. } => Some(uri),
            StartLine::Response { .. } => None,
        }
    }

    /// Returns the Status-Code of a response, or `None` for a request.
    #[inline]
    pub fn status(&self) -> Option<u16> {
        match self.start.line {
            StartLine::Request { .. } => None,
            StartLine::Response { status, .. } => Some(status),
        }
    }

    /// Returns the header fields in message order.
    #[inline]
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> {
        self.lines().iter().map(|line| line.field(self.bytes))
    }

    /// Returns the header fields of this name, in message order.
    #[inline]
    pub fn fields_of(&self, name: HeaderName) -> impl Iterator<Item = Field<'a>> {
        self.lines_of(name).map(|line| line.field(self.bytes))
    }

    /// Returns the first header field of this name, or `None` if there is none.
    #[inline]
    pub fn field(&self, name: HeaderName) -> Option<Field<'a>> {
        self.line(name).map(|line| line.field(self.bytes))
    }

    /// Returns whether the message has a header field of RFC 3325, which identifies the caller.
    #[inline]
    pub fn has_identity(&self) -> bool {
        self.has(HeaderName::PAssertedIdentity) || self.has(HeaderName::PPreferredIdentity)
    }

    /// Returns the body of the message.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.body..]
    }

    /// Returns the start line and the headers, with the empty line after them.
    #[inline]
    pub fn head(&self) -> &'a [u8] {
        &self.bytes[..self.body]
    }

    /// Returns the position of `part`, a slice of this message, in [`bytes`](Self::bytes).
    ///
    /// # Panics
    /// Panics if `part` is not a slice of this message's bytes.
    #[inline]
    pub fn span(&self, part: &[u8]) -> Range<usize> {
        span(self.bytes, part)
    }

    /// Returns the Vias. The Via of the last hop comes first.
    pub fn vias(&self) -> impl Iterator<Item = Result<Via<'a>, Malformed>> {
        self.list(HeaderName::Via, Via::parse)
    }

    /// Returns the Vias below the first. A request directly from a user agent has none.
    pub fn lower_vias(&self) -> impl Iterator<Item = Result<Via<'a>, Malformed>> {
        self.elements(HeaderName::Via).skip(1).map(read_by(HeaderName::Via, Via::parse))
    }

    /// Returns the first Via: that of the last hop in a request, that of the receiver itself in a
    /// response.
    ///
    /// # Errors
    /// Returns [`Malformed::MissingHeader`] or [`Malformed::BadHeader`].
    #[inline]
    pub fn top_via(&self) -> Result<Via<'a>, Malformed> {
        self.mandatory(HeaderName::Via, Via::first)
    }

    /// Returns the Route headers: the hops that the request still has to visit.
    pub fn routes(&self) -> impl Iterator<Item = Result<NameAddr<'a>, Malformed>> {
        self.list(HeaderName::Route, NameAddr::parse)
    }

    /// Returns the Record-Routes of the proxies that stay on the path. The last proxy comes first.
    pub fn record_routes(&self) -> impl Iterator<Item = Result<NameAddr<'a>, Malformed>> {
        self.list(HeaderName::RecordRoute, NameAddr::parse)
    }

    /// Returns the elements of the Contact headers. The URI of `Contact: *` is `*`.
    pub fn contacts(&self) -> impl Iterator<Item = Result<NameAddr<'a>, Malformed>> {
        self.list(HeaderName::Contact, NameAddr::parse)
    }

    /// Returns the From header.
    ///
    /// # Errors
    /// Returns [`Malformed::MissingHeader`] or [`Malformed::BadHeader`].
    pub fn from(&self) -> Result<NameAddr<'a>, Malformed> {
        self.mandatory(HeaderName::From, NameAddr::parse)
    }

    /// Returns the To header.
    ///
    /// # Errors
    /// Returns [`Malformed::MissingHeader`] or [`Malformed::BadHeader`].
    pub fn to(&self) -> Result<NameAddr<'a>, Malformed> {
        self.mandatory(HeaderName::To, NameAddr::parse)
    }

    /// Returns the Call-ID.
    ///
    /// # Errors
    /// Returns [`Malformed::MissingHeader`] or [`Malformed::BadHeader`].
    pub fn call_id(&self) -> Result<&'a [u8], Malformed> {
        self.mandatory(HeaderName::CallId, call_id)
    }

    /// Returns the CSeq header.
    ///
    /// # Errors
    /// Returns [`Malformed::MissingHeader`] or [`Malformed::BadHeader`].
    pub fn cseq(&self) -> Result<CSeq<'a>, Malformed> {
        self.mandatory(HeaderName::CSeq, CSeq::parse)
    }

    /// Returns the value of Max-Forwards, 0 to 255 (RFC 3261 §20.22), or `None` if the header is
    /// absent.
    ///
    /// # Errors
    /// Returns [`Malformed::BadHeader`].
    pub fn max_forwards(&self) -> Result<Option<u32>, Malformed> {
        self.optional(HeaderName::MaxForwards, |value| decimal(value, 255))
    }

    /// Returns the value of Max-Breadth, or `None` if the header is absent. The value is the number
    /// of branches that the request may have at the same time (RFC 5393 §5.3.1).
    ///
    /// # Errors
    /// Returns [`Malformed::BadHeader`].
    pub fn max_breadth(&self) -> Result<Option<u32>, Malformed> {
        self.optional(HeaderName::MaxBreadth, |value| decimal(value, u32::MAX))
    }

    /// Returns the length of the body in bytes that the Content-Length states (RFC 3261 §20.14), or
    /// `None` if the header is absent.
    ///
    /// # Errors
    /// Returns [`Malformed::BadHeader`].
    pub fn content_length(&self) -> Result<Option<u32>, Malformed> {
        self.optional(HeaderName::ContentLength, |value| decimal(value, u32::MAX))
    }

    /// Returns the value of the Expires header in seconds (RFC 3261 §20.19), or `None` if the
    /// header is absent.
    ///
    /// # Errors
    /// Returns [`Malformed::BadHeader`].
    pub fn expires(&self) -> Result<Option<u32>, Malformed> {
        self.optional(HeaderName::Expires, |value| decimal(value, u32::MAX))
    }

    /// Returns the value of the Retry-After header in seconds (RFC 3261 §20.33), or `None` if the
    /// header is absent. Ignores its comment and its parameters.
    ///
    /// # Errors
    /// Returns [`Malformed::BadHeader`].
    pub fn retry_after(&self) -> Result<Option<u32>, Malformed> {
        // RFC 3261 §25.1: delta-seconds [ comment ] *( SEMI retry-param ).
        self.optional(HeaderName::RetryAfter, |value| {
            let (seconds, rest) = split_decimal(value, u32::MAX)?;
            matches!(trim_start(rest).first(), None | Some(b'(' | b';')).then_some(seconds)
        })
    }

    /// Reads the header lines, and finds the body. Returns an error if there are more than
    /// `lines_max` lines. `lines_max` must be at least [`FIELDS_INLINE`].
    #[inline(always)]
    fn index(&mut self, mut ends: LineEnds<'_>, lines_max: usize) -> Result<(), Malformed> {
        let (bytes, mut at) = (self.bytes, self.headers);
        let (mut seen, mut repeated) = (0, 0);
        while let Some(line) = Line::next(bytes, at, &mut ends)? {
            at = line.end();
            let bit = line.name.bit();
            repeated |= seen & bit;
            seen |= bit;
            self.lines.push(line, lines_max)?;
        }
        (self.seen, self.repeated) = (seen, repeated);
        self.body = at + line_end(&bytes[at..]);
        Ok(())
    }

    /// Cuts the message at the end of the body that its Content-Length states.
    #[inline]
    fn cut(&mut self) -> Result<(), Malformed> {
        if let Some(length) = self.content_length()? {
            let body = self.body().get(..length as usize).ok_or(Malformed::ContentLength)?;
            self.bytes = &self.bytes[..self.body + body.len()];
        }
        Ok(())
    }

    /// Returns the offset of the first header line in [`bytes`](Self::bytes).
    pub(crate) fn headers_start(&self) -> usize {
        self.headers
    }

    pub(crate) fn start_line(&self) -> &Start<'a> {
        &self.start
    }

    #[inline]
    pub(crate) fn lines(&self) -> &[Line] {
        self.lines.as_slice()
    }

    #[inline]
    pub(crate) fn line(&self, name: HeaderName) -> Option<&Line> {
        self.lines_of(name).next()
    }

    /// Returns the lines of this name. In the most frequent case, no line has the name, and no line
    /// is searched.
    #[inline]
    fn lines_of(&self, name: HeaderName) -> impl Iterator<Item = &Line> {
        let lines = if self.has(name) { self.lines() } else { &[] };
        lines.iter().filter(move |line| line.name == name)
    }

    /// Returns whether a header line has this name, or another name with the same
    /// [bit](HeaderName::bit).
    #[inline]
    fn has(&self, name: HeaderName) -> bool {
        self.seen & name.bit() != 0
    }

    /// Returns the set of the names that occur on more than one line.
    #[inline]
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    #[inline]
    fn list<T>(
        &self,
        name: HeaderName,
        parse: impl Fn(&'a [u8]) -> Option<T>,
    ) -> impl Iterator<Item = Result<T, Malformed>> {
        self.elements(name).map(read_by(name, parse))
    }

    /// Returns the elements of a list header, over all its lines. A broken element is `None`.
    #[inline]
    fn elements(&self, name: HeaderName) -> impl Iterator<Item = Option<&'a [u8]>> {
        self.lines_of(name).flat_map(|line| Elements::of(line.value(self.bytes)))
    }

    #[inline]
    fn optional<T>(
        &self,
        name: HeaderName,
        parse: impl Fn(&'a [u8]) -> Option<T>,
    ) -> Result<Option<T>, Malformed> {
        let Some(line) = self.line(name) else { return Ok(None) };
        parse(line.value(self.bytes)).map(Some).ok_or(Malformed::BadHeader(name))
    }

    #[inline]
    fn mandatory<T>(
        &self,
        name: HeaderName,
        parse: impl Fn(&'a [u8]) -> Option<T>,
    ) -> Result<T, Malformed> {
        self.optional(name, parse)?.ok_or(Malformed::MissingHeader(name))
    }
}

/// The lines of a message. The lines of usual messages need no heap.
#[derive(Clone, Debug)]
struct Index {
    few: ArrayVec<Line, FIELDS_INLINE>,
    /// All lines, if there are more than `few` can hold.
    many: Vec<Line>,
}

impl Index {
    #[inline(always)]
    fn push(&mut self, line: Line, lines_max: usize) -> Result<(), Malformed> {
        match self.few.try_push(line) {
            Ok(()) => Ok(()),
            Err(full) => self.push_to_many(full.element(), lines_max),
        }
    }

    #[cold]
    fn push_to_many(&mut self, line: Line, lines_max: usize) -> Result<(), Malformed> {
        if self.as_slice().len() == lines_max {
            return Err(Malformed::TooManyHeaders);
        }
        if self.many.is_empty() {
            self.many.extend_from_slice(&self.few);
        }
        self.many.push(line);
        Ok(())
    }

    #[inline(always)]
    fn as_slice(&self) -> &[Line] {
        if self.many.is_empty() { &self.few } else { &self.many }
    }
}

/// A message whose start line was read.
struct Begun<'a> {
    bytes: &'a [u8],
    start: Start<'a>,
    headers: usize,
    ends: LineEnds<'a>,
}

impl<'a> Begun<'a> {
    #[inline(always)]
    fn of(
        bytes: &'a [u8],
        parse: impl FnOnce(&'a [u8]) -> Result<Start<'a>, Malformed>,
    ) -> Result<Self, Malformed> {
        let bytes = skip_blank(bytes)?;
        if bytes.len() > BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        let (first, headers, ends) = first_line(bytes)?;
        Ok(Self { bytes, start: parse(first)?, headers, ends })
    }

    /// Reads at most `lines_max` header lines, finds the body and passes the message to `end`.
    #[inline(always)]
    fn index(
        self,
        lines_max: usize,
        end: impl FnOnce(&mut Message<'a>) -> Result<(), Malformed>,
    ) -> Result<Message<'a>, Malformed> {
        let Self { bytes, start, headers, ends } = self;
        let mut message = Ok(Message {
            bytes,
            start,
            headers,
            body: headers,
            lines: Index { few: ArrayVec::new_const(), many: Vec::new() },
            seen: 0,
            repeated: 0,
        });
        if let Ok(begun) = &mut message
            && let Err(error) = begun.index(ends, lines_max).and_then(|()| end(begun))
        {
            message = Err(error);
        }
        message
    }
}

/// Returns a function that parses an element of the list `name` with `parse`.
#[inline]
fn read_by<'a, T>(
    name: HeaderName,
    parse: impl Fn(&'a [u8]) -> Option<T>,
) -> impl Fn(Option<&'a [u8]>) -> Result<T, Malformed> {
    move |element| element.and_then(&parse).ok_or(Malformed::BadHeader(name))
}

/// Returns the position of `part` in `whole`.
///
/// # Panics
/// Panics if `part` is not a slice of `whole`.
#[inline]
pub(crate) fn span(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    let inside = start <= whole.len() && part.len() <= whole.len() - start;
    assert!(inside, "not a part of this message");
    start..start + part.len()
}

/// Checks the value of a Call-ID header, and returns it. A Call-ID is one word without white space
/// or control characters. The grammar's narrower character set is not enforced, because the Call-ID
/// is an opaque key.
#[inline]
pub(crate) fn call_id(value: &[u8]) -> Option<&[u8]> {
    (!value.is_empty() && is_visible(value)).then_some(value)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
