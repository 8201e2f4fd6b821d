//! `shares`: no address fills the transaction table of a proxy.
//!
//! The sender of a request determines how long a proxy keeps state for the request. An INVITE that
//! rings forever stays in the transaction table for minutes (RFC 3261 §16.6 item 11, Timer C), with
//! all its bytes. An INVITE whose rejection is never acknowledged stays for 64·T1 (§17.2.1, Timer
//! H). So the checker counts, on the wire, the INVITE transactions of each attacker's address. A
//! transaction lasts from the 100 that accepts the INVITE (§17.2.1) to the ACK to its final
//! response, or, without an ACK, to 64·T1 after the final response. One address must not have more
//! transactions than [`SHARE`] of the table, so that there is room for later senders.
//!
//! This is asserted at proxies that keep transactions, for the addresses of attackers and for
//! addresses where nothing listens. It is not asserted for well-behaved callers, because each is a
//! trunk of many users. After a crash the counts start again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::Findings;
use super::front::Front;
use super::seen::{Kind, Seen};
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "shares";

/// The part of the transaction table that one address may fill, 0 to 1. The first quarter is not
/// limited by source. New work may fill the table up to seven eighths. Of the entries between these
/// two limits, a single address gets at most half.
pub const SHARE: f64 = 0.6;

/// The checker limits the entries of one address only in transaction tables with room for at least
/// this number of entries. A proxy does not divide smaller tables among source addresses.
const ROOM_LEAST: u64 = 40;

/// Time for which a proxy keeps the transaction of an INVITE after its final response: until Timer
/// H if no ACK arrives, or until Timer L after a 2xx (RFC 6026 §8.7). Both are 64·T1.
const KEPT_FOR: Duration = Duration::from_secs(32);

#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Branches of accepted INVITEs by proxy and sender, each with the time until which the proxy
    /// keeps its transaction.
    held: BTreeMap<(NodeId, IpAddr), BTreeMap<u64, Timestamp>>,
    reported: BTreeSet<(NodeId, IpAddr)>,
}

impl Shares {
    /// Records a response that a proxy sends to an address that is neither a caller nor a back end.
    pub(super) fn on_sent(&mut self, seen: &Seen, to: IpAddr, front: &Front, found: &mut Findings) {
        let Kind::Response(status) = seen.kind else { return };
        if seen.method != Method::Invite || !seen.is_of_stateful() {
            return;
        }
        let (now, branch) = (seen.now, seen.vias[0]);
        let held = self.held.entry((seen.node, to)).or_default();
        if status >= 200 {
            // An INVITE without a 100 was rejected, and no state was kept for it.
            if let Some(until) = held.get_mut(&branch) {
                *until = (*until).min(now + KEPT_FOR);
            }
            return;
        }
        held.retain(|_, until| *until > now);
        held.entry(branch).or_insert(Timestamp::NEVER);
        let (count, room) = (held.len() as u64, front.transactions_max);
        let is_more = room >= ROOM_LEAST && count as f64 > room as f64 * SHARE;
        if is_more && self.reported.insert((seen.node, to)) {
            let what = format!("{to} has {count} of the {room} entries of the transaction table");
            found.report(NAME, Some(seen.node), what);
        }
    }

    /// Records a message from the address `from`. An ACK ends the transaction of its INVITE.
    pub(super) fn on_delivered(&mut self, seen: &Seen, from: IpAddr) {
        if seen.is_request()
            && seen.method == Method::Ack
            && let Some(held) = self.held.get_mut(&(seen.node, from))
        {
            held.remove(&seen.vias[0]);
        }
    }

    pub(super) fn crashed(&mut self, node: NodeId) {
        self.held.retain(|(at, _), _| *at != node);
    }
}
