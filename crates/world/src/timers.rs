//! Timers, in the order in which they fire.
//!
//! A radix heap: R. K. Ahuja, K. Mehlhorn, J. B. Orlin, R. E. Tarjan, "Faster algorithms for the
//! shortest flow problem", Journal of the ACM 37(2), 1990. Time never goes back, so only the
//! timers of the near future need an exact order. A heap ordered by comparison reads a part of each
//! of its levels when it takes out a timer. With 100,000 timers that fire in 32 s, such as those of
//! finished transactions, few of these parts are in the cache. Here each timer is moved a few
//! times, each time from the end of one array to the end of another.
//!
//! A radix heap alone moves all timers of a bucket at once. With a million timers in 34 s, the
//! largest bucket has half of them, and moving it takes 25 ms. So only the timers of the present
//! [epoch](EPOCH_BITS) are in the heap. Each later epoch has a list of its timers, in the order in
//! which they were set. They enter the heap together when all earlier timers have fired. A shard
//! sets no more than some thousand timers for one epoch. While there are [few](FEW) timers, all are
//! in the heap, which costs fewer instructions.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::Bound;

use crate::Timestamp;

/// Number of buckets in addition to that of the expired timers: one for each bit of a time.
const BUCKETS: usize = u64::BITS as usize;

/// An epoch lasts 2^23 ns, which is 8.4 ms.
const EPOCH_BITS: u32 = 23;

/// Maximum number of timers that the heap may move at once. It is small in tests, so that a few
/// timers test both forms of storage.
const FEW: usize = if cfg!(test) { 8 } else { 2048 };

/// Number of timers that [`Timers::sweep`] examines before it stops at the end of an epoch.
const SWEEP: usize = 512;

/// An emptied bucket keeps capacity for at least twice this number of timers, if it had it.
const ROOM_MIN: usize = 64;

/// Timers in the order in which they fire. Those that fire together are in the order in which they
/// were set.
///
/// A timer cannot be removed early. Its owner ignores it when it fires, or [`sweep`](Self::sweep)
/// drops it before.
#[derive(Debug)]
pub struct Timers<K> {
    /// Timers of the epochs up to `epoch`. While there are few timers, `epoch` is `EVER`.
    near: RadixHeap<K>,
    epoch: u64,
    /// Timers of each later epoch.
    far: BTreeMap<u64, Bucket<K>>,
    /// Time of the first timer in `far`, or `NEVER` if `far` is empty.
    far_first: Timestamp,
    /// The storage of a past epoch, kept for a new one.
    spare: Vec<(Timestamp, K)>,
    /// The epoch with which the next `sweep` starts.
    swept: u64,
    len: usize,
}

impl<K: Copy> Timers<K> {
    /// Creates an empty set of timers. None has fired yet.
    pub fn new() -> Self {
        Self {
            near: RadixHeap::new(),
            epoch: EVER,
            far: BTreeMap::new(),
            far_first: Timestamp::NEVER,
            spare: Vec::new(),
            swept: 0,
            len: 0,
        }
    }

    /// Sets a timer. A timer for an earlier time than the last one that fired expires at once.
    #[inline]
    pub fn push(&mut self, at: Timestamp, key: K) {
        self.len += 1;
        let epoch = epoch_of(at);
        if epoch <= self.epoch {
            self.near.push(at, key);
            if self.epoch == EVER && self.len > FEW {
                self.leave_to_epochs();
            }
            return;
        }
        self.far_first = self.far_first.min(at);
        let spare = &mut self.spare;
        let bucket = self.far.entry(epoch).or_insert_with(|| Bucket::with_room(spare));
        bucket.push(at, key);
    }

    /// Returns the number of timers, including those that their owner no longer needs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no timers.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the time of the first timer, or `None` if there is no timer.
    #[inline]
    pub fn next(&self) -> Option<Timestamp> {
        if self.len == 0 {
            return None;
        }
        Some(self.near.next().unwrap_or(self.far_first))
    }

