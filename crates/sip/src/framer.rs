//! Framing of SIP messages on a byte stream (RFC 3261 §18.3).
//!
//! A datagram is one message, but a stream has to be cut into messages. A [`Framer`] reads a buffer
//! that its caller owns and fills, and returns the range of each message in it. A framer copies
//! nothing and remembers how far it has read. So it takes linear time, however the stream is split
//! into reads.
//!
//! TCP and TLS need a framer. A WebSocket does not, because each SIP message is a WebSocket message
//! of its own (RFC 7118 §5).

use std::fmt;
use std::ops::Range;

use crate::field::{Line, line_end};
use crate::lexical::{decimal, find, is_token};
use crate::line_ends::has_only_crlf;
use crate::start::Start;
use crate::{BYTES_MAX, HeaderName};

/// Limits on the messages of a peer on a stream.
///
/// Independently of these limits, a message is no longer than [`BYTES_MAX`] from its start line to
/// the end of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Maximum size of the start line and the headers in bytes, including the empty line after
    /// them.
    pub head_max: usize,
    /// Maximum size of a body in bytes.
    pub body_max: usize,
    /// Maximum number of consecutive line ends before a message that are neither ping nor pong.
    pub blank_max: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { head_max: 32 * 1024, body_max: BYTES_MAX, blank_max: 64 }
    }
}

/// The next item on a stream (a message, a ping or a pong), or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// No complete item is left: read at least `need` bytes more.
    Incomplete {
        /// Minimum number of further bytes after which the result can change, at least 1.
        need: usize,
    },
    /// The position of a message in the buffer, from its start line to the end of its body.
    Message(Range<usize>),
    /// A keep-alive to be answered with a CRLF (RFC 5626 §4.4.1).
    Ping,
    /// The answer to a keep-alive ([`Framer::expect_pong`]).
    Pong,
    /// No further message can be found on the stream. The caller must close the stream. All later
    /// calls of [`next`](Framer::next) return the same fault.
    Broken(FrameFault),
}

/// A reason why a stream cannot be cut into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameFault {
    /// A message does not begin with a Request-Line or a Status-Line.
    StartLine,
    /// There are more blank lines than [`FrameLimits::blank_max`].
    BlankLines,
    /// The head contains a CR or an LF that is not part of a CRLF (RFC 3261 §7). Some senders treat
    /// it as a line end and others do not. So the end of the head and its Content-Length are
    /// uncertain.
    LineEnd,
    /// The head is longer than [`FrameLimits::head_max`].
    HeadTooLong,
    /// The message has no Content-Length. RFC 3261 §18.3: "The Content-Length header field MUST be
    /// used with stream oriented transports."
    NoContentLength,
    /// The value of Content-Length is not a number, or is greater than 2^32 − 1.
    BadContentLength,
    /// The message has two different Content-Lengths.
    TwoContentLengths,
    /// The body is longer than [`FrameLimits::body_max`], or the message is longer than
    /// [`BYTES_MAX`].
    TooLong,
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartLine => "a message begins with neither a request line nor a status line",
            Self::BlankLines => "there are too many blank lines before a message",
            Self::LineEnd => "the head has a CR or an LF that is not part of a CRLF",
            Self::HeadTooLong => "the start line and the headers are too long",
            Self::NoContentLength => "the message has no Content-Length",
            Self::BadContentLength => "the Content-Length is malformed",
            Self::TwoContentLengths => "the message has two different Content-Lengths",
            Self::TooLong => "the message is too long",
        })
    }
}

impl std::error::Error for FrameFault {}

/// A framer that cuts one direction of a stream into messages.
///
/// The caller appends the bytes it reads to a buffer and calls [`next`](Self::next) with the whole
/// buffer until the result is [`Next::Incomplete`]. Then it calls [`release`](Self::release),
/// removes that number of bytes from the front, and reads on. The remaining bytes are less than one
/// message, so a buffer of [`BYTES_MAX`] bytes is always large enough.
///
/// ```
/// use tidegate_sip::{Framer, Next};
///
/// let mut held = b"\r\n\r\nSIP/2.0 200 OK\r\nl: 2\r\n\r\nhiSIP/2.0 ".to_vec();
/// let mut framer = Framer::default();
/// assert_eq!(framer.next(&held), Next::Ping);
/// assert_eq!(framer.next(&held), Next::Message(4..30));
/// assert_eq!(framer.next(&held), Next::Incomplete { need: 1 });
/// held.drain(..framer.release());
/// assert_eq!(held, b"SIP/2.0 ");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Framer {
    limits: FrameLimits,
    /// Offset of the first byte after the items returned so far.
    start: usize,
    /// Offset from which the next line end is searched.
    scanned: usize,
    stage: Stage,
    /// Number of blank lines since the last message, ping or pong.
    blanks: usize,
    /// Number of pings that were sent and not answered yet.
    pings: u8,
}

