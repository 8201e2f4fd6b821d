//! One server behind the balancer, and what is known of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::Timestamp;

/// A back end: its configuration, and the counts all shards share.
///
/// Relaxed atomics suffice: each count stands alone, and a policy that reads one
/// a few nanoseconds old merely picks as if the other call had come later.
#[derive(Debug)]
pub struct Backend {
    name: Box<str>,
    address: SocketAddr,
    weight: u32,
    load: Load,
}

/// On cache lines of their own, so that shards counting on different back ends
/// do not disturb each other. 128 bytes: x86 prefetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Load {
    calls: AtomicU64,
    work: AtomicU64,
    assigned: AtomicU64,
    failures: AtomicU64,
    refusals: AtomicU64,
    down_until: AtomicU64,
    /// When it last answered, rounded; zero if it never did.
    answered_at: AtomicU64,
    /// When it last refused for overload.
    refused_at: AtomicU64,
}

/// Answers are noted no more often than this: a store on every one would make the cache line
/// go back and forth between the shards.
const ANSWERED_STEP_NS: u64 = 10_000_000;

impl Backend {
    pub(crate) fn new(name: &str, address: SocketAddr, weight: u32) -> Self {
        // A weight of zero would make every comparison of ratios a tie.
        Self { name: name.into(), address, weight: weight.max(1), load: Load::default() }
    }

    /// Its name, for metrics and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its requests are sent.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its share of the load against its fellows'; at least 1.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Its weight as it counts at `now`, in thousandths of [`weight`](Self::weight): what a policy
    /// divides calls by. At least 100.
    pub fn effective_weight(&self, _now: Timestamp) -> u64 {
        u64::from(self.weight) * 1000
    }

    /// Calls held now.
    pub fn calls(&self) -> u64 {
        self.load.calls.load(Relaxed)
    }

    /// Weighted transactions open now, in hundredths of a BYE's.
    pub fn work(&self) -> u64 {
        self.load.work.load(Relaxed)
    }

    /// Calls and stand-alone requests assigned since the start.
    pub fn assigned(&self) -> u64 {
        self.load.assigned.load(Relaxed)
    }

    /// Deliveries that failed since the start.
    pub fn failures(&self) -> u64 {
        self.load.failures.load(Relaxed)
    }

    /// Whether it may be given new calls.
    pub fn is_up(&self, now: Timestamp) -> bool {
        self.load.down_until.load(Relaxed) <= now.as_nanos()
    }

    /// A delivery to it failed: it gets no new calls for `pause`, unless it
    /// answers before.
    pub fn on_failed(&self, now: Timestamp, pause: Duration) {
        self.load.failures.fetch_add(1, Relaxed);
        self.load.down_until.store((now + pause).as_nanos(), Relaxed);
    }

    /// It has answered, so it is there.
    pub fn on_answered(&self, now: Timestamp) {
        // Read first: a store on every response would make the line bounce.
        if self.load.down_until.load(Relaxed) != 0 {
            self.load.down_until.store(0, Relaxed);
        }
        let now = now.as_nanos();
        if now.saturating_sub(self.load.answered_at.load(Relaxed)) >= ANSWERED_STEP_NS {
            self.load.answered_at.store(now, Relaxed);
        }
    }

    /// Whether it has answered anything after `since`.
    pub fn has_answered(&self, since: Timestamp) -> bool {
        self.load.answered_at.load(Relaxed) > since.as_nanos()
    }

    /// It has answered 503: it has more than it can do.
    pub fn on_refused(&self, now: Timestamp) {
        self.load.refusals.fetch_add(1, Relaxed);
        self.load.refused_at.store(now.as_nanos().max(1), Relaxed);
    }

    /// Whether it refused for overload within the last `within`.
    pub fn has_refused(&self, now: Timestamp, within: Duration) -> bool {
        let at = self.load.refused_at.load(Relaxed);
        at != 0 && now.since(Timestamp::from_nanos(at)) < within
    }

    /// Requests it answered with 503 since the start.
    pub fn refusals(&self) -> u64 {
        self.load.refusals.load(Relaxed)
    }

    pub(crate) fn note_assigned(&self) {
        self.load.assigned.fetch_add(1, Relaxed);
    }

    pub(crate) fn take(&self, calls: u32, work: u32) {
        self.load.calls.fetch_add(calls.into(), Relaxed);
        self.load.work.fetch_add(work.into(), Relaxed);
    }

    pub(crate) fn give_back(&self, calls: u32, work: u32) {
        let calls_before = self.load.calls.fetch_sub(calls.into(), Relaxed);
        let work_before = self.load.work.fetch_sub(work.into(), Relaxed);
        // Only a lease gives back, and only what it took.
        debug_assert!(calls_before >= calls.into() && work_before >= work.into());
    }
}
