//! The `Reason` of the CANCELs that we generate: RFC 3326.

use std::borrow::Cow;

use tidegate_sip::{HeaderName, Message, reason};

/// Maximum number of bytes of Reason lines that are copied from a CANCEL. A line that would exceed
/// this number is left out.
const COPIED_MAX: usize = 512;

/// The reason for cancelling branches.
pub(crate) enum Reason {
    /// The Reason lines of a received CANCEL. Empty if the CANCEL has none.
    Copied(Box<[u8]>),
    /// The status of another branch's final response.
    Answered(u16),
}

impl Reason {
    /// Copies the Reason of a received CANCEL.
    ///
    /// RFC 3326 §2: "Proxies generating a CANCEL request upon reception of a CANCEL from the
    /// previous hop that contains a Reason header field SHOULD copy it into the new CANCEL
    /// request."
    pub(crate) fn copied(cancel: &Message<'_>) -> Self {
        let mut lines = Vec::new();
        for field in cancel.fields().filter(|field| field.name == HeaderName::Reason) {
            if lines.len() + field.line.len() <= COPIED_MAX {
                lines.extend_from_slice(field.line);
            }
        }
        Self::Copied(lines.into())
    }

    /// Returns the header lines for this reason.
    pub(crate) fn lines(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Copied(lines) => lines[..].into(),
            Self::Answered(status) => Self::answered(*status).into_bytes().into(),
        }
    }

    /// Returns the header line that names the final response of another branch.
    ///
    /// RFC 3326 §3.1: "A proxy forks an INVITE request and one of the branches returns a 200 (OK).
    /// The forking proxy includes this status code in a Reason header field in the CANCEL request
    /// that it sends to the rest of the branches." §2 has the examples
    /// `SIP ;cause=200 ;text="Call completed elsewhere"` and
    /// `SIP ;cause=600 ;text="Busy Everywhere"`.
    fn answered(status: u16) -> String {
        let text = if status < 300 { "Call completed elsewhere" } else { reason(status) };
        let cause = if status < 300 { 200 } else { status };
        format!("Reason: SIP;cause={cause};text=\"{text}\"\r\n")
    }
}
