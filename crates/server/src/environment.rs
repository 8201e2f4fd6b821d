//! The environment of a core: everything that it needs in addition to its configuration.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_proxy::EgressRoute;
use tidegate_world::Seed;

/// The facts about the machine and the past that a core needs in addition to its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Networks, each with the listener from which the kernel reaches it.
    pub egress_routes: Vec<EgressRoute>,
    /// The seed of the previous process at the same address, if known.
    pub before: Option<Seed>,
    /// Bytes of memory that the machine can give to stored messages. A value in the configuration
    /// takes precedence. `None`: [`MESSAGE_MEMORY_MAX`].
    pub message_memory: Option<usize>,
    /// Unix time at the start of the cores' clock. With it, other instances can determine the age
    /// of a route token. Zero in a reproducible run.
    pub start: Duration,
    /// Addresses of recently removed back ends.
    pub removed: Vec<SocketAddr>,
}

/// Bytes for messages if neither the configuration nor the machine sets a value. This is the case
/// in simulated time and in replays, which must not depend on the machine.
pub const MESSAGE_MEMORY_MAX: usize = 1 << 30;
