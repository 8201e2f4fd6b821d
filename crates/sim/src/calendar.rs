//! The calendar: what happens next.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use slab::Slab;
use tidegate_world::Timestamp;

/// Events in the order of their time, and of their entry where times are equal.
///
/// Events of one origin that are entered in the order of their times, as packets on a link
/// are, may be given a *lane*: they wait in a queue of their own, of which the heap knows only
/// the first. The order is the same, with a lane or without.
#[derive(Debug)]
pub struct Calendar<E> {
    heap: BinaryHeap<Reverse<Entry>>,
    /// Events without a lane: the heap moves small entries.
    loose: Slab<E>,
    lanes: Vec<VecDeque<(Moment, E)>>,
    sequence: u64,
    len: usize,
}

/// A time, and how many events had been entered by then: no two are equal.
type Moment = (Timestamp, u64);

/// Ordered by its moment.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    moment: Moment,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Loose(u32),
    Lane(u32),
}

impl<E> Calendar<E> {
    /// A calendar without events.
    pub fn new() -> Self {
        let (heap, loose, lanes) = Default::default();
        Self { heap, loose, lanes, sequence: 0, len: 0 }
    }

    /// Enters `event` at `at`.
    pub fn push(&mut self, at: Timestamp, event: E) {
        let moment = self.enter(at);
        self.push_loose(moment, event);
    }

    /// Enters `event` at `at`, in lane `lane` if none later is there. Lanes are numbered from
    /// 0; their queues are made when first used.
    pub fn push_in(&mut self, lane: u32, at: Timestamp, event: E) {
        let moment = self.enter(at);
        let index = lane as usize;
        if index >= self.lanes.len() {
            self.lanes.resize_with(index + 1, VecDeque::new);
        }
        let queue = &mut self.lanes[index];
        match queue.back() {
            Some((last, _)) if last.0 > at => self.push_loose(moment, event),
            Some(_) => queue.push_back((moment, event)),
            None => {
                queue.push_back((moment, event));
                self.heap.push(Reverse(Entry { moment, place: Place::Lane(lane) }));
            }
        }
    }

    /// The next event, and when it is.
    pub fn peek(&self) -> Option<(Timestamp, &E)> {
        let Reverse(Entry { moment, place }) = self.heap.peek()?;
        let event = match *place {
            Place::Loose(slot) => &self.loose[slot as usize],
            Place::Lane(lane) => &self.lanes[lane as usize].front().expect(FIRST).1,
        };
        Some((moment.0, event))
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Timestamp, E)> {
        self.pop_by(Timestamp::NEVER)
    }

    /// Takes the next event, if it is at `end` or earlier.
    #[inline]
    pub fn pop_by(&mut self, end: Timestamp) -> Option<(Timestamp, E)> {
        let mut top = self.heap.peek_mut()?;
        let Entry { moment, place } = top.0;
        if moment.0 > end {
            return None;
        }
        self.len -= 1;
        let event = match place {
            Place::Loose(slot) => {
                PeekMut::pop(top);
                self.loose.remove(slot as usize)
            }
            Place::Lane(lane) => {
                let queue = &mut self.lanes[lane as usize];
                let (_, event) = queue.pop_front().expect(FIRST);
                match queue.front() {
                    Some((next, _)) => top.0.moment = *next,
                    None => drop(PeekMut::pop(top)),
                }
                event
            }
        };
        Some((moment.0, event))
    }

    /// How many events are entered.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn enter(&mut self, at: Timestamp) -> Moment {
        self.sequence += 1;
        self.len += 1;
        (at, self.sequence)
    }

    fn push_loose(&mut self, moment: Moment, event: E) {
        let slot = u32::try_from(self.loose.insert(event)).expect("fewer than 2^32 events");
        self.heap.push(Reverse(Entry { moment, place: Place::Loose(slot) }));
    }
}

/// The invariant of a lane's entry in the heap.
const FIRST: &str = "the heap knows a lane by the first of its queue";

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_times_keep_their_order() {
        let mut calendar = Calendar::new();
        for (lane, at, event) in [
            (None, 5, 'c'),
            (Some(0), 3, 'a'),
            (Some(0), 5, 'd'),
            (None, 3, 'b'),
            (Some(1), 9, 'e'),
        ] {
            let at = Timestamp::from_nanos(at);
            match lane {
                Some(lane) => calendar.push_in(lane, at, event),
                None => calendar.push(at, event),
            }
        }
        let order: String = std::iter::from_fn(|| calendar.pop()).map(|(_, e)| e).collect();
        assert_eq!(order, "abcde");
    }

    /// What is done to a calendar.
    #[derive(Clone, Debug)]
    enum Step {
        Push { lane: Option<u32>, at: u64 },
        Pop { by: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let push =
            (prop::option::of(0..4u32), 0..50u64).prop_map(|(lane, at)| Step::Push { lane, at });
        prop_oneof![3 => push, 2 => (0..60u64).prop_map(|by| Step::Pop { by })]
    }

    proptest! {
        /// The order is that of a sorted list of (time, number of the entry), whatever is in
        /// a lane, in order or not.
        #[test]
        fn the_order_is_that_of_time_and_entry(steps in prop::collection::vec(step(), 0..300)) {
            let mut calendar = Calendar::new();
            let mut list: Vec<(Timestamp, usize)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push { lane, at } => {
                        let at = Timestamp::from_nanos(at);
                        list.push((at, number));
                        match lane {
                            Some(lane) => calendar.push_in(lane, at, number),
                            None => calendar.push(at, number),
                        }
                    }
                    Step::Pop { by } => {
                        let by = Timestamp::from_nanos(by);
                        list.sort();
                        let first = list.first().copied();
                        prop_assert_eq!(calendar.peek().map(|(at, &event)| (at, event)), first);
                        let due = first.filter(|(at, _)| *at <= by);
                        prop_assert_eq!(calendar.pop_by(by), due);
                        list.drain(..usize::from(due.is_some()));
                    }
                }
                prop_assert_eq!(calendar.len(), list.len());
                prop_assert_eq!(calendar.is_empty(), list.is_empty());
            }
            list.sort();
            let rest: Vec<_> = std::iter::from_fn(|| calendar.pop()).collect();
            prop_assert_eq!(rest, list);
        }
    }
}
