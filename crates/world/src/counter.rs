//! Numbers that a shard counts and others read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number with one writer, the shard's thread, and any number of readers.
///
/// It is no input of any core, so it may be shared: whoever reads it learns
/// something, and nothing depends on when.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The number now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds `n`. For the writer alone: a load and a store cost less than a locked
    /// addition, and lose counts where two write.
    #[inline]
    pub fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    /// Makes it `n`. For the writer alone.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_set_and_added() {
        let counter = Counter::default();
        counter.add(2);
        counter.add(3);
        assert_eq!(counter.get(), 5);
        counter.set(2);
        assert_eq!(counter.get(), 2);
    }
}
