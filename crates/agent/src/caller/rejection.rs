//! Rejected calls, which fail or are offered to another server.

use std::net::SocketAddr;

use tidegate_sip::{HeaderName, Message, Method};
use tidegate_world::{Received, Timestamp};

use super::call::Action;
use super::{Caller, Failure};
use crate::dialog;
use crate::identity::Mark;
use crate::table::Id;

impl Caller {
    /// Handles a final response to an INVITE, if it is not a 2xx.
    pub(super) fn on_rejection(
        &mut self,
        now: Timestamp,
        mark: Mark,
        status: u16,
        received: &Received,
    ) {
        let message = Message::parse(&received.bytes).ok();
        let to = message.and_then(|m| m.field(HeaderName::To)).map(|to| to.value);
        let Some(to) = to.filter(|to| to.len() <= dialog::TEXT_MAX) else {
            self.stats.malformed += 1;
            return;
        };
        let mut ack = self.pool.take();
        self.requests.ack_rejection(&mark, to, &mut ack);
        self.send(&mark, None, self.server_at(received.flow.remote), ack);
        match self.calls.get(mark.id) {
            Some(call) => {
                let action = call.on_rejection(status);
                let is_overload = action == Action::End(Err(Failure::Status(503)));
                if !is_overload || !self.offer_elsewhere(now, mark.id) {
                    self.action(now, mark, action);
                }
            }
            None => self.stats.repeated.ack += 1,
        }
    }

    /// Offers a call to the next server, after the current one has rejected it with 503. Returns
    /// `false` if all servers have rejected the call, or if its person waits no longer.
    ///
    /// For the person who calls, this is the same call. For the server, it is a new call with a new
    /// Call-ID.
    // RFC 3261 §21.5.4: "A client (proxy or UAC) receiving a 503 (Service Unavailable) SHOULD
    // attempt to forward the request to an alternate server."
    fn offer_elsewhere(&mut self, now: Timestamp, id: Id) -> bool {
        let Some(call) = self.calls.get(id) else { return false };
        if call.server == self.config.alternates.len() || !call.is_patient(now) {
            return false;
        }
        let next = call.to_next_server(now, &self.config.timing);
        self.calls.remove(id);
        self.connections.end(id);
        let id = self.calls.insert(next.due(), next);
        self.stats.offered_elsewhere += 1;
        self.action(now, self.namer.mark(id), Action::Send(Method::Invite));
        true
    }

    /// Returns the address of the server to which a call is offered, for requests that do not
    /// follow a route set.
    pub(super) fn server_of(&mut self, id: Id) -> SocketAddr {
        let server = self.calls.get(id).map_or(0, |call| call.server);
        server.checked_sub(1).map_or(self.config.target, |index| self.config.alternates[index])
    }

    /// Returns the address for the ACK to a response from `remote`: `remote` if it is an alternate
    /// target, otherwise the first target. The call need not exist any more.
    pub(super) fn server_at(&self, remote: SocketAddr) -> SocketAddr {
        if self.config.alternates.contains(&remote) { remote } else { self.config.target }
    }
}
