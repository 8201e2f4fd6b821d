//! Numbers that a shard counts and other threads read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number with one writer, the shard's thread, and any number of readers.
///
/// No core uses it as an input. So reading it at any time does not affect the behaviour of a core.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the number.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds `n`. Only the writer may call it: a load and a store cost less than an atomic addition,
    /// but with two writers they would lose counts.
    #[inline]
    pub fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    /// Sets the number. Only the writer may call it.
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
