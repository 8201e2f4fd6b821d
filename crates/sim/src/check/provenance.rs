//! `provenance`: a proxy sends nothing without a reason in its inputs.
//!
//! Every packet that leaves a proxy is one of these:
//!
//! - a request that it has received, with a Via of its own on top (RFC 3261 §16.6);
//! - an ACK or a CANCEL with only its own Via, for an INVITE that it has received (§17.1.1.3,
//!   §9.1), if it keeps transactions;
//! - an OPTIONS with only its own Via (§11), which probes a back end;
//! - a response that it has received, without its own Via (§16.7 item 3);
//! - a response of its own to a request that it has received: a 100, a rejection, or the 200 to a
//!   CANCEL (§16.10) or to OPTIONS (§11.2). Only user agents may send any other 2xx.
//!
//! A proxy without transactions sends no message more often than the message came (§16.11:
//! "stateless proxies do not retransmit messages on their own").
//!
//! A request that violates the grammar in a Via below the first is not forwarded: no checker would
//! see it as SIP, and servers drop it.
//!
//! Any other packet is a violation, such as a call that was never made or an answer that was never
//! given. Messages that were received before a crash still count, because the new process forwards
//! answers to them.

use tidegate_sip::Method;

use super::Findings;
use super::recent::Recent;
use super::seen::{Kind, Seen, hash};
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "provenance";

/// Maximum number of distinct messages that the checker remembers for one request at one node. No
/// mesh, fork or attacker produces more.
const FORMS_MAX: usize = 256;

/// A message as it arrived at a node, with the number of its copies that arrived, and the number
/// that left.
#[derive(Clone, Debug)]
pub(super) struct Form {
    kind: Kind,
    vias: u64,
    /// Hash of all Vias except the top one.
    vias_below: u64,
    to_tag: Option<u64>,
    pub(super) from_tag: Option<u64>,
    pub(super) max_forwards: Option<u32>,
    pub(super) body: u64,
    received: u32,
    sent: u32,
}

/// The origin of a message that a proxy sends.
#[derive(Debug)]
pub(super) enum Origin {
    /// The sender is not a proxy, so the message needs no origin.
    Foreign,
    /// The proxy received the message and forwards it.
    Passed(Form),
    /// The proxy itself has generated the message.
    Own,
    /// A similar message was received, but with other Vias.
    Astray,
    /// No similar message was received.
    None,
}

impl Origin {
    /// Returns the number of copies of the message that the proxy received, or 0 if the proxy did
    /// not forward the message.
    pub(super) fn copies(&self) -> u32 {
        match self {
            Self::Passed(form) => form.received,
            _ => 0,
        }
    }
}

/// The messages received by each proxy, by request.
#[derive(Debug, Default)]
pub(super) struct Provenance(Recent<(NodeId, u64), Vec<Form>>);

impl Provenance {
    pub(super) fn on_delivered(&mut self, seen: &Seen) {
        if !seen.is_of_proxy() {
            return;
        }
        let Some(forms) = self.0.entry(seen.now, (seen.node, seen.request())) else { return };
        let vias = seen.vias_from(0);
        let same =
            |form: &&mut Form| form.kind == seen.kind && form.vias == vias && form.fits(seen);
        let has_room = forms.len() < FORMS_MAX;
        match forms.iter_mut().find(same) {
            Some(form) => form.received += 1,
            None if !has_room => {}
            None => forms.push(Form {
                kind: seen.kind,
                vias,
                vias_below: seen.vias_from(1),
                to_tag: seen.to_tag,
                from_tag: seen.from_tag,
                max_forwards: seen.max_forwards,
                body: seen.body,
                received: 1,
                sent: 0,
            }),
        }
    }

    /// Returns the origin of a message that a node sends, and counts the message as sent.
    pub(super) fn origin(&mut self, seen: &Seen) -> Origin {
        if !seen.is_of_proxy() {
            return Origin::Foreign;
        }
        let is_hop = seen.is_request() && seen.vias.len() == 1;
        if is_hop && seen.method == Method::Options {
            return Origin::Own;
        }
        let asked = if is_hop { invite_of(seen) } else { seen.request() };
        let Some(forms) = self.0.get(seen.now, (seen.node, asked)) else { return Origin::None };
        if is_hop {
            return Origin::Own;
        }
        let (whole, below) = (seen.vias_from(0), seen.vias_from(1));
        let passed = |form: &&mut Form| match seen.kind {
            Kind::Request => form.fits(seen) && form.vias == below,
            Kind::Response(_) => form.fits(seen) && form.vias_below == whole,
        };
        let is_asked = |form: &Form| form.kind == Kind::Request && form.vias == whole;
        let may_be_own = !seen.is_request() && forms.iter().any(is_asked);
        if let Some(form) = forms.iter_mut().find(passed) {
            // The proxy may itself send a rejection that equals one that it received before, such
            // as a 481.
            let may_reject = may_be_own && matches!(seen.kind, Kind::Response(400..));
            if form.sent < form.received || !may_reject {
                form.sent += 1;
                return Origin::Passed(form.clone());
            }
        }
        if seen.is_request() {
            return Origin::Astray;
        }
        let has_come = |form: &Form| {
            form.kind == seen.kind && form.to_tag == seen.to_tag && form.body == seen.body
        };
        match () {
            () if may_be_own => Origin::Own,
            () if forms.iter().any(has_come) => Origin::Astray,
            () => Origin::None,
        }
    }

    pub(super) fn unwatched(&self) -> u64 {
        self.0.unwatched()
    }
}

impl Form {
    /// Returns whether the packet is the same message as this one, except for its Vias.
    fn fits(&self, seen: &Seen) -> bool {
        self.kind == seen.kind && self.to_tag == seen.to_tag && self.body == seen.body
    }
}

/// Returns the identity of the INVITE to which an ACK or a CANCEL belongs.
fn invite_of(seen: &Seen) -> u64 {
    let (call, cseq) = (seen.call.to_le_bytes(), seen.cseq.to_le_bytes());
    hash(&[&call, &cseq, &(Method::Invite as u32).to_le_bytes()])
}

pub(super) fn check(seen: &Seen, origin: &Origin, found: &mut Findings) {
    if !seen.is_of_proxy() {
        return;
    }
    let stateful = seen.may_have_transactions();
    let wrong = match (origin, seen.kind) {
        (Origin::None, _) => Some("nothing that the proxy received has caused it"),
        (Origin::Passed(form), _) if !stateful && form.sent > form.received => {
            Some("it is forwarded more often than it arrived")
        }
        (Origin::Own, Kind::Request) => {
            let may = match seen.method {
                Method::Ack | Method::Cancel => stateful,
                Method::Options => true,
                _ => false,
            };
            (!may).then_some("the proxy made this request itself")
        }
        (Origin::Own, Kind::Response(101..200)) => {
            Some("the proxy made this provisional response itself")
        }
        (Origin::Own, Kind::Response(200)) if seen.method == Method::Options => None,
        (Origin::Own, Kind::Response(200..400)) if seen.method != Method::Cancel => {
            Some("nobody has given this answer")
        }
        _ => None,
    };
    if let Some(wrong) = wrong {
        let what = format!("{:?} {:?} {}: {wrong}", seen.kind, seen.method, seen.cseq);
        found.report(NAME, Some(seen.node), what);
    }
}
