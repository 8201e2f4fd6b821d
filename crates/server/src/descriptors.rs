//! The file descriptors that a process needs for its connections and DNS queries.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_proxy::queries_max;

use crate::StartError;
use crate::config::{Config, Connections};

/// Number of file descriptors for everything except connections and DNS queries: sockets, files,
/// the admin interface.
const OTHERS: u64 = 512;

/// Maximum number of file descriptors of a DNS query: the query and three retransmissions, each
/// with its own socket, to two servers.
const PER_QUERY: u64 = 8;

/// Minimum number of DNS queries at the same time. [`OTHERS`] has room for their descriptors.
const QUERIES_MIN: u64 = OTHERS / PER_QUERY;

/// Raises the limit on open file descriptors as far as the configured connections need. Raises it
/// for DNS queries too, as far as the process may. Returns the maximum number of DNS queries at the
/// same time.
///
/// # Errors
/// Returns an error if the process may not open the descriptors for the connections.
pub(crate) fn reserve(config: &Config) -> Result<usize, StartError> {
    let Connections { accepted_max, opened_max, .. } = config.connections;
    let connections = (accepted_max + opened_max) as u64;
    let needed = if config.has_streams() { connections + OTHERS } else { 0 };
    let limit = getrlimit(Resource::Nofile);
    let set = |raised| setrlimit(Resource::Nofile, raised).is_ok();
    raise(limit, needed, queries_max(config.server.shards), set).ok_or_else(|| {
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

/// Raises the limit `limit` with `set`, which returns whether it has changed the limit. `needed` is
/// the number of descriptors without those for DNS queries. Returns how many DNS queries, at most
/// `queries_max`, have descriptors at the same time. Returns `None` if the process may not open
/// `needed` descriptors.
fn raise(
    limit: Rlimit,
    needed: u64,
    queries_max: usize,
    set: impl FnOnce(Rlimit) -> bool,
) -> Option<usize> {
    let queries_max = queries_max as u64;
    let wanted = needed.max(OTHERS) + queries_max * PER_QUERY;
    let current = limit.maximum.map_or(wanted, |most| wanted.min(most).max(needed));
    let raised = Rlimit { current: Some(current), ..limit };
    let present = limit.current.filter(|&present| present < current);
    let may_open = present.filter(|_| !set(raised)).unwrap_or(current);
    let for_queries = may_open.saturating_sub(needed.max(OTHERS));
    let queries = (for_queries / PER_QUERY).max(QUERIES_MIN).min(queries_max);
    (may_open >= needed).then_some(queries as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of [`raise`] for 200 queries, and the limit that it sets. The system sets
    /// the limit if `may_set` is true.
    fn raised(present: u64, most: u64, needed: u64, may_set: bool) -> (Option<usize>, Option<u64>) {
        let limit = Rlimit { current: Some(present), maximum: Some(most) };
        let mut to = None;
        let set = |raised: Rlimit| {
            assert_eq!(raised.maximum, limit.maximum);
            to = raised.current.filter(|_| may_set);
            may_set
        };
        (raise(limit, needed, 200, set), to)
    }

    #[test]
    fn the_limit_has_room_for_connections_and_queries() {
        assert_eq!(raised(1_024, 524_288, 0, true), (Some(200), Some(512 + 8 * 200)));
        assert_eq!(raised(1_024, 524_288, 5_000, true), (Some(200), Some(5_000 + 8 * 200)));
        assert_eq!(raised(65_536, 65_536, 5_000, true), (Some(200), None));
        let unlimited = Rlimit { current: None, maximum: None };
        assert_eq!(raise(unlimited, 5_000, 200, |_| false), Some(200));
    }

    #[test]
    fn a_process_starts_with_the_descriptors_that_connections_need() {
        // The system does not let the process raise its limit.
        assert_eq!(raised(1_024, 524_288, 0, false), (Some(64), None));
        assert_eq!(raised(6_000, 524_288, 5_000, false), (Some(125), None));
        assert_eq!(raised(5_000, 524_288, 5_000, false), (Some(64), None));
        assert_eq!(raised(4_999, 524_288, 5_000, false), (None, None));
        assert_eq!(raised(256, 256, 0, false), (Some(64), None));
    }

    #[test]
    fn queries_leave_the_descriptors_of_connections() {
        assert_eq!(raised(1_024, 64_608 + 800, 64_608, true), (Some(100), Some(65_408)));
        assert_eq!(raised(65_536, 65_536, 64_608, true), (Some(116), None));
        assert_eq!(raised(1_024, 4_999, 5_000, false), (None, None));
    }
}
