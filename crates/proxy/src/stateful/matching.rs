//! Requests that belong to a transaction: repetitions, ACK and CANCEL. RFC 3261 §17.2.3.

use tidegate_control::Tier;
use tidegate_sip::{Message, Method};
use tidegate_transaction::{Acknowledgement, Handle, Key, Repetition};
use tidegate_world::{Received, Timestamp};

use crate::endpoint::Endpoint;
use crate::request::Request;
use crate::stateful::context::At;

impl Endpoint {
    /// Does what a request does to the transaction it matches; `false` if it matches none, or
    /// is an ACK that goes on.
    pub(crate) fn try_match(
        &mut self,
        now: Timestamp,
        received: &Received,
        request: &Request<'_>,
    ) -> bool {
        let found = match request.method {
            Method::Cancel => self.transactions().find_cancelled(request.identity),
            method => self.transactions().find(Key::new(request.identity, method)),
        };
        let Some(handle) = found else { return false };
        self.tiering.note(Tier::Stateful);
        match request.method {
            Method::Ack => self.acknowledge(now, handle),
            Method::Cancel => {
                self.cancel_request(At { now, context: handle }, received, request.message);
                true
            }
            _ => {
                self.counters.retransmissions.add(1);
                self.repeat(now, handle);
                true
            }
        }
    }

    /// `true` if the ACK ends here.
    fn acknowledge(&mut self, now: Timestamp, handle: Handle) -> bool {
        let timing = self.transactions().timing;
        let Some(mut context) = self.transactions_mut().lend(handle) else { return false };
        let (server, acknowledgement) = context.server.on_ack(now, &timing);
        context.server = server;
        self.transactions_mut().settle(now, handle, context);
        match acknowledgement {
            Acknowledgement::Deliver => false,
            Acknowledgement::Absorb => true,
        }
    }

    /// The request of a transaction has come again.
    fn repeat(&mut self, now: Timestamp, handle: Handle) {
        let Some(context) = self.transactions_mut().lend(handle) else { return };
        match (context.server.on_repeated(), &context.last, &context.live) {
            (Repetition::Absorb, ..) => {}
            (Repetition::Resend, Some(last), _) => self.send_copy(&context.back, last),
            // All that is known of it is that it has come.
            (Repetition::Resend, None, Some(live)) => {
                if let Ok(message) = Message::parse(&live.request) {
                    self.send_trying(&context.back, &message);
                }
            }
            (Repetition::Resend, None, None) => {}
        }
        self.transactions_mut().settle(now, handle, context);
    }
}
