//! A queue of timers, in the order in which they fire.
//!
//! The queue is a radix heap: R. K. Ahuja, K. Mehlhorn, J. B. Orlin, R. E. Tarjan, "Faster
//! algorithms for the shortest flow problem", Journal of the ACM 37(2), 1990. Time never goes back,
//! so only the timers of the near future need an exact order. A binary heap reads memory at each of
//! its levels when it removes a timer. With 100,000 timers that fire in 32 s, such as those of
//! finished transactions, little of this memory is in the cache. A radix heap only moves each timer
//! a few times from one array to the end of another.
//!
//! A radix heap alone moves all timers of a bucket at once. With a million timers in 34 s, the
//! largest bucket has half of them, and moving it takes 25 ms. So only the timers of the present
//! [epoch](EPOCH_BITS) of 8.4 ms are in the heap. Each later epoch has a list of its timers, in the
//! order in which they were set. The timers of an epoch enter the heap together when all earlier
//! timers have fired. A shard sets no more than a few thousand timers for one epoch. While there
//! are [few](FEW) timers, all are in the heap, which costs fewer instructions.

mod radix_heap;

use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;

use self::radix_heap::{Bucket, ROOM_MIN, RadixHeap};
use crate::Timestamp;

/// An epoch lasts 2^23 ns, which is 8.4 ms.
const EPOCH_BITS: u32 = 23;

/// Maximum number of timers that are all kept in the heap. The heap moves so few timers in a short
/// time. The number is small in tests, so that a few timers test both forms of storage.
const FEW: usize = if cfg!(test) { 8 } else { 2048 };

/// Minimum number of timers that [`Timers::sweep`] examines before it stops at the end of an epoch.
const SWEEP: usize = 512;

/// A queue of timers in the order in which they fire, each with a key of type `K`. Timers that fire
/// at the same time are in the order in which they were set.
///
/// A single timer cannot be removed before it fires. If the owner of the queue no longer needs a
/// timer, it ignores the timer when it fires, or drops it earlier by [`sweep`](Self::sweep).
#[derive(Debug)]
pub struct Timers<K> {
    /// Timers of the epochs up to `epoch`. While there are few timers, `epoch` is [`EVER`], and all
    /// timers are here.
    near: RadixHeap<K>,
    epoch: u64,
    /// Timers of each epoch after `epoch`.
    far: BTreeMap<u64, Bucket<K>>,
    /// Time of the first timer in `far`, or `NEVER` if `far` is empty.
    far_first: Timestamp,
    /// The emptied storage of a past epoch, kept to be used for a new epoch.
    spare: Vec<(Timestamp, K)>,
    /// The epoch with which the next `sweep` starts.
    swept: u64,
    len: usize,
}

impl<K: Copy> Timers<K> {
    /// Creates an empty queue of timers.
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

    /// Sets a timer for the time `at`. The timer is due at once if a timer with a later time has
    /// already fired.
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

    /// Returns the time and the key of the first timer, or `None` if there is no timer. Unlike
    /// [`next`](Self::next), this may examine many timers.
    pub fn peek(&self) -> Option<(Timestamp, K)> {
        self.near.peek().or_else(|| self.far.first_key_value()?.1.peek())
    }

    /// Removes and returns the first timer, if its time is `now` or earlier.
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

    /// Moves the timers of all epochs into the heap. This is called when there are few timers
    /// again.
    #[cold]
    fn return_to_heap(&mut self) {
        for (at, key) in mem::take(&mut self.far).into_values().flat_map(|far| far.timers) {
            self.near.push(at, key);
        }
        self.far_first = Timestamp::NEVER;
        self.epoch = EVER;
    }

    /// Moves the timers of later epochs from the heap to the lists of their epochs.
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

    /// Moves the timers of the next epoch that has any into the heap.
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

/// The value of `epoch` while all timers are in the heap. It is greater than the epoch of any time.
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
