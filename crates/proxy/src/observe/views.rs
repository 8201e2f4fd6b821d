//! Lists that a shard publishes for operators.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A list that a shard publishes for other threads to read.
#[derive(Debug)]
pub struct Views<T> {
    views: Mutex<Vec<T>>,
    /// True if the published list is not empty.
    is_any: AtomicBool,
}

impl<T> Default for Views<T> {
    fn default() -> Self {
        Self { views: Mutex::default(), is_any: AtomicBool::default() }
    }
}

impl<T: Clone> Views<T> {
    /// Returns the list that was published last.
    pub fn get(&self) -> Vec<T> {
        self.lock().clone()
    }

    /// Publishes the list that `views` returns. Does nothing if the published list is empty, and
    /// the new one would be empty too (`is_any` is false).
    pub fn publish(&self, is_any: bool, views: impl FnOnce() -> Vec<T>) {
        if self.is_any.swap(is_any, Ordering::Relaxed) || is_any {
            *self.lock() = views();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
