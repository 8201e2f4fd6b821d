//! A radix heap: a priority queue of timers. It relies on the fact that time never goes back.

use std::collections::VecDeque;
use std::mem;

use crate::Timestamp;

/// Number of buckets for timers that are not due yet: one for each bit of a time.
pub(super) const BUCKETS: usize = u64::BITS as usize;

/// A bucket that becomes empty keeps capacity for at least twice this number of timers, or all its
/// capacity if it has less.
pub(super) const ROOM_MIN: usize = 64;

/// A radix heap of timers. A pop may move all timers to other buckets. A push may copy all timers,
/// if they are in one bucket and the array of this bucket grows.
#[derive(Debug)]
pub(super) struct RadixHeap<K> {
    /// Time of the last timer that fired, in nanoseconds since the driver's start. A timer that is
    /// set for an earlier time is due at once.
    pub(super) last: u64,
    /// Timers that are due: their time is `last` or earlier.
    due: VecDeque<(Timestamp, K)>,
    /// Bucket `b` contains the timers whose time differs from `last` in bit `b`, and in no higher
    /// bit.
    pub(super) buckets: [Bucket<K>; BUCKETS],
    /// Bit `b` is set if bucket `b` is not empty.
    occupied: u64,
    len: usize,
}

#[derive(Debug)]
pub(super) struct Bucket<K> {
    pub(super) first: Timestamp,
    pub(super) timers: Vec<(Timestamp, K)>,
}

impl<K: Copy> RadixHeap<K> {
    pub(super) fn new() -> Self {
        Self {
            last: 0,
            due: VecDeque::new(),
            buckets: [const { Bucket::empty() }; BUCKETS],
            occupied: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Advances the time of an empty heap to `first`, the time of the first timer that will be set.
    pub(super) fn advance_to(&mut self, first: Timestamp) {
        self.last = first.as_nanos();
    }

    #[inline]
    pub(super) fn push(&mut self, at: Timestamp, key: K) {
        self.len += 1;
        self.enter(at, key);
    }

    #[inline]
    pub(super) fn next(&self) -> Option<Timestamp> {
        match self.due.front() {
            Some(&(at, _)) => Some(at),
            None => self.buckets.get(self.occupied.trailing_zeros() as usize).map(|b| b.first),
        }
    }

    pub(super) fn peek(&self) -> Option<(Timestamp, K)> {
        match self.due.front() {
            Some(&timer) => Some(timer),
            None => self.buckets.get(self.occupied.trailing_zeros() as usize)?.peek(),
        }
    }

    pub(super) fn pop(&mut self) -> Option<(Timestamp, K)> {
        if self.due.is_empty() {
            self.advance();
        }
        let timer = self.due.pop_front()?;
        self.len -= 1;
        Some(timer)
    }

    /// Removes all timers for which `chosen` returns true, except those in `due`, and passes them
    /// to `take`. Timers for the same time keep their order.
    pub(super) fn take_out(
        &mut self,
        chosen: impl Fn(Timestamp) -> bool,
        mut take: impl FnMut(Timestamp, K),
    ) {
        for (bit, bucket) in self.buckets.iter_mut().enumerate() {
            let before = bucket.timers.len();
            for &(at, key) in bucket.timers.iter().filter(|timer| chosen(timer.0)) {
                take(at, key);
            }
            bucket.retain(&|at, _| !chosen(at));
            self.len -= before - bucket.timers.len();
            if bucket.timers.is_empty() {
                self.occupied &= !(1 << bit);
            }
        }
    }

    pub(super) fn retain(&mut self, counts: &impl Fn(Timestamp, K) -> bool) {
        self.due.retain(|&(at, key)| counts(at, key));
        self.len = self.due.len();
        for (bit, bucket) in self.buckets.iter_mut().enumerate() {
            bucket.retain(counts);
            if bucket.timers.is_empty() {
                self.occupied &= !(1 << bit);
            }
            self.len += bucket.timers.len();
        }
    }

    /// Advances the time of the heap to that of the next timer. The other timers of this timer's
    /// bucket move to lower buckets, because their times now differ from the new time only in lower
    /// bits.
    fn advance(&mut self) {
        let bit = self.occupied.trailing_zeros();
        let Some(bucket) = self.buckets.get_mut(bit as usize) else { return };
        self.last = bucket.first.as_nanos();
        self.occupied &= !(1 << bit);
        bucket.first = Timestamp::NEVER;
        let mut timers = mem::take(&mut bucket.timers);
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
        self.buckets[bit as usize].push(at, key);
        self.occupied |= 1 << bit;
    }
}

impl<K> Bucket<K> {
    pub(super) const fn empty() -> Self {
        Self { first: Timestamp::NEVER, timers: Vec::new() }
    }

    pub(super) fn with_room(spare: &mut Vec<(Timestamp, K)>) -> Self {
        Self { first: Timestamp::NEVER, timers: mem::take(spare) }
    }

    #[inline]
    pub(super) fn push(&mut self, at: Timestamp, key: K) {
        self.first = self.first.min(at);
        self.timers.push((at, key));
    }

    /// Shrinks the bucket to a target capacity if it has more than twice this capacity. The target
    /// is twice `held`, the number of timers that the bucket has just held, but at least twice
    /// [`ROOM_MIN`]. Without this, the bucket would keep the capacity of its largest size forever.
    fn give_up_room(&mut self, held: usize) {
        let room = 2 * held.max(ROOM_MIN);
        if self.timers.capacity() > 2 * room {
            self.timers.shrink_to(room);
        }
    }
}

impl<K: Copy> Bucket<K> {
    pub(super) fn peek(&self) -> Option<(Timestamp, K)> {
        self.timers.iter().find(|timer| timer.0 == self.first).copied()
    }

    pub(super) fn retain(&mut self, counts: &impl Fn(Timestamp, K) -> bool) {
        self.timers.retain(|&(at, key)| counts(at, key));
        self.first = self.timers.iter().map(|timer| timer.0).min().unwrap_or(Timestamp::NEVER);
        self.give_up_room(self.timers.len());
    }
}
