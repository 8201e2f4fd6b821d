//! Finds nodes by address, and keeps the channels between them.

use std::net::SocketAddr;

use hashbrown::HashMap;
use tidegate_world::{Purpose, Seed, Timestamp};

use crate::channel::{Carried, Channel};
use crate::link::Link;
use crate::node_id::NodeId;
use crate::tap::Loss;

/// The channels of a network. Each channel draws from its own stream of random numbers, so events
/// on one channel affect no other. The maps are never iterated, because their order is not
/// reproducible.
pub(super) struct Ways {
    seed: Seed,
    default: Link,
    addresses: HashMap<SocketAddr, NodeId>,
    ways: Vec<Way>,
    /// The index in `ways` of the channel of each [`pair`]. The map contains indices instead of
    /// channels, so that the processor cache can hold the map of a hundred nodes.
    of_pairs: HashMap<u32, u32>,
}

/// A node, or `None` for an address without a node.
type Peer = Option<NodeId>;

pub(super) struct Way {
    pub from: Peer,
    pub to: Peer,
    pub channel: Channel,
}

impl Ways {
    pub fn new(seed: Seed, default: Link) -> Self {
        let (addresses, ways, of_pairs) = Default::default();
        Self { seed, default, addresses, ways, of_pairs }
    }

    /// Gives `node` an address.
    pub fn name(&mut self, address: SocketAddr, node: NodeId) {
        assert!(self.addresses.insert(address, node).is_none(), "{address} is taken");
    }

    /// Returns the number of the channel from `from` to an address.
    pub fn find(&mut self, from: NodeId, to: SocketAddr) -> u32 {
        let peer = self.addresses.get(&to).copied();
        self.between(Some(from), peer)
    }

    /// Returns the number of the channel from `from` to `to`.
    pub fn between(&mut self, from: Peer, to: Peer) -> u32 {
        let Self { seed, ways, of_pairs, .. } = self;
        let pair = pair(from, to);
        *of_pairs.entry(pair).or_insert_with(|| {
            let stream = seed.stream(Purpose::Link, pair);
            ways.push(Way { from, to, channel: Channel::new(stream) });
            u32::try_from(ways.len() - 1).expect("fewer than 2^32 pairs")
        })
    }

    pub fn way(&self, number: u32) -> &Way {
        &self.ways[number as usize]
    }

    /// Carries a packet of `bytes` bytes on the channel with this number.
    ///
    /// # Errors
    /// Returns an error if the packet is lost.
    pub fn carry(&mut self, number: u32, now: Timestamp, bytes: usize) -> Result<Carried, Loss> {
        self.ways[number as usize].channel.carry(&self.default, now, bytes)
    }

    pub fn channel(&mut self, from: NodeId, to: NodeId) -> &mut Channel {
        let way = self.between(Some(from), Some(to));
        &mut self.ways[way as usize].channel
    }
}

/// Returns the number that selects the random numbers of the channel from a sender to a receiver.
///
/// In this number, nodes count from 1, and a peer that is not a node is 0. The channels of a
/// [`Relay`](crate::Relay) have the numbers 0 and 1. No pair has the number 0, and only the pair of
/// an unknown sender and the first node has the number 1.
fn pair(from: Peer, to: Peer) -> u32 {
    let number = |peer: Peer| peer.map_or(0, |node| node.index() as u32 + 1);
    number(from) << 16 | number(to)
}
