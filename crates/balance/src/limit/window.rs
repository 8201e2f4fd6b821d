//! The window of a back end: the maximum number of requests that may wait for a first response. All
//! shards share the window and the counts of the current interval. At the end of the interval, one
//! shard computes the next window with a [`WindowLaw`](super::WindowLaw).
//!
//! Time is divided into slices of [`SLICE`]. Each slice has a counter of the requests that were
//! sent in it and have no response yet. Only the slices of the last [`FORGOTTEN`] count against the
//! window. So lost requests, and callees that do not respond, use up the window only for this time,
//! and no timer is needed.
//!
//! There are only [`SLICES`] counters. When a request reuses the counter of an old slice, the
//! requests that this counter still holds are recorded as lost. They are not recorded if the old
//! slice is more than [`LOST_WITHIN`] slices ago, because they belong to an earlier interval, or if
//! it was before the last decrease of the window.
//!
//! If another shard holds the lock of `record`, a shard does not compute the window. It does not
//! wait for the lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_world::Timestamp;

use super::AtomicF64;
use super::window_law::LawState;
use super::window_learning::{FORGOTTEN, PATIENCE, Responses, WindowLearning};

const SLICE: Duration = Duration::from_millis(50);
const SLICES: usize = 10;
/// Number of slices after which requests without a response no longer count as lost: the slices of
/// [`FORGOTTEN`] and of the longest interval.
const LOST_WITHIN: u32 =
    ((FORGOTTEN.as_millis() + PATIENCE.as_millis()) / SLICE.as_millis()) as u32;

const _: () = assert!(SLICE.as_millis() as usize * SLICES == FORGOTTEN.as_millis() as usize);

/// Value that means that no interval has begun, because nothing is learned.
const OFF: u64 = u64::MAX;
/// Value that means that there was no response in this interval.
const NONE: u64 = u64::MAX;

/// The learned window of a back end, and the counts of the current interval.
#[derive(Debug)]
pub(crate) struct Window {
    /// Earliest end of the current interval, in nanoseconds since the program started.
    ends_at: AtomicU64,
    /// Copy of the window in `record`, in requests. It is read without a lock.
    window: AtomicF64,
    /// Requests without a response, by the slice in which they were sent. The upper half of a word
    /// is the number of the slice, the lower half the count.
    sent: [AtomicU64; SLICES],
    heard: AtomicU64,
    late: AtomicU64,
    least_ns: AtomicU64,
    lost: AtomicU64,
    wanted: AtomicBool,
    /// Only requests sent from this time on are evidence about the window, in nanoseconds since the
    /// program started.
    counts_from: AtomicU64,
    record: Mutex<Record>,
}

#[derive(Debug)]
struct Record {
    learning: Option<WindowLearning>,
    began: Timestamp,
    law: LawState,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            ends_at: AtomicU64::new(OFF),
            window: AtomicF64::default(),
            sent: Default::default(),
            heard: AtomicU64::new(0),
            late: AtomicU64::new(0),
            least_ns: AtomicU64::new(NONE),
            lost: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            counts_from: AtomicU64::new(0),
            record: Mutex::new(Record {
                learning: None,
                began: Timestamp::ZERO,
                law: LawState::cold(None),
            }),
        }
    }
}

impl Window {
    pub(crate) fn is_on(&self) -> bool {
        self.ends_at.load(Relaxed) != OFF
    }

    /// Sets the parameters of learning, or stops learning. The learned window is kept if learning
    /// continues with the same law.
    pub(crate) fn set(&self, learning: Option<WindowLearning>) {
        let mut record = self.lock();
        let law_of = |learning: Option<WindowLearning>| learning.map(|learning| learning.law);
        let is_same = self.is_on() && law_of(learning) == law_of(record.learning);
        record.learning = learning;
        if !is_same {
            record.law = LawState::cold(learning);
        }
        if learning.is_none() {
            self.ends_at.store(OFF, Relaxed);
        } else if !is_same {
            self.start_interval(&mut record, Timestamp::ZERO);
        }
        self.window.set(record.law.window());
    }

    /// Starts learning again from the beginning, because the back end may now be another server.
    pub(crate) fn forget(&self) {
        let mut record = self.lock();
        record.law = LawState::cold(record.learning);
        if record.learning.is_some() {
            self.start_interval(&mut record, Timestamp::ZERO);
        }
        self.window.set(record.law.window());
    }

    /// Returns the window in requests, or infinity if no window has been learned.
    pub(crate) fn size(&self) -> f64 {
        self.window.get()
    }

    /// Returns whether the window allows another request. If `reserve` is true, the window is
    /// larger by a tenth, or by one request if that is more.
    pub(crate) fn conforms(&self, now: Timestamp, reserve: bool) -> bool {
        let reserved = |window: f64| if reserve { (window / 10.0).max(1.0) } else { 0.0 };
        let conforms = self.holds(now, reserved);
        if !conforms {
            self.on_wanted();
        }
        conforms
    }

    /// Returns whether the window allows another request, and a tenth of the window (at least one
    /// request) is left after it.
    pub(crate) fn is_spare(&self, now: Timestamp) -> bool {
        self.holds(now, |window| -(window / 10.0).max(1.0))
    }

