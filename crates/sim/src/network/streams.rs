//! The connections of a network: their ends and listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use tidegate_world::{ConnectionId, Flow, Pool, Transport};

use super::reader::Reader;
use crate::node_id::NodeId;
use crate::stream::{Pipe, StreamSettings};

/// The number of a connection, in the order in which connections are opened.
pub(super) type Key = u64;

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The end that opened the connection.
    Opener = 0,
    /// The end that accepted the connection.
    Acceptor = 1,
}

impl Side {
    pub fn other(self) -> Self {
        match self {
            Self::Opener => Self::Acceptor,
            Self::Acceptor => Self::Opener,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndState {
    /// The connection is not open yet.
    Opening,
    /// The connection is open, and messages can travel.
    Open,
    /// The core has closed the connection, which ends as soon as all bytes that the core handed out
    /// are sent.
    Closing,
    /// The connection has ended at this end.
    Closed,
}

#[derive(Debug)]
pub(super) struct End {
    /// The node, or `None` at the acceptor's end until a node accepts the connection.
    pub node: Option<NodeId>,
    /// The flow as this end sees it.
    pub flow: Flow,
    /// The flow as a tap sees it: the opener has the address at which it listens, without the port
    /// that the operating system has chosen.
    pub seen: Flow,
    pub state: EndState,
    pub reader: Reader,
    /// True if the next read at this end is scheduled, because its driver reads slowly.
    pub will_read: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    /// The ends, by [`Side`].
    pub ends: [End; 2],
    /// The bytes that each end has sent, by the [`Side`] of the sender.
    pub pipes: [Pipe; 2],
    /// Number of attempts so far to open the connection.
    pub tries: u32,
}

impl Connection {
    pub fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    /// Returns the bytes sent by an end.
    pub(crate) fn pipe_from(&mut self, side: Side) -> &mut Pipe {
        &mut self.pipes[side as usize]
    }

    /// Returns whether an end has a node and is not closed.
    pub fn is_alive(&self, side: Side) -> bool {
        let end = &self.ends[side as usize];
        end.node.is_some() && end.state != EndState::Closed
    }

    /// Returns the node at an end, and the node at the other end.
    pub(crate) fn nodes_from(&self, side: Side) -> Option<(NodeId, NodeId)> {
        Some((self.ends[side as usize].node?, self.ends[side.other() as usize].node?))
    }
}

/// All connections and listeners of a network.
pub(super) struct Streams {
    pub settings: StreamSettings,
    pub pool: Pool,
    pub connections: BTreeMap<Key, Connection>,
    /// The connection and the end to which a connection id of a node's core refers.
    pub by_name: BTreeMap<(NodeId, ConnectionId), (Key, Side)>,
    pub listeners: BTreeMap<(Transport, SocketAddr), NodeId>,
    /// Pairs of nodes whose next message breaks the connection on which it travels.
    pub severed: BTreeSet<(NodeId, NodeId)>,
    /// Nodes that read slowly, with the number of bytes a second that they read from each stream.
    pub slow_readers: BTreeMap<NodeId, u64>,
    next_key: Key,
    next_port: u16,
    next_accepted: ConnectionId,
}

/// The ports from which the operating system chooses one for an opened connection (RFC 6335 §6).
const PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

impl Streams {
    pub fn new() -> Self {
        Self {
            settings: StreamSettings::default(),
            pool: Pool::new(),
            connections: BTreeMap::new(),
            by_name: BTreeMap::new(),
            listeners: BTreeMap::new(),
            severed: BTreeSet::new(),
            slow_readers: BTreeMap::new(),
            next_key: 0,
            next_port: *PORTS.start(),
            next_accepted: ConnectionId::FIRST_ACCEPTED,
        }
    }

    /// Adds a connection that `node` opens.
    ///
    /// # Panics
    /// Panics if the core of `node` already uses `id` for another connection.
    pub fn open(&mut self, node: NodeId, id: ConnectionId, flow: Flow) -> Key {
        let key = self.next_key;
        self.next_key += 1;
        let local = SocketAddr::new(flow.local.ip(), self.next_port);
        self.next_port = self.next_port.checked_add(1).unwrap_or(*PORTS.start());
        let Flow { transport, remote, .. } = flow;
        let end = |node, flow, seen| End {
            node,
            flow,
            seen,
            state: EndState::Opening,
            reader: Reader::new(transport),
            will_read: false,
        };
        let listener = flow.local;
        let from = |local| Flow::connected(transport, local, remote, id);
        let to = |local| Flow { transport, local: remote, remote: local, connection: None };
        let opener = end(Some(node), from(local), from(listener));
        let ends = [opener, end(None, to(local), to(listener))];
        self.connections.insert(key, Connection { ends, pipes: Default::default(), tries: 0 });
        let before = self.by_name.insert((node, id), (key, Side::Opener));
        assert!(before.is_none(), "{node:?} has another {id:?}");
        key
    }

    /// Makes `node` the acceptor of a connection. Returns the flow as `node` sees it, or `None` if
    /// the connection no longer exists.
    pub fn accept(&mut self, key: Key, node: NodeId) -> Option<Flow> {
        let connection = self.connections.get_mut(&key)?;
        let id = self.next_accepted;
        self.next_accepted = id.next();
        let end = connection.end(Side::Acceptor);
        (end.node, end.state) = (Some(node), EndState::Open);
        (end.flow.connection, end.seen.connection) = (Some(id), Some(id));
        self.by_name.insert((node, id), (key, Side::Acceptor));
        Some(end.flow)
    }

    /// Returns the ends of connections at a node that are not closed, in the order in which the
    /// connections were opened.
    pub(crate) fn ends_of(&self, node: NodeId) -> Vec<(Key, Side)> {
        let sides = [Side::Opener, Side::Acceptor];
        let ends = self.connections.iter().flat_map(|(&key, connection)| {
            sides.map(|side| {
                let is_its = connection.ends[side as usize].node == Some(node);
                (is_its && connection.is_alive(side)).then_some((key, side))
            })
        });
        ends.flatten().collect()
    }
}
