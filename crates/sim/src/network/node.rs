//! Nodes: a core in its place, running, stalled or gone.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_world::{
    CloseCause, ConnectionId, Failure, Flow, QueryAnswer, QueryId, Received, Timestamp,
};

/// A node of a network: the number of its [`add`](super::Network::add), from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(u16);

impl NodeId {
    /// The node that is added when so many are there.
    ///
    /// # Panics
    /// From 65,535 on: a network has no more.
    pub fn new(index: usize) -> Self {
        let id = u16::try_from(index).ok().filter(|&id| id < u16::MAX);
        Self(id.expect("a network has fewer than 65,535 nodes"))
    }

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// What senders hear of a node that has crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Silence {
    /// The process is gone, its machine answers with ICMP: port unreachable.
    Refused,
    /// The machine is gone: nothing.
    Silent,
}

/// Datagrams that wait for a stalled node: what two buffers of a [`Host`](crate::Host) hold.
pub const STALL_BUFFER: usize = 4096;

pub(super) struct Node<N> {
    /// `Err` if it has crashed.
    pub core: Result<N, Silence>,
    /// How often it has crashed.
    pub life: u32,
    /// The earliest timer entered in the calendar for it.
    pub armed: Option<Timestamp>,
    /// It gets nothing before this.
    pub stalled_until: Timestamp,
    /// What it is given then.
    pub waiting: VecDeque<Input>,
    /// Datagrams among them.
    pub datagrams: usize,
}

/// What a core is given.
pub(super) enum Input {
    Packet(Received),
    Failure(Failure),
    Order(Box<[u8]>),
    Answer(QueryId, QueryAnswer),
    Connected(Flow),
    Closed(ConnectionId, CloseCause),
    Writable(ConnectionId),
    Drain,
}

impl<N> Node<N> {
    pub fn new(core: N) -> Self {
        Self {
            core: Ok(core),
            life: 0,
            armed: None,
            stalled_until: Timestamp::ZERO,
            waiting: VecDeque::new(),
            datagrams: 0,
        }
    }

    /// Keeps what a stalled node is to be given.
    pub fn keep(&mut self, input: Input) {
        self.datagrams += usize::from(matches!(input, Input::Packet(_)));
        self.waiting.push_back(input);
    }

    /// Whether it would not hear of a packet that comes at `now`: it is stalled, and as many wait
    /// for it as have room.
    pub fn is_full(&self, now: Timestamp) -> bool {
        now < self.stalled_until && self.datagrams >= STALL_BUFFER
    }

    /// Forgets what it was to be given, its timer, and what it has asked.
    pub fn forget(&mut self) {
        self.life += 1;
        (self.armed, self.stalled_until, self.datagrams) = (None, Timestamp::ZERO, 0);
        self.waiting.clear();
    }
}
