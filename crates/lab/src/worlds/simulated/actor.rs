//! The nodes in a simulated network.

use tidegate_agent::{Answerer, Caller};
use tidegate_server::assembly::Connected;
use tidegate_transport::Streams;
use tidegate_world::{Core, delegate};

/// A node in a simulated network.
pub(super) enum Actor {
    /// A group of callers that call one server.
    Caller(Box<Streams<Caller>>),
    Server(Connected),
    Answerer(Box<Streams<Answerer>>),
}

impl Actor {
    /// Returns whether the node currently reads from its TCP connections. Callers and answerers
    /// always read.
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
