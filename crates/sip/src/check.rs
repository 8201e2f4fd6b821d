//! Whether a message can be processed (RFC 3261 §8.1.1, §16.3).

use crate::{CSeq, HeaderName, Malformed, Message, NameAddr, StartLine, Via};

/// The headers that every message has (RFC 3261 §8.1.1), read.
#[derive(Clone, Copy, Debug)]
pub struct Essentials<'a> {
    /// The first Via.
    pub via: Via<'a>,
    /// The From.
    pub from: NameAddr<'a>,
    /// The To.
    pub to: NameAddr<'a>,
    /// The Call-ID.
    pub call_id: &'a [u8],
    /// The CSeq.
    pub cseq: CSeq<'a>,
}

impl<'a> Message<'a> {
    /// Checks what every element needs of a message: the version is SIP/2.0; To,
    /// From, CSeq and Call-ID are there once, the top Via is there, all well-formed;
    /// no other single-valued header is repeated; a request's CSeq names its method.
    ///
    /// RFC 3261 §16.3(1): "Any components involved in the remainder of these Request Validation
    /// steps or the Request Forwarding section MUST be well-formed. Any other components, well-formed or not, SHOULD be ignored and
    /// remain unchanged when the message is forwarded."
    ///
    /// # Errors
    /// The first thing found wrong. All but [`Malformed::Version`] (505) call for a
    /// 400 when the message is a request.
    pub fn check(&self) -> Result<(), Malformed> {
        self.essentials().map(|_| ())
    }

    /// What [`check`](Self::check) reads on its way, for who needs it next.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn essentials(&self) -> Result<Essentials<'a>, Malformed> {
        if !self.start_line().is_version_2() {
            return Err(Malformed::Version);
        }
        self.check_repeated()?;
        let via = self.top_via()?;
        // RFC 4475 §3.1.2.1: 400 to a top Via of `SIP/2.0/UDP 192.0.2.15;;,;,,`. And what is
        // written into it must be read as a parameter (§18.2.1).
        if via.params.has_gap() || via.params.misquotes() {
            return Err(Malformed::BadHeader(HeaderName::Via));
        }
        let to = self.to()?;
        // Likewise the tag of an answer (§8.2.6.2), which an empty one would hide.
        if to.params.misquotes() || to.params.get("tag").is_some() && to.tag().is_none() {
            return Err(Malformed::BadHeader(HeaderName::To));
        }
        let from = self.from()?;
        let call_id = self.call_id()?;
        let cseq = self.cseq()?;
        match self.start() {
            // RFC 3261 §8.1.1.5: "The method MUST match that of the request."
            StartLine::Request { method_name, .. } if method_name != cseq.method_name => {
                Err(Malformed::BadHeader(HeaderName::CSeq))
            }
            _ => Ok(Essentials { via, from, to, call_id, cseq }),
        }
    }

    fn check_repeated(&self) -> Result<(), Malformed> {
        let mut seen = 0;
        for line in self.lines() {
            let bit = line.name.bit();
            if seen & bit != 0 && line.name.is_single() {
                return Err(Malformed::DuplicateHeader(line.name));
            }
            seen |= bit;
        }
        Ok(())
    }
}
