//! The ingress: what waits where, decided before anything is parsed in full.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use tidegate_sip::{Malformed, ScanStart, glance, scan};
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

    fn of(class: Class) -> Self {
        match class {
            Class::Final | Class::Provisional => Self::Responses,
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
    /// Messages served since the last of new work.
    ahead: usize,
}

/// Messages that finish work served before one that begins it, while such wait.
const AHEAD_MAX: usize = 15;

impl Ingress {
    pub(crate) fn new(queue_max: usize) -> Self {
        Self { queues: Default::default(), queue_max, waiting: 0, closed: false, turn: 0, ahead: 0 }
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
        let (class, lane) = match classify(&received, endpoint) {
            Ok(classified) => classified,
            Err(Unclassified::Dropped(why)) => return Offered::Dropped(why),
            Err(Unclassified::Malformed(malformed)) => {
                return Offered::Malformed(received, malformed);
            }
        };
        if self.closed && class.is_new_work() {
            return Offered::Refused(class, received);
        }
        let queue = &mut self.queues[lane as usize];
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
        let finishing = 0..Lane::NEW_WORK;
        let beginning = (0..Lane::NEW_WORK_LANES).map(turn);
        // Anybody can send a BYE or what looks like a response: a flood of them must not
        // keep all new work out.
        let lanes: ArrayVec<usize, { Lane::ALL.len() }> = if self.ahead < AHEAD_MAX {
            finishing.chain(beginning).collect()
        } else {
            beginning.chain(finishing).collect()
        };
        for lane in lanes {
            if let Some(received) = self.queues[lane].pop_front() {
                self.ahead += 1;
                if lane >= Lane::NEW_WORK {
                    self.turn = lane - Lane::NEW_WORK + 1;
                    self.ahead = 0;
                }
                self.waiting -= 1;
                return Some((Lane::ALL[lane], received));
            }
        }
        unreachable!("waiting counts what is in the queues")
    }
}

/// Why a packet has no class.
enum Unclassified {
    Dropped(DropReason),
    Malformed(Malformed),
}

impl From<Malformed> for Unclassified {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Keepalive => Self::Dropped(DropReason::Keepalive),
            other => Self::Malformed(other),
        }
    }
}

/// The class of a packet and where it waits, read from as little of it as will do.
fn classify(received: &Received, endpoint: &Endpoint) -> Result<(Class, Lane), Unclassified> {
    let start = glance(&received.bytes)?;
    let by_start = Class::of_start(&start);
    if let Some(class @ (Class::Final | Class::Provisional | Class::Bye)) = by_start {
        return Ok((class, Lane::of(class)));
    }
    let scan = scan(&received.bytes)?;
    let ScanStart::Request { method, .. } = scan.start else {
        unreachable!("responses have a class by their start line")
    };
    let class =
        by_start.unwrap_or_else(|| Class::of_request(method, endpoint.knows(&scan, received)));
    match class {
        Class::Ack if endpoint.is_ack_of_reply(&scan) => {
            Err(Unclassified::Dropped(DropReason::OwnAck))
        }
        // The CANCEL of an INVITE that still waits must not be served before it.
        Class::Cancel if !endpoint.holds(&scan) => Ok((class, Lane::Invites)),
        _ => Ok((class, Lane::of(class))),
    }
}
