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
//! sets no more than a few thousand timers for one epoch. While there are [few](FEW) timers, all
//! are in the heap, which costs fewer instructions.

mod radix_heap;

use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;

use self::radix_heap::{Bucket, ROOM_MIN, RadixHeap};
use crate::Timestamp;

/// An epoch lasts 2^23 ns, which is 8.4 ms.
const EPOCH_BITS: u32 = 23;

/// Number of timers up to which all timers are in the heap, although the heap may move all of them
/// at once. It is small in tests, so that a few timers test both forms of storage.
const FEW: usize = if cfg!(test) { 8 } else { 2048 };

/// Number of timers that [`Timers::sweep`] examines before it stops at the end of an epoch.
const SWEEP: usize = 512;

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

    /// Drops the timers for which `counts` returns false. This examines all timers. A shard that
    /// must not pause uses [`sweep`](Self::sweep).
    pub fn retain(&mut self, counts: impl Fn(Timestamp, K) -> bool) {
        self.near.retain(&counts);
        self.far.retain(|_, bucket| {
            bucket.retain(&counts);
            !bucket.timers.is_empty()
        });
        self.far_first = self.far.first_key_value().map_or(Timestamp::NEVER, |(_, far)| far.first);
        self.len = self.near.len() + self.far.values().map(|far| far.timers.len()).sum::<usize>();
    }

    /// Examines timers epoch by epoch until it has examined at least [`SWEEP`] timers or has
    /// reached the last epoch, and drops the timers for which `counts` returns false. The next
    /// sweep continues with the next epoch.
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

impl<K: Copy> Default for Timers<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
