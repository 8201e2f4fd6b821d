//! `shares`: no address fills the tables of a proxy.
//!
//! What a request makes a proxy keep is chosen by whoever sends it: an INVITE that rings for ever
//! stands in the transaction table for minutes (RFC 3261 §16.6 item 11, Timer C), with all its
//! bytes. So the contexts that one stranger's address has open are counted on the wire: from the 100
//! that takes an INVITE on (§17.2.1), to its final response. They are no more than [`SHARE`] of
//! the table's room, so that whoever comes next finds some.
//!
//! Asserted of proxies that keep transactions, for the addresses where strangers are, or nobody: a
//! crowd is a trunk of many users. After a crash the counts begin anew.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tidegate_sip::Method;

use super::Findings;
use super::front::Front;
use super::seen::{Kind, Seen};
use crate::network::NodeId;

/// The checker's name.
pub const NAME: &str = "shares";

/// The part of the transaction table that one address may fill.
pub const SHARE: f64 = 0.75;

/// Tables smaller than this are shared as it comes.
const ROOM_LEAST: u64 = 40;

#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Branches of INVITEs that were taken on, by who sent them.
    open: BTreeMap<(NodeId, IpAddr), BTreeSet<u64>>,
    reported: BTreeSet<(NodeId, IpAddr)>,
}

impl Shares {
    /// A proxy answers somebody who is no crowd and no back end.
    pub(super) fn on_sent(&mut self, seen: &Seen, to: IpAddr, front: &Front, found: &mut Findings) {
        let Kind::Response(status) = seen.kind else { return };
        if seen.method != Method::Invite || !seen.is_of_stateful() {
            return;
        }
        let key = (seen.node, to);
        let open = self.open.entry(key).or_default();
        if status >= 200 {
            open.remove(&seen.vias[0]);
            return;
        }
        open.insert(seen.vias[0]);
        let (count, room) = (open.len() as u64, front.transactions_max);
        if room >= ROOM_LEAST && count as f64 > room as f64 * SHARE && self.reported.insert(key) {
            let what = format!("{to} has {count} transactions open, of {room} that have room");
            found.report(NAME, Some(seen.node), what);
        }
    }

    pub(super) fn crashed(&mut self, node: NodeId) {
        self.open.retain(|(at, _), _| *at != node);
    }
}
