//! Whether a message can be processed (RFC 3261 §8.1.1, §16.3).

use crate::{HeaderName, Malformed, Message, StartLine};

impl Message<'_> {
    /// Checks what every element needs of a message: the version is SIP/2.0; To,
    /// From, CSeq and Call-ID are there once, the top Via is there, all well-formed;
    /// no other single-valued header is repeated; a request's CSeq names its method.
    ///
    /// RFC 3261 §16.3(1): other components "SHOULD NOT be inspected" by a proxy.
    ///
    /// # Errors
    /// The first thing found wrong. All but [`Malformed::Version`] (505) call for a
    /// 400 when the message is a request.
    pub fn check(&self) -> Result<(), Malformed> {
        if !self.start_line().is_version_2() {
            return Err(Malformed::Version);
        }
        self.check_repeated()?;
        self.top_via()?;
        self.to()?;
        self.from()?;
        self.call_id()?;
        let cseq = self.cseq()?;
        match self.start() {
            // RFC 3261 §8.1.1.5: "The method MUST match that of the request."
            StartLine::Request { method_name, .. } if method_name != cseq.method_name => {
                Err(Malformed::BadHeader(HeaderName::CSeq))
            }
            _ => Ok(()),
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
