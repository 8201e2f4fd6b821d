//! Requests that belong to a transaction: repetitions, ACK and CANCEL. RFC 3261 §17.2.3.

use tidegate_control::Tier;
use tidegate_sip::{Message, Method};
use tidegate_transaction::{Acknowledgement, Handle, Key, Repetition};
use tidegate_world::{Received, Timestamp};

use crate::endpoint::Endpoint;
use crate::request::Request;
use crate::stateful::context::{At, Context};

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
            Method::Ack => self.acknowledge(now, handle, received, request),
            Method::Cancel => {
                self.cancel_request(At { now, context: handle }, received, request.message);
                true
            }
            _ => {
                self.counters.retransmissions.add(1);
                self.repeat(now, handle, received);
                true
            }
        }
    }

    /// `true` if the ACK ends here.
    fn acknowledge(
        &mut self,
        now: Timestamp,
        handle: Handle,
        received: &Received,
        request: &Request<'_>,
    ) -> bool {
        let timing = self.transactions().timing;
        let Some(mut context) = self.transactions_mut().lend(handle) else { return false };
        if self.is_evidence(now, &context, received, request) {
            self.on_verified(now, &context.back);
        }
        let (server, acknowledgement) = context.server.on_ack(now, &timing);
        context.server = server;
        self.transactions_mut().settle(now, handle, context);
        match acknowledgement {
            Acknowledgement::Deliver => false,
            Acknowledgement::Absorb => true,
        }
    }

    /// Returns whether an ACK shows for the first time that its sender has received the final
    /// response: it has the To-tag of that, which nobody else knows.
    fn is_evidence(
        &self,
        now: Timestamp,
        context: &Context,
        received: &Received,
        request: &Request<'_>,
    ) -> bool {
        let Some(last) = context.last.as_ref().filter(|_| context.server.awaits_ack()) else {
            return false;
        };
        if received.flow.remote.ip() != context.back.remote.ip()
            || self.is_verified(now, &context.back)
        {
            return false;
        }
        let Some(tag) = request.essentials.to_tag else { return false };
        let response = Message::parse_head(last).ok();
        let to = response.as_ref().and_then(|response| response.essentials().ok());
        to.and_then(|essentials| essentials.to_tag) == Some(tag)
    }

    /// The request of a transaction has come again.
    fn repeat(&mut self, now: Timestamp, handle: Handle, received: &Received) {
        let Some(mut context) = self.transactions_mut().lend(handle) else { return };
        context.budget.on_request(received.bytes.len(), true);
        match (context.server.on_repeated(), &context.last) {
            (Repetition::Absorb, _) => {}
            (Repetition::Resend, Some(_)) => self.send_last(now, &mut context),
            // All that is known of it is that it has come.
            (Repetition::Resend, None) => {
                if let Some(live) = context.live.take() {
                    if let Ok(message) = Message::parse(&live.request) {
                        self.send_trying(now, &mut context, &message);
                    }
                    context.live = Some(live);
                }
            }
        }
        self.transactions_mut().settle(now, handle, context);
    }
}
