//! Targets: where a request is sent.

use std::net::SocketAddr;

use tidegate_world::{ConnectionId, Flow, Transport};

/// A place where a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) transport: Transport,
    pub(crate) address: SocketAddr,
    /// The connection that it has to travel on; `None` for whichever leads there.
    pub(crate) connection: Option<ConnectionId>,
}

impl From<crate::resolution::Target> for Target {
    fn from(found: crate::resolution::Target) -> Self {
        Self::new(found.transport, found.address)
    }
}

impl Target {
    /// A target at an address.
    pub(crate) fn new(transport: Transport, address: SocketAddr) -> Self {
        Self { transport, address, connection: None }
    }

    /// The flow to it from the listener at `local`.
    pub(crate) fn flow_from(&self, local: SocketAddr) -> Flow {
        let Self { transport, address, connection } = *self;
        Flow { transport, local, remote: address, connection }
    }
}
