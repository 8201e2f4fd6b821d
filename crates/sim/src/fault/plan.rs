//! Plans: lists of faults with start times and durations, given or drawn at random.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_world::{Purpose, Seed, Stream, Timestamp};

use super::Fault;
use crate::link::{Bandwidth, Link};
use crate::micros;
use crate::node_id::{NodeId, Silence};
use crate::zone::Resolution;

/// A fault with its start and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Episode {
    /// Start of the fault, counted from the start of the run. It is serialized in microseconds.
    #[serde(rename = "begins_us", with = "micros")]
    pub begins: Timestamp,
    /// Duration of the fault, serialized in microseconds.
    #[serde(rename = "lasts_us", with = "micros")]
    pub lasts: Duration,
    /// The kind of the fault, and the nodes that it concerns.
    pub trouble: Trouble,
}

/// The fault of an [`Episode`]: its kind, and the nodes that it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Trouble {
    /// A node crashes, and is restarted at the end of the episode.
    Crash {
        /// The node.
        node: NodeId,
        /// The ICMP reports, if any, that senders to the crashed node get.
        silence: Silence,
    },
    /// A node gets no processor time.
    Stall {
        /// The node.
        node: NodeId,
    },
    /// Two nodes are partitioned: no packet passes between them.
    Partition {
        /// One of the two nodes.
        a: NodeId,
        /// The other node.
        b: NodeId,
    },
    /// A worse link replaces the link from one node to another during the episode.
    Impair {
        /// Sender of the affected packets.
        from: NodeId,
        /// Receiver of the affected packets.
        to: NodeId,
        /// The link that replaces the normal one during the episode.
        link: Link,
    },
    /// The connections between two nodes are reset once. Only [`Plan::of_streams`] draws this
    /// fault.
    Reset {
        /// One of the two nodes.
        a: NodeId,
        /// The other node.
        b: NodeId,
    },
    /// The connection that carries the next message from one node to another breaks in the middle
    /// of that message. Only [`Plan::of_streams`] draws this fault.
    Sever {
        /// Sender of the message.
        from: NodeId,
        /// Receiver of the message.
        to: NodeId,
    },
    /// A node reads slowly from each of its streams. Only [`Plan::of_streams`] draws this fault.
    ReadSlowly {
        /// The node.
        node: NodeId,
        /// Number of bytes that the node reads from each stream in a second.
        bytes_per_s: u64,
    },
    /// Name resolution has faults: answers are late, are errors, or do not come. No random plan
    /// contains this fault, because it has an effect only if the network has host names.
    Resolver {
        /// The behaviour of name resolution during the fault.
        resolution: Resolution,
    },
}

/// A list of faults for one run. It can be printed, stored, and shrunk by removing episodes.
///
/// Episodes with the same kind of fault and the same nodes should not overlap, because the end of
/// one episode would also end the fault of the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan {
    /// The episodes, in any order.
    pub episodes: Vec<Episode>,
}

/// The limits of a random plan: the possible nodes and times, and the number of faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Nodes that may crash or be stalled.
    pub nodes: Vec<NodeId>,
    /// Pairs of nodes that may be partitioned. The links between the nodes of a pair may also
    /// become worse, each direction separately.
    pub pairs: Vec<(NodeId, NodeId)>,
    /// Earliest start of an episode.
    pub begins: Timestamp,
    /// Latest end of an episode.
    pub ends: Timestamp,
    /// Maximum duration of an episode.
    pub lasts_max: Duration,
    /// Maximum number of episodes.
    pub episodes_max: usize,
}

impl Plan {
    /// Draws a random plan of up to [`episodes_max`](Shape::episodes_max) episodes, in the order of
    /// their starts. No two episodes for the same node or the same pair overlap. Times are whole
    /// milliseconds.
    pub fn random(seed: Seed, shape: &Shape) -> Self {
        Self::drawn(seed.stream(Purpose::Fault, ELEMENT), shape, trouble)
    }

    /// Draws a random plan like [`random`](Self::random), but only with faults of streams.
    pub fn of_streams(seed: Seed, shape: &Shape) -> Self {
        Self::drawn(seed.stream(Purpose::Fault, ELEMENT_OF_STREAMS), shape, trouble_of_streams)
    }

    fn drawn(mut stream: Stream, shape: &Shape, trouble: Drawn) -> Self {
        let mut episodes: Vec<Episode> = Vec::new();
        let wanted = stream.below(shape.episodes_max as u64 + 1);
        for _ in 0..wanted {
            let Some(episode) = draw(&mut stream, shape, trouble) else { continue };
            if !episodes.iter().any(|other| clash(other, &episode)) {
                episodes.push(episode);
            }
        }
        episodes.sort_by_key(|episode| episode.begins);
        Self { episodes }
    }

    /// Returns the starts and ends of all faults in the order of time, each with the time at which
    /// to [apply](crate::Network::apply) it. At equal times, ends come before starts.
    pub fn steps(&self) -> Vec<(Timestamp, Fault)> {
        let ends = self.episodes.iter().filter_map(Episode::end);
        let begins = self.episodes.iter().map(|episode| (episode.begins, episode.fault()));
        let mut steps: Vec<_> = ends.chain(begins).collect();
        steps.sort_by_key(|(at, _)| *at);
        steps
    }
}

impl Episode {
    fn fault(&self) -> Fault {
        match self.trouble {
            Trouble::Crash { node, silence } => Fault::Crash { node, silence },
            Trouble::Stall { node } => Fault::Stall { node, lasts: self.lasts },
            Trouble::Partition { a, b } => Fault::Partition { a, b },
            Trouble::Impair { from, to, link } => Fault::Impair { from, to, link },
            Trouble::Reset { a, b } => Fault::Reset { a, b },
            Trouble::Sever { from, to } => Fault::Sever { from, to },
            Trouble::ReadSlowly { node, bytes_per_s } => Fault::ReadSlowly { node, bytes_per_s },
            Trouble::Resolver { resolution } => Fault::Resolver { resolution },
        }
    }

