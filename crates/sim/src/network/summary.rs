//! The counts of a run.

use crate::tap::Loss;

/// The counts of a network's packets so far.
///
/// `sent + copied` is the sum of `delivered`, [`missing`](Self::missing) and `under_way`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets that nodes sent.
    pub sent: u64,
    /// Copies that links made.
    pub copied: u64,
    /// Packets and copies that arrived.
    pub delivered: u64,
    /// Packets that links lost.
    pub lost: u64,
    /// Packets for which the queue of a link had no room.
    pub overflowed: u64,
    /// Packets for which no link was open, because of [`Link::cut`](crate::Link::cut) or a
    /// partition.
    pub partitioned: u64,
    /// Packets and copies that arrived at a crashed node.
    pub down: u64,
    /// Packets and copies for which a stalled node had no room.
    pub stalled: u64,
    /// Packets and copies that their receiver wanted to be dropped.
    pub filtered: u64,
    /// Packets and copies to an address without a node.
    pub undeliverable: u64,
    /// Messages whose connection ended before they were read.
    pub closed: u64,
    /// Messages on streams that did not name an open connection.
    pub unconnected: u64,
    /// Packets and copies in flight.
    pub under_way: u64,
    /// Messages for other shards. There are no other shards, so the messages are dropped.
    pub handoffs: u64,
}

impl Summary {
    /// Returns the packets and copies that will never arrive, for any reason.
    pub fn missing(&self) -> u64 {
        let Self { lost, overflowed, partitioned, down, stalled, filtered, .. } = self;
        let Self { undeliverable, closed, unconnected, .. } = self;
        let on_streams = closed + unconnected;
        lost + overflowed + partitioned + down + stalled + filtered + undeliverable + on_streams
    }

    pub(super) fn count(&mut self, why: Loss) {
        let counter = match why {
            Loss::Link => &mut self.lost,
            Loss::Queue => &mut self.overflowed,
            Loss::Partition => &mut self.partitioned,
            Loss::Down => &mut self.down,
            Loss::Stalled => &mut self.stalled,
            Loss::Filtered => &mut self.filtered,
            Loss::Nobody => &mut self.undeliverable,
            Loss::Closed => &mut self.closed,
            Loss::Unconnected => &mut self.unconnected,
        };
        *counter += 1;
    }
}
