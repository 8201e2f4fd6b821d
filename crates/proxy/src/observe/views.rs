//! Lists that a shard publishes for operators.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A list of a shard as last published, for other threads.
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
    /// Returns the list.
    pub fn get(&self) -> Vec<T> {
        self.lock().clone()
    }

    /// Publishes the list if it is not empty (`is_any`), or if it was not empty at the previous
    /// publication.
    pub fn publish(&self, is_any: bool, views: impl FnOnce() -> Vec<T>) {
        if self.is_any.swap(is_any, Ordering::Relaxed) || is_any {
            *self.lock() = views();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
