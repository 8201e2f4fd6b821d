//! Nodes: a core that is running, is stalled or has crashed.

use std::collections::VecDeque;

use tidegate_world::{
    CloseCause, ConnectionId, Failure, Flow, QueryAnswer, QueryId, Received, Timestamp,
};

use super::streams::Key;
use crate::node_id::Silence;

/// Maximum number of datagrams that wait for a stalled node: as many as fit into two buffers of a
/// `Host` of `tidegate-emulate`.
pub const STALL_BUFFER: usize = 4096;

pub(super) struct Node<N> {
    /// The running core, or, if the node has crashed, the reports that its peers get.
    pub core: Result<N, Silence>,
    /// Number of crashes of the node so far.
    pub life: u32,
    /// Time of the node's earliest timer in the calendar of events, or `None` if there is none.
    pub armed: Option<Timestamp>,
    /// Time until which the node is stalled and gets no input.
    pub stalled_until: Timestamp,
    /// Inputs that wait while the node is stalled.
    pub waiting: VecDeque<Input>,
    /// Number of datagrams in `waiting`.
    pub datagrams: usize,
    /// True if streams may have bytes that the node did not read when they arrived, because it had
    /// to do other work.
    pub has_unread: bool,
    /// The connection from which the node last read a message.
    pub last_read: Key,
}

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
            has_unread: false,
            last_read: 0,
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

    /// Removes the waiting inputs, the timer and the queries of a crashed node.
    pub fn forget(&mut self) {
        self.life += 1;
        (self.armed, self.stalled_until, self.datagrams) = (None, Timestamp::ZERO, 0);
        self.waiting.clear();
        self.has_unread = false;
    }
}
