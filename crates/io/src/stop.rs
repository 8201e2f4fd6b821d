//! Stops the shards of a process.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Waker;

/// A handle with which any thread stops all shards: the first request makes them drain, the second
/// ends them at once.
///
/// The shards drain together. A shard without calls still has its sockets, and their datagrams may
/// belong to calls of another shard. So a shard continues until no shard has any work.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requests: AtomicU32,
    wakers: Mutex<Vec<Waker>>,
    /// Number of shards that still have work, plus the number of messages on their way between
    /// shards.
    holding: AtomicUsize,
    /// True after a moment at which no shard had work. It stays true, because some shards may have
    /// ended since then.
    drained: AtomicBool,
}

impl Stop {
    /// Creates a handle without requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a stop, for the first or a further time. Takes a lock, so threads may call it, but
    /// not signal handlers.
    pub fn request(&self) {
        // The count must not wrap around to 0. A third request means the same as the second.
        let _ = self.0.requests.fetch_update(SeqCst, SeqCst, |n| n.checked_add(1));
        self.0.wake_all();
    }

    /// Returns how often a stop was requested.
    pub fn requests(&self) -> u32 {
        self.0.requests.load(SeqCst)
    }

    /// Adds a shard, which `waker` wakes for each request to stop.
    pub(crate) fn join(&self, waker: Waker) -> ShutdownBarrier {
        self.0.holding.fetch_add(1, SeqCst);
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
        ShutdownBarrier { state: Arc::clone(&self.0), holds: true }
    }
}

impl State {
    fn wake_all(&self) {
        for waker in self.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            waker.wake();
        }
    }
}

/// A membership in the barrier at which all shards wait for each other before they end. It belongs
/// to a shard, or to a message on its way to a shard. When it is dropped, the shards no longer wait
/// for its owner.
#[derive(Debug)]
pub(crate) struct ShutdownBarrier {
    state: Arc<State>,
    holds: bool,
}

impl ShutdownBarrier {
    /// Returns the number of requests to stop.
    pub(crate) fn requests(&self) -> u32 {
        self.state.requests.load(SeqCst)
    }

    /// Returns a membership that has work until it is dropped. It belongs to a message on its way
    /// to another shard, and keeps all shards running: the other shard may have no work before the
    /// message arrives.
    pub(crate) fn hold(&self) -> Self {
        self.state.holding.fetch_add(1, SeqCst);
        Self { state: Arc::clone(&self.state), holds: true }
    }

    /// Records whether this shard still has work.
    pub(crate) fn note(&mut self, holds: bool) {
        match (self.holds, holds) {
            (false, true) => {
                self.state.holding.fetch_add(1, SeqCst);
            }
            (true, false) if self.state.holding.fetch_sub(1, SeqCst) == 1 => {
                self.state.drained.store(true, SeqCst);
                self.state.wake_all();
            }
            _ => {}
        }
        self.holds = holds;
    }

    /// Returns whether there was a moment at which no shard had work left.
    pub(crate) fn all_drained(&self) -> bool {
        self.state.drained.load(SeqCst)
    }
}

impl Drop for ShutdownBarrier {
    fn drop(&mut self) {
        self.note(false);
    }
}