    /// Returns the first timer, or `None` if there is no timer. This may examine all timers of the
    /// first bucket. [`next`](Self::next) does not.
    pub fn peek(&self) -> Option<(Timestamp, K)> {
        self.near.peek().or_else(|| self.far.first_key_value()?.1.peek())
    }

    /// Removes and returns the first timer, if it fires by `now`.
    pub fn pop(&mut self, now: Timestamp) -> Option<(Timestamp, K)> {
        if self.next()? > now {
            return None;
        }
        if self.near.is_empty() {
            self.enter_epoch();
        }
        self.len -= 1;
        self.near.pop()
    }

    /// Drops timers for which `counts` returns false. This examines all timers. A shard that must
    /// not pause uses [`sweep`](Self::sweep).
    pub fn retain(&mut self, counts: impl Fn(Timestamp, K) -> bool) {
        self.near.retain(&counts);
        self.far.retain(|_, bucket| {
            bucket.retain(&counts);
            !bucket.timers.is_empty()
        });
        self.far_first = self.far.first_key_value().map_or(Timestamp::NEVER, |(_, far)| far.first);
        self.len = self.near.len() + self.far.values().map(|far| far.timers.len()).sum::<usize>();
    }

    /// Examines some epochs, at least [`SWEEP`] timers if there are so many, and drops the timers
    /// for which `counts` is false. Successive calls examine all epochs in turn.
    pub fn sweep(&mut self, counts: impl Fn(Timestamp, K) -> bool) {
        let mut left = SWEEP;
        if self.swept <= self.epoch {
            let before = self.near.len();
            self.near.retain(&counts);
            self.len -= before - self.near.len();
            left = left.saturating_sub(before);
            self.swept = self.epoch.saturating_add(1);
        }
        while left > 0 {
            let from = (Bound::Included(self.swept), Bound::Unbounded);
            let Some((&epoch, bucket)) = self.far.range_mut(from).next() else {
                self.swept = 0;
                break;
            };
            let before = bucket.timers.len();
            bucket.retain(&counts);
            self.len -= before - bucket.timers.len();
            left = left.saturating_sub(before);
            self.swept = epoch + 1;
            if bucket.timers.is_empty() {
                self.far.remove(&epoch);
            }
        }
        self.far_first = self.far.first_key_value().map_or(Timestamp::NEVER, |(_, far)| far.first);
    }

    /// Moves the timers of all epochs into the heap, because they are few again.
    #[cold]
    fn return_to_heap(&mut self) {
        for (at, key) in mem::take(&mut self.far).into_values().flat_map(|far| far.timers) {
            self.near.push(at, key);
        }
        self.far_first = Timestamp::NEVER;
        self.epoch = EVER;
    }

    /// Moves the timers of later epochs out of the heap.
    #[cold]
    fn leave_to_epochs(&mut self) {
        self.epoch = epoch_of(Timestamp::from_nanos(self.near.last));
        let epoch = self.epoch;
        let far = &mut self.far;
        self.near.take_out(
            |at| epoch_of(at) > epoch,
            |at, key| {
                far.entry(epoch_of(at)).or_insert_with(Bucket::empty).push(at, key);
            },
        );
        self.far_first = self.far.first_key_value().map_or(Timestamp::NEVER, |(_, far)| far.first);
        self.swept = 0;
    }

    /// Advances to the next epoch that has timers.
    fn enter_epoch(&mut self) {
        let Some((epoch, mut bucket)) = self.far.pop_first() else { return };
        self.epoch = epoch;
        self.far_first = self.far.first_key_value().map_or(Timestamp::NEVER, |(_, far)| far.first);
        self.near.advance_to(bucket.first);
        for (at, key) in bucket.timers.drain(..) {
            self.near.push(at, key);
        }
        if self.len <= FEW / 2 {
            self.return_to_heap();
        }
        if bucket.timers.capacity() <= ROOM_MIN {
            self.spare = bucket.timers;
        }
    }
}

/// A number above that of the epoch of any time.
const EVER: u64 = u64::MAX;

