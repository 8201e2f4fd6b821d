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

/// Raises the limit on open file descriptors as far as the configured connections need. Raises it
/// for DNS queries too, as far as the process may.
///
/// # Errors
/// Returns an error if the process may not open that many descriptors.
pub(crate) fn reserve(config: &Config) -> Result<(), StartError> {
    let Connections { accepted_max, opened_max, .. } = config.connections;
    let connections = (accepted_max + opened_max) as u64;
    let needed = if config.has_streams() { connections + OTHERS } else { 0 };
    let queries = queries_max(config.server.shards) as u64 * PER_QUERY;
    let wanted = needed.max(OTHERS) + queries;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum.map_or(wanted, |most| wanted.min(most).max(needed));
    if limit.current.is_none_or(|present| present >= current) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(current), ..limit };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
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
