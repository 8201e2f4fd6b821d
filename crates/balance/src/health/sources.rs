//! Sets of the sources of requests, and an estimate of how many sources they contain.
//!
//! A set is a map of bits. A keyed hash selects the bit of a source, so several sources may share a
//! bit. Linear counting estimates the number of sources from the number of bits that are not set.
//! For a full map, the estimate is 1,420 sources.
//!
//! Source: Whang, Vander-Zanden, Taylor: A Linear-Time Probabilistic Counting Algorithm for
//! Database Applications, ACM Transactions on Database Systems 15(2), 1990.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 4;

/// Number of bits in a map.
const BITS: u64 = 64 * WORDS as u64;

/// The bit that represents a source in [`Sources`], as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceBit(u8);

impl SourceBit {
    /// Returns the bit of the source with this keyed hash.
    pub(super) fn of(hash: u64) -> Self {
        Self((hash % BITS) as u8)
    }
}

/// A set of sources of requests, with one bit for each source ([`Parties`](super::Parties)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources([u64; WORDS]);

impl Sources {
    pub(crate) fn and(self, others: Self) -> Self {
        Self(array::from_fn(|word| self.0[word] | others.0[word]))
    }

    /// Returns the sources that are not in `others`.
    pub(super) fn without(self, others: Self) -> Self {
        Self(array::from_fn(|word| self.0[word] & !others.0[word]))
    }

    /// Returns the number of bits that are set.
    pub(super) fn bits(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the estimated number of sources.
    pub(super) fn estimate(self) -> f64 {
        let unset = BITS.saturating_sub(self.bits().into()).max(1);
        BITS as f64 * (BITS as f64 / unset as f64).ln()
    }
}

/// A set of sources to which all shards add.
#[derive(Debug, Default)]
pub(super) struct SharedSources([AtomicU64; WORDS]);

impl SharedSources {
    pub(super) fn insert(&self, SourceBit(bit): SourceBit) {
        set(&self.0[usize::from(bit / 64)], 1 << (bit % 64));
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }

    pub(super) fn load(&self) -> Sources {
        Sources(array::from_fn(|word| self.0[word].load(Relaxed)))
    }
}

/// Sets `bit` in `map`. Stores nothing if the bit is already set, because a store would move the
/// cache line back and forth between shards.
pub(super) fn set(map: &AtomicU64, bit: u64) {
    if map.load(Relaxed) & bit == 0 {
        map.fetch_or(bit, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hashes: impl IntoIterator<Item = u64>) -> Sources {
        let shared = SharedSources::default();
        hashes.into_iter().for_each(|hash| shared.insert(SourceBit::of(hash)));
        shared.load()
    }

    #[test]
    fn linear_counting_corrects_for_sources_that_share_a_bit() {
        let estimate = |bits: u64| of(0..bits).estimate().round();
        // Half of the bits: 256 ln 2.
        let expected = [(0, 0.0), (1, 1.0), (10, 10.0), (128, 177.0), (255, 1420.0), (256, 1420.0)];
        for (bits, expected) in expected {
            assert_eq!(estimate(bits), expected, "{bits}");
        }
    }

    #[test]
    fn each_bit_is_a_source_of_its_own() {
        let (even, all) = (of((0..BITS).step_by(2)), of(0..2 * BITS));
        assert_eq!((even.bits(), all.bits(), all.without(even).bits()), (128, 256, 128));
        assert_eq!(all.without(even).and(even), all);
        let shared = SharedSources::default();
        shared.insert(SourceBit::of(200));
        shared.clear();
        assert_eq!(shared.load(), Sources::default());
    }
}
