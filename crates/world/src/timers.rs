//! Which timer fires next.
//!
//! A radix heap: R. K. Ahuja, K. Mehlhorn, J. B. Orlin, R. E. Tarjan, "Faster algorithms for the
//! shortest flow problem", Journal of the ACM 37(2), 1990. Time never goes back, so a timer need
//! only be told from the others as far as it is near. Of 100,000 timers that stand 32 s ahead, as
//! those of transactions that are over do, a heap ordered by comparison touches a part of each of
//! its levels to take one out, few of them in the cache; here each timer is moved a few times,
//! from one end of an array to the end of another.

use std::collections::VecDeque;

use crate::Timestamp;

/// Buckets beside that of the timers that are due: one a bit of a time.
const BUCKETS: usize = u64::BITS as usize;

/// Timers for which an emptied bucket keeps room, however few it held.
const ROOM_MIN: usize = 64;

/// Timers in the order in which they fire; of those that fire together, in the order in which
/// they were set.
///
/// There is no taking one out early: it is left behind, and whoever it names no longer wants it
/// when it fires, or it goes with [`retain`](Self::retain).
#[derive(Debug)]
pub struct Timers<K> {
    /// When the last one fired. All others fire then or later.
    last: u64,
    /// Those that fire at `last`, and those set for earlier since.
    due: VecDeque<(Timestamp, K)>,
    /// Bucket `b` has those whose time differs from `last` in bit `b`, and in no higher one.
    buckets: [Bucket<K>; BUCKETS],
    /// Bit `b` is set if bucket `b` is not empty.
    occupied: u64,
    len: usize,
}

#[derive(Debug)]
struct Bucket<K> {
    first: Timestamp,
    timers: Vec<(Timestamp, K)>,
}

impl<K: Copy> Timers<K> {
    /// No timers, at the beginning of time.
    pub fn new() -> Self {
        Self {
            last: 0,
            due: VecDeque::new(),
            buckets: [const { Bucket::empty() }; BUCKETS],
            occupied: 0,
            len: 0,
        }
    }

    /// Sets a timer. One set for earlier than the last that fired is due at once.
    pub fn push(&mut self, at: Timestamp, key: K) {
        self.len += 1;
        self.enter(at, key);
    }

    /// How many are set, with those left behind.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When the first one fires.
    #[inline]
    pub fn next(&self) -> Option<Timestamp> {
        match self.due.front() {
            Some(&(at, _)) => Some(at),
            None => self.buckets.get(self.occupied.trailing_zeros() as usize).map(|b| b.first),
        }
    }

    /// The first one. It may take a look at each that is as near: [`next`](Self::next) does not.
    pub fn peek(&self) -> Option<(Timestamp, K)> {
        let first = |bucket: &Bucket<K>| {
            bucket.timers.iter().find(|timer| timer.0 == bucket.first).copied()
        };
        match self.due.front() {
            Some(&timer) => Some(timer),
            None => self.buckets.get(self.occupied.trailing_zeros() as usize).and_then(first),
        }
    }

    /// The first one, if it fires by `now`.
    pub fn pop(&mut self, now: Timestamp) -> Option<(Timestamp, K)> {
        if self.next()? > now {
            return None;
        }
        if self.due.is_empty() {
            self.advance();
        }
        self.len -= 1;
        self.due.pop_front()
    }

    /// Drops those for which `counts` is false.
    pub fn retain(&mut self, counts: impl Fn(Timestamp, K) -> bool) {
        self.due.retain(|&(at, key)| counts(at, key));
        self.len = self.due.len();
        for (bit, bucket) in self.buckets.iter_mut().enumerate() {
            bucket.timers.retain(|&(at, key)| counts(at, key));
            bucket.first =
                bucket.timers.iter().map(|timer| timer.0).min().unwrap_or(Timestamp::NEVER);
            bucket.give_up_room(bucket.timers.len());
            if bucket.timers.is_empty() {
                self.occupied &= !(1 << bit);
            }
            self.len += bucket.timers.len();
        }
    }

    /// Goes on to when the next one fires: what shared its bucket now differs in a lower bit.
    fn advance(&mut self) {
        let bit = self.occupied.trailing_zeros();
        let Some(bucket) = self.buckets.get_mut(bit as usize) else { return };
        self.last = bucket.first.as_nanos();
        self.occupied &= !(1 << bit);
        bucket.first = Timestamp::NEVER;
        let mut timers = std::mem::take(&mut bucket.timers);
        let held = timers.len();
        for (at, key) in timers.drain(..) {
            self.enter(at, key);
        }
        let bucket = &mut self.buckets[bit as usize];
        bucket.timers = timers;
        bucket.give_up_room(held);
    }

