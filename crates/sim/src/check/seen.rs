//! SIP messages in the form that the checkers use: parsed once, with hashes instead of texts.

use std::hash::Hasher;

use tidegate_sip::{Message, Method, StartLine};
use tidegate_world::Timestamp;
use twox_hash::XxHash3_64;

use super::Role;
use crate::node_id::NodeId;

/// Returns a hash of `parts`. It need not be secure, because no peer here tries to cause
/// collisions.
pub(super) fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = XxHash3_64::new();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish()
}

/// The kind of a message: a request, or a response with its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response(u16),
}

/// A message sent by or delivered to a watched node.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub now: Timestamp,
    pub node: NodeId,
    pub role: Role,
    pub kind: Kind,
    /// Method of the request. For a response, it is the method in its CSeq.
    pub method: Method,
    pub cseq: u32,
    pub call: u64,
    /// For each Via, from the top, a hash of its branch and sent-by, which no element changes.
    pub vias: Vec<u64>,
    /// A hash of the sent-by of each Via, from the top.
    pub hosts: Vec<u64>,
    pub from_tag: Option<u64>,
    pub to_tag: Option<u64>,
    pub max_forwards: Option<u32>,
    pub uri: u64,
    pub body: u64,
    pub whole: u64,
}

/// The identity of a transaction at one node (RFC 3261 §17.2.3): the node, a hash of the branch and
/// sent-by of the top Via, and the method. The method is needed because the CANCEL and the ACK of
/// an INVITE have the branch of the INVITE.
pub(super) type Transaction = (NodeId, u64, u32);

impl Seen {
    /// Reads a packet. Returns `None` if it is not SIP, or lacks a part that every message has.
    pub(super) fn read(now: Timestamp, node: NodeId, role: Role, bytes: &[u8]) -> Option<Self> {
        let message = Message::parse(bytes).ok()?;
        let cseq = message.cseq().ok()?;
        let (mut vias, mut hosts) = (Vec::new(), Vec::new());
        for via in message.vias() {
            let via = via.ok()?;
            vias.push(hash(&[via.branch().unwrap_or_default(), via.sent_by]));
            hosts.push(hash(&[via.sent_by]));
        }
        let (kind, uri) = match message.start() {
            StartLine::Request { uri, .. } => (Kind::Request, hash(&[uri])),
            StartLine::Response { .. } => (Kind::Response(message.status()?), 0),
        };
        let tag = |tag: &[u8]| hash(&[tag]);
        (!vias.is_empty()).then_some(Self {
            now,
            node,
            role,
            kind,
            method: cseq.method,
            cseq: cseq.number,
            call: hash(&[message.call_id().ok()?]),
            vias,
            hosts,
            from_tag: message.from().ok()?.tag().map(tag),
            to_tag: message.to().ok()?.tag().map(tag),
            max_forwards: message.max_forwards().ok()?,
            uri,
            body: hash(&[message.body()]),
            whole: hash(&[bytes]),
        })
    }

    /// Returns the identity of the message's transaction, which its top Via determines.
    pub(super) fn transaction(&self) -> Transaction {
        (self.node, self.vias[0], self.method as u32)
    }

    /// Returns a hash that identifies a request. The request, its copies and its responses have the
    /// same hash at every hop.
    pub(super) fn request(&self) -> u64 {
        let (call, cseq) = (self.call.to_le_bytes(), self.cseq.to_le_bytes());
        hash(&[&call, &cseq, &(self.method as u32).to_le_bytes()])
    }

    /// Returns a hash of the Vias, without the topmost `first` ones.
    pub(super) fn vias_from(&self, first: usize) -> u64 {
        let mut hasher = XxHash3_64::new();
        for &via in self.vias.iter().skip(first) {
            hasher.write_u64(via);
        }
        hasher.finish()
    }

    pub(super) fn status(&self) -> Option<u16> {
        match self.kind {
            Kind::Response(status) => Some(status),
            Kind::Request => None,
        }
    }

    /// Returns whether the message is a proxy's own OPTIONS to a back end, or the response to it
    /// (RFC 3261 §11).
    pub(super) fn is_probe(&self) -> bool {
        self.method == Method::Options && self.vias.len() == 1 && self.is_of_proxy()
    }

    pub(super) fn is_request(&self) -> bool {
        self.kind == Kind::Request
    }

    /// Returns whether the sender or receiver is a proxy that keeps transactions of at least some
    /// requests.
    pub(super) fn may_have_transactions(&self) -> bool {
        matches!(self.role, Role::Proxy { stateful: true, .. } | Role::Proxy { bridges: true, .. })
    }

    /// Returns whether the sender or receiver is a proxy that keeps transactions.
    pub(super) fn is_of_stateful(&self) -> bool {
        matches!(self.role, Role::Proxy { stateful: true, .. })
    }

    pub(super) fn is_of_proxy(&self) -> bool {
        matches!(self.role, Role::Proxy { .. })
    }
}
