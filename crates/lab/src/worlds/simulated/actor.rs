//! The cores in a simulated network.

use tidegate_agent::{Answerer, Caller};
use tidegate_server::assembly::Server;
use tidegate_world::{Core, delegate};

/// A core in a simulated network.
pub(super) enum Actor {
    /// Callers of one server.
    Caller(Box<Caller>),
    /// A server.
    Server(Server),
    /// An answerer.
    Answerer(Box<Answerer>),
}

impl Core for Actor {
    delegate!(match self {
        Self::Caller(core) => core,
        Self::Server(core) => core,
        Self::Answerer(core) => core,
    });
}
