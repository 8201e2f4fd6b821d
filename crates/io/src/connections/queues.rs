//! The order in which the driver reads connections and serves their handshakes.

use std::collections::VecDeque;
use std::net::IpAddr;

use tidegate_world::{ConnectionId, Shedding};

/// Maximum number of INVITEs that the core drops and that do not count for the limits of a turn. If they
/// counted, a shard under many times its load would not read all messages, and those that it serves
/// would be late.
const THINNED: usize = 2048;

/// The connections that may have something to read, in their order.
///
/// Connections that we have opened and connections of peers alternate. So callers cannot delay the
/// responses of back ends, however many connections they have.
///
/// The shard reads a limited number of INVITEs in a turn, and then no more from connections of peers.
/// Their new calls wait in the sockets until the shard has served others.
#[derive(Debug)]
pub(super) struct ReadQueue {
    opened: VecDeque<ConnectionId>,
    accepted: VecDeque<ConnectionId>,
    /// True if a connection that a peer has opened had the last turn that ended.
    opened_is_next: bool,
    /// Number of INVITEs after which connections of peers wait for the next turn of the shard.
    invites_left: usize,
    /// The INVITEs that the core drops.
    shedding: Shedding,
    /// Number of INVITEs that the core drops and that do not count in this turn of the shard.
    thinned_left: usize,
}

impl ReadQueue {
    /// Creates an empty queue without a limit on INVITEs.
    pub(super) fn new() -> Self {
        let (opened, accepted) = Default::default();
        Self {
            opened,
            accepted,
            opened_is_next: false,
            invites_left: usize::MAX,
            shedding: Shedding::NONE,
            thinned_left: THINNED,
        }
    }

    /// Begins a turn of the shard with up to `invites` INVITEs.
    pub(super) fn begin_turn(&mut self, invites: usize) {
        (self.invites_left, self.thinned_left) = (invites, THINNED);
    }

    /// Records a message from `source` that was read in this turn of the shard. Returns whether it
    /// counts for the limits of the turn. An INVITE that the core will drop does not count, because it
    /// takes little time, unless there are very many of them.
    pub(super) fn record(&mut self, source: IpAddr, message: &[u8]) -> bool {
        if !message.starts_with(b"INVITE ") {
            return true;
        }
        if self.thinned_left > 0 && self.shedding.thins(source, message) {
            self.thinned_left -= 1;
            return false;
        }
        self.invites_left = self.invites_left.saturating_sub(1);
        true
    }

    /// Sets which INVITEs the core drops.
    pub(super) fn shed(&mut self, shedding: &Shedding) {
        if self.shedding != *shedding {
            self.shedding.clone_from(shedding);
        }
    }

    /// Returns whether connections of peers wait for the next turn of the shard.
    pub(super) fn is_stopped(&self) -> bool {
        self.invites_left == 0 && !self.accepted.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.accepted.is_empty()
    }

    /// Adds a connection. It must not be in the queue.
    pub(super) fn push_back(&mut self, id: ConnectionId) {
        if id.is_opened() { &mut self.opened } else { &mut self.accepted }.push_back(id);
    }

    /// Returns the connection whose turn it is. This connection stays the same until its turn ends,
    /// or until the limit on INVITEs stops it.
    pub(super) fn front(&self) -> Option<ConnectionId> {
        if self.invites_left == 0 {
            return self.opened.front().copied();
        }
        let (first, second) = match self.opened_is_next {
            true => (&self.opened, &self.accepted),
            false => (&self.accepted, &self.opened),
        };
        first.front().or_else(|| second.front()).copied()
    }

    /// Ends the turn of the front connection, and removes it from the queue.
    pub(super) fn pop_front(&mut self) {
        self.end_turn();
    }

    /// Ends the turn of the front connection. It is read again after the others.
    pub(super) fn pass_on(&mut self) {
        if let Some(id) = self.end_turn() {
            self.push_back(id);
        }
    }

    fn end_turn(&mut self) -> Option<ConnectionId> {
        let id = self.front()?;
        self.opened_is_next = !id.is_opened();
        if id.is_opened() { &mut self.opened } else { &mut self.accepted }.pop_front()
    }
}

