//! The order in which the driver reads connections and takes steps of their handshakes.

use std::collections::VecDeque;

use tidegate_world::ConnectionId;

/// The queue of connections that may have something to read.
///
/// Connections that the core has opened and connections of peers take turns, so that callers with
/// many connections cannot delay the responses of back ends.
#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    opened: VecDeque<ConnectionId>,
    accepted: VecDeque<ConnectionId>,
    /// True if the next turn goes to a connection that the core has opened, provided that such a
    /// connection waits.
    opened_is_next: bool,
}

impl ReadQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.accepted.is_empty()
    }

    /// Adds a connection. It must not be in the queue.
    pub(super) fn push_back(&mut self, id: ConnectionId) {
        if id.is_opened() { &mut self.opened } else { &mut self.accepted }.push_back(id);
    }

    /// Returns the connection whose turn it is. This connection stays the same until its turn ends.
    pub(super) fn front(&self) -> Option<ConnectionId> {
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

    /// Ends the turn of the front connection. It is read again after the other connections.
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

/// Number of steps for which a handshake that has begun takes precedence over new handshakes. A
/// peer that sends whole handshake messages needs no more steps. A peer that sends single bytes
/// loses its precedence.
const STEPS: u8 = 4;

/// The queue of connections whose handshake may have something to read.
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

    /// Adds a connection whose handshake has taken `steps` steps. The connection must not be in the
    /// queue.
    pub(super) fn push(&mut self, id: ConnectionId, steps: u8) {
        let queue = match steps {
            _ if id.is_opened() => &mut self.opened,
            1..STEPS => &mut self.begun,
            _ => &mut self.others,
        };
        queue.push_back(id);
    }

    /// Adds a connection that has more bytes than one step of its handshake reads. The connection
    /// must not be in the queue. A connection of a peer is queued like a new handshake.
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
        let mut queue = ReadQueue::default();
        let id = |number| ConnectionId::new(number).unwrap();
        // Connections with odd numbers are those that the core opens.
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
