//! Asking the shards of a process to stop.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Waker;

/// A handle by which any thread asks all shards to stop: the first request lets them
/// drain, the second ends them at once.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requests: AtomicU32,
    wakers: Mutex<Vec<Waker>>,
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
        for waker in self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            waker.wake();
        }
    }

    /// How many requests there were.
    pub fn requests(&self) -> u32 {
        self.0.requests.load(SeqCst)
    }

    /// Has a request wake this shard too. It must look for requests afterwards.
    pub(crate) fn wakes(&self, waker: Waker) {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }
}
