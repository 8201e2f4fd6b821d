//! Queues of waiting messages, and the order in which they are served.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::{INVITES_PER_REGISTER, QueueControl, QueueOrder};
use tidegate_world::Timestamp;

use super::invites::{Cancelled, Invites};
use super::turns::Turns;
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
    turns: Turns,
}

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
    /// Creates queues of up to `length_max` messages each, for a proxy with this T1 (RFC 3261
    /// §17.1.1.1).
    pub(crate) fn new(length_max: usize, t1: Duration) -> Self {
        Self {
            queues: Default::default(),
            priority: Invites::default(),
            invites: Invites::default(),
            length_max,
            waiting: 0,
            peak: 0,
            turn: 0,
            turns: Turns::new(t1),
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
    /// except when new work has a [turn](Turns). Unverified messages come last. New INVITEs without
    /// priority come in the order that `control` sets, and only if `may_release` is true.
    pub(crate) fn next(
        &mut self,
        now: Timestamp,
        control: &QueueControl,
        may_release: bool,
    ) -> Option<Waiting> {
        let order = control.order;
        if self.waiting == 0 {
            self.turns.relax(now);
            return None;
        }
        let is_turn_of_new = if control.takes_turns {
            self.turns.is_of_new(now, self.finishing_wait(now))
        } else {
            self.turns.relax(now);
            self.turns.is_rarely_of_new()
        };
        let found = if is_turn_of_new {
            self.next_new(now, order, may_release).or_else(|| self.next_finishing(now))
        } else {
            self.next_finishing(now).or_else(|| self.next_new(now, order, may_release))
        };
        // Unverified messages are strictly last: anybody can send them, in any number.
        let found = found.or_else(|| self.queues[QueueClass::Unverified as usize].pop_front())?;
        self.waiting -= 1;
        Some(found)
    }

    /// Returns the longest wait of a message of an existing call or transaction.
    fn finishing_wait(&self, now: Timestamp) -> Duration {
        let oldest =
            self.queues[..QueueClass::Priority as usize].iter().filter_map(VecDeque::front);
        oldest.map(|waiting| now.since(waiting.received.arrived)).max().unwrap_or_default()
    }

    fn next_finishing(&mut self, now: Timestamp) -> Option<Waiting> {
        let finishing = 0..QueueClass::Priority as usize;
        let found =
            finishing.into_iter().find_map(|queue_class| self.queues[queue_class].pop_front())?;
        self.turns.on_finishing(now);
        Some(found)
    }

    fn next_new(
        &mut self,
        now: Timestamp,
        order: QueueOrder,
        may_release: bool,
    ) -> Option<Waiting> {
        // A message with priority does not use up a turn, because the rate of such messages is
        // capped.
        if let Some(found) = self.priority.pop(QueueOrder::Fifo, true) {
            self.turns.on_priority();
            return Some(found);
        }
        for k in 0..TURNS.len() {
            let turn = (self.turn + k) % TURNS.len();
            let found = match TURNS[turn] {
                QueueClass::Invites => self.invites.pop(order, may_release),
                queue_class => self.queues[queue_class as usize].pop_front(),
            };
            if found.is_some() {
                self.turn = turn + 1;
                self.turns.on_new(now);
                return found;
            }
        }
        None
    }
}
