//! The ingress: what waits where, decided before anything is parsed in full.

use std::collections::VecDeque;

use tidegate_sip::{Malformed, scan};
use tidegate_world::Received;

use crate::class::Class;
use crate::counters::Drop;
use crate::endpoint::Endpoint;

/// What became of a packet at the door.
pub(crate) enum Offered {
    /// It waits in the queue of its class.
    Queued(Class),
    /// It is gone.
    Dropped(Drop),
    /// There is no room for it, and its sender should know.
    Refused(Class, Received),
    /// It is a request that breaks the grammar.
    Malformed(Received, Malformed),
}

/// Bounded queues, one for each class.
pub(crate) struct Ingress {
    queues: [VecDeque<Received>; Class::ALL.len()],
    queue_max: usize,
    waiting: usize,
    closed: bool,
    /// Which of the queues of new work is served first; they take turns, or a flood
    /// of INVITEs would lock out every REGISTER.
    turn: usize,
}

/// Where the classes of new work begin.
const NEW_WORK: usize = Class::Invite as usize;
const NEW_WORK_CLASSES: usize = Class::ALL.len() - NEW_WORK;

impl Ingress {
    pub(crate) fn new(queue_max: usize) -> Self {
        Self { queues: Default::default(), queue_max, waiting: 0, closed: false, turn: 0 }
    }

    /// Messages that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Admits no new work from here on.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Classifies and queues a packet, or says what else is to be done with it.
    pub(crate) fn offer(&mut self, received: Received, endpoint: &Endpoint) -> Offered {
        let scan = match scan(&received.bytes) {
            Ok(scan) => scan,
            Err(Malformed::Keepalive) => return Offered::Dropped(Drop::Keepalive),
            Err(malformed) => return Offered::Malformed(received, malformed),
        };
        let class = Class::of(&scan, || endpoint.knows(&scan, &received.bytes));
        if class == Class::Ack && endpoint.is_ack_of_reply(&scan) {
            return Offered::Dropped(Drop::OwnAck);
        }
        if self.closed && class.is_new_work() {
            return Offered::Refused(class, received);
        }
        let queue = &mut self.queues[class as usize];
        if queue.len() >= self.queue_max {
            return if class.is_new_work() {
                Offered::Refused(class, received)
            } else {
                Offered::Dropped(Drop::QueueFull)
            };
        }
        queue.push_back(received);
        self.waiting += 1;
        Offered::Queued(class)
    }

    /// The next message to serve: what finishes work before what begins it.
    pub(crate) fn next(&mut self) -> Option<(Class, Received)> {
        if self.waiting == 0 {
            return None;
        }
        let finishing = 0..NEW_WORK;
        let beginning =
            (0..NEW_WORK_CLASSES).map(|k| NEW_WORK + (self.turn + k) % NEW_WORK_CLASSES);
        for i in finishing.chain(beginning) {
            if let Some(received) = self.queues[i].pop_front() {
                if i >= NEW_WORK {
                    self.turn = (i - NEW_WORK + 1) % NEW_WORK_CLASSES;
                }
                self.waiting -= 1;
                return Some((Class::ALL[i], received));
            }
        }
        unreachable!("waiting counts what is in the queues")
    }
}
