//! The cores in a simulated network.

use tidegate_agent::{Answerer, Caller};
use tidegate_server::assembly::Connected;
use tidegate_transport::Streams;
use tidegate_world::{Core, delegate};

/// A core in a simulated network.
pub(super) enum Actor {
    /// Callers of one server.
    Caller(Box<Streams<Caller>>),
    /// A server.
    Server(Connected),
    /// An answerer.
    Answerer(Box<Streams<Answerer>>),
}

impl Actor {
    /// Returns whether it reads from streams now. Agents always do.
    pub fn reads_streams(&self) -> bool {
        match self {
            Self::Server(server) => server.reads_streams(),
            Self::Caller(_) | Self::Answerer(_) => true,
        }
    }
}

impl Core for Actor {
    delegate!(match self {
        Self::Caller(core) => core,
        Self::Server(core) => core,
        Self::Answerer(core) => core,
    });
}