    #[inline]
    fn enter(&mut self, at: Timestamp, key: K) {
        if at.as_nanos() <= self.last {
            self.due.push_back((at, key));
            return;
        }
        let bit = (at.as_nanos() ^ self.last).ilog2();
        let bucket = &mut self.buckets[bit as usize];
        bucket.first = bucket.first.min(at);
        bucket.timers.push((at, key));
        self.occupied |= 1 << bit;
    }
}

impl<K> Bucket<K> {
    const fn empty() -> Self {
        Self { first: Timestamp::NEVER, timers: Vec::new() }
    }

    /// Keeps room for twice as many as it held, so that a crowd is not remembered for ever.
    fn give_up_room(&mut self, held: usize) {
        let room = 2 * held.max(ROOM_MIN);
        if self.timers.capacity() > 2 * room {
            self.timers.shrink_to(room);
        }
    }
}

impl<K: Copy> Default for Timers<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ns: u64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    #[test]
    fn timers_that_fire_together_fire_in_the_order_in_which_they_were_set() {
        let mut timers = Timers::new();
        timers.push(at(900), 'a');
        timers.push(at(700), 'b');
        timers.push(at(900), 'c');
        assert_eq!(timers.pop(at(700)), Some((at(700), 'b')));
        timers.push(at(900), 'd');
        assert_eq!(timers.pop(at(899)), None);
        let order: String =
            std::iter::from_fn(|| timers.pop(at(900))).map(|timer| timer.1).collect();
        assert_eq!(order, "acd");
    }

    #[test]
    fn a_timer_set_for_a_time_that_has_passed_is_due_at_once() {
        let mut timers = Timers::new();
        timers.push(at(1000), 'a');
        assert!(timers.pop(at(1000)).is_some());
        timers.push(at(1001), 'b');
        timers.push(at(10), 'c');
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.pop(at(1000)), Some((at(10), 'c')));
        assert_eq!(timers.pop(at(1000)), None);
    }

    #[test]
    fn the_room_of_a_crowd_is_given_up_when_it_has_gone() {
        let mut timers = Timers::new();
        let room = |timers: &Timers<u32>| -> usize {
            timers.buckets.iter().map(|bucket| bucket.timers.capacity()).sum()
        };
        for key in 0..100_000u32 {
            timers.push(at(1_000_000 + u64::from(key)), key);
        }
        assert!(room(&timers) >= 100_000);
        timers.retain(|_, key| key % 1000 == 0);
        assert_eq!(timers.len(), 100);
        assert!(room(&timers) <= BUCKETS * 4 * ROOM_MIN);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push {
            after: u64,
        },
        /// Time goes on, and what is due fires.
        Fire {
            after: u64,
        },
        /// Keys of which this is no divisor are dropped.
        Retain {
            divisor: usize,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        // Of every magnitude, and often equal.
        let after = || prop_oneof![0..4u64, (0..40u32, 0..4u64).prop_map(|(bits, x)| x << bits)];
        prop_oneof![
            6 => after().prop_map(|after| Step::Push { after }),
            3 => after().prop_map(|after| Step::Fire { after }),
            1 => (1..4usize).prop_map(|divisor| Step::Retain { divisor }),
        ]
    }

    proptest! {
        /// Against a list that is sorted by (time, number), whatever the time is.
        #[test]
        fn the_order_is_that_of_time_and_entry(
            begin in prop_oneof![Just(0), any::<u32>().prop_map(u64::from)],
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut timers = Timers::new();
            let mut list: Vec<(Timestamp, usize)> = Vec::new();
            let mut now = begin;
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push { after } => {
                        timers.push(at(now + after), number);
                        list.push((at(now + after), number));
                    }
                    Step::Fire { after } => {
                        now += after;
                        while let Some(timer) = timers.pop(at(now)) {
                            list.sort();
                            prop_assert_eq!(timer, list.remove(0));
                        }
                        prop_assert!(list.iter().all(|timer| timer.0 > at(now)));
                    }
                    Step::Retain { divisor } => {
                        timers.retain(|_, key| key % divisor == 0);
                        list.retain(|timer| timer.1 % divisor == 0);
                    }
                }
                prop_assert_eq!(timers.peek(), list.iter().min().copied());
                prop_assert_eq!(timers.next(), timers.peek().map(|timer| timer.0));
                prop_assert_eq!((timers.len(), timers.is_empty()), (list.len(), list.is_empty()));
            }
        }
    }
}
