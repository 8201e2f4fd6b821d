//! Asking the shards of a process to stop.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Waker;

/// A handle by which any thread asks all shards to stop: the first request lets them
/// drain, the second ends them at once.
///
/// They drain together. A shard that holds nothing has its sockets all the same, and
/// what arrives there may belong to one that does: it goes on until none holds
/// anything.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requests: AtomicU32,
    wakers: Mutex<Vec<Waker>>,
    /// Shards that hold something.
    holding: AtomicUsize,
    /// At one moment none did. It stays so: some may have ended since.
    drained: AtomicBool,
}

impl Stop {
    /// A handle without any request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks once more. Takes a lock, so it is for threads, not for signal handlers.
    pub fn request(&self) {
        // Saturating: the third request means what the second did.
        let _ = self.0.requests.fetch_update(SeqCst, SeqCst, |n| n.checked_add(1));
        self.0.wake_all();
    }

    /// How many requests there were.
    pub fn requests(&self) -> u32 {
        self.0.requests.load(SeqCst)
    }

    /// Adds a shard, which a request wakes too.
    pub(crate) fn join(&self, waker: Waker) -> Party {
        self.0.holding.fetch_add(1, SeqCst);
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
        Party { state: Arc::clone(&self.0), holds: true }
    }
}

impl State {
    fn wake_all(&self) {
        for waker in self.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            waker.wake();
        }
    }
}

/// A shard among those that stop together. When it is dropped, the others do not wait
/// for it any longer.
#[derive(Debug)]
pub(crate) struct Party {
    state: Arc<State>,
    holds: bool,
}

impl Party {
    /// How many requests to stop there were.
    pub(crate) fn requests(&self) -> u32 {
        self.state.requests.load(SeqCst)
    }

    /// Says whether this shard still holds something.
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

    /// Whether no shard held anything any more.
    pub(crate) fn all_drained(&self) -> bool {
        self.state.drained.load(SeqCst)
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        self.note(false);
    }
}
