//! Checks that a message can be processed (RFC 3261 §8.1.1, §16.3).

use std::ops::Not;

use crate::header_name::SINGLE;
use crate::line_ends::has_only_crlf;
use crate::{CSeq, HeaderName, Malformed, Message, NameAddr, StartLine, Via};

/// The parsed values of the headers that every message has (RFC 3261 §8.1.1).
#[derive(Clone, Copy, Debug)]
pub struct Essentials<'a> {
    /// The first Via.
    pub via: Via<'a>,
    /// The From header.
    pub from: NameAddr<'a>,
    /// The tag of the From, as [`NameAddr::tag`] returns it.
    pub from_tag: Option<&'a [u8]>,
    /// The To header.
    pub to: NameAddr<'a>,
    /// The tag of the To, as [`NameAddr::tag`] returns it.
    pub to_tag: Option<&'a [u8]>,
    /// The value of the Call-ID header.
    pub call_id: &'a [u8],
    /// The CSeq header.
    pub cseq: CSeq<'a>,
}

impl<'a> Message<'a> {
    /// Checks the parts of a message that every element needs. The version must be SIP/2.0. All
    /// lines of the head must end with CRLF, and the head must contain no other CR or LF. To, From,
    /// CSeq and Call-ID must occur once and be well-formed. At least one Via must occur, and all
    /// Vias must be well-formed. Content-Length, Max-Forwards and Max-Breadth may each occur at
    /// most once. The CSeq of a request must name the method of the request.
    ///
    /// RFC 3261 §16.3(1): "Any components involved in the remainder of these Request Validation
    /// steps or the Request Forwarding section MUST be well-formed. Any other components, well-formed or not, SHOULD be ignored and
    /// remain unchanged when the message is forwarded."
    ///
    /// # Errors
    /// Returns the first fault. For a request, every fault except [`Malformed::Version`] (505) is
    /// answered with 400.
    pub fn check(&self) -> Result<(), Malformed> {
        self.essentials().map(|_| ())
    }

    /// Performs [`check`](Self::check) and returns the parsed values.
    ///
    /// # Errors
    /// Returns the errors of [`check`](Self::check).
    // The result is large. An inlined function writes it directly into a variable of the caller,
    // without a copy.
    #[inline(always)]
    pub fn essentials(&self) -> Result<Essentials<'a>, Malformed> {
        if !self.start_line().is_version_2() {
            return Err(Malformed::Version);
        }
        if !has_only_crlf(self.head()) {
            return Err(Malformed::LineEnd);
        }
        self.check_repeated()?;
        let via = self.check_vias()?;
        let to = self.to()?;
        // A reply appends its tag to this To (§8.2.6.2), and the tag must parse as a parameter. If
        // the To had an empty tag before, parsers would read the empty tag instead. RFC 3261 §7.3.1:
        // "any given parameter-name MUST NOT appear more than once". Of two tags, this parser reads
        // the first and others the last. So a request could be part of a call here, and a new call
        // at the next server.
        let to_tag = match to.params.only_tag() {
            Some(tag) => tag,
            None => {
                let tag = to.params.get("tag").map(Option::unwrap_or_default);
                if !has_one_tag(&to) || tag == Some(b"") {
                    return Err(Malformed::BadHeader(HeaderName::To));
                }
                tag
            }
        };
        let from = self.from()?;
        let from_tag = match from.params.only_tag() {
            Some(tag) => tag,
            None if has_one_tag(&from) => from.tag(),
            None => return Err(Malformed::BadHeader(HeaderName::From)),
        };
        let call_id = self.call_id()?;
        let cseq = self.cseq()?;
        match self.start() {
            // RFC 3261 §8.1.1.5: "The method MUST match that of the request."
            StartLine::Request { method_name, .. } if method_name != cseq.method_name => {
                Err(Malformed::BadHeader(HeaderName::CSeq))
            }
            _ => Ok(Essentials { via, from, from_tag, to, to_tag, call_id, cseq }),
        }
    }

    /// Returns the first Via, if all Vias are well-formed.
    ///
    /// RFC 3261 §16.3(1) requires only the components that this proxy uses to be well-formed, and
    /// it uses only the first Via. But this proxy is responsible for the messages that it forwards:
    /// a server parses the second Via of a request to route the response. A server that cannot
    /// parse this Via drops the request silently and looks dead. A request with a Via of a version
    /// other than 2.0 also gets 400: 505 is for "the SIP protocol version that was used in the
    /// request" (§21.5.6), which is the version in the start line.
    #[inline(always)]
    fn check_vias(&self) -> Result<Via<'a>, Malformed> {
        let broken = Malformed::BadHeader(HeaderName::Via);
        let line = self.line(HeaderName::Via);
        let line = line.ok_or(Malformed::MissingHeader(HeaderName::Via))?;
        let value = line.value(self.bytes());
        let via = Via::first(value).ok_or(broken)?;
        if via.is_broken() {
            return Err(broken);
        }
        if via.element.len() < value.len() || self.repeated() & HeaderName::Via.bit() != 0 {
            self.check_lower_vias()?;
        }
        Ok(via)
    }

    fn check_lower_vias(&self) -> Result<(), Malformed> {
        if self.lower_vias().any(|via| via.is_ok_and(|via| !via.is_broken()).not()) {
            return Err(Malformed::BadHeader(HeaderName::Via));
        }
        Ok(())
    }

    fn check_repeated(&self) -> Result<(), Malformed> {
        if self.repeated() & SINGLE == 0 {
            return Ok(());
        }
        let mut seen = 0;
        let is_second = |name: &HeaderName| {
            let is_seen = seen & name.bit() != 0;
            seen |= name.bit();
            is_seen && name.is_single()
        };
        let second = self.fields().map(|field| field.name).find(is_second);
        second.map_or(Ok(()), |name| Err(Malformed::DuplicateHeader(name)))
    }
}

/// Returns whether the parameters after an address are well-formed, and at most one of them is a
/// tag.
#[inline(never)]
fn has_one_tag(address: &NameAddr<'_>) -> bool {
    address.params.is_well_formed() && !address.params.repeats("tag")
}
