//! The origin of a message: a back end, a trusted source or a stranger.

use std::net::{IpAddr, SocketAddr};

use tidegate_sip::Via;
use tidegate_world::{ConnectionId, Flow, Transport};

use super::Addresses;
use crate::network::canonical;
use crate::resolution::default_port;
use crate::settings::BackendRef;

/// The origin of a message. The origin determines the targets that the source may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A back end. Its requests may follow a Route set, and may go to any address, not only to pools
    /// and users.
    Backend(BackendRef),
    /// A source configured as trusted. Its requests may follow a Route set, and may go to any
    /// address, not only to pools and users.
    Trusted,
    /// Neither a back end nor a trusted source. It may reach only the pools and users to which
    /// rules lead.
    Stranger,
}

impl Origin {
    /// Returns the back end, or `None` if the origin is not a back end.
    pub(crate) fn backend_ref(self) -> Option<BackendRef> {
        match self {
            Self::Backend(backend_ref) => Some(backend_ref),
            Self::Trusted | Self::Stranger => None,
        }
    }
}

impl Addresses {
    /// Returns the origin of messages from the other end of `flow`.
    pub(crate) fn origin(&self, flow: &Flow) -> Origin {
        let ip = canonical(flow.remote).ip();
        if let Some(backend_ref) = self.backend_ref(flow.remote)
            && self.may_be_port_of(backend_ref, flow, ip)
        {
            return Origin::Backend(backend_ref);
        }
        if may_come_from_backend(flow.transport)
            && let Some(backend_ref) = self.backends.on_streams_at(ip)
            && !self.is_shared(ip)
        {
            return Origin::Backend(backend_ref);
        }
        if let Some(backend_ref) = self.backends.in_network_of(ip) {
            return Origin::Backend(backend_ref);
        }
        let listener = &self.listeners[self.listener_at(flow)].listener;
        if listener.trust.iter().any(|net| net.contains(&ip)) {
            Origin::Trusted
        } else {
            Origin::Stranger
        }
    }

    /// Returns whether a request on `flow` uses a connection that this proxy opens to a stranger: a
    /// peer that is neither a current or removed back end nor a trusted source. A stranger may have
    /// chosen the address itself, in a Contact.
    pub(crate) fn leads_to_stranger(&self, flow: &Flow) -> bool {
        flow.transport.is_reliable()
            && flow.connection.is_none_or(ConnectionId::is_opened)
            && !self.backends.remembers(flow.remote)
            && self.origin(flow) == Origin::Stranger
    }

    /// Returns whether a message on `flow` comes from this back end, whose address and port `flow`
    /// has. If the other end has opened the connection, its port is arbitrary, and may by chance be
    /// the UDP port of a back end at the same address. But the port cannot be one at which the back
    /// end listens for connections, because that port is in use.
    fn may_be_port_of(&self, backend_ref: BackendRef, flow: &Flow, ip: IpAddr) -> bool {
        if !flow.transport.is_reliable() || flow.connection.is_some_and(ConnectionId::is_opened) {
            return true;
        }
        let is_clear = self.backends.is_by_stream(backend_ref) || !self.is_shared(ip);
        may_come_from_backend(flow.transport) && is_clear
    }

    /// Returns the back end that has opened the connection of `flow` and names itself in the `via`
    /// of its request. Only the Via distinguishes several back ends at one host, and a back end on
    /// this machine from other programs. A back end that is reached over UDP also opens a
    /// connection for a large request, as RFC 3261 §18.1.1 requires. Such a back end is not
    /// recognized at an address of this machine.
    pub(crate) fn backend_by_via(&self, flow: &Flow, via: &Via<'_>) -> Option<BackendRef> {
        if !may_come_from_backend(flow.transport) {
            return None;
        }
        let ip = canonical(flow.remote).ip();
        let named = via.host.ip().filter(|named| named.to_canonical() == ip)?;
        let port = via.port.unwrap_or_else(|| default_port(flow.transport));
        let backend_ref = self.backend_ref(SocketAddr::new(named, port))?;
        // Callers behind a reverse proxy on this machine also connect from an address of ours.
        let is_clear = self.backends.is_by_stream(backend_ref) || !self.is_shared(ip);
        is_clear.then_some(backend_ref)
    }

    /// Returns whether the connection of `flow` may be one that `backend` has opened, from any
    /// port. `transport` is that of requests to the back end. On this machine, only the `via`
    /// distinguishes a back end from other programs, and a back end that is reached over UDP is not
    /// recognized, as in [`backend_by_via`](Self::backend_by_via).
    pub(crate) fn may_be_connection_of(
        &self,
        flow: &Flow,
        via: &Via<'_>,
        backend: SocketAddr,
        transport: Transport,
    ) -> bool {
        let (backend, ip) = (canonical(backend), canonical(flow.remote).ip());
        let is_named = || {
            let host = via.host.ip().map(|named| named.to_canonical());
            let port = via.port.unwrap_or_else(|| default_port(flow.transport));
            host == Some(backend.ip()) && port == backend.port()
        };
        may_come_from_backend(flow.transport)
            && backend.ip() == ip
            && (!self.is_shared(ip) || transport.is_reliable() && is_named())
    }

    /// Returns whether the peer of `flow` is trusted to assert the identity of the caller (RFC 3325
    /// §1). Back ends and the trusted sources of the listener always are.
    pub(crate) fn believes(&self, flow: &Flow) -> bool {
        if self.origin(flow) != Origin::Stranger {
            return true;
        }
        let ip = canonical(flow.remote).ip();
        let listener = &self.listeners[self.listener_at(flow)].listener;
        listener.trust_identity.iter().any(|net| net.contains(&ip))
    }
}

/// Returns whether back ends open connections of this transport.
fn may_come_from_backend(transport: Transport) -> bool {
    transport.is_reliable() && !transport.is_websocket()
}
