//! The environment of a core, besides its configuration.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_proxy::EgressRoute;
use tidegate_world::Seed;

/// Facts about the machine and the past that a core is built from, besides its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The networks that each listener reaches.
    pub egress_routes: Vec<EgressRoute>,
    /// The seed of the previous process at the same address, if known.
    pub before: Option<Seed>,
    /// Bytes of the machine's memory for held messages, unless the configuration sets it; `None`:
    /// [`MESSAGE_MEMORY_MAX`].
    pub message_memory: Option<usize>,
    /// Unix time at the start of the cores' clock, by which other instances know the age of a route
    /// token. Zero in a reproducible run.
    pub start: Duration,
    /// Addresses of recently removed back ends.
    pub removed: Vec<SocketAddr>,
}

/// Bytes for messages where neither the configuration nor the machine sets it: in simulated time
/// and in replays, which must not depend on the machine.
pub const MESSAGE_MEMORY_MAX: usize = 1 << 30;
