//! Counters that a shard writes and other threads read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter that only the shard's thread may write and any thread may read.
///
/// The behaviour of a core does not depend on whether or when another thread reads a counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the current value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds `n` to the value. Only the shard's thread may call this: a load and a store cost less
    /// than an atomic addition, but with two writers they would lose counts.
    #[inline]
    pub fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    /// Sets the value. Only the shard's thread may call this.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_the_sum_of_what_was_set_and_added() {
        let counter = Counter::default();
        counter.add(2);
        counter.add(3);
        assert_eq!(counter.get(), 5);
        counter.set(2);
        assert_eq!(counter.get(), 2);
    }
}
