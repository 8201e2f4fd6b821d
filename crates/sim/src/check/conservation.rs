//! `conservation`: packets neither vanish nor appear from nowhere, and nodes count all of them.
//!
//! - On every link: a packet that arrives or is lost was sent before. There are at most two such
//!   packets for each packet sent, because a link may duplicate a packet. When nothing is in
//!   flight, every packet that was sent has arrived or is lost.
//! - At every proxy: it has read each packet delivered to it, or counted it as shed or as lost at a
//!   full buffer or queue. It has also counted each packet that it has sent. Operators see only the
//!   counters of a proxy, so every message must be counted.
//!
//! In a crash, the content of the buffers is lost and all counters are reset. So the counters of a
//! proxy are compared only with the packets since its last crash. Packets in flight arrive, or are
//! lost at a node that is down. The network itself reports the lost ones.

use std::collections::BTreeMap;

use tidegate_sip::Method;
use tidegate_world::{Flow, Timestamp};

use super::Findings;
use super::books::{Book, ProxyBook};
use super::recent::Recent;
use super::seen::{Seen, hash};
use crate::node_id::NodeId;
use crate::tap::Loss;

/// The checker's name.
pub const NAME: &str = "conservation";

/// The counts of equal packets from one address to another.
#[derive(Debug, Default)]
struct Flight {
    sent: u64,
    ended: u64,
}

/// The packet counts of a node since its last start.
#[derive(Debug, Default)]
struct Tally {
    delivered: u64,
    sent: u64,
    /// ACKs of one hop that the node has sent. The counters of a proxy do not include these ACKs,
    /// because each belongs to a response that is counted.
    acks: u64,
}

#[derive(Debug, Default)]
pub(super) struct Conservation {
    flights: Recent<u64, Flight>,
    tallies: BTreeMap<NodeId, Tally>,
}

impl Conservation {
    pub(super) fn on_sent(&mut self, now: Timestamp, from: NodeId, flow: Flow, bytes: &[u8]) {
        self.tallies.entry(from).or_default().sent += 1;
        if let Some(flight) = self.flights.entry(now, key(flow, bytes)) {
            flight.sent += 1;
        }
    }

    /// Records a packet that a watched node has sent, in parsed form.
    pub(super) fn on_seen(&mut self, seen: &Seen) {
        let of_hop = seen.is_request() && seen.vias.len() == 1 && seen.method == Method::Ack;
        if of_hop && seen.may_have_transactions() {
            self.tallies.entry(seen.node).or_default().acks += 1;
        }
    }

    pub(super) fn on_delivered(
        &mut self,
        now: Timestamp,
        to: NodeId,
        flow: Flow,
        bytes: &[u8],
        found: &mut Findings,
    ) {
        self.tallies.entry(to).or_default().delivered += 1;
        let flow = Flow { local: flow.remote, remote: flow.local, ..flow };
        self.end(now, flow, bytes, found);
    }

    pub(super) fn on_lost(
        &mut self,
        now: Timestamp,
        _: Loss,
        flow: Flow,
        bytes: &[u8],
        found: &mut Findings,
    ) {
        self.end(now, flow, bytes, found);
    }

    fn end(&mut self, now: Timestamp, flow: Flow, bytes: &[u8], found: &mut Findings) {
        let Some(flight) = self.flights.entry(now, key(flow, bytes)) else { return };
        flight.ended += 1;
        let what = match flight.sent {
            0 => "arrives, but was never sent",
            sent if flight.ended > 2 * sent => {
                "arrives more than twice for each time that it was sent"
            }
            _ => return,
        };
        found.report(NAME, None, format!("a packet from {} to {} {what}", flow.local, flow.remote));
    }

    /// Resets the packet counts of a crashed node.
    pub(super) fn crashed(&mut self, node: NodeId) {
        self.tallies.remove(&node);
    }

    /// Compares the counts that a node reports with the packets that it has sent and received.
    pub(super) fn compare(&self, node: NodeId, book: &Book, found: &mut Findings) {
        let (Book::Proxy(book), Some(tally)) = (book, self.tallies.get(&node)) else { return };
        let ProxyBook { received, overflowed, filtered, perhaps_dropped, .. } = *book;
        let ProxyBook { sent, cancels, unsent, .. } = *book;
        let counted = received + overflowed + filtered;
        if !(counted..=counted + perhaps_dropped).contains(&tally.delivered) {
            let delivered = tally.delivered;
            let what = format!(
                "{delivered} packets were delivered, but it counts {received} read, {overflowed} \
                 lost and {filtered} shed"
            );
            found.report(NAME, Some(node), what);
        }
        let counted = sent + cancels + tally.acks;
        // No counter includes an unsent ACK of one hop.
        if !(tally.sent..=tally.sent + unsent).contains(&counted) {
            let (seen, acks) = (tally.sent, tally.acks);
            let what = format!(
                "{seen} packets were sent, {acks} of them hop-by-hop ACKs, but it counts {sent} and \
                 {cancels} CANCELs"
            );
            found.report(NAME, Some(node), what);
        }
    }

    pub(super) fn finish(&self, found: &mut Findings) {
        let vanished: u64 =
            self.flights.iter().map(|(_, flight)| flight.sent.saturating_sub(flight.ended)).sum();
        if vanished > 0 {
            found.report(NAME, None, format!("{vanished} packets neither arrived nor were lost"));
        }
    }

    pub(super) fn unwatched(&self) -> u64 {
        self.flights.unwatched()
    }
}

fn key(flow: Flow, bytes: &[u8]) -> u64 {
    let ends = format!("{} {}", flow.local, flow.remote);
    hash(&[ends.as_bytes(), bytes])
}