/// Read progress of the message at [`Framer::start`].
#[derive(Clone, Debug, Default)]
enum Stage {
    /// The message has not begun.
    #[default]
    Between,
    /// The start line has begun.
    StartLine,
    /// The headers are read up to the one that begins at `line`.
    Headers { line: usize, length: Length },
    /// The message ends at `end`.
    Body { end: usize },
    /// No further message can be found.
    Broken(FrameFault),
}

/// The body length according to the headers read so far.
#[derive(Clone, Copy, Debug)]
enum Length {
    Unsaid,
    Said(u32),
    Wrong(FrameFault),
}

impl Framer {
    /// Creates a framer for the beginning of a stream.
    pub fn new(limits: FrameLimits) -> Self {
        let FrameLimits { head_max, body_max, blank_max } = limits;
        let head_max = head_max.min(BYTES_MAX);
        Self { limits: FrameLimits { head_max, body_max, blank_max }, ..Self::default() }
    }

    /// Returns the next item on the stream. `held` contains all bytes that were read and not
    /// [released](Self::release).
    ///
    /// # Panics
    /// Panics if bytes that were not released were removed from `held`.
    pub fn next(&mut self, held: &[u8]) -> Next {
        assert!(held.len() >= self.scanned, "bytes were removed that were not released");
        loop {
            let step = match self.stage {
                Stage::Between => self.between(held),
                Stage::StartLine => self.start_line(held),
                Stage::Headers { line, length } => self.headers(held, line, length),
                Stage::Body { end } => Some(self.body(held, end)),
                Stage::Broken(fault) => Some(Next::Broken(fault)),
            };
            if let Some(next) = step {
                return next;
            }
        }
    }

    /// Returns how many bytes at the front of the buffer are no longer needed. Positions returned
    /// from now on count from the byte after them. A broken stream keeps its bytes until it is
    /// closed.
    pub fn release(&mut self) -> usize {
        if matches!(self.stage, Stage::Broken(_)) {
            return 0;
        }
        let done = std::mem::take(&mut self.start);
        self.scanned -= done;
        match &mut self.stage {
            Stage::Headers { line, .. } => *line -= done,
            Stage::Body { end } => *end -= done,
            Stage::Between | Stage::StartLine | Stage::Broken(_) => {}
        }
        done
    }

    /// Returns the length of the returned items that are still in the buffer. The next
    /// [`release`](Self::release) removes them, unless the stream is broken.
    pub fn consumed(&self) -> usize {
        self.start
    }

    /// Makes the framer treat the next CRLF between two messages as the answer to a ping that was
    /// sent. Each call covers one more CRLF.
    pub fn expect_pong(&mut self) {
        self.pings = self.pings.saturating_add(1);
    }

    /// Returns whether no message has begun, so that the stream may end here.
    pub fn is_between_messages(&self) -> bool {
        matches!(self.stage, Stage::Between)
    }

    /// Takes a line end, a ping or a pong that precedes a start line. Returns `None` after a line
    /// end, and when a start line begins.
    ///
    /// RFC 3261 §7.5: "Implementations processing SIP messages over stream-oriented transports
    /// MUST ignore any CRLF appearing before the start-line". RFC 5626 §4.4.1: "the client "ping"
    /// is a double-CRLF sequence, and the server "pong" is a single CRLF".
    fn between(&mut self, held: &[u8]) -> Option<Next> {
        let (taken, next) = match &held[self.start..] {
            [] | [b'\r'] => return Some(Next::Incomplete { need: 1 }),
            [b'\r', b'\n', ..] if self.pings > 0 => (2, Some(Next::Pong)),
            [b'\r', b'\n', b'\r', b'\n', ..] => (4, Some(Next::Ping)),
            // This is the first half of a ping, or a CRLF before a start line. More bytes decide.
            [b'\r', b'\n'] | [b'\r', b'\n', b'\r'] => return Some(Next::Incomplete { need: 1 }),
            [b'\r', b'\n', ..] => (2, None),
            [b'\n', ..] => (1, None),
            // A start line begins with a byte of a token. Other data, such as TLS, is detected at
            // its first byte.
            &[first, ..] if is_token(first) => {
                self.stage = Stage::StartLine;
                return None;
            }
            _ => return Some(self.broken(FrameFault::StartLine)),
        };
        self.start += taken;
        self.scanned = self.start;
        if next.is_some() {
            self.pings -= u8::from(next == Some(Next::Pong));
            self.blanks = 0;
            return next;
        }
        self.blanks += 1;
        let too_many = self.blanks > self.limits.blank_max;
        too_many.then(|| self.broken(FrameFault::BlankLines))
    }

