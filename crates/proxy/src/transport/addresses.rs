//! The addresses of listeners and back ends, which determine the origin of a message and the names
//! that are ours.

mod backends;
mod origin;
mod own;

use std::net::{IpAddr, SocketAddr};

use tidegate_sip::{Host, Uri};
use tidegate_world::{Flow, Timestamp, Transport};

use self::backends::BackendAddresses;
pub(crate) use self::origin::Origin;
pub(crate) use self::own::Own;
use crate::network::{canonical, may_be_sent_to};
use crate::resolution::{default_port, transport_of};
use crate::settings::{BackendRef, EgressRoute, PoolSettings, Settings};
use crate::target::Target;

/// The addresses of the listeners of a proxy and of its current and removed back ends.
pub(crate) struct Addresses {
    listeners: Vec<Own>,
    backends: BackendAddresses,
    /// The listener from which each network is reached, in the order of the prefix length, longest
    /// first.
    routes: Vec<EgressRoute>,
    /// For each pool, the listener for requests to it, if one is configured.
    pool_listeners: Vec<Option<usize>>,
}

impl Addresses {
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut addresses = Self {
            listeners: settings.listeners.iter().map(Own::new).collect(),
            backends: BackendAddresses::new(settings),
            routes: settings.egress_routes.clone(),
            pool_listeners: Vec::new(),
        };
        addresses.locate(Timestamp::ZERO, &settings.pools);
        addresses
    }

    /// Reads the addresses of the back ends in these pools, and the listeners for requests to them.
    /// Remembers former addresses for a time.
    pub(crate) fn locate(&mut self, now: Timestamp, pools: &[PoolSettings]) {
        self.pool_listeners = pools.iter().map(|pool| pool.listener).collect();
        let stream_pools =
            pools.iter().map(|pool| self.transport_of_pool(pool).is_reliable()).collect();
        self.backends.locate(now, pools, stream_pools);
    }

    /// Returns whether `address` belongs to a back end that was removed from the configuration and
    /// may still have dialogs.
    pub(crate) fn was_removed(&self, now: Timestamp, address: SocketAddr) -> bool {
        self.backends.was_removed(now, address)
    }

    /// Returns whether an address from outside, such as from the DNS, may be a target: it is not
    /// ours, it belongs to one host, it has a port, and a listener can reach it.
    pub(crate) fn may_be_backend(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let is_own = |l: &Own| l.is_here(ip) && l.is_port(address.port());
        may_be_sent_to(address)
            && !self.listeners.iter().any(is_own)
            && self.listeners.iter().any(|own| own.reaches_address(address))
    }

    /// Returns whether a request may be sent to a target that comes from outside, such as from the
    /// DNS.
    pub(crate) fn may_be_target(&self, target: &Target) -> bool {
        self.may_be_backend(target.address) && self.listeners.iter().any(|own| own.reaches(target))
    }

    pub(crate) fn backend_ref(&self, address: SocketAddr) -> Option<BackendRef> {
        self.backends.at(address)
    }

    /// Returns whether other programs may send from this address, because it is an address of this
    /// machine.
    pub(crate) fn is_shared(&self, ip: IpAddr) -> bool {
        self.listeners.iter().any(|own| own.is_here(ip))
    }

    /// Returns whether `sent_by` names one of our listeners.
    ///
    /// RFC 3261 §16.11: "When a response arrives at a stateless proxy, the proxy MUST inspect the
    /// sent-by value in the first (topmost) Via header field value." "If the address does not match
    /// the proxy, the message MUST be silently discarded."
    pub(crate) fn is_own_sent_by(&self, sent_by: &[u8]) -> bool {
        self.listeners.iter().any(|l| l.advertised.as_bytes() == sent_by)
            || self.is_own_sent_by_other(sent_by)
    }

    /// Returns whether `sent_by` names one of our listeners in a spelling other than ours.
    fn is_own_sent_by_other(&self, sent_by: &[u8]) -> bool {
        let Some((host, port)) = Host::parse_with_port(sent_by) else { return false };
        let is_host = |l: &Own| match l.ip {
            Some(ip) => host.ip() == Some(ip),
            None => is_host(&host, &l.host),
        };
        self.listeners
            .iter()
            .any(|l| is_host(l) && port.unwrap_or(default_port(l.transport)) == l.port)
    }

    /// Returns whether the `maddr` of the Request-URI of a message on `flow` names us, with the
    /// port at which the message arrived.
    ///
    /// RFC 3261 §16.4: "If the Request-URI has a maddr parameter with a value the proxy is
    /// responsible for, and the request was received using the port and transport indicated
    /// (explicitly or by default) in the Request-URI".
    ///
    /// RFC 3261 §16.4: "If the Request-URI contains a maddr parameter, the proxy MUST check to see
    /// if its value is in the set of addresses or domains the proxy is configured to be responsible
    /// for."
    pub(crate) fn is_own_maddr(&self, uri: &Uri<'_>, flow: &Flow) -> bool {
        let Some(host) = uri.maddr().and_then(Host::parse) else { return false };
        if transport_of(uri) != Some(flow.transport) {
            return false;
        }
        let local = flow.local;
        let at = &self.listeners[self.listener_at(flow)];
        let is_here = match host.ip() {
            Some(ip) => ip == local.ip() || self.listeners.iter().any(|l| l.is_ip(ip)),
            None => self.listeners.iter().any(|l| is_host(&host, &l.host) || l.has_name(&host)),
        };
        let port = port_of(uri);
        is_here && (at.is_port(port) || port == local.port())
    }

    /// Returns the index of the listener at which a message on `flow` arrived: the listener that is
    /// bound to the local address of the flow, or to the wildcard address with the same port.
    /// Returns 0 if there is no such listener.
    pub(crate) fn listener_at(&self, flow: &Flow) -> usize {
        if self.listeners.len() == 1 {
            return 0;
        }
        let Flow { transport, local, .. } = *flow;
        let exact = |l: &Own| l.local == local && l.transport == transport;
        let covers = |l: &Own| {
            l.local.ip().is_unspecified()
                && l.local.port() == local.port()
                && l.local.is_ipv4() == local.is_ipv4()
                && l.transport == transport
        };
        let exact = self.listeners.iter().position(exact);
        exact.or_else(|| self.listeners.iter().position(covers)).unwrap_or(0)
    }

    /// Returns the transport of the listener at `index`, or of the first listener if there is no
    /// listener at `index`.
    pub(crate) fn transport(&self, index: usize) -> Transport {
        self.listeners.get(index).unwrap_or(&self.listeners[0]).transport
    }

    /// Returns the transport of requests to the back ends of a pool.
    pub(crate) fn transport_of_pool(&self, pool: &PoolSettings) -> Transport {
        pool.transport.unwrap_or_else(|| self.transport(pool.listener.unwrap_or_default()))
    }

    pub(crate) fn listener(&self, index: usize) -> Option<&Own> {
        self.listeners.get(index)
    }

    /// Selects the listener from which a request that came in at `ingress` leaves for `target`.
    /// Returns `None` if no listener reaches the target.
    ///
    /// The first of these listeners that reaches the target is selected:
    ///
    /// 1. the listener that the configuration of the back end's pool names;
    /// 2. `recorded`, which a Route value of the request names, or which is stored with the flow of
    ///    the target;
    /// 3. the listener at the address that the kernel would use as source, because a socket bound
    ///    to another address may not reach the target at all;
    /// 4. `ingress`;
    /// 5. any other listener.
    ///
    /// If the target is a back end, listeners that other instances do not share take precedence in
    /// 2 to 5. So the response reaches the instance that sent the request.
    pub(crate) fn egress(
        &self,
        ingress: usize,
        recorded: Option<u8>,
        target: &Target,
    ) -> Option<usize> {
        let reaches = |&i: &usize| self.listeners.get(i).is_some_and(|own| own.reaches(target));
        if let [only] = &*self.listeners {
            return only.reaches(target).then_some(0);
        }
        let backend_ref = self.backend_ref(target.address);
        let configured = backend_ref
            .and_then(|backend_ref| *self.pool_listeners.get(usize::from(backend_ref.pool))?);
        if let Some(configured) = configured.filter(reaches) {
            return Some(configured);
        }
        let recorded = recorded.map(usize::from);
        let wanted = [recorded, self.routed(ingress, target.address), Some(ingress)];
        let mut ranked =
            wanted.into_iter().flatten().chain(0..self.listeners.len()).filter(reaches);
        if backend_ref.is_some() {
            let own = ranked.clone().find(|&i| !self.listeners[i].is_shared());
            return own.or_else(|| ranked.next());
        }
        ranked.next()
    }

    /// Returns the listener for a message that goes to `target` over another transport than usual.
    /// `usual` is the listener for the usual transport. The returned listener has the same IP
    /// address and, if possible, the same port.
    pub(crate) fn beside(&self, usual: usize, target: &Target) -> Option<usize> {
        let usual = self.listeners.get(usual)?.local;
        let is_it = |own: &Own| own.local.ip() == usual.ip() && own.reaches(target);
        let all = self.listeners.iter().enumerate().filter(|(_, own)| is_it(own));
        all.min_by_key(|(_, own)| own.local.port() != usual.port()).map(|(index, _)| index)
    }

    /// Returns the listener at the address that the kernel uses as source toward `target`. If
    /// `ingress` has that address, `ingress` is returned.
    fn routed(&self, ingress: usize, target: SocketAddr) -> Option<usize> {
        let target = canonical(target).ip();
        // The routes apply to other machines only, and not to sockets at the wildcard address.
        if target.is_loopback() || self.listeners[ingress].local.ip().is_unspecified() {
            return None;
        }
        let route = self.routes.iter().find(|route| route.to.contains(&target))?;
        let at = |i: usize| self.listeners.get(i).map(|own| own.local.ip());
        if at(route.listener) == at(ingress) { Some(ingress) } else { Some(route.listener) }
    }

    /// Returns the index of the listener that `uri` names. `uri` is a Route value that names this
    /// proxy.
    pub(crate) fn named(&self, uri: &Uri<'_>) -> Option<u8> {
        let (port, transport) = (port_of(uri), transport_of(uri)?);
        let names = |own: &Own| {
            let is_host = own.is_host(uri) || own.is_listed(uri);
            is_named(own.transport, transport) && is_host && own.is_port(port)
        };
        let index = self.listeners.iter().position(names)?;
        u8::try_from(index).ok()
    }

    /// Returns whether `uri`, a Route value of a message on `flow`, names us: it is our own
    /// Record-Route, or the outbound proxy that the client has configured.
    ///
    /// RFC 3261 §16.4: "If the first value in the Route header field indicates this proxy, the
    /// proxy MUST remove that value from the request." A client finds its outbound proxy by RFC
    /// 3263. So if the client names a domain without a port, the SRV records of this domain contain
    /// the port.
    pub(crate) fn is_own_route(&self, uri: &Uri<'_>, flow: &Flow) -> bool {
        let port = port_of(uri);
        // A browser names the port of its URL only if that is not the default one.
        let is_default = |own: &Own| {
            let named = || transport_of(uri).is_some_and(|by| is_named(own.transport, by));
            uri.port.is_none() && own.is_port(default_port(own.transport)) && named()
        };
        self.is_own(uri, flow, |own| own.is_port(port) || is_default(own)) || self.is_listed(uri)
    }

    /// Returns whether the Request-URI of a message on `flow` is addressed to us. A URI with a host
    /// of ours needs no port, because the request has arrived here.
    pub(crate) fn is_own_target(&self, uri: &Uri<'_>, flow: &Flow) -> bool {
        // RFC 3261 §16.4: an maddr must name an address that we are responsible for.
        let elsewhere = |at: Target| {
            let ip = at.address.ip();
            ip != flow.local.ip() && self.listeners.iter().all(|l| !l.is_ip(ip))
        };
        if uri.maddr().is_some() && self.target_of(uri).is_none_or(elsewhere) {
            return false;
        }
        // A URI with a user and one of our further names may be the Contact of a phone in the same
        // domain.
        self.is_own(uri, flow, |l| uri.port.is_none_or(|port| l.is_port(port)))
            || uri.user.is_none() && self.is_listed(uri)
    }

    /// Returns whether `uri` has one of the further names of a listener, and no port or a port of
    /// this listener.
    fn is_listed(&self, uri: &Uri<'_>) -> bool {
        let is_port = |own: &Own| uri.port.is_none_or(|port| own.is_port(port));
        self.listeners.iter().any(|own| own.is_listed(uri) && is_port(own))
    }

    /// Returns whether `uri` has a host of ours and a port for which `suits` is true. If a listener
    /// is bound to the wildcard address, the local address of the message is ours too.
    fn is_own(&self, uri: &Uri<'_>, flow: &Flow, suits: impl Fn(&Own) -> bool) -> bool {
        let arrived = uri.host.and_then(|host| host.ip()) == Some(flow.local.ip());
        self.listeners.iter().any(|l| l.is_host(uri) && suits(l))
            || arrived && suits(&self.listeners[self.listener_at(flow)])
    }

    /// Returns whether any listener accepts streams.
    pub(crate) fn has_streams(&self) -> bool {
        self.listeners.iter().any(|own| own.transport.is_reliable())
    }

    /// Returns the target that a URI names by a numeric address, if a listener has its transport.
    pub(crate) fn target_of(&self, uri: &Uri<'_>) -> Option<Target> {
        let named = transport_of(uri)?;
        // RFC 7118 §5.2: a WebSocket over TLS has the parameter `ws` too.
        let ours = self.listeners.iter().map(|own| own.transport);
        let ours = ours.filter(|own| is_named(*own, named));
        let transport = ours.min_by_key(|own| *own != named)?;
        // RFC 3261 §19.1.1: "The maddr parameter indicates the server address to be
        // contacted for this user, overriding any address derived from the host field."
        let ip = match uri.maddr() {
            Some(maddr) => Host::parse(maddr)?.ip()?,
            None => uri.host?.ip()?,
        };
        Some(Target::new(transport, SocketAddr::new(ip, port_of(uri))))
    }

    /// Returns whether `target` is one of our own sockets, or the local address of the packet.
    pub(crate) fn is_own_socket(&self, target: SocketAddr, local: SocketAddr) -> bool {
        let (target, local) = (canonical(target), canonical(local));
        let arrived = |l: &Own| l.local.ip().is_unspecified() && local.ip() == target.ip();
        let own = |l: &Own| l.is_port(target.port()) && (l.is_ip(target.ip()) || arrived(l));
        target == local || self.listeners.iter().any(own)
    }
}

/// Returns whether a SIP URI with the transport parameter `by` may name a listener that uses
/// `transport`. The parameter `ws` means a WebSocket with or without TLS (RFC 7118 §5.2).
fn is_named(transport: Transport, by: Transport) -> bool {
    transport == by || transport == Transport::Wss && by == Transport::Ws
}

/// Returns the port of a URI, or the default port of its transport.
fn port_of(uri: &Uri<'_>) -> u16 {
    let usual = || transport_of(uri).map_or(uri.port_or_default(), default_port);
    uri.port.unwrap_or_else(usual)
}

/// Returns whether `host` is the host configured as `name`, in any spelling. RFC 3261 §25.1: a host
/// name may end with a dot. A configured name does not.
pub(crate) fn is_host(host: &Host<'_>, name: &str) -> bool {
    let host = match *host {
        Host::Name(text) => Host::Name(text.strip_suffix(b".").unwrap_or(text)),
        address => address,
    };
    Host::parse(name.as_bytes()).is_some_and(|named| named.eq_ignore_case(&host))
}
