//! Nodes: a core that is running, is stalled or has crashed.

use std::collections::VecDeque;

use tidegate_world::{
    CloseCause, ConnectionId, Failure, Flow, QueryAnswer, QueryId, Received, Timestamp,
};

use crate::node_id::Silence;

/// Number of datagrams that may wait for a stalled node: as many as fit into two buffers of a
/// `Host`.
pub const STALL_BUFFER: usize = 4096;

pub(super) struct Node<N> {
    /// `Err` if the node has crashed.
    pub core: Result<N, Silence>,
    /// Number of times that it has crashed.
    pub life: u32,
    /// The earliest timer of the node in the calendar.
    pub armed: Option<Timestamp>,
    /// Time before which the node gets nothing.
    pub stalled_until: Timestamp,
    /// Inputs that wait while the node is stalled.
    pub waiting: VecDeque<Input>,
    /// Number of datagrams in `waiting`.
    pub datagrams: usize,
}

/// An input of a core.
pub(super) enum Input {
    Packet(Received),
    Failure(Failure),
    Command(Box<[u8]>),
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

    /// Keeps an input for a stalled node.
    pub fn keep(&mut self, input: Input) {
        self.datagrams += usize::from(matches!(input, Input::Packet(_)));
        self.waiting.push_back(input);
    }

    /// Returns whether the node would lose a packet at `now`, because it is stalled and its buffers
    /// are full.
    pub fn is_full(&self, now: Timestamp) -> bool {
        now < self.stalled_until && self.datagrams >= STALL_BUFFER
    }

    /// Forgets the waiting inputs, the timer, and the queries.
    pub fn forget(&mut self) {
        self.life += 1;
        (self.armed, self.stalled_until, self.datagrams) = (None, Timestamp::ZERO, 0);
        self.waiting.clear();
    }
}