    fn start_line(&mut self, held: &[u8]) -> Option<Next> {
        let end = match self.find_line_end(held) {
            Ok(end) => end,
            Err(next) => return Some(next),
        };
        let line = &held[self.start..end - 1];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if Start::parse_to_answer(line).is_err() {
            return Some(self.broken(FrameFault::StartLine));
        }
        self.scanned = end;
        self.stage = Stage::Headers { line: end, length: Length::Unsaid };
        None
    }

    /// Reads one header line, or the empty line after the last header.
    fn headers(&mut self, held: &[u8], line: usize, length: Length) -> Option<Next> {
        let end = match self.find_line_end(held) {
            Ok(end) => end,
            Err(next) => return Some(next),
        };
        if line_end(&held[line..end]) > 0 {
            return self.end_of_headers(held, end, length);
        }
        match held.get(end) {
            // RFC 3261 §7.3.1: the line continues if the next one begins with white space.
            Some(b' ' | b'\t') => {
                self.scanned = end;
                return None;
            }
            Some(_) => {}
            None if end - self.start >= self.limits.head_max => {
                return Some(self.broken(FrameFault::HeadTooLong));
            }
            // The next call searches from the line feed on, so it reads only one byte again.
            None => {
                self.scanned = end - 1;
                return Some(Next::Incomplete { need: 1 });
            }
        }
        let length = match held[line] {
            b'C' | b'c' | b'L' | b'l' => length.and(&held[self.start..end], line - self.start),
            _ => length,
        };
        self.scanned = end;
        self.stage = Stage::Headers { line: end, length };
        None
    }

    fn end_of_headers(&mut self, held: &[u8], end: usize, length: Length) -> Option<Next> {
        let head = end - self.start;
        let fault = match length {
            _ if !has_only_crlf(&held[self.start..end]) => FrameFault::LineEnd,
            Length::Said(body) if body as usize > self.limits.body_max.min(BYTES_MAX - head) => {
                FrameFault::TooLong
            }
            Length::Said(body) => {
                self.scanned = end;
                self.stage = Stage::Body { end: end + body as usize };
                return None;
            }
            Length::Unsaid => FrameFault::NoContentLength,
            Length::Wrong(fault) => fault,
        };
        Some(self.broken(fault))
    }

    fn body(&mut self, held: &[u8], end: usize) -> Next {
        if held.len() < end {
            return Next::Incomplete { need: end - held.len() };
        }
        let message = self.start..end;
        (self.start, self.scanned, self.blanks) = (end, end, 0);
        self.stage = Stage::Between;
        Next::Message(message)
    }

    /// Returns the start of the line after the next line end.
    fn find_line_end(&mut self, held: &[u8]) -> Result<usize, Next> {
        let head_end = self.start + self.limits.head_max;
        let readable = &held[..held.len().min(head_end)];
        if let Some(at) = find(b'\n', &readable[self.scanned.min(readable.len())..]) {
            return Ok(self.scanned + at + 1);
        }
        if readable.len() == head_end {
            return Err(self.broken(FrameFault::HeadTooLong));
        }
        self.scanned = readable.len();
        Err(Next::Incomplete { need: 1 })
    }

    fn broken(&mut self, fault: FrameFault) -> Next {
        self.stage = Stage::Broken(fault);
        Next::Broken(fault)
    }
}

impl Length {
    /// Returns the body length according to the header lines before, which is `self`, and one more
    /// header line. That line begins at `line` and ends at the end of `bytes`.
    ///
    /// The line is read as [`Message`](crate::Message) reads it, so that a framer and a message
    /// find the same end of the body. A line that is not a header is ignored, because
    /// [`Message`](crate::Message) reports it.
    fn and(self, bytes: &[u8], line: usize) -> Self {
        let Ok(Some(line)) = Line::read(bytes, line) else { return self };
        if line.name != HeaderName::ContentLength {
            return self;
        }
        let said = decimal(line.value(bytes), u32::MAX);
        match (self, said) {
            (Self::Unsaid, Some(said)) => Self::Said(said),
            (Self::Said(before), Some(said)) if before == said => self,
            (Self::Said(_), Some(_)) => Self::Wrong(FrameFault::TwoContentLengths),
            (Self::Wrong(_), _) => self,
            (_, None) => Self::Wrong(FrameFault::BadContentLength),
        }
    }
}

#[cfg(test)]
#[path = "framer_tests.rs"]
mod tests;
