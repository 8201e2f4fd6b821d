//! Forwarding without state: RFC 3261 §16.11.

use std::net::SocketAddr;

use tidegate_sip::{Method, reply_target};
use tidegate_transaction::{Key, identity, is_unique};
use tidegate_world::{Buffer, Flow, Received, Timestamp, Transmit};

use crate::branch::{Branch, BranchText};
use crate::calls::{Call, Transaction};
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::onward::Onward;
use crate::request::Request;
use crate::routing::Hop;

impl Endpoint {
    /// Sends `request` to `hop` and remembers what its call needs.
    pub(crate) fn forward(
        &mut self,
        now: Timestamp,
        received: &Received,
        request: &Request<'_>,
        hop: Hop,
    ) -> Result<(), Instead> {
        let ingress = self.addresses().listener_at(received.flow.local);
        let onward = self.onward(now, ingress, &hop)?;
        let branch = self.branch(received, request, ingress);
        let text = match self.lost_branch(now, received, request, &hop) {
            Some(text) => text,
            None => {
                let target = reply_target(&request.essentials.via, received.flow.remote);
                branch.encode(self.keys(), target)
            }
        };
        let bytes = self.write_request(received.flow.remote, request, &onward, text.as_bytes())?;
        let transaction = Transaction { identity: branch.identity, method: request.method };
        // An ACK and a CANCEL share the identity of their INVITE.
        let alone = !matches!(transaction.method, Method::Ack | Method::Cancel);
        let is_repeated = self.calls().is_repeated(hop.call, transaction);
        if alone && is_repeated {
            self.counters.retransmissions.add(1);
            if !hop.toward_backend
                && let Some(since) = self.calls().begun_at(hop.call, transaction)
                && !self.may_repeat(now, since, hop.call, onward.egress, onward.target)
            {
                return Ok(());
            }
        }
        if hop.toward_backend
            && let Some(mut budget) = self.calls().get(hop.call).map(|entry| entry.budget)
        {
            budget.on_request(received.bytes.len(), is_repeated || !alone);
            self.calls_mut().set_budget(hop.call, budget);
        }
        let new = hop.member.filter(|_| alone && hop.choice.is_some() && !is_repeated);
        let source = received.flow.remote.ip();
        let parties = new.and_then(|member| self.note_given(now, member, source, request));
        let call = hop.call;
        self.note_request(now, hop, transaction);
        if let Some(parties) = parties {
            self.calls_mut().set_parties(call, transaction, parties);
        }
        self.counters.requests_forwarded.add(1);
        self.send_onward(onward.egress, onward.target, bytes);
        Ok(())
    }

    /// How a request goes to `hop`.
    pub(crate) fn onward(
        &self,
        now: Timestamp,
        ingress: usize,
        hop: &Hop,
    ) -> Result<Onward, Instead> {
        Ok(Onward {
            target: hop.target,
            member: hop.member,
            toward_backend: hop.toward_backend,
            ingress: ingress as u8,
            egress: self.egress(ingress, hop.egress, hop.target)?,
            own_routes: hop.own_routes as u8,
            is_strict: hop.is_strict,
            max_breadth: None,
            made: self.minutes(now),
        })
    }

    /// Sends a request that was written for the listener at `egress`.
    pub(crate) fn send_onward(&mut self, egress: u8, target: SocketAddr, bytes: Buffer) {
        let Some(own) = self.addresses().listener(egress.into()) else { return };
        let flow = Flow::udp(own.local, target);
        self.transmit(Transmit { flow, bytes });
    }

    /// Tells the call table of a request that is about to be forwarded.
    pub(crate) fn note_request(&mut self, now: Timestamp, hop: Hop, transaction: Transaction) {
        match hop.member {
            Some(member) if hop.toward_backend => {
                let Hop { call, evidence, held, .. } = hop;
                self.count_request(now, call, member, transaction, evidence, held);
            }
            _ => {
                self.calls_mut().on_request_from_backend(now, hop.call, transaction, hop.evidence);
            }
        }
    }

    /// The branch under which a request is forwarded without state.
    pub(crate) fn stateless_branch(
        &self,
        received: &Received,
        request: &Request<'_>,
    ) -> BranchText {
        let ingress = self.addresses().listener_at(received.flow.local);
        let target = reply_target(&request.essentials.via, received.flow.remote);
        self.branch(received, request, ingress).encode(self.keys(), target)
    }

    fn branch(&self, received: &Received, request: &Request<'_>, ingress: usize) -> Branch {
        let own = self.addresses().listener(ingress);
        let is_wildcard = own.is_some_and(|own| own.local.ip().is_unspecified());
        Branch {
            listener: ingress as u8,
            asked: is_wildcard.then(|| received.flow.local.ip()),
            shard: self.shard() as u8,
            identity: request.identity,
        }
    }

    /// What stays the same over all copies of a request.
    pub(crate) fn identity(&self, request: &Request<'_>) -> u64 {
        let hash = |parts: &[&[u8]]| self.keys().identity.hash(parts);
        let Request { essentials, method, method_name: name, uri_text: uri, .. } = request;
        let to_tag = essentials.to_tag;
        let of = |to_tag| identity(essentials, *method, name, uri, to_tag, hash);
        if request.method != Method::Ack || is_unique(essentials.via.branch().unwrap_or_default()) {
            return of(to_tag);
        }
        // RFC 3261 §17.2.3, without the magic cookie: the ACK has the To-tag of the response, its
        // INVITE only if it was within a dialog.
        let within = of(to_tag);
        let fingerprint = self.keys().call.fingerprint(essentials.call_id);
        let invite = Transaction { identity: within, method: Method::Invite };
        let is_of = |call: &Call| call.is_repeated(invite);
        let is_known = self.transactions().find(Key::new(within, Method::Ack)).is_some()
            || self.calls().find_where(fingerprint, is_of).is_some();
        if is_known { within } else { of(None) }
    }
}
