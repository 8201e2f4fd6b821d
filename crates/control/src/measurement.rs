//! Measurements by count of messages: when one is due, and the last of them.
//!
//! 000 §4.1.1 takes one every `measure` messages, so that it costs the same share of each. At
//! night 125 messages take long: a measurement is also due after a second, whatever has come.
//! Who measures so asks for a tick of [`PATIENCE`], since without messages nobody else asks.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_world::Timestamp;

/// The longest time between two measurements, in whatever few messages.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// When measurements are due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cadence {
    every: u64,
    /// The last one: when, and at how many messages.
    taken: (Timestamp, u64),
}

impl Cadence {
    /// One every so many messages, and at least one a second.
    pub(crate) fn new(every: u64) -> Self {
        Self { every, taken: (Timestamp::ZERO, 0) }
    }

    /// Whether one is due, when `messages` have arrived since the start.
    pub(crate) fn is_due(&self, now: Timestamp, messages: u64) -> bool {
        messages - self.taken.1 >= self.every || now.since(self.taken.0) >= PATIENCE
    }

    /// One was taken. Gives how many messages have arrived since the one before.
    pub(crate) fn on_taken(&mut self, now: Timestamp, messages: u64) -> u64 {
        let (_, before) = std::mem::replace(&mut self.taken, (now, messages));
        messages - before
    }
}

/// The last `k` measurements of what only grows, such as time or counts.
#[derive(Clone, Debug)]
pub(crate) struct Trail<T> {
    k: usize,
    /// Oldest first, and fewer than k.
    taken: VecDeque<T>,
}

impl<T: Copy> Trail<T> {
    /// Of `k` measurements, 2 at least: k − 1 intervals.
    pub(crate) fn new(k: usize) -> Self {
        Self { k, taken: VecDeque::with_capacity(k) }
    }

    /// The newest there was; `None` if there was none since the start or since it was cleared.
    pub(crate) fn newest(&self) -> Option<T> {
        self.taken.back().copied()
    }

    /// Adds the newest. Gives the oldest of the last k; `None` before there are so many.
    pub(crate) fn push(&mut self, newest: T) -> Option<T> {
        self.taken.push_back(newest);
        if self.taken.len() < self.k { None } else { self.taken.pop_front() }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.taken.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn one_is_due_after_so_many_messages_or_a_second() {
        let mut cadence = Cadence::new(10);
        assert!(!cadence.is_due(at(500), 9));
        assert!(cadence.is_due(at(500), 10));
        assert_eq!(cadence.on_taken(at(500), 12), 12);
        assert!(!cadence.is_due(at(1499), 21));
        assert!(cadence.is_due(at(1499), 22));
        assert!(cadence.is_due(at(1500), 12));
        assert_eq!(cadence.on_taken(at(1500), 13), 1);
    }

    #[test]
    fn the_oldest_of_the_last_k_is_k_minus_one_intervals_back() {
        let mut trail = Trail::new(3);
        assert_eq!(trail.newest(), None);
        assert_eq!(trail.push(1), None);
        assert_eq!(trail.push(2), None);
        assert_eq!(trail.push(3), Some(1));
        assert_eq!(trail.push(4), Some(2));
        assert_eq!(trail.newest(), Some(4));
        trail.clear();
        assert_eq!((trail.newest(), trail.push(5)), (None, None));
    }
}
