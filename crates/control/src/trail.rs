//! The last measurements of a growing quantity.

use std::collections::VecDeque;

/// The last `k` measurements of a growing quantity, such as time or counts.
#[derive(Clone, Debug)]
pub(crate) struct Trail<T> {
    k: usize,
    /// The measurements, oldest first: at most k − 1 of them.
    taken: VecDeque<T>,
}

impl<T: Copy> Trail<T> {
    /// Creates a trail of `k` measurements, which span k − 1 intervals. `k` is at least 2.
    pub(crate) fn new(k: usize) -> Self {
        Self { k, taken: VecDeque::with_capacity(k) }
    }

    /// Returns the newest measurement, or `None` if there is none since the start or the last
    /// [`clear`](Self::clear).
    pub(crate) fn newest(&self) -> Option<T> {
        self.taken.back().copied()
    }

    /// Adds a measurement. Returns the oldest of the last k measurements, or `None` while there are
    /// fewer than k.
    pub(crate) fn push(&mut self, newest: T) -> Option<T> {
        self.taken.push_back(newest);
        if self.taken.len() < self.k { None } else { self.taken.pop_front() }
    }

    pub(crate) fn clear(&mut self) {
        self.taken.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_last_k_is_k_minus_one_intervals_back() {
        let mut trail = Trail::new(3);
        assert_eq!(trail.newest(), None);
        assert_eq!(trail.push(1), None);
        assert_eq!(trail.push(2), None);
        assert_eq!(trail.push(3), Some(1));
        assert_eq!(trail.push(4), Some(2));
        assert_eq!(trail.newest(), Some(4));
        trail.clear();
        assert_eq!((trail.newest(), trail.push(5)), (None, None));
    }
}
