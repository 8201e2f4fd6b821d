//! The BYEs that an answerer sends.

use std::net::SocketAddr;

use tidegate_sip::{HeaderName, Message};
use tidegate_transaction::COOKIE;
use tidegate_world::{Flow, Pool, Transport};

use crate::dialog::{Dialog, TEXT_MAX};
use crate::identity::{MARK, Mark};
use crate::template::{Template, Values};

// RFC 3261 §12.2.1.1: the From of our request is the To of our responses. The CSeq numbers of each
// end are independent.
const BYE: &str = "BYE {uri} SIP/2.0
Via: SIP/2.0/{transport} {local};rport;branch={branch}
{routes}Max-Forwards: 70
From: {from}
To: {to}
Call-ID: {call_id}
CSeq: 1 BYE
Content-Length: 0

";

/// The data from which a BYE is written: the 2xx to an INVITE, and the URI in the Contact of that
/// INVITE.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The 2xx, followed by the URI in the Contact of the INVITE. The URI is empty if the INVITE
    /// has no Contact.
    bytes: Box<[u8]>,
    response_end: usize,
}

impl Answer {
    pub fn new(response: &[u8], invite: &Message<'_>) -> Self {
        let contact = invite.contacts().next().and_then(Result::ok);
        let target = contact.map(|contact| contact.uri).unwrap_or_default();
        let bytes = [response, target].concat().into_boxed_slice();
        Self { bytes, response_end: response.len() }
    }

    /// Returns the 2xx as it was sent.
    pub fn response(&self) -> &[u8] {
        &self.bytes[..self.response_end]
    }

    fn target(&self) -> &[u8] {
        &self.bytes[self.response_end..]
    }
}

/// A BYE that was sent, kept for retransmission.
#[derive(Debug)]
pub(crate) struct PendingBye {
    pub flow: Flow,
    pub bytes: Box<[u8]>,
}

/// A writer of the BYEs of one answerer.
pub(crate) struct ByeSender(Template);

impl ByeSender {
    pub fn new(transport: Transport, local: SocketAddr) -> Self {
        let local = local.to_string();
        Self(Template::new(BYE, &[("transport", transport.name()), ("local", &local)]))
    }

    /// Writes the BYE for a call whose INVITE came over `flow`. Returns `None` if the INVITE had no
    /// Contact or an invalid Record-Route, or if the BYE would be too long.
    pub fn write(
        &self,
        answer: &Answer,
        mark: &Mark,
        flow: Flow,
        pool: &Pool,
    ) -> Option<PendingBye> {
        if answer.target().is_empty() {
            return None;
        }
        let response = Message::parse(answer.response()).ok()?;
        let dialog = Dialog::of_callee(answer.target(), &response, flow.transport)?;
        let from = response.field(HeaderName::To)?.value;
        let call_id = response.call_id().ok()?;
        if from.len() + call_id.len() > TEXT_MAX {
            return None;
        }
        let mut branch = [0; COOKIE.len() + MARK];
        branch[..COOKIE.len()].copy_from_slice(COOKIE);
        branch[COOKIE.len()..].copy_from_slice(&mark.text);
        let values = Values {
            uri: dialog.uri(),
            branch: &branch,
            routes: dialog.routes(),
            from,
            to: dialog.remote(),
            call_id,
            ..Values::default()
        };
        let mut bytes = pool.take();
        if !self.0.fill(&values, &mut bytes) {
            return None;
        }
        let hop = dialog.hop().filter(|hop| hop.is_ipv4() == flow.local.is_ipv4());
        // If the host of the next hop is a name, or an address of the other address family, the BYE
        // goes to the address from which the call came.
        let flow = match hop {
            Some(hop) => Flow { remote: hop, connection: None, ..flow },
            None => flow,
        };
        Some(PendingBye { flow, bytes: bytes[..].into() })
    }
}

/// Returns the text after the magic cookie `z9hG4bK` in a branch, or `None` if the branch does not
/// begin with the cookie. In the BYE of an answerer, this is the text of a [`Mark`].
pub(crate) fn mark_of(branch: &[u8]) -> Option<&[u8]> {
    branch.strip_prefix(COOKIE)
}
