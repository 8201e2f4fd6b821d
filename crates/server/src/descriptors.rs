//! The file descriptors that a process needs for its connections and DNS queries.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_proxy::QueryLimits;

use crate::StartError;
use crate::config::{Config, Connections};

/// Number of file descriptors for everything except connections and DNS queries: sockets, files,
/// the admin interface.
const OTHERS: u64 = 512;

/// Maximum number of file descriptors of a DNS query: the query and three retransmissions, each
/// with its own socket, to two servers.
const PER_QUERY: u64 = 8;

/// Raises the limit on open file descriptors as far as the configured connections need. Raises it
/// for DNS queries too, as far as the process may. Returns the maximum number of DNS queries at the
/// same time.
///
/// # Errors
/// Returns an error if the process may not open the descriptors for the connections.
pub(crate) fn reserve(config: &Config) -> Result<usize, StartError> {
    let needed = needed(config);
    let limit = getrlimit(Resource::Nofile);
    let set = |raised| setrlimit(Resource::Nofile, raised).is_ok();
    raise(limit, needed, config.server.shards, set).ok_or_else(|| {
        let may = limit
            .maximum
            .map_or_else(String::new, |most| format!(", but the process may open only {most}"));
        StartError::new(
            "connections",
            format!("the configured connections need {needed} file descriptors{may}"),
            "raise the limit (`ulimit -n`, `LimitNOFILE` of systemd), or lower `[connections] \
             accepted_max` and `opened_max`",
        )
    })
}

/// Returns a warning if the process has descriptors for only `queries` DNS queries at the same
/// time, and needs more.
pub(crate) fn query_warning(config: &Config, queries: usize) -> Option<String> {
    let queries_max = QueryLimits::MAX.places(config.server.shards);
    (queries < queries_max).then(|| {
        format!(
            "the limit on open files leaves descriptors for {queries} DNS queries at the same time \
             instead of {queries_max}; raise the limit to {} (`ulimit -n`, `LimitNOFILE` of \
             systemd)",
            wanted(needed(config), queries_max)
        )
    })
}

/// Returns the number of descriptors for the configured connections and for everything else except
/// DNS queries. Returns zero if no listener is for connections.
fn needed(config: &Config) -> u64 {
    let Connections { accepted_max, opened_max, .. } = config.connections;
    if config.has_streams() { (accepted_max + opened_max) as u64 + OTHERS } else { 0 }
}

/// Returns the number of descriptors that a process uses, if it sends `queries_max` DNS queries at
/// the same time and needs `needed` other descriptors.
fn wanted(needed: u64, queries_max: usize) -> u64 {
    needed.max(OTHERS) + queries_max as u64 * PER_QUERY
}

/// Raises the limit `limit` with `set`, which returns whether it has changed the limit. `needed` is
/// the number of descriptors without those for DNS queries. Returns the number of DNS queries that
/// may have descriptors at the same time. It is at most the number that `shards` shards send, and
/// at least the places of [`QueryLimits::MIN`]. With up to eight shards, this minimum takes at most
/// half of [`OTHERS`]. Returns `None` if the process may not open `needed` descriptors.
fn raise(
    limit: Rlimit,
    needed: u64,
    shards: u16,
    set: impl FnOnce(Rlimit) -> bool,
) -> Option<usize> {
    let [queries_min, queries_max] =
        [QueryLimits::MIN, QueryLimits::MAX].map(|limits| limits.places(shards));
    let wanted = wanted(needed, queries_max);
    let current = limit.maximum.map_or(wanted, |most| wanted.min(most).max(needed));
    let raised = Rlimit { current: Some(current), ..limit };
    let present = limit.current.filter(|&present| present < current);
    let may_open = present.filter(|_| !set(raised)).unwrap_or(current);
    let for_queries = may_open.saturating_sub(needed.max(OTHERS));
    let queries = (for_queries / PER_QUERY) as usize;
    (may_open >= needed).then_some(queries.clamp(queries_min, queries_max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SMALL, load};

    /// Returns the result of [`raise`] for one shard, and the limit that it sets. If `may_set` is
    /// false, the system does not let the process change the limit.
    fn raised(present: u64, most: u64, needed: u64, may_set: bool) -> (Option<usize>, Option<u64>) {
        let limit = Rlimit { current: Some(present), maximum: Some(most) };
        let mut to = None;
        let set = |raised: Rlimit| {
            assert_eq!(raised.maximum, limit.maximum);
            to = raised.current.filter(|_| may_set);
            may_set
        };
        (raise(limit, needed, 1, set), to)
    }

    #[test]
    fn the_limit_has_room_for_connections_and_queries() {
        assert_eq!(raised(1_024, 524_288, 0, true), (Some(192), Some(512 + 8 * 192)));
        assert_eq!(raised(1_024, 524_288, 5_000, true), (Some(192), Some(5_000 + 8 * 192)));
        assert_eq!(raised(65_536, 65_536, 5_000, true), (Some(192), None));
        let unlimited = Rlimit { current: None, maximum: None };
        assert_eq!(raise(unlimited, 5_000, 1, |_| false), Some(192));
        assert_eq!(raise(unlimited, 5_000, 4, |_| false), Some(576));
    }

    #[test]
    fn a_process_starts_with_the_descriptors_that_connections_need() {
        // The system does not let the process raise its limit.
        assert_eq!(raised(1_024, 524_288, 0, false), (Some(64), None));
        assert_eq!(raised(6_000, 524_288, 5_000, false), (Some(125), None));
        assert_eq!(raised(5_000, 524_288, 5_000, false), (Some(18), None));
        assert_eq!(raised(4_999, 524_288, 5_000, false), (None, None));
        assert_eq!(raised(256, 256, 0, false), (Some(18), None));
    }

    #[test]
    fn queries_leave_the_descriptors_of_connections() {
        assert_eq!(raised(1_024, 64_608 + 800, 64_608, true), (Some(100), Some(65_408)));
        assert_eq!(raised(65_536, 65_536, 64_608, true), (Some(116), None));
        assert_eq!(raised(1_024, 4_999, 5_000, false), (None, None));
    }

    #[test]
    fn the_fewest_queries_leave_half_of_the_other_descriptors() {
        for shards in 1..=8 {
            let limit = Rlimit { current: Some(5_000), maximum: Some(5_000) };
            let queries = raise(limit, 5_000, shards, |_| false).unwrap();
            assert_eq!(QueryLimits::within(queries, shards), QueryLimits::MIN);
            assert!(queries as u64 * PER_QUERY <= OTHERS / 2, "{queries}");
        }
    }

    #[test]
    fn a_lack_of_descriptors_for_queries_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let config = load(dir.path(), SMALL);
        let warning = query_warning(&config, 116).unwrap();
        let expected = "descriptors for 116 DNS queries at the same time instead of 192; raise the \
                        limit to 2048 ";
        assert!(warning.contains(expected), "{warning}");
        assert_eq!(query_warning(&config, 192), None);
    }
}
