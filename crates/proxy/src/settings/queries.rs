//! Limits on the DNS queries of a process.

use crate::resolution::unfinished_max;

/// Limits on the DNS queries that are sent and not answered yet.
///
/// The resolver of the process answers a limited number of queries at the same time. All shards
/// together send at most that many. So no query waits in the resolver behind queries without an
/// answer. Queries for names of back ends have places of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Maximum number of queries for the names of back ends. Only one shard sends such queries.
    pub backends: usize,
    /// Maximum number of queries of each shard for names in requests
    /// ([`questions_max`](crate::resolution::ResolutionSettings::questions_max)).
    pub requests: usize,
}

impl QueryLimits {
    /// The limits of a process whose resolver has places for all queries.
    pub const MAX: Self = Self { backends: 64, requests: 64 };

    /// The lowest limits.
    pub const MIN: Self = Self { backends: 16, requests: 1 };

    /// Returns the number of queries that the resolver of a process with this number of shards gets
    /// at the same time under these limits.
    pub const fn places(self, shards: u16) -> usize {
        self.backends + shards as usize * unfinished_max(self.requests)
    }

    /// Returns the limits of a process with this number of shards whose resolver answers `places`
    /// queries at the same time. `places` should be at least the [places](Self::places) of
    /// [`MIN`](Self::MIN).
    pub fn within(places: usize, shards: u16) -> Self {
        let per_request = usize::from(shards) * unfinished_max(1);
        let others = places.saturating_sub(Self::MIN.requests * per_request);
        let backends = (places / 2).min(others).clamp(Self::MIN.backends, Self::MAX.backends);
        let requests = places.saturating_sub(backends) / per_request.max(1);
        Self { backends, requests: requests.clamp(Self::MIN.requests, Self::MAX.requests) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SHARDS_MAX;

    #[test]
    fn all_shards_together_send_at_most_as_many_queries_as_have_places() {
        for shards in [1, 2, 7, 8, 24, SHARDS_MAX] {
            let most = QueryLimits::MAX.places(shards);
            for places in QueryLimits::MIN.places(shards)..=most {
                let limits = QueryLimits::within(places, shards);
                assert!(limits.places(shards) <= places, "{limits:?} {places} {shards}");
            }
            assert_eq!(QueryLimits::within(most, shards), QueryLimits::MAX);
            assert_eq!(QueryLimits::within(usize::MAX, shards), QueryLimits::MAX);
            assert_eq!(QueryLimits::within(0, shards), QueryLimits::MIN);
        }
        assert_eq!(QueryLimits::within(116, 4), QueryLimits { backends: 58, requests: 7 });
        assert_eq!(QueryLimits::within(24, 4), QueryLimits::MIN);
    }
}
