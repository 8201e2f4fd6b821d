//! Limits the share of a bounded table that each source may use.
//!
//! Each source may hold at most as many entries as are free. So a single source can fill half of a
//! table, k sources can each fill 1/(k + 1) of it, and there is always room for a new source. This
//! is the "dynamic threshold" of Choudhury and Hahne ("Dynamic Queue Length Thresholds for
//! Shared-Memory Packet Switches", 1998).
//!
//! Sources are counted in a fixed number of buckets, by a keyed hash, so that no source can choose
//! the bucket of another. An entry is counted only if the table is [more than a quarter
//! full](is_scarce) when the entry is added. So in normal operation this costs one comparison.

use std::net::IpAddr;

use crate::keys::TableKey;
use crate::network::source_of;

/// Number of buckets. Two sources share a bucket with a probability of 1 over this number.
const BUCKETS: usize = 1 << 14;

/// The index of the bucket in which a source is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceBucket(u16);

impl SourceBucket {
    /// Returns the bucket of the source at `address`.
    pub(crate) fn of(key: &TableKey, address: IpAddr) -> Self {
        Self((hash_of(key, address) % BUCKETS as u64) as u16)
    }
}

/// Returns the keyed hash of the source at `address`.
pub(crate) fn hash_of(key: &TableKey, address: IpAddr) -> u64 {
    key.hash_number(source_of(address))
}

/// Returns whether a table of size `max` is so full that each source is limited to a share.
#[inline]
pub(crate) fn is_scarce(used: usize, max: usize) -> bool {
    used > max / 4
}

/// Returns how much of a table of size `max` new work may fill. The last eighth is reserved for
/// calls in progress.
pub(crate) fn for_new_work(max: usize) -> usize {
    max - max / 8
}

/// A number of table entries, and the bytes that they use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl Amount {
    /// Returns this amount less `held`, but at least zero.
    pub(crate) fn without(self, held: Self) -> Self {
        Self {
            entries: self.entries.saturating_sub(held.entries),
            bytes: self.bytes.saturating_sub(held.bytes),
        }
    }

    /// Returns the minimum of the two amounts, for entries and bytes separately.
    pub(crate) fn min(self, other: Self) -> Self {
        Self { entries: self.entries.min(other.entries), bytes: self.bytes.min(other.bytes) }
    }

    /// Returns whether this amount has entries, and is at least as large as `free` in entries or in
    /// bytes.
    pub(crate) fn exhausts(self, free: Self) -> bool {
        self.entries > 0 && (self.entries >= free.entries || self.bytes >= free.bytes)
    }

    /// Adds an entry of this many bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes;
    }

    /// Removes an entry of this many bytes.
    pub(crate) fn remove(&mut self, bytes: usize) {
        self.entries -= 1;
        self.bytes -= bytes;
    }
}

/// The amounts that sources hold of a bounded table.
#[derive(Default)]
pub(crate) struct Shares {
    /// The amount held by the sources in each bucket. The list is empty until the first entry.
    held: Vec<Amount>,
}

impl Shares {
    /// Returns whether a source has used up its share: it holds entries, and at least as many
    /// entries or bytes as are `free`.
    pub(crate) fn is_exhausted(&self, bucket: SourceBucket, free: Amount) -> bool {
        let held = self.held.get(usize::from(bucket.0)).copied().unwrap_or_default();
        held.exhausts(free)
    }

    /// Counts one more entry of a source, without bytes yet.
    pub(crate) fn add_entry(&mut self, bucket: SourceBucket) {
        if self.held.is_empty() {
            self.held.resize(BUCKETS, Amount::default());
        }
        self.held[usize::from(bucket.0)].entries += 1;
    }

    /// Records that the size of a counted entry has changed from `before` to `after` bytes.
    pub(crate) fn resize_entry(&mut self, bucket: SourceBucket, before: usize, after: usize) {
        let held = &mut self.held[usize::from(bucket.0)];
        held.bytes = held.bytes + after - before;
    }

    /// Removes a counted entry of this many bytes.
    pub(crate) fn remove_entry(&mut self, bucket: SourceBucket, bytes: usize) {
        self.held[usize::from(bucket.0)].remove(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(address: &str) -> SourceBucket {
        SourceBucket::of(&TableKey::derive(&[1; 32], "source"), address.parse().unwrap())
    }

    /// Returns the number of entries that each of `sources` sources gets in a table of `max`
    /// entries, if each takes as many as it can.
    fn filled(max: usize, sources: usize) -> Vec<usize> {
        let buckets: Vec<_> = (0..sources).map(|i| bucket(&format!("192.0.2.{i}"))).collect();
        let (mut shares, mut held) = (Shares::default(), vec![0; sources]);
        for _ in 0..max {
            for (bucket, held) in buckets.iter().zip(&mut held) {
                let used: usize = shares.held.iter().map(|held| held.entries).sum();
                let free = Amount { entries: max - used, bytes: usize::MAX };
                if free.entries > 0 && !shares.is_exhausted(*bucket, free) {
                    shares.add_entry(*bucket);
                    *held += 1;
                }
            }
        }
        held
    }

    #[test]
    fn greedy_sources_leave_as_much_as_each_of_them_has() {
        assert_eq!(filled(1000, 1), [500]);
        assert_eq!(filled(900, 2), [300; 2]);
        assert_eq!(filled(1000, 9), [100; 9]);
    }

    #[test]
    fn bytes_count_as_entries_do_and_are_given_back() {
        let (mut shares, of) = (Shares::default(), bucket("192.0.2.1"));
        let free = |bytes| Amount { entries: 1000, bytes };
        assert!(!shares.is_exhausted(of, free(0)), "who holds nothing has a share");
        shares.add_entry(of);
        shares.resize_entry(of, 0, 60_000);
        assert!(!shares.is_exhausted(of, free(60_001)));
        assert!(shares.is_exhausted(of, free(60_000)));
        assert!(!shares.is_exhausted(bucket("192.0.2.2"), free(60_000)));
        shares.resize_entry(of, 60_000, 400);
        assert!(!shares.is_exhausted(of, free(401)));
        shares.remove_entry(of, 400);
        assert!(shares.held.iter().all(|held| *held == Amount::default()));
    }

    #[test]
    fn a_network_of_64_bits_has_one_share() {
        assert_eq!(bucket("2001:db8::1"), bucket("2001:db8::ffff:0:0:2"));
        assert_ne!(bucket("2001:db8::1"), bucket("2001:db8:0:1::1"));
    }
}