    /// Returns the [`Fault`] that ends this episode, and the time of the end. Returns `None` if the
    /// episode ends by itself, like a stall, or never ends, like a reset of connections.
    fn end(&self) -> Option<(Timestamp, Fault)> {
        let fault = match self.trouble {
            Trouble::Crash { node, .. } => Fault::Restart { node },
            Trouble::Stall { .. } | Trouble::Reset { .. } | Trouble::Sever { .. } => return None,
            Trouble::ReadSlowly { node, .. } => Fault::ReadAtOnce { node },
            Trouble::Partition { a, b } => Fault::Heal { a, b },
            Trouble::Impair { from, to, .. } => Fault::Restore { from, to },
            Trouble::Resolver { .. } => Fault::Resolves,
        };
        Some((self.begins + self.lasts, fault))
    }

    /// Returns the two nodes that the fault concerns. If it concerns only one node, returns that
    /// node twice. If it concerns all nodes, returns `None`.
    fn nodes(&self) -> Option<(NodeId, NodeId)> {
        Some(match self.trouble {
            Trouble::Crash { node, .. }
            | Trouble::Stall { node }
            | Trouble::ReadSlowly { node, .. } => (node, node),
            Trouble::Partition { a, b } | Trouble::Reset { a, b } => (a.min(b), a.max(b)),
            Trouble::Impair { from, to, .. } | Trouble::Sever { from, to } => {
                (from.min(to), from.max(to))
            }
            Trouble::Resolver { .. } => return None,
        })
    }
}

/// The element number of the random [`Stream`] from which plans are drawn. No node or agent has
/// this number, so a plan does not change any other random values.
const ELEMENT: u32 = u32::MAX;
const ELEMENT_OF_STREAMS: u32 = u32::MAX - 100;

/// A function that draws a fault. It returns `None` if no node is available for the fault.
type Drawn = fn(&mut Stream, &Shape) -> Option<Trouble>;

/// Returns whether two episodes concern the same nodes and overlap.
fn clash(a: &Episode, b: &Episode) -> bool {
    let overlap = a.begins <= b.begins + b.lasts && b.begins <= a.begins + a.lasts;
    overlap && a.nodes() == b.nodes()
}

/// Draws an episode. Returns `None` if `shape` allows no node or no time for it.
fn draw(stream: &mut Stream, shape: &Shape, trouble: Drawn) -> Option<Episode> {
    let whole_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let room = whole_ms(shape.ends.since(shape.begins));
    let lasts = 1 + stream.below(whole_ms(shape.lasts_max).min(room));
    let begins = stream.below(room.saturating_sub(lasts) + 1);
    let trouble = trouble(stream, shape)?;
    (lasts <= room).then(|| Episode {
        begins: shape.begins + Duration::from_millis(begins),
        lasts: Duration::from_millis(lasts),
        trouble,
    })
}

fn trouble(stream: &mut Stream, Shape { nodes, pairs, .. }: &Shape) -> Option<Trouble> {
    // A fault of a node and a fault of a pair are equally likely.
    let of_node = match (nodes.is_empty(), pairs.is_empty()) {
        (true, true) => return None,
        (false, false) => stream.below(2) == 0,
        (_, no_pairs) => no_pairs,
    };
    Some(if of_node {
        let node = nodes[stream.below(nodes.len() as u64) as usize];
        match stream.below(3) {
            0 => Trouble::Crash { node, silence: Silence::Refused },
            1 => Trouble::Crash { node, silence: Silence::Silent },
            _ => Trouble::Stall { node },
        }
    } else {
        let (a, b) = pairs[stream.below(pairs.len() as u64) as usize];
        let (from, to) = if stream.below(2) == 0 { (a, b) } else { (b, a) };
        match stream.below(3) {
            0 => Trouble::Partition { a, b },
            _ => Trouble::Impair { from, to, link: worse(stream) },
        }
    })
}

fn trouble_of_streams(stream: &mut Stream, Shape { nodes, pairs, .. }: &Shape) -> Option<Trouble> {
    if nodes.is_empty() || pairs.is_empty() {
        return None;
    }
    let node = nodes[stream.below(nodes.len() as u64) as usize];
    let (a, b) = pairs[stream.below(pairs.len() as u64) as usize];
    let (from, to) = if stream.below(2) == 0 { (a, b) } else { (b, a) };
    Some(match stream.below(4) {
        0 | 1 => Trouble::Reset { a, b },
        2 => Trouble::Sever { from, to },
        _ => Trouble::ReadSlowly { node, bytes_per_s: 1000 << stream.below(8) },
    })
}

/// Draws a worse link: it loses, delays, reorders, duplicates or throttles packets, or does several
/// of these.
fn worse(stream: &mut Stream) -> Link {
    let mut sometimes = |most: u64| match stream.below(2) {
        0 => 0,
        _ => 1 + stream.below(most),
    };
    let percent = |share: u64| share as f64 / 100.0;
    Link {
        delay: Duration::from_millis(sometimes(200)),
        jitter: Duration::from_millis(sometimes(100)),
        loss: percent(sometimes(30)),
        reorder: percent(sometimes(20)),
        duplicate: percent(sometimes(20)),
        bandwidth: match sometimes(64) {
            0 => None,
            // From 64 kbit/s to 4 Mbit/s.
            times => Some(Bandwidth { bits_per_s: 64_000 * times, queue_max_bytes: 65_536 }),
        },
        cut: false,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
