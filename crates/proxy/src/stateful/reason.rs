//! The `Reason` of the CANCELs that we generate: RFC 3326.

use tidegate_sip::{HeaderName, Message, reason};

/// Bytes of Reason lines copied from a CANCEL at the most. A line that does not fit is left out.
const COPIED_MAX: usize = 512;

/// Header lines that say why branches are cancelled; empty if nothing is known.
#[derive(Default)]
pub(crate) struct Reason(Box<[u8]>);

impl Reason {
    /// Copies the Reason of a received CANCEL.
    ///
    /// RFC 3326 §2: "Proxies generating a CANCEL request upon reception of a CANCEL from the previous
    /// hop that contains a Reason header field SHOULD copy it into the new CANCEL request."
    pub(crate) fn copied(cancel: &Message<'_>) -> Self {
        let mut lines = Vec::new();
        for field in cancel.fields().filter(|field| field.name == HeaderName::Reason) {
            if lines.len() + field.line.len() <= COPIED_MAX {
                lines.extend_from_slice(field.line);
            }
        }
        Self(lines.into())
    }

    /// Names the final response of another branch.
    ///
    /// RFC 3326 §3.1: "A proxy forks an INVITE request and one of the branches returns a 200 (OK).
    /// The forking proxy includes this status code in a Reason header field in the CANCEL request
    /// that it sends to the rest of the branches." §2 has the examples
    /// `SIP ;cause=200 ;text="Call completed elsewhere"` and `SIP ;cause=600 ;text="Busy Everywhere"`.
    pub(crate) fn answered(status: u16) -> Self {
        let text = if status < 300 { "Call completed elsewhere" } else { reason(status) };
        let line = format!(
            "Reason: SIP;cause={};text=\"{text}\"\r\n",
            if status < 300 { 200 } else { status }
        );
        Self(line.into_bytes().into())
    }

    pub(crate) fn lines(&self) -> &[u8] {
        &self.0
    }
}
