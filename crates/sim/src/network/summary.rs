//! The packet counts of a network.

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
    /// Packets that links lost at random ([`Link::loss`](crate::Link::loss)).
    pub lost: u64,
    /// Packets that a link lost because its queue was full.
    pub overflowed: u64,
    /// Packets that no link carried, because of [`Link::cut`](crate::Link::cut) or a partition.
    pub partitioned: u64,
    /// Packets and copies that arrived at a crashed node.
    pub down: u64,
    /// Packets and copies that a stalled node lost because its buffers were full.
    pub stalled: u64,
    /// Packets and copies that the network dropped because the receiver's core wanted to
    /// [shed](tidegate_world::Core::poll_shedding) them.
    pub filtered: u64,
    /// Packets and copies to an address without a node.
    pub undeliverable: u64,
    /// Messages whose connection ended before they were read.
    pub closed: u64,
    /// Messages that cores sent on streams without naming an open connection.
    pub unconnected: u64,
    /// Packets and copies in flight.
    pub under_way: u64,
    /// Messages that nodes handed off to other shards. The network drops these messages, because a
    /// node has only one shard.
    pub handoffs: u64,
}

impl Summary {
    /// Returns the number of packets and copies that will never arrive, for any reason.
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
