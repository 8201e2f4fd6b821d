//! What a run did.

use crate::tap::Loss;

/// What has happened to the packets of a network so far.
///
/// `sent + copied` is the sum of `delivered`, of what is [`missing`](Self::missing), and of
/// `under_way`.
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
    /// Packets for which there was no room in the queue of a link.
    pub overflowed: u64,
    /// Packets to where no link led: [`Link::cut`](crate::Link::cut), or a partition.
    pub partitioned: u64,
    /// Packets and copies that came to a node that had crashed.
    pub down: u64,
    /// Packets and copies for which a stalled node had no room.
    pub stalled: u64,
    /// Packets and copies that their receiver wanted dropped.
    pub filtered: u64,
    /// Packets and copies to an address where nobody is.
    pub undeliverable: u64,
    /// Messages whose connection ended before they were read.
    pub closed: u64,
    /// Messages on streams that named no connection that is open.
    pub unconnected: u64,
    /// Packets and copies that are yet to arrive.
    pub under_way: u64,
    /// Messages for other shards. There are none, so they are dropped.
    pub handoffs: u64,
}

impl Summary {
    /// Packets and copies that will never arrive, whatever the cause.
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
