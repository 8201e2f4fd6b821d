//! The ingress: what waits where, decided before anything is parsed in full.

use std::collections::VecDeque;

use tidegate_sip::{Malformed, Scan, scan};
use tidegate_world::Received;

use crate::class::Class;
use crate::counters::DropReason;
use crate::endpoint::Endpoint;

/// What became of a packet at the door.
pub(crate) enum Offered {
    /// It waits to be served.
    Queued(Class),
    /// It is gone.
    Dropped(DropReason),
    /// There is no room for it, and its sender should know.
    Refused(Class, Received),
    /// It is a request that breaks the grammar.
    Malformed(Received, Malformed),
}

/// The queues, in the order in which they are served.
///
/// Several classes share one where their order among each other matters: a 180 must
/// not be overtaken by the 200 behind it, nor an ACK by the BYE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Responses.
    Responses,
    /// Requests that belong to a call.
    InProgress,
    /// New INVITEs.
    Invites,
    /// Registrations.
    Registrations,
    /// Other new requests.
    Others,
}

impl Lane {
    const ALL: [Self; 5] =
        [Self::Responses, Self::InProgress, Self::Invites, Self::Registrations, Self::Others];

    /// Where the lanes of new work begin, and how many they are.
    const NEW_WORK: usize = Self::Invites as usize;
    const NEW_WORK_LANES: usize = Self::ALL.len() - Self::NEW_WORK;

    fn of(class: Class, scan: &Scan<'_>, endpoint: &Endpoint) -> Self {
        match class {
            Class::Final | Class::Provisional => Self::Responses,
            // The CANCEL of an INVITE that still waits must not be served before it.
            Class::Cancel if !endpoint.holds(scan) => Self::Invites,
            Class::Ack | Class::Bye | Class::Cancel | Class::InDialog => Self::InProgress,
            Class::Invite => Self::Invites,
            Class::Register => Self::Registrations,
            Class::Other => Self::Others,
        }
    }
}

/// Bounded queues, one for each lane.
pub(crate) struct Ingress {
    queues: [VecDeque<Received>; Lane::ALL.len()],
    queue_max: usize,
    waiting: usize,
    closed: bool,
    /// Which lane of new work is served first; they take turns, or a flood of INVITEs
    /// would lock out every REGISTER.
    turn: usize,
}

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
            Err(Malformed::Keepalive) => return Offered::Dropped(DropReason::Keepalive),
            Err(malformed) => return Offered::Malformed(received, malformed),
        };
        let class = Class::of(&scan, || endpoint.knows(&scan, &received.bytes));
        if class == Class::Ack && endpoint.is_ack_of_reply(&scan) {
            return Offered::Dropped(DropReason::OwnAck);
        }
        if self.closed && class.is_new_work() {
            return Offered::Refused(class, received);
        }
        let queue = &mut self.queues[Lane::of(class, &scan, endpoint) as usize];
        if queue.len() >= self.queue_max {
            return if class.is_new_work() {
                Offered::Refused(class, received)
            } else {
                Offered::Dropped(DropReason::QueueFull)
            };
        }
        queue.push_back(received);
        self.waiting += 1;
        Offered::Queued(class)
    }

    /// The next message to serve: what finishes work before what begins it.
    pub(crate) fn next(&mut self) -> Option<(Lane, Received)> {
        if self.waiting == 0 {
            return None;
        }
        let turn = |k| Lane::NEW_WORK + (self.turn + k) % Lane::NEW_WORK_LANES;
        let lanes = (0..Lane::NEW_WORK).chain((0..Lane::NEW_WORK_LANES).map(turn));
        for lane in lanes {
            if let Some(received) = self.queues[lane].pop_front() {
                if lane >= Lane::NEW_WORK {
                    self.turn = (lane - Lane::NEW_WORK + 1) % Lane::NEW_WORK_LANES;
                }
                self.waiting -= 1;
                return Some((Lane::ALL[lane], received));
            }
        }
        unreachable!("waiting counts what is in the queues")
    }
}
