//! `innocents`: a call of a well-behaved caller continues, whatever attackers send.
//!
//! The checker knows the calls of well-behaved callers by their Call-IDs, which attackers do not
//! use. A call is *verified* when the proxy has seen that a back end has answered it, whatever else
//! comes from the same address or with the same Call-ID.
//!
//! - A ban, or any other rule that drops messages unread, must not drop a request or a response of
//!   a verified call. A source with verified calls loses only new work. INVITEs and their responses
//!   are not checked.
//! - A BYE of a verified call that arrives at a proxy is forwarded or answered. This is asserted
//!   for proxies that handle each packet at once. Slower proxies may lose the BYE at a full queue.
//!   If the attackers send only noise, `tidegate lab swarm` compares the number of completed calls
//!   with that in a world without attackers.
//!
//! After a crash, the second rule is asserted only for BYEs that arrive after the crash. The first
//! rule is also asserted for calls from before the crash, because the route tokens in their
//! requests prove them.

use std::collections::BTreeMap;

use tidegate_sip::Method;
use tidegate_world::{Flow, Timestamp};

use super::front::Front;
use super::lives::Lives;
use super::recent::Recent;
use super::seen::{Kind, Seen, Transaction};
use super::{Findings, Role};
use crate::node_id::NodeId;
use crate::tap::Loss;

/// The checker's name.
pub const NAME: &str = "innocents";

#[derive(Debug, Default)]
struct Bye {
    came: Timestamp,
    is_handled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Innocents {
    /// Calls that well-behaved callers have started.
    calls: Recent<u64, ()>,
    /// Calls of well-behaved callers for which a proxy has sent a 2xx, by proxy, Call-ID and
    /// To-tag.
    verified: Recent<(NodeId, u64, u64), ()>,
    /// Calls of well-behaved callers for which any proxy has sent a 2xx, by Call-ID and To-tag.
    answered: Recent<(u64, u64), ()>,
    byes: Recent<Transaction, Bye>,
}

impl Innocents {
    /// Returns whether the message belongs to a call that a well-behaved caller has started.
    pub(super) fn has(&mut self, seen: &Seen) -> bool {
        self.calls.get(seen.now, seen.call).is_some()
    }

    pub(super) fn on_sent(&mut self, seen: &Seen, fronts: &BTreeMap<NodeId, Front>) {
        if seen.role == Role::Caller && seen.is_request() {
            let _ = self.calls.entry(seen.now, seen.call);
        }
        if !seen.is_of_proxy() || !fronts.contains_key(&seen.node) {
            return;
        }
        match seen.kind {
            Kind::Response(200..300) if seen.method == Method::Invite && self.has(seen) => {
                let tag = seen.to_tag.unwrap_or_default();
                let _ = self.verified.entry(seen.now, (seen.node, seen.call, tag));
                let _ = self.answered.entry(seen.now, (seen.call, tag));
            }
            Kind::Request if seen.vias.len() > 1 => self.handled(seen, seen.vias[1]),
            Kind::Response(_) => self.handled(seen, seen.vias[0]),
            Kind::Request => {}
        }
    }

    pub(super) fn on_delivered(&mut self, seen: &Seen, fronts: &BTreeMap<NodeId, Front>) {
        let is_at_once = fronts.get(&seen.node).is_some_and(|front| front.at_once);
        if !is_at_once || !seen.is_request() || seen.method != Method::Bye {
            return;
        }
        let ends = [seen.to_tag, seen.from_tag];
        let is_verified = ends
            .into_iter()
            .flatten()
            .any(|tag| self.verified.get(seen.now, (seen.node, seen.call, tag)).is_some());
        if is_verified && let Some(bye) = self.byes.entry(seen.now, seen.transaction()) {
            bye.came = seen.now;
        }
    }

    /// Checks that a packet that was dropped unread does not belong to a verified call.
    pub(super) fn on_lost(
        &mut self,
        now: Timestamp,
        why: Loss,
        flow: Flow,
        bytes: &[u8],
        found: &mut Findings,
    ) {
        if why != Loss::Filtered {
            return;
        }
        let Some(seen) = Seen::read(now, NodeId::new(0), Role::Caller, bytes) else { return };
        let ends = [seen.to_tag, seen.from_tag].into_iter().flatten();
        let is_verified =
            ends.into_iter().any(|tag| self.answered.get(now, (seen.call, tag)).is_some());
        if is_verified && seen.method != Method::Invite {
            let Seen { kind, method, cseq, .. } = seen;
            let from = flow.local;
            let what =
                format!("{kind:?} {method:?} {cseq} of a verified call from {from} is dropped");
            found.report(NAME, None, what);
        }
    }

    pub(super) fn finish(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        lives: &Lives,
        found: &mut Findings,
    ) {
        for node in nodes.filter(|&node| !lives.is_disturbed(node)) {
            let is_lost = |bye: &Bye| !bye.is_handled && !lives.is_of_another_life(node, bye.came);
            let of_node = self.byes.iter().filter(|((at, ..), _)| *at == node);
            let lost = of_node.filter(|(_, bye)| is_lost(bye)).count();
            if lost > 0 {
                let what =
                    format!("{lost} BYEs of verified calls were neither forwarded nor answered");
                found.report(NAME, Some(node), what);
            }
        }
    }

    pub(super) fn unwatched(&self) -> u64 {
        self.calls.unwatched()
            + self.verified.unwatched()
            + self.answered.unwatched()
            + self.byes.unwatched()
    }

    fn handled(&mut self, seen: &Seen, branch: u64) {
        let key = (seen.node, branch, Method::Bye as u32);
        if seen.method == Method::Bye
            && let Some(bye) = self.byes.get(seen.now, key)
        {
            bye.is_handled = true;
        }
    }
}
