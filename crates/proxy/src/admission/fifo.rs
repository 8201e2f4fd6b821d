//! The single queue in which all messages wait with
//! [`Queueing::Fifo`](crate::settings::Queueing::Fifo).

use std::collections::VecDeque;

use tidegate_control::{Backlog, Bucket};
use tidegate_world::Received;

use super::waiting::Waiting;

/// A bounded queue of messages of all kinds, in the order of their arrival.
pub(super) struct Fifo {
    queue: VecDeque<Unsorted>,
    length_max: usize,
    /// Largest number of messages that the queue has held.
    peak: usize,
    backlog: Backlog,
}

/// A message in the single queue.
pub(super) enum Unsorted {
    /// A message that is read when its turn comes.
    Unread(Received),
    /// A message that was read when it arrived.
    Read(Waiting),
}

impl Fifo {
    pub(super) fn new(length_max: usize) -> Self {
        Self { queue: VecDeque::new(), length_max, peak: 0, backlog: Backlog::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn peak(&self) -> usize {
        self.peak
    }

    /// Returns the numbers of waiting messages: those that begin sessions, other messages, and
    /// unread messages, whose kind is not known.
    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Returns whether the queue has room for a message. The `beside` messages that wait in other
    /// queues count towards the limit too.
    pub(super) fn has_room(&self, beside: usize) -> bool {
        self.queue.len() + beside < self.length_max
    }

    /// Appends a message. The queue must have room.
    pub(super) fn push(&mut self, message: Unsorted) {
        debug_assert!(self.has_room(0), "the queue is full; ask `has_room` first");
        *count_of(&mut self.backlog, &message) += 1;
        self.queue.push_back(message);
        self.peak = self.peak.max(self.queue.len());
    }

    pub(super) fn pop(&mut self) -> Option<Unsorted> {
        let message = self.queue.pop_front()?;
        *count_of(&mut self.backlog, &message) -= 1;
        Some(message)
    }
}

/// Returns the field of `backlog` that counts messages of the same kind as `message`.
///
/// Neither a retransmission nor a single request such as a REGISTER begins a session.
fn count_of<'a>(backlog: &'a mut Backlog, message: &Unsorted) -> &'a mut usize {
    let begins_session = |waiting: &Waiting| {
        let ticket = waiting.ticket.as_ref().filter(|ticket| !ticket.is_again());
        ticket.is_some_and(|ticket| ticket.bucket() != Bucket::Single)
    };
    match message {
        Unsorted::Unread(_) => &mut backlog.unread,
        Unsorted::Read(waiting) if begins_session(waiting) => &mut backlog.sessions,
        Unsorted::Read(_) => &mut backlog.others,
    }
}
