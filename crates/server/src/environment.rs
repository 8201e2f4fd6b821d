//! What a core is built from beside its configuration.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_proxy::EgressRoute;
use tidegate_world::Seed;

/// Facts about the machine and the past that a core is built from, beside its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The networks that each listener reaches.
    pub egress_routes: Vec<EgressRoute>,
    /// The seed of the process before this one at the same address, if that is known.
    pub before: Option<Seed>,
    /// Bytes of the machine's memory that messages which are held may take, unless the configuration
    /// says how many; `None`: [`MESSAGE_MEMORY_MAX`].
    pub message_memory: Option<usize>,
    /// Unix time when the clock of the cores began: other instances tell the age of a route token by
    /// it. Zero in a run that is to be the same each time.
    pub start: Duration,
    /// Addresses of back ends that were configured until lately.
    pub removed: Vec<SocketAddr>,
}

/// Bytes that messages may take where neither the configuration nor the machine says otherwise: in
/// simulated time and in replays, which must not depend on the machine.
pub const MESSAGE_MEMORY_MAX: usize = 1 << 30;
