//! Targets of requests.

use std::net::{IpAddr, SocketAddr};

use tidegate_world::{ConnectionId, Flow, Transport};

/// An address to which a request can be sent, with the connection to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) transport: Transport,
    pub(crate) address: SocketAddr,
    /// Connection that must be used, or `None` for any connection to the address.
    pub(crate) connection: Option<ConnectionId>,
    /// True if a phone has registered on the flow to this target, so that the target can be reached
    /// only on this flow.
    pub(crate) is_registered: bool,
    /// True if requests may use another connection to the address, if `connection` has ended.
    pub(crate) may_reconnect: bool,
    /// The local address from which datagrams leave, if the target is the other end of a flow at a
    /// listener with the wildcard address.
    pub(crate) local: Option<IpAddr>,
}

impl From<crate::resolution::Target> for Target {
    fn from(found: crate::resolution::Target) -> Self {
        Self::new(found.transport, found.address)
    }
}

impl Target {
    /// Creates a target at an address.
    pub(crate) fn new(transport: Transport, address: SocketAddr) -> Self {
        let (is_registered, may_reconnect) = (false, false);
        Self { transport, address, connection: None, is_registered, may_reconnect, local: None }
    }

    /// Returns whether the target has this address, over this transport.
    pub(crate) fn is_at(&self, transport: Transport, address: SocketAddr) -> bool {
        (self.transport, self.address) == (transport, address)
    }

    /// Returns whether the target is a registered phone whose connection is known to have ended.
    /// `connection` is `None` if the connection belonged to another process.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_registered && self.transport.is_reliable() && self.connection.is_none()
    }

    /// Returns the flow to the target from the listener at `local`.
    pub(crate) fn flow_from(&self, mut local: SocketAddr) -> Flow {
        let Self { transport, address, connection, .. } = *self;
        if let Some(ip) = self.local
            && local.ip().is_unspecified()
        {
            local.set_ip(ip);
        }
        Flow { transport, local, remote: address, connection }
    }
}
