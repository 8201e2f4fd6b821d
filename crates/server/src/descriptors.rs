//! The file descriptors that a process needs for its connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::StartError;
use crate::config::{Config, Connections};

/// Number of file descriptors for everything except connections: sockets, files, the admin
/// interface.
const OTHERS: u64 = 512;

/// Raises the limit on open file descriptors as far as the configured connections need.
///
/// # Errors
/// Returns an error if the process may not open that many descriptors.
pub(crate) fn reserve(config: &Config) -> Result<(), StartError> {
    if !config.has_streams() {
        return Ok(());
    }
    let Connections { accepted_max, opened_max, .. } = config.connections;
    let needed = (accepted_max + opened_max) as u64 + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(needed), ..limit };
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
