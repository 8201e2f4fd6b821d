//! Faults of a message.

use std::error::Error;
use std::fmt;

use crate::HeaderName;

/// The reason why bytes are not a SIP message, or why the message cannot be processed. All reasons
/// except [`Keepalive`](Self::Keepalive) are faults of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The bytes are only line ends, blanks or zero bytes, sent to keep a NAT binding open. This is
    /// not a fault: the receiver drops them silently.
    Keepalive,
    /// The message is longer than [`BYTES_MAX`](crate::BYTES_MAX) bytes.
    TooLong,
    /// The first line is neither a Request-Line nor a Status-Line (RFC 3261 §7.1, §7.2).
    StartLine,
    /// The protocol version is not SIP/2.0. A server answers 505 (RFC 3261 §21.5.6).
    Version,
    /// A header line lacks a name or a colon.
    Header {
        /// Offset of the line, in bytes from the start line.
        offset: u16,
    },
    /// The head contains a CR or an LF that is not part of a CRLF (RFC 3261 §7).
    LineEnd,
    /// The empty line after the headers is missing.
    NoEnd,
    /// There are more than [`FIELDS_MAX`](crate::FIELDS_MAX) header lines.
    TooManyHeaders,
    /// A mandatory header is missing (RFC 3261 §8.1.1).
    MissingHeader(HeaderName),
    /// A header that may occur only once occurs more than once (RFC 3261 §7.3.1).
    DuplicateHeader(HeaderName),
    /// The value of a header does not follow its grammar.
    BadHeader(HeaderName),
    /// The body is shorter than Content-Length states. A server answers 400 (RFC 3261 §18.3).
    ContentLength,
    /// A URI does not follow the grammar of its scheme (RFC 3261 §19.1.1).
    Uri,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keepalive => f.write_str("the bytes are a keepalive, not a message"),
            Self::TooLong => f.write_str("the message is longer than a datagram can be"),
            Self::StartLine => {
                f.write_str("the first line is neither a request line nor a status line")
            }
            Self::Version => f.write_str("the protocol version is not SIP/2.0"),
            Self::Header { offset } => {
                write!(f, "the line at offset {offset} is not a header line")
            }
            Self::LineEnd => f.write_str("the head has a CR or an LF that is not part of a CRLF"),
            Self::NoEnd => f.write_str("there is no empty line after the headers"),
            Self::TooManyHeaders => f.write_str("there are too many header lines"),
            Self::MissingHeader(name) => write!(f, "the {name} header is missing"),
            Self::DuplicateHeader(name) => write!(f, "there is more than one {name} header"),
            Self::BadHeader(name) => write!(f, "the {name} header is malformed"),
            Self::ContentLength => f.write_str("the body is shorter than its Content-Length"),
            Self::Uri => f.write_str("the URI is malformed"),
        }
    }
}

impl Error for Malformed {}
