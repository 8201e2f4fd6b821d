//! The calendar: what happens next.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tidegate_world::Timestamp;

/// Events in the order of their time, and of their entry where times are equal.
#[derive(Debug)]
pub struct Calendar<E> {
    heap: BinaryHeap<Entry<E>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Timestamp,
    sequence: u64,
    event: E,
}

impl<E> Calendar<E> {
    /// A calendar without events.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    /// Enters `event` at `at`.
    pub fn push(&mut self, at: Timestamp, event: E) {
        self.sequence += 1;
        self.heap.push(Entry { at, sequence: self.sequence, event });
    }

    /// The next event, and when it is.
    pub fn peek(&self) -> Option<(Timestamp, &E)> {
        self.heap.peek().map(|entry| (entry.at, &entry.event))
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Timestamp, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// How many events are entered.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        // BinaryHeap yields the greatest; we want the earliest.
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_their_order() {
        let mut calendar = Calendar::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            calendar.push(Timestamp::from_nanos(at), event);
        }
        let order: String = std::iter::from_fn(|| calendar.pop()).map(|(_, e)| e).collect();
        assert_eq!(order, "abcde");
    }
}
