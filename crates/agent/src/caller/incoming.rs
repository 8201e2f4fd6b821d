//! Requests that other parties send to the caller, and the responses to them.

use tidegate_sip::{Message, Method, Scan};
use tidegate_world::{Received, Timestamp};

use super::Caller;
use crate::response;

// RFC 3261 §8.2.1: a 405 must have this header field, and §11.2: the response to OPTIONS should
// have it.
const ALLOW: (&str, &[u8]) = ("Allow", b"INVITE, ACK, CANCEL, BYE, OPTIONS");

impl Caller {
    /// Answers a request within a dialog of the caller. Only a BYE changes the call. An INVITE is
    /// rejected. A BYE for a call that has ended gets 200 too. It is either a copy of the BYE that
    /// ended the call (RFC 3261 §17.2.2), or its sender had not received our BYE when it sent this
    /// BYE. No other party knows the tag of the call, so the BYE comes from the other side.
    pub(super) fn on_request(
        &mut self,
        now: Timestamp,
        received: &Received,
        scan: &Scan<'_>,
        method: Method,
    ) {
        let Ok(request) = Message::parse(&received.bytes) else {
            self.stats.malformed += 1;
            return;
        };
        let Ok(from) = request.from() else {
            self.stats.malformed += 1;
            return;
        };
        let mark = self.namer.recognise(scan.call_id).filter(|m| scan.to_tag == Some(&m.tag));
        let status = match (method, mark) {
            (Method::Bye, Some(mark)) => {
                match self.calls.get(mark.id).map(|call| call.on_bye(from.tag())) {
                    Some(action) => self.action(now, mark, action),
                    None => self.stats.late += 1,
                }
                200
            }
            (Method::Bye, None) => {
                self.stats.unexpected += 1;
                481
            }
            // This is the ACK to our 488. No transaction waits for it.
            (Method::Ack, Some(_)) => return,
            (_, Some(mark)) => {
                self.stats.unexpected += 1;
                match method {
                    // RFC 3261 §12.2.2: the call has ended, so the dialog does not exist.
                    _ if self.calls.get(mark.id).is_none() => 481,
                    // RFC 3261 §9.2: a CANCEL has no effect after a final response.
                    Method::Options | Method::Cancel => 200,
                    // RFC 3261 §14.2: the caller does not change its session.
                    Method::Invite => 488,
                    _ => 405,
                }
            }
            // The caller takes no requests outside its dialogs.
            (_, None) => {
                self.stats.unexpected += 1;
                return;
            }
        };
        let headers: &[(&str, &[u8])] = if method == Method::Bye { &[] } else { &[ALLOW] };
        let reply = response::to(&request, received.flow, status, None, headers, &self.pool);
        self.out.extend(reply);
    }
}
