//! A calendar of future events.

use std::cell::RefCell;

use slab::Slab;

use crate::{Timers, Timestamp};

/// A queue of events in the order of their times. Events with equal times are in the order of
/// insertion.
///
/// Time does not go back. An event is due at once if its time is earlier than that of the last
/// event that was removed.
#[derive(Debug)]
pub struct Calendar<E> {
    /// The slot of each event in `events`, in the order of the events' times. Moving these small
    /// indices costs less than moving the events.
    order: Timers<u32>,
    events: Slab<E>,
}

impl<E> Calendar<E> {
    /// Creates a calendar without events.
    pub fn new() -> Self {
        Self { order: Timers::new(), events: Slab::new() }
    }

    /// Inserts an event that is due at the time `at`.
    pub fn push(&mut self, at: Timestamp, event: E) {
        let place = u32::try_from(self.events.insert(event)).expect("fewer than 2^32 events");
        self.order.push(at, place);
    }

    /// Returns the time of the next event, or `None` if there is no event.
    pub fn next(&self) -> Option<Timestamp> {
        self.order.next()
    }

    /// Returns the next event and its time, or `None` if there is no event.
    pub fn peek(&self) -> Option<(Timestamp, &E)> {
        self.order.peek().map(|(at, place)| (at, &self.events[place as usize]))
    }

    /// Removes and returns the next event with its time, if there is one.
    pub fn pop(&mut self) -> Option<(Timestamp, E)> {
        self.pop_by(Timestamp::NEVER)
    }

    /// Removes and returns the next event with its time, if this time is `end` or earlier.
    #[inline]
    pub fn pop_by(&mut self, end: Timestamp) -> Option<(Timestamp, E)> {
        let (at, place) = self.order.pop(end)?;
        Some((at, self.events.remove(place as usize)))
    }

    /// Removes the events for which `counts` returns false. This does not advance the time.
    pub fn retain(&mut self, counts: impl Fn(Timestamp, &E) -> bool) {
        let dropped = RefCell::new(Vec::new());
        let events = &self.events;
        self.order.retain(|at, place| {
            let counts = counts(at, &events[place as usize]);
            if !counts {
                dropped.borrow_mut().push(place);
            }
            counts
        });
        for place in dropped.into_inner() {
            self.events.remove(place as usize);
        }
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_equal_times_keep_their_order() {
        let mut calendar = Calendar::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            calendar.push(Timestamp::from_nanos(at), event);
        }
        assert_eq!(calendar.peek(), Some((Timestamp::from_nanos(3), &'a')));
        assert_eq!((calendar.next(), calendar.len()), (Some(Timestamp::from_nanos(3)), 5));
        assert_eq!(calendar.pop_by(Timestamp::from_nanos(2)), None);
        let order: String = std::iter::from_fn(|| calendar.pop()).map(|(_, e)| e).collect();
        assert_eq!(order, "abcde");
        assert!(calendar.is_empty());
    }

    #[test]
    fn dropped_entries_do_not_advance_time() {
        let mut calendar = Calendar::new();
        let at = Timestamp::from_nanos;
        for (time, event) in [(5, 'a'), (900, 'b'), (7, 'c')] {
            calendar.push(at(time), event);
        }
        calendar.retain(|time, event| time != at(5) && *event != 'b');
        assert_eq!((calendar.len(), calendar.pop()), (1, Some((at(7), 'c'))));
        calendar.push(at(500), 'd');
        calendar.retain(|_, _| false);
        for (time, event) in [(30, 'e'), (20, 'f')] {
            calendar.push(at(time), event);
        }
        assert_eq!([calendar.pop(), calendar.pop()], [Some((at(20), 'f')), Some((at(30), 'e'))]);
    }
}
