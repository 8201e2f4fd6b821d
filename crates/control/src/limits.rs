//! Limits on the rate at which some sources may send new work. They apply at any load.
//!
//! A limit is a [token bucket](crate::ThrottleKind::TokenBucket) with a rate, in pieces of work a
//! second, and a burst, the number of pieces that may pass at once. The limit applies to each
//! source separately, or to all sources under the limit together. A source is forgotten when its
//! bucket is full again, because a new bucket is full too. All sources for which the table has no
//! room share one bucket for each limit.

use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use crate::Decision;
use crate::source_table::SourceTable;
use crate::throttle::TokenBucket;

/// Interval at which the table removes the sources that have a full bucket again.
const SWEEP: Duration = Duration::from_secs(1);

/// The sources whose work is counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// The work of each source is counted separately.
    Source,
    /// The work of all sources under the limit is counted together.
    Limit,
}

/// A limit on the rate of new work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Number of pieces of new work a second, above 0.
    pub rate: f64,
    /// Maximum number of pieces of new work that pass at once, at least 1.
    pub burst: u32,
    /// The sources whose work the limit counts together.
    pub per: Per,
    /// The decision on work beyond the limit that is remembered for its retransmissions. `None` if
    /// the limit decides about each retransmission again, which needs no memory.
    pub remembered: Option<Decision>,
}

/// A list of limits, each identified by its index.
#[derive(Debug)]
pub struct Limits {
    limits: Vec<Limit>,
    sources: SourceTable<Option<Account>>,
    /// For each limit, one bucket that is shared by all sources without a bucket of their own.
    shared: Vec<TokenBucket>,
    swept: Timestamp,
}

#[derive(Debug)]
struct Account {
    rate: f64,
    bucket: TokenBucket,
}

impl Limits {
    /// Creates these limits, for up to `sources_max` distinct sources. The key of the table's hash
    /// function is drawn from `stream`.
    pub fn new(limits: Vec<Limit>, sources_max: usize, stream: &mut Stream) -> Self {
        Self {
            shared: limits.iter().map(|limit| TokenBucket::new(limit.burst)).collect(),
            limits,
            sources: SourceTable::new(sources_max, stream),
            swept: Timestamp::ZERO,
        }
    }

    /// Returns the limit at this index.
    ///
    /// # Panics
    /// Panics if there is no limit at this index.
    pub fn get(&self, limit: usize) -> Limit {
        self.limits[limit]
    }

    /// Returns the number of sources that have a bucket of their own.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns the number of pieces of work from sources for which the table had no room.
    pub fn overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    /// Returns whether the limit at the index `limit` allows a new request from `source`. An allowed
    /// request counts against the limit. The caller must use the same limit for a source every time.
    ///
    /// # Panics
    /// Panics if there is no limit at this index.
    pub fn passes(&mut self, now: Timestamp, limit: usize, source: u128) -> bool {
        let Limit { rate, burst, per, .. } = self.limits[limit];
        if per == Per::Limit {
            return self.shared[limit].passes(now, rate);
        }
        if now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.sources.sweep(|account| {
                account.as_mut().is_some_and(|Account { rate, bucket }| !bucket.is_full(now, *rate))
            });
        }
        let slot = self.sources.slot(source);
        if slot == SourceTable::<Option<Account>>::SHARED {
            return self.shared[limit].passes(now, rate);
        }
        let account = self.sources.get_mut(slot);
        let new = || Account { rate, bucket: TokenBucket::new(burst) };
        account.get_or_insert_with(new).bucket.passes(now, rate)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_world::{Purpose, Seed};

    use super::*;
    use crate::testing::at_ms;

    fn limits(sources_max: usize, limits: &[(f64, u32, Per)]) -> Limits {
        let limit = |&(rate, burst, per): &_| Limit { rate, burst, per, remembered: None };
        let limits = limits.iter().map(limit).collect();
        Limits::new(limits, sources_max, &mut Seed(1).stream(Purpose::Sources, 0))
    }

    fn burst(limits: &mut Limits, ms: u64, limit: usize, source: u128) -> usize {
        (0..100).take_while(|_| limits.passes(at_ms(ms), limit, source)).count()
    }

    #[test]
    fn each_source_has_a_bucket_of_its_own() {
        let mut limits = limits(10, &[(10.0, 3, Per::Source), (1.0, 1, Per::Source)]);
        assert_eq!(burst(&mut limits, 0, 0, 7), 3);
        assert_eq!(burst(&mut limits, 0, 0, 8), 3);
        assert_eq!(burst(&mut limits, 0, 1, 9), 1);
        assert_eq!(burst(&mut limits, 200, 0, 7), 2);
        assert_eq!(burst(&mut limits, 200, 1, 9), 0);
    }

    #[test]
    fn together_they_have_one() {
        let mut limits = limits(10, &[(10.0, 3, Per::Limit)]);
        assert_eq!((7..12).map(|source| burst(&mut limits, 0, 0, source)).sum::<usize>(), 3);
        assert_eq!(limits.sources(), 0);
    }

    #[test]
    fn sources_with_a_full_bucket_are_forgotten() {
        let mut limits = limits(2, &[(1.0, 2, Per::Source)]);
        assert_eq!([7, 8].map(|source| burst(&mut limits, 0, 0, source)), [2, 2]);
        assert_eq!([9, 10].map(|source| burst(&mut limits, 0, 0, source)), [2, 0], "one for both");
        assert_eq!((limits.sources(), limits.overflowed()), (2, 4));
        assert!(limits.passes(at_ms(1000), 0, 7), "one second is no full bucket");
        assert_eq!((limits.sources(), burst(&mut limits, 1000, 0, 7)), (2, 0));
        assert_eq!(burst(&mut limits, 2000, 0, 11), 2, "8 was forgotten, 7 was not");
        assert_eq!((limits.sources(), burst(&mut limits, 2000, 0, 7)), (2, 1));
    }

    proptest! {
        #[test]
        fn no_source_ever_passes_more_than_a_burst_and_its_rate(
            rate in 0.5..50.0f64, burst in 1..10u32, sources_max in 1..6usize,
            steps in prop::collection::vec((0..400u64, 0..6u128), 1..300),
        ) {
            let mut limits = limits(sources_max, &[(rate, burst, Per::Source)]);
            let (mut ms, mut passed) = (0, [0.0; 6]);
            for (wait, source) in steps {
                ms += wait;
                passed[source as usize] += f64::from(u8::from(limits.passes(at_ms(ms), 0, source)));
            }
            // A source that found no room at first may have a bucket of its own later. So it may
            // use two buckets.
            let most = 2.0 * f64::from(burst) + 2.0 * rate * ms as f64 / 1000.0 + 1e-6;
            prop_assert!(passed.iter().all(|&count| count <= most), "{:?} of {}", passed, most);
        }
    }
}
