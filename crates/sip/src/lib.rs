//! A SIP parser for proxies, which forward most messages without reading them completely.
//!
//! The building blocks, from the cheapest to the most expensive:
//!
//! - [`Framer`] cuts a byte stream into messages;
//! - [`glance`] reads the start line alone;
//! - [`scan`](scan()) finds the fields that an admission gate needs (start line, top Via, Call-ID,
//!   CSeq, To-tag) and stops at the last header it needs; [`scan_ack`] reads even less of an ACK;
//! - [`resource_values`] and [`is_emergency`] find the priority that a request claims;
//! - [`Outline`] is a scan with everything that is needed to reject the request;
//! - [`Message`] indexes the header lines in one pass; it parses a header's value only when a
//!   caller asks for it, and every result is a slice of the received bytes;
//! - [`Passage`] is a response that a proxy forwards, parsed only as far as necessary;
//! - [`Splice`] changes a message by cutting and inserting, so that everything the element does not
//!   understand passes through byte for byte; [`forward`] holds the edits of a proxy;
//! - [`write_reply`] builds a reply from the request's own lines;
//! - [`OverloadControl`] reads and writes the parameters of RFC 7339 in a Via.
//!
//! This crate reads no clock and uses no sockets. Memory is allocated only for a message with more
//! than 96 header lines or 16 edits, and to compare URIs. No input causes a panic or takes more
//! than linear time.
//!
//! ```
//! use tidegate_sip::{Message, Splice, forward};
//!
//! let bytes = b"OPTIONS sip:carol@chicago.example SIP/2.0\r\n\
//!     Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKhjhs8ass877\r\n\
//!     Max-Forwards: 70\r\n\
//!     To: <sip:carol@chicago.example>\r\n\
//!     From: Alice <sip:alice@atlanta.example>;tag=1928301774\r\n\
//!     Call-ID: a84b4c76e66710\r\n\
//!     CSeq: 63104 OPTIONS\r\n\r\n";
//! let message = Message::parse(bytes)?;
//! message.check()?;
//! assert_eq!(message.top_via()?.branch(), Some(&b"z9hG4bKhjhs8ass877"[..]));
//!
//! let mut splice = Splice::new(&message);
//! let at = forward::top_of_headers(&message);
//! splice.insert(at, b"Via: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKours\r\n");
//! forward::set_max_forwards(&mut splice, &message, b"69");
//! let mut out = Vec::new();
//! splice.write_to(&mut out).expect("a Vec takes everything");
//! assert!(out.starts_with(b"OPTIONS sip:carol@chicago.example SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9"));
//! # Ok::<(), tidegate_sip::Malformed>(())
//! ```

mod check;
mod cseq;
mod destination;
mod element;
mod field;
pub mod forward;
mod framer;
mod header_name;
mod host;
mod lexical;
mod line_ends;
mod lines;
mod malformed;
mod message;
mod method;
mod name_addr;
mod outline;
mod overload_control;
mod params;
mod passage;
mod priority;
mod reply;
mod scan;
mod session_timer;
mod splice;
mod start;
mod status;
mod tags;
mod uri;
mod via;
mod without;

pub use check::Essentials;
pub use cseq::CSeq;
pub use destination::{connection_target, listener_target, reply_target, response_target};
pub use field::{FIELDS_MAX, Field};
pub use framer::{FrameFault, FrameLimits, Framer, Next};
pub use header_name::HeaderName;
pub use host::Host;
pub use lines::first_value;
pub use malformed::Malformed;
pub use message::{BYTES_MAX, Message};
pub use method::Method;
pub use name_addr::NameAddr;
pub use outline::{Outline, PIECES_MAX};
pub use overload_control::{
    ALGORITHMS_MAX, Oc, OcLoad, OcSequence, OverloadControl, may_have_overload_control,
    write_overload_control,
};
pub use params::{Param, Params, ParamsIter};
pub use passage::Passage;
pub use priority::{ResourceValue, is_emergency, requires, resource_values};
pub use reply::{Reply, write_reply, write_reply_by_via};
pub use scan::{AckScan, Scan, ScanStart, branch_in_quote, glance, scan, scan_ack};
pub use splice::Splice;
pub use start::StartLine;
pub use status::reason;
pub use tags::dialog_tags;
pub use uri::{Scheme, Uri};
pub use via::{Rport, Via, ViaTransport, top_via};
pub use without::write_without;
