//! The lanes in which messages wait, and the order in which they are emptied.

use std::collections::VecDeque;

use tidegate_control::QueueOrder;

use super::invites::{Cancelled, Invites};
use super::waiting::{QueueClass, Waiting};

/// Bounded queues, one for each lane.
pub(crate) struct ClassQueues {
    /// All but those of INVITEs, which stand apart.
    queues: [VecDeque<Waiting>; QueueClass::ALL.len()],
    priority: Invites,
    invites: Invites,
    length_max: usize,
    /// Messages in all of them.
    waiting: usize,
    /// Which lane of new work is served first; they take turns, or a flood of INVITEs
    /// would lock out every REGISTER.
    turn: usize,
    /// Messages served since the last of new work.
    ahead: usize,
}

/// Messages that finish work served before one that begins it, while such wait.
const AHEAD_MAX: usize = 15;

impl ClassQueues {
    /// Lanes of up to `length_max` messages each.
    pub(crate) fn new(length_max: usize) -> Self {
        Self {
            queues: Default::default(),
            priority: Invites::default(),
            invites: Invites::default(),
            length_max,
            waiting: 0,
            turn: 0,
            ahead: 0,
        }
    }

    /// Messages that wait in all of them.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Messages that wait where nothing proves that they belong to a call.
    pub(crate) fn unverified(&self) -> usize {
        self.queues[QueueClass::Unverified as usize].len()
    }

    /// Messages that wait in a lane of what finishes work.
    pub(crate) fn finishing(&self, queue_class: QueueClass) -> usize {
        self.queues[queue_class as usize].len()
    }

    /// New INVITEs that wait their turn.
    pub(crate) fn invites(&self) -> usize {
        self.invites.len()
    }

    pub(crate) fn has_room(&self, queue_class: QueueClass) -> bool {
        let length = match queue_class {
            QueueClass::Priority => self.priority.len(),
            QueueClass::Invites => self.invites.len(),
            _ => self.queues[queue_class as usize].len(),
        };
        length < self.length_max
    }

    /// Puts a message at the end of its lane, which must have room.
    pub(crate) fn push(&mut self, waiting: Waiting) {
        debug_assert!(self.has_room(waiting.queue_class), "whoever queues looks first");
        match waiting.queue_class {
            QueueClass::Priority => self.priority.push(waiting),
            QueueClass::Invites => self.invites.push(waiting),
            queue_class => self.queues[queue_class as usize].push_back(waiting),
        }
        self.waiting += 1;
    }

    /// Returns whether a new INVITE with this fingerprint waits.
    pub(crate) fn has_invite(&self, fingerprint: u64) -> bool {
        self.priority.has(fingerprint) || self.invites.has(fingerprint)
    }

    /// Puts a CANCEL behind its INVITE, if that waits; they have the fingerprint in common.
    pub(crate) fn push_cancel(&mut self, fingerprint: u64, cancel: Waiting) -> Cancelled {
        let done = match self.priority.push_cancel(fingerprint, cancel) {
            Cancelled::Elsewhere(cancel) => self.invites.push_cancel(fingerprint, cancel),
            there => there,
        };
        self.waiting += usize::from(matches!(done, Cancelled::Waits));
        done
    }

    /// The next new INVITE, or the CANCEL of the last: those of priority first, the others in this
    /// order and only if one may be released.
    pub(crate) fn next_invite(&mut self, order: QueueOrder, may_release: bool) -> Option<Waiting> {
        let next = self.priority.pop(QueueOrder::Fifo, true);
        let next = next.or_else(|| self.invites.pop(order, may_release))?;
        self.waiting -= 1;
        Some(next)
    }

    /// The next message: what finishes work before what begins it, and at last what is not known
    /// to do either. New INVITEs in this order, and only if one may be released.
    pub(crate) fn next(&mut self, order: QueueOrder, may_release: bool) -> Option<Waiting> {
        if self.waiting == 0 {
            return None;
        }
        // Anybody can send a BYE or what looks like a response: a flood of them must not
        // keep all new work out.
        let is_turn_of_new = self.ahead >= AHEAD_MAX;
        let found = if is_turn_of_new {
            self.next_new(order, may_release).or_else(|| self.next_finishing())
        } else {
            self.next_finishing().or_else(|| self.next_new(order, may_release))
        };
        // Strictly behind: who sends it may be anybody, and as many as he likes.
        let found = found.or_else(|| self.queues[QueueClass::Unverified as usize].pop_front())?;
        self.waiting -= 1;
        Some(found)
    }

    fn next_finishing(&mut self) -> Option<Waiting> {
        let finishing = 0..QueueClass::Priority as usize;
        let found =
            finishing.into_iter().find_map(|queue_class| self.queues[queue_class].pop_front())?;
        self.ahead += 1;
        Some(found)
    }

    fn next_new(&mut self, order: QueueOrder, may_release: bool) -> Option<Waiting> {
        // What has priority takes no turn from others: it is no more than its cap.
        if let Some(found) = self.priority.pop(QueueOrder::Fifo, true) {
            self.ahead += 1;
            return Some(found);
        }
        for k in 0..QueueClass::NEW_WORK_QUEUES {
            let turn = (self.turn + k) % QueueClass::NEW_WORK_QUEUES;
            let queue_class = QueueClass::NEW_WORK + turn;
            let found = match queue_class {
                queue_class if queue_class == QueueClass::Invites as usize => {
                    self.invites.pop(order, may_release)
                }
                queue_class => self.queues[queue_class].pop_front(),
            };
            if found.is_some() {
                (self.turn, self.ahead) = (turn + 1, 0);
                return found;
            }
        }
        None
    }
}
