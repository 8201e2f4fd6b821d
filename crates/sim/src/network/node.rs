//! Nodes: a core in its place, running, stalled or gone.

use std::collections::VecDeque;

use tidegate_world::{
    CloseCause, ConnectionId, Failure, Flow, QueryAnswer, QueryId, Received, Timestamp,
};

use crate::node_id::Silence;

/// Datagrams that wait for a stalled node: what two buffers of a `Host` hold.
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
