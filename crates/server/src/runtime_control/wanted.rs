//! The state of a running process that operators want.

use std::sync::Arc;

use tidegate_proxy::Overload;
use tidegate_world::Timestamp;

use crate::config::{Config, Found, TlsFiles};

/// The settings that operators have last chosen and Tidegate has sent to the shards.
pub(super) struct Wanted {
    /// The configuration that was last sent to the shards, or read when Tidegate started. If a
    /// shard is known to have rejected it, this is the configuration before it.
    pub(super) config: Arc<Config>,
    /// The servers of the domains in `config`, as they were last sent to the shards.
    pub(super) found: Arc<Found>,
    /// The last command with servers of domains, unless a shard is known to have rejected it: the
    /// number of the command, and the servers before it.
    pub(super) replaced_found: Option<(u64, Arc<Found>)>,
    /// True if the servers of domains must be sent again even if they have not changed, because a
    /// shard may have rejected the last command with servers while other shards have applied it.
    pub(super) is_found_uncertain: bool,
    /// The time before which no servers of domains are sent, because a shard rejected the last ones
    /// for lack of room in a pool.
    pub(super) found_again_at: Timestamp,
    /// Servers of domains that were not sent to the shards, because the command would be too long.
    pub(super) too_long: Option<Found>,
    pub(super) overload: Overload,
    /// Number of commands sent so far, without the commands about keys.
    pub(super) given: u64,
    /// The last reload and the settings before it, until the outcome of the reload is known.
    pub(super) replaced: Option<Replaced>,
    /// Warnings about the configurations of applied reloads that are not logged yet.
    pub(super) warnings: Vec<String>,
}

/// A reload that no shard is known to have rejected, and the settings before it.
pub(super) struct Replaced {
    /// Number of the command of the reload.
    pub(super) command: u64,
    pub(super) config: Arc<Config>,
    pub(super) tls: Option<TlsFiles>,
    /// Warnings about the new configuration.
    pub(super) warnings: Vec<String>,
}
