//! Targets of requests.

use std::net::SocketAddr;

use tidegate_world::{ConnectionId, Flow, Transport};

/// A target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) transport: Transport,
    pub(crate) address: SocketAddr,
    /// Connection that it has to use; `None` for any connection to the address.
    pub(crate) connection: Option<ConnectionId>,
}

impl From<crate::resolution::Target> for Target {
    fn from(found: crate::resolution::Target) -> Self {
        Self::new(found.transport, found.address)
    }
}

impl Target {
    /// Creates a target at an address.
    pub(crate) fn new(transport: Transport, address: SocketAddr) -> Self {
        Self { transport, address, connection: None }
    }

    /// Returns the flow to it from the listener at `local`.
    pub(crate) fn flow_from(&self, local: SocketAddr) -> Flow {
        let Self { transport, address, connection } = *self;
        Flow { transport, local, remote: address, connection }
    }
}
