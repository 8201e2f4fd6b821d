//! The wanted state of a running process.

use std::sync::Arc;

use tidegate_proxy::Overload;
use tidegate_world::Timestamp;

use crate::config::{Config, Found, TlsFiles};

/// The state that operators want, as far as it was sent to the shards.
pub(super) struct Wanted {
    /// The configuration as it was last read.
    pub(super) config: Arc<Config>,
    /// The servers of the domains in `config`, as they were last sent to the shards.
    pub(super) found: Arc<Found>,
    /// The last command with servers that no shard is known to have rejected: its number, and the
    /// servers before it.
    pub(super) replaced_found: Option<(u64, Arc<Found>)>,
    /// True if the servers are sent again even if they have not changed, because a shard may have
    /// rejected the last ones. Other shards may have applied them.
    pub(super) is_found_uncertain: bool,
    /// The time before which no servers are sent, because a shard had no room for the last ones.
    pub(super) found_again_at: Timestamp,
    /// Servers that were not sent to the shards, because the command with them would be too long.
    pub(super) too_long: Option<Found>,
    pub(super) overload: Overload,
    /// Number of commands sent so far, without those about keys.
    pub(super) given: u64,
    /// The settings before the last reload.
    pub(super) replaced: Option<Replaced>,
    /// Warnings about the configurations of applied reloads that are not logged yet.
    pub(super) warnings: Vec<String>,
}

/// A reload that no shard is known to have rejected, and the settings that it has replaced.
pub(super) struct Replaced {
    /// Number of the command of the reload.
    pub(super) command: u64,
    pub(super) config: Arc<Config>,
    pub(super) tls: Option<TlsFiles>,
    /// Warnings about the new configuration.
    pub(super) warnings: Vec<String>,
}