fn epoch_of(at: Timestamp) -> u64 {
    at.as_nanos() >> EPOCH_BITS
}

/// A heap of timers for a short time. A push or a pop may move all of them.
#[derive(Debug)]
struct RadixHeap<K> {
    /// Time at which the last timer fired, in nanoseconds. All others fire then or later.
    last: u64,
    /// Timers that fire at `last`, and timers that were later set for an earlier time.
    due: VecDeque<(Timestamp, K)>,
    /// Bucket `b` contains the timers whose time differs from `last` in bit `b`, and in no higher
    /// bit.
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

impl<K: Copy> RadixHeap<K> {
    fn new() -> Self {
        Self {
            last: 0,
            due: VecDeque::new(),
            buckets: [const { Bucket::empty() }; BUCKETS],
            occupied: 0,
            len: 0,
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Advances an empty heap to `first`. No timer may fire earlier.
    fn advance_to(&mut self, first: Timestamp) {
        self.last = first.as_nanos();
    }

    #[inline]
    fn push(&mut self, at: Timestamp, key: K) {
        self.len += 1;
        self.enter(at, key);
    }

    #[inline]
    fn next(&self) -> Option<Timestamp> {
        match self.due.front() {
            Some(&(at, _)) => Some(at),
            None => self.buckets.get(self.occupied.trailing_zeros() as usize).map(|b| b.first),
        }
    }

    fn peek(&self) -> Option<(Timestamp, K)> {
        match self.due.front() {
            Some(&timer) => Some(timer),
            None => self.buckets.get(self.occupied.trailing_zeros() as usize)?.peek(),
        }
    }

    fn pop(&mut self) -> Option<(Timestamp, K)> {
        if self.due.is_empty() {
            self.advance();
        }
        let timer = self.due.pop_front()?;
        self.len -= 1;
        Some(timer)
    }

    /// Takes out all timers for which `chosen` is true, except the next one. Timers that fire
    /// together keep their order.
    fn take_out(&mut self, chosen: impl Fn(Timestamp) -> bool, mut take: impl FnMut(Timestamp, K)) {
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

    fn retain(&mut self, counts: &impl Fn(Timestamp, K) -> bool) {
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

    /// Advances to the time of the next timer. The other timers of its bucket now differ from it
    /// only in lower bits, so they move to lower buckets.
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
        self.buckets[bit as usize].push(at, key);
        self.occupied |= 1 << bit;
    }
}

impl<K> Bucket<K> {
    const fn empty() -> Self {
        Self { first: Timestamp::NEVER, timers: Vec::new() }
    }

    fn with_room(spare: &mut Vec<(Timestamp, K)>) -> Self {
        Self { first: Timestamp::NEVER, timers: std::mem::take(spare) }
    }

    #[inline]
    fn push(&mut self, at: Timestamp, key: K) {
        self.first = self.first.min(at);
        self.timers.push((at, key));
    }

    /// Frees the capacity beyond twice the number of timers that the bucket held, so that a peak
    /// does not keep memory forever.
    fn give_up_room(&mut self, held: usize) {
        let room = 2 * held.max(ROOM_MIN);
        if self.timers.capacity() > 2 * room {
            self.timers.shrink_to(room);
        }
    }
}

impl<K: Copy> Bucket<K> {
    fn peek(&self) -> Option<(Timestamp, K)> {
        self.timers.iter().find(|timer| timer.0 == self.first).copied()
    }

    fn retain(&mut self, counts: &impl Fn(Timestamp, K) -> bool) {
        self.timers.retain(|&(at, key)| counts(at, key));
        self.first = self.timers.iter().map(|timer| timer.0).min().unwrap_or(Timestamp::NEVER);
        self.give_up_room(self.timers.len());
    }
}

impl<K: Copy> Default for Timers<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

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

    fn room(timers: &Timers<u32>) -> usize {
        let buckets = timers.near.buckets.iter().chain(timers.far.values());
        timers.spare.capacity() + buckets.map(|bucket| bucket.timers.capacity()).sum::<usize>()
    }

    #[test]
    fn the_memory_of_a_peak_is_freed_after_it() {
        let mut timers = Timers::new();
        for key in 0..100_000u32 {
            timers.push(at(1_000_000 + u64::from(key)), key);
        }
        assert!(room(&timers) >= 100_000);
        timers.sweep(|_, key| key % 1000 == 0);
        assert_eq!(timers.len(), 100);
        assert!(room(&timers) <= BUCKETS * 4 * ROOM_MIN);
    }

    /// The longest time between two turns depends on this.
    #[test]
    fn a_sweep_examines_a_few_epochs_and_the_next_one_continues() {
        let mut timers = Timers::new();
        // 100 of each epoch.
        for key in 0..100_000u32 {
            timers.push(at((u64::from(key) << EPOCH_BITS) / 100), key);
        }
        let mut sweeps = 0;
        while timers.len() > 100 {
            let seen = Cell::new(0);
            timers.sweep(|_, key| {
                seen.set(seen.get() + 1);
                key % 1000 == 0
            });
            assert!(seen.get() <= SWEEP + FEW + 100, "{}", seen.get());
            sweeps += 1;
        }
        assert!((100_000 / (SWEEP + 100)..=100_000 / SWEEP + 1).contains(&sweeps), "{sweeps}");
        assert!(room(&timers) <= 100 * 4 * ROOM_MIN);
        let left: Vec<_> = std::iter::from_fn(|| timers.pop(Timestamp::NEVER)).collect();
        assert!(left.iter().map(|timer| timer.1).eq((0..100).map(|i| 1000 * i)));
    }

    #[test]
    fn timers_to_retain_are_found_in_all_epochs() {
        let mut timers = Timers::new();
        for key in 0..100_000u32 {
            timers.push(at((u64::from(key) << EPOCH_BITS) / 100), key);
        }
        timers.retain(|_, key| key % 1000 == 999);
        assert_eq!((timers.len(), timers.peek()), (100, timers.next().map(|at| (at, 999))));
        assert!(room(&timers) <= 100 * 4 * ROOM_MIN);
        let left: Vec<_> = std::iter::from_fn(|| timers.pop(Timestamp::NEVER)).collect();
        assert!(left.iter().map(|timer| timer.1).eq((0..100).map(|i| 1000 * i + 999)));
    }

    #[test]
    fn no_more_than_an_epoch_enters_the_heap() {
        let mut timers = Timers::new();
        for key in 0..100_000u32 {
            timers.push(at((u64::from(key) << EPOCH_BITS) / 100), key);
        }
        for key in 0..100_000 {
            assert_eq!(timers.pop(Timestamp::NEVER).map(|timer| timer.1), Some(key));
            assert!(timers.near.len() <= FEW + 100);
        }
        assert!(timers.far.is_empty() && room(&timers) <= BUCKETS * 4 * ROOM_MIN);
    }

    /// After a peak, timers that reach far ahead do not cost one list each.
    #[test]
    fn the_last_timers_of_a_peak_return_to_the_heap() {
        let mut timers = Timers::new();
        let second = |n: u64| at(n * 1_000_000_000);
        (0..u64::from(FEW as u32) + 1).for_each(|n| timers.push(second(n), n));
        assert!(!timers.far.is_empty());
        for n in 0..1_000 {
            assert_eq!(timers.pop(Timestamp::NEVER).map(|timer| timer.1), Some(n));
            if timers.len() < FEW / 2 {
                let last = n + timers.len() as u64 + 1;
                timers.push(second(last), last);
            }
        }
        assert!(timers.far.is_empty() && timers.epoch == EVER);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push {
            after: u64,
        },
        /// Time advances, and expired timers fire.
        Fire {
            after: u64,
        },
        /// Drops keys that are not multiples of this.
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
        /// Compares with a list sorted by (time, number), at any time.
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
                        // One sweep examines all timers because there are so few.
                        match divisor % 2 {
                            0 => timers.sweep(|_, key| key % divisor == 0),
                            _ => timers.retain(|_, key| key % divisor == 0),
                        }
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
