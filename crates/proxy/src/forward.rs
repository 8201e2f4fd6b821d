//! Forwarding a request: RFC 3261 §16.6 by cutting and inserting.

use std::io::Write as _;

use arrayvec::ArrayVec;
use tidegate_sip::forward as edit;
use tidegate_sip::{Method, Splice, reply_target};
use tidegate_world::{Path, Received, Timestamp, Transmit};

use crate::branch::{Branch, identity};
use crate::calls::Transaction;
use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::request::Request;
use crate::routing::Hop;
use crate::token::RouteToken;

/// What we insert on top: a Via and up to two Record-Routes, with host names of up
/// to 255 characters each.
const HEAD_MAX: usize = 1024;

/// RFC 3261 §16.6 item 3: a request without Max-Forwards gets 70.
const MAX_FORWARDS: u32 = 70;

impl Endpoint {
    /// Sends `request` to `hop` and remembers what its call needs.
    pub(crate) fn forward(
        &mut self,
        now: Timestamp,
        received: &Received,
        request: &Request<'_>,
        hop: &Hop,
    ) -> Result<(), Instead> {
        let Request { message, method, max_forwards, essentials, .. } = request;
        let ingress = self.addresses().listener_at(received.path.local);
        let egress = self.addresses().egress(ingress, hop.target);
        let egress = egress.ok_or(Instead::Reply(404, "no listener reaches that address"))?;

        let mut head = ArrayVec::<u8, HEAD_MAX>::new();
        // RFC 3261 §16.6 item 8.
        let branch = self.branch(received, request, ingress);
        let target = reply_target(&essentials.via, received.path.remote);
        let branch_text = branch.encode(self.keys(), target);
        let via = self.addresses().listener(egress).map_or("", |own| &own.via);
        write_all(&mut head, &[via.as_bytes(), branch_text.as_bytes(), b"\r\n"])?;
        // RFC 3261 §16.6 item 4; to be on the path of what follows in the dialog.
        if let (Method::Invite | Method::Subscribe | Method::Refer | Method::Notify, Some(member)) =
            (*method, hop.member)
        {
            let backend = self.backend(member).address();
            let token = RouteToken { shard: self.shard() as u8, backend };
            let token = token.encode(self.keys(), essentials.call_id);
            // Both sides see us by the listener on their own: the nearer one is on top.
            for listener in [egress, ingress].iter().take(1 + usize::from(egress != ingress)) {
                let Some(own) = self.addresses().listener(*listener) else { continue };
                let parts: [&[u8]; 5] =
                    [b"Record-Route: <sip:", &token, b"@", own.advertised.as_bytes(), b";lr>\r\n"];
                write_all(&mut head, &parts)?;
            }
        }

        let source = edit::Source::new(received.path.remote);
        let max_forwards = max_forwards.map_or(MAX_FORWARDS, |n| n.saturating_sub(1));
        let mut digits = itoa::Buffer::new();
        let max_forwards = digits.format(max_forwards).as_bytes();

        let mut splice = Splice::new(message);
        splice.insert(edit::top_of_headers(message), &head);
        edit::note_source(&mut splice, message, &essentials.via, &source);
        edit::set_max_forwards(&mut splice, message, max_forwards);
        edit::remove_first_route(&mut splice, message, hop.own_routes);

        let mut bytes = self.pool().take();
        splice.write_to(&mut bytes).map_err(|_| Instead::Drop(DropReason::TooLong))?;
        let Some(own) = self.addresses().listener(egress) else {
            return Err(Instead::Reply(404, "no listener reaches that address"));
        };
        let path = Path { local: own.local, remote: hop.target, ..received.path };
        let transaction = Transaction { identity: branch.identity, method: *method };
        self.note_request(now, hop, transaction);
        self.counters.requests_forwarded.add(1);
        self.transmit(Transmit { path, bytes });
        Ok(())
    }

    /// Tells the call table of a request that is about to be forwarded.
    fn note_request(&mut self, now: Timestamp, hop: &Hop, transaction: Transaction) {
        // An ACK and a CANCEL share the identity of their INVITE.
        let alone = !matches!(transaction.method, Method::Ack | Method::Cancel);
        if alone && self.calls().is_repeated(hop.call, transaction.identity) {
            self.counters.retransmissions.add(1);
        }
        match hop.member {
            Some(member) if hop.toward_backend => {
                self.count_request(now, hop.call, member, transaction);
            }
            _ => self.calls_mut().on_request_from_backend(now, hop.call, transaction),
        }
    }

    fn branch(&self, received: &Received, request: &Request<'_>, ingress: usize) -> Branch {
        let own = self.addresses().listener(ingress);
        let is_wildcard = own.is_some_and(|own| own.local.ip().is_unspecified());
        Branch {
            listener: ingress as u8,
            asked: is_wildcard.then(|| received.path.local.ip()),
            shard: self.shard() as u8,
            identity: identity(self.keys(), &request.essentials, request.uri_text),
        }
    }
}

fn write_all(head: &mut ArrayVec<u8, HEAD_MAX>, parts: &[&[u8]]) -> Result<(), Instead> {
    for part in parts {
        head.write_all(part).map_err(|_| Instead::Drop(DropReason::TooLong))?;
    }
    Ok(())
}
