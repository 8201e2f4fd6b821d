//! Queues of waiting messages, and the order in which they are served.

use std::collections::VecDeque;

use tidegate_control::{INVITES_PER_REGISTER, QueueOrder};

use super::invites::{Cancelled, Invites};
use super::waiting::{QueueClass, Waiting};

pub(crate) struct ClassQueues {
    /// The queues of all classes except [`QueueClass::Priority`] and [`QueueClass::Invites`], which
    /// have their own fields.
    queues: [VecDeque<Waiting>; QueueClass::ALL.len()],
    priority: Invites,
    invites: Invites,
    length_max: usize,
    waiting: usize,
    /// Largest number of messages that one queue has held.
    peak: usize,
    /// Index, in [`TURNS`], of the queue of new work that is served next.
    turn: usize,
    /// Number of messages that were served since the last turn of new work without priority:
    /// messages of existing calls and transactions, and new INVITEs with priority.
    ahead: usize,
}

/// Maximum number of messages of existing calls and transactions, and of INVITEs with priority,
/// that are served before one message of other new work, while such work waits.
const AHEAD_MAX: usize = 15;

/// The queues of new work without priority, in the order of their turns. An empty queue leaves its
/// turn to the next one. So a flood of INVITEs does not block REGISTERs, and a flood of REGISTERs
/// takes no more than a quarter of the turns from INVITEs: a phone can register later, but a caller
/// waits. The kernel drops INVITEs and REGISTERs in the [same ratio](INVITES_PER_REGISTER).
const TURNS: [QueueClass; INVITES_PER_REGISTER + 2] = [
    QueueClass::Invites,
    QueueClass::Registrations,
    QueueClass::Invites,
    QueueClass::Others,
    QueueClass::Invites,
];

impl ClassQueues {
    /// Creates queues of up to `length_max` messages each.
    pub(crate) fn new(length_max: usize) -> Self {
        Self {
            queues: Default::default(),
            priority: Invites::default(),
            invites: Invites::default(),
            length_max,
            waiting: 0,
            peak: 0,
            turn: 0,
            ahead: 0,
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the largest number of messages that one queue has held. A CANCEL that waits with its
    /// INVITE does not count.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }

    pub(crate) fn unverified(&self) -> usize {
        self.queues[QueueClass::Unverified as usize].len()
    }

    /// Returns the number of waiting messages in the queue of `queue_class`, a class of messages
    /// that belong to existing calls and transactions.
    pub(crate) fn finishing(&self, queue_class: QueueClass) -> usize {
        self.queues[queue_class as usize].len()
    }

    /// Returns the number of waiting new INVITEs without priority.
    pub(crate) fn invites(&self) -> usize {
        self.invites.len()
    }

    pub(crate) fn has_room(&self, queue_class: QueueClass) -> bool {
        self.length(queue_class) < self.length_max
    }

    fn length(&self, queue_class: QueueClass) -> usize {
        match queue_class {
            QueueClass::Priority => self.priority.len(),
            QueueClass::Invites => self.invites.len(),
            _ => self.queues[queue_class as usize].len(),
        }
    }

    /// Appends a message to the queue of its class, which must have room.
    pub(crate) fn push(&mut self, waiting: Waiting) {
        let queue_class = waiting.queue_class;
        debug_assert!(self.has_room(queue_class), "the queue is full; ask `has_room` first");
        match queue_class {
            QueueClass::Priority => self.priority.push(waiting),
            QueueClass::Invites => self.invites.push(waiting),
            _ => self.queues[queue_class as usize].push_back(waiting),
        }
        self.waiting += 1;
        self.peak = self.peak.max(self.length(queue_class));
    }

    /// Returns whether a new INVITE with this fingerprint waits.
    pub(crate) fn has_invite(&self, fingerprint: u64) -> bool {
        self.priority.has(fingerprint) || self.invites.has(fingerprint)
    }

    /// Stores a CANCEL with its INVITE if that INVITE waits. Both have the same `fingerprint`.
    pub(crate) fn push_cancel(&mut self, fingerprint: u64, cancel: Waiting) -> Cancelled {
        let done = match self.priority.push_cancel(fingerprint, cancel) {
            Cancelled::Elsewhere(cancel) => self.invites.push_cancel(fingerprint, cancel),
            there => there,
        };
        self.waiting += usize::from(matches!(done, Cancelled::Waits));
        done
    }

    /// Returns the next new INVITE, or the CANCEL of the INVITE that was returned last. INVITEs
    /// with priority come first. INVITEs without priority come in the order `order`, and only if
    /// `may_release` is true.
    pub(crate) fn next_invite(&mut self, order: QueueOrder, may_release: bool) -> Option<Waiting> {
        let next = self.priority.pop(QueueOrder::Fifo, true);
        let next = next.or_else(|| self.invites.pop(order, may_release))?;
        self.waiting -= 1;
        Some(next)
    }

    /// Returns the next message. Messages of existing calls and transactions come before new work,
    /// and unverified messages come last. New INVITEs without priority come in the order `order`,
    /// and only if `may_release` is true.
    pub(crate) fn next(&mut self, order: QueueOrder, may_release: bool) -> Option<Waiting> {
        if self.waiting == 0 {
            return None;
        }
        // Anybody can send a BYE, or a message that looks like a response. A flood of them must not
        // keep out all new work.
        let is_turn_of_new = self.ahead >= AHEAD_MAX;
        let found = if is_turn_of_new {
            self.next_new(order, may_release).or_else(|| self.next_finishing())
        } else {
            self.next_finishing().or_else(|| self.next_new(order, may_release))
        };
        // Unverified messages are strictly last: anybody can send them, in any number.
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
        // A message with priority does not use up a turn, because the rate of such messages is
        // capped.
        if let Some(found) = self.priority.pop(QueueOrder::Fifo, true) {
            self.ahead += 1;
            return Some(found);
        }
        for k in 0..TURNS.len() {
            let turn = (self.turn + k) % TURNS.len();
            let found = match TURNS[turn] {
                QueueClass::Invites => self.invites.pop(order, may_release),
                queue_class => self.queues[queue_class as usize].pop_front(),
            };
            if found.is_some() {
                (self.turn, self.ahead) = (turn + 1, 0);
                return found;
            }
        }
        None
    }
}