/// Number of steps for which a handshake that has begun comes before new ones. They are enough for
/// a peer that sends whole messages. A peer that sends single bytes loses its precedence.
const STEPS: u8 = 4;

/// The connections whose handshake may have something to read, in their order.
///
/// The first step of a handshake costs a signature. If new handshakes came before those that have
/// begun, and very many clients connected at once, all handshakes would take too long, and the
/// signatures would be wasted.
#[derive(Debug, Default)]
pub(super) struct HandshakeQueue {
    /// Connections that we open, for example to back ends.
    opened: VecDeque<ConnectionId>,
    begun: VecDeque<ConnectionId>,
    others: VecDeque<ConnectionId>,
}

impl HandshakeQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of connections, some of which may have ended.
    pub(super) fn len(&self) -> usize {
        self.opened.len() + self.begun.len() + self.others.len()
    }

    /// Adds a connection whose handshake has taken this number of steps. It must not be in the queue.
    pub(super) fn push(&mut self, id: ConnectionId, steps: u8) {
        let queue = match steps {
            _ if id.is_opened() => &mut self.opened,
            1..STEPS => &mut self.begun,
            _ => &mut self.others,
        };
        queue.push_back(id);
    }

    /// Adds a connection with more bytes than one step of its handshake reads. It must not be in
    /// the queue. A connection of a peer loses its precedence.
    pub(super) fn push_back(&mut self, id: ConnectionId) {
        self.push(id, STEPS);
    }

    pub(super) fn pop_front(&mut self) -> Option<ConnectionId> {
        [&mut self.opened, &mut self.begun, &mut self.others]
            .into_iter()
            .find_map(VecDeque::pop_front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_connections_have_every_second_turn() {
        let mut queue = ReadQueue::new();
        let id = |number| ConnectionId::new(number).unwrap();
        // Odd numbers are opened.
        for number in [2, 4, 6, 8, 1, 3] {
            queue.push_back(id(number));
        }
        let mut turns = Vec::new();
        for _ in 0..8 {
            turns.push(queue.front().unwrap().get());
            queue.pass_on();
        }
        assert_eq!(turns, [2, 1, 4, 3, 6, 1, 8, 3]);
        for _ in 0..6 {
            assert!(!queue.is_empty());
            queue.pop_front();
        }
        assert!(queue.is_empty() && queue.front().is_none());
    }

    #[test]
    fn invites_that_the_core_drops_do_not_count() {
        let source = IpAddr::from([192, 0, 2, 1]);
        let (invite, bye) = (b"INVITE sip:a@b SIP/2.0\r\n", b"BYE sip:a@b SIP/2.0\r\n");
        for (share, counts) in [(0.0, true), (1.0, false)] {
            let mut queue = ReadQueue::new();
            queue.shed(&Shedding { share, ..Shedding::NONE });
            queue.begin_turn(2);
            assert_eq!(queue.record(source, invite), counts);
            assert!(queue.record(source, bye));
            assert_eq!(queue.invites_left, 2 - usize::from(counts));
            // A flood of them does not keep a turn from ending.
            let free = (0..2 * THINNED).filter(|_| !queue.record(source, invite)).count();
            assert_eq!(free, if counts { 0 } else { THINNED - 1 });
        }
    }

    #[test]
    fn handshakes_that_have_begun_come_before_new_ones_for_a_few_steps() {
        let mut queue = HandshakeQueue::default();
        for (number, steps) in [(2, 0), (4, 4), (6, 1), (8, 3), (1, 0), (10, 0), (3, 9)] {
            queue.push(ConnectionId::new(number).unwrap(), steps);
        }
        for number in [12, 5] {
            queue.push_back(ConnectionId::new(number).unwrap());
        }
        assert_eq!(queue.len(), 9);
        let order: Vec<_> =
            std::iter::from_fn(|| queue.pop_front()).map(ConnectionId::get).collect();
        assert_eq!(order, [1, 3, 5, 6, 8, 2, 4, 10, 12]);
        assert!(queue.is_empty());
    }
}