    /// Returns whether another request fits into the window enlarged by `more(window)`.
    fn holds(&self, now: Timestamp, more: impl Fn(f64) -> f64) -> bool {
        let window = self.size();
        window.is_infinite() || (self.unheard(now) as f64) < window + more(window)
    }

    /// Records that the window held a request back.
    pub(crate) fn on_wanted(&self) {
        if self.is_on() && !self.wanted.load(Relaxed) {
            self.wanted.store(true, Relaxed);
        }
    }

    /// Returns the number of requests without a response that were sent within [`FORGOTTEN`].
    pub(crate) fn unheard(&self, now: Timestamp) -> u64 {
        let current = slice_of(now);
        let count = |word: &AtomicU64| {
            let (slice, count) = unpack(word.load(Relaxed));
            // The clock of another shard may be ahead.
            let is_recent = current.wrapping_sub(slice) < SLICES as u32 || slice == current + 1;
            if is_recent { u64::from(count) } else { 0 }
        };
        self.sent.iter().map(count).sum()
    }

    /// Records that the back end gets a request.
    pub(crate) fn on_sent(&self, now: Timestamp) {
        if !self.is_on() {
            return;
        }
        let slice = slice_of(now);
        let word = &self.sent[slice as usize % SLICES];
        let decreased = slice_of(Timestamp::from_nanos(self.counts_from.load(Relaxed)));
        let mut lost = 0;
        let next = |word| {
            let (of, count) = unpack(word);
            // Losses from before a pause are no evidence about the present. The clock of another
            // shard may be ahead, so that the number of the slice is larger than ours.
            let is_recent = slice.wrapping_sub(of) <= LOST_WITHIN;
            lost = if of == slice || of < decreased || !is_recent { 0 } else { count };
            Some(pack(slice, if of == slice { count.saturating_add(1) } else { 1 }))
        };
        if word.fetch_update(Relaxed, Relaxed, next).is_ok() && lost > 0 {
            self.lost.fetch_add(lost.into(), Relaxed);
        }
        self.step(now);
    }

    /// Records the first response of the back end to a request sent at `sent`.
    pub(crate) fn on_heard(&self, now: Timestamp, sent: Timestamp) {
        if !self.is_on() {
            return;
        }
        let slice = slice_of(sent);
        let next = |word| {
            let (of, count) = unpack(word);
            (of == slice && count > 0).then(|| pack(of, count - 1))
        };
        // Requests of a forgotten slice are no longer counted.
        let _ = self.sent[slice as usize % SLICES].fetch_update(Relaxed, Relaxed, next);
        if sent.as_nanos() >= self.counts_from.load(Relaxed) {
            let took = now.since(sent);
            self.heard.fetch_add(1, Relaxed);
            if took >= FORGOTTEN {
                self.late.fetch_add(1, Relaxed);
            }
            self.least_ns.fetch_min(took.as_nanos() as u64, Relaxed);
        }
        self.step(now);
    }

    /// Computes the next window if an interval is over.
    fn step(&self, now: Timestamp) {
        if self.ends_at.load(Relaxed) > now.as_nanos() {
            return;
        }
        let Ok(mut record) = self.record.try_lock() else { return };
        let Some(learning) = record.learning else { return };
        if record.began == Timestamp::ZERO {
            return self.start_interval(&mut record, now);
        }
        let lasted = now.since(record.began);
        let heard = self.heard.load(Relaxed);
        if !learning.is_over(lasted, heard) {
            return;
        }
        let least = self.least_ns.load(Relaxed);
        let seen = Responses {
            lasted,
            heard,
            late: self.late.load(Relaxed),
            least: (least != NONE).then(|| Duration::from_nanos(least)),
            lost: self.lost.load(Relaxed),
            wanted: self.wanted.load(Relaxed),
        };
        let before = record.law.window();
        record.law = record.law.step(&learning, &seen);
        if record.law.window() < before {
            self.counts_from.store(now.as_nanos(), Relaxed);
        }
        self.start_interval(&mut record, now);
        self.window.set(record.law.window());
    }

    /// Starts an interval at `now`. If `now` is zero, the interval starts with the next request or
    /// response.
    fn start_interval(&self, record: &mut Record, now: Timestamp) {
        record.began = now;
        let interval = record.learning.map_or(Duration::ZERO, |learning| learning.interval);
        let ends_at = if now == Timestamp::ZERO { 0 } else { (now + interval).as_nanos() };
        self.ends_at.store(ends_at, Relaxed);
        self.heard.store(0, Relaxed);
        self.late.store(0, Relaxed);
        self.least_ns.store(NONE, Relaxed);
        self.lost.store(0, Relaxed);
        self.wanted.store(false, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        // No code panics while it holds the lock.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of the slice that contains a time. The numbers wrap after seven years.
fn slice_of(at: Timestamp) -> u32 {
    (at.as_nanos() / SLICE.as_nanos() as u64) as u32
}

const fn pack(slice: u32, count: u32) -> u64 {
    (slice as u64) << 32 | count as u64
}

const fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests;
