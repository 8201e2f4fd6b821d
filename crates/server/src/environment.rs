//! The facts about the machine and earlier processes that a core needs besides its configuration.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_proxy::EgressRoute;
use tidegate_world::Seed;

/// The facts about the machine and earlier processes that a core needs besides its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Networks, each with the listener from which the kernel reaches it: the packets to the
    /// network have the address of the listener as their source.
    pub egress_routes: Vec<EgressRoute>,
    /// The random seed of the previous process at the same address, if known.
    pub before: Option<Seed>,
    /// Maximum memory for stored messages, in bytes, derived from the memory of the machine. A
    /// value in the configuration takes precedence. `None` means [`MESSAGE_MEMORY_MAX`].
    pub message_memory: Option<usize>,
    /// Number of DNS queries that the resolver answers at the same time. `None` means that it has
    /// places for all queries.
    pub query_places: Option<usize>,
    /// Unix time at which the clock of the cores starts. A route token contains a time on this
    /// scale, so other instances can determine the age of the token. Zero in a reproducible run.
    pub start: Duration,
    /// Addresses of back ends that were recently removed from the configuration.
    pub removed: Vec<SocketAddr>,
}

/// Maximum memory for stored messages, in bytes, if neither the configuration nor the machine sets
/// a value. In simulated time the machine sets no value, because results must not depend on the
/// machine. A replay uses the recorded value, if the recording has one.
pub const MESSAGE_MEMORY_MAX: usize = 1 << 30;
