//! The addresses of listeners and back ends, which determine the origin of a message and the names
//! that are ours.

mod own;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hashbrown::HashMap;
use ipnet::IpNet;
use tidegate_balance::{AdminState, Named};
use tidegate_sip::{Host, Uri, Via};
use tidegate_world::{ConnectionId, Flow, Timestamp, Transport};

pub(crate) use self::own::Own;
use crate::network::{canonical, may_be_sent_to};
use crate::resolution::{default_port, transport_of};
use crate::settings::{BackendRef, EgressRoute, PoolSettings, Settings};
use crate::target::Target;

/// Maximum number of addresses of removed back ends that are remembered. The oldest ones are
/// forgotten first.
const REMOVED_MAX: usize = 65_536;

/// The origin of a message. The origin determines the targets that the source may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A back end. Besides pools and users, it may reach Route sets and other addresses.
    Backend(BackendRef),
    /// A source configured as trusted. Besides pools and users, it may reach Route sets and other
    /// addresses.
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

/// The addresses of the listeners of a proxy and of its current and removed back ends.
pub(crate) struct Addresses {
    listeners: Vec<Own>,
    backend_refs: HashMap<SocketAddr, BackendRef>,
    /// Hosts of back ends that are reached over streams, each with its first back end. The
    /// connections that these back ends open have arbitrary ports.
    hosts: HashMap<IpAddr, BackendRef>,
    /// Networks from which back ends send, besides their addresses.
    networks: Vec<(IpNet, BackendRef)>,
    /// The listener from which each network is reached, in the order of the prefix length, longest
    /// first.
    routes: Vec<EgressRoute>,
    /// Addresses of back ends that were removed from the configuration, each with the time up to
    /// which its dialogs continue.
    removed: HashMap<SocketAddr, Timestamp>,
    /// Time for which the dialogs of a removed back end continue.
    removed_for: Duration,
    /// For each pool, the listener for requests to it, if one is configured.
    pool_listeners: Vec<Option<usize>>,
    /// For each pool, whether its back ends are reached over streams.
    stream_pools: Vec<bool>,
}

impl Addresses {
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut addresses = Self {
            listeners: settings.listeners.iter().map(Own::new).collect(),
            backend_refs: HashMap::new(),
            hosts: HashMap::new(),
            networks: Vec::new(),
            routes: settings.egress_routes.clone(),
            pool_listeners: Vec::new(),
            stream_pools: Vec::new(),
            removed: HashMap::new(),
            removed_for: settings.removed_backend,
        };
        let until = Timestamp::ZERO + settings.removed_backend;
        let removed = settings.removed.iter().take(REMOVED_MAX);
        addresses.removed.extend(removed.map(|address| (canonical(*address), until)));
        addresses.locate(Timestamp::ZERO, &settings.pools);
        addresses
    }

    /// Reads the addresses of the back ends in these pools. If several back ends have the same
    /// address, a current address takes precedence over a former one, and a configured back end
    /// over a removed one. Otherwise the first back end is used. A removed back end stays known
    /// while it has leases.
    pub(crate) fn locate(&mut self, now: Timestamp, pools: &[PoolSettings]) {
        let before = std::mem::take(&mut self.backend_refs);
        self.networks.clear();
        for (pool, settings) in (0..).zip(pools) {
            for (backend, networks) in (0..).zip(&settings.sources) {
                let backend_ref = BackendRef { pool, backend };
                self.networks.extend(networks.iter().map(|net| (*net, backend_ref)));
            }
        }
        self.pool_listeners = pools.iter().map(|pool| pool.listener).collect();
        self.stream_pools =
            pools.iter().map(|pool| self.transport_of_pool(pool).is_reliable()).collect();
        let backend_refs = || {
            pools.iter().enumerate().flat_map(|(p, pool)| {
                let backends = pool.pool.backends().iter().enumerate();
                backends.map(move |(b, backend)| {
                    (BackendRef { pool: p as u16, backend: b as u16 }, backend)
                })
            })
        };
        let of = |is_removed: bool| {
            let all = backend_refs()
                .filter(move |(_, b)| (b.admin_state() == AdminState::Removed) == is_removed);
            all.filter(move |(_, b)| !is_removed || !b.is_idle())
        };
        for (backend_ref, backend) in of(false).chain(of(true)) {
            if let Some(address) = backend.address() {
                self.backend_refs.entry(canonical(address)).or_insert(backend_ref);
            }
        }
        for (backend_ref, backend) in of(false).chain(of(true)) {
            let addresses = backend.named().map(Named::addresses).unwrap_or_default();
            for address in addresses.into_iter().skip(1) {
                self.backend_refs.entry(canonical(address)).or_insert(backend_ref);
            }
        }
        self.hosts.clear();
        for (address, &backend_ref) in &self.backend_refs {
            if self.stream_pools[usize::from(backend_ref.pool)] {
                let first = self.hosts.entry(address.ip()).or_insert(backend_ref);
                *first = backend_ref.min(*first);
            }
        }
        self.remember_removed(now, before, pools);
    }

    /// Remembers each former address of a back end for the time `removed_for`, unless a configured
    /// back end has this address now. An address is remembered longer while its removed back end
    /// has leases. It is forgotten as soon as a back end is configured with it.
    fn remember_removed(
        &mut self,
        now: Timestamp,
        before: HashMap<SocketAddr, BackendRef>,
        pools: &[PoolSettings],
    ) {
        let is_configured = |address: &SocketAddr| {
            self.backend_refs.get(address).is_some_and(|backend_ref| {
                let pool = &pools[usize::from(backend_ref.pool)].pool;
                let backend = &pool.backends()[usize::from(backend_ref.backend)];
                backend.admin_state() != AdminState::Removed
            })
        };
        let until = now + self.removed_for;
        for address in before.into_keys().filter(|address| !is_configured(address)) {
            self.removed.entry(address).or_insert(until);
        }
        self.removed.retain(|address, until| {
            !is_configured(address) && (now < *until || self.backend_refs.contains_key(address))
        });
        let excess = self.removed.len().saturating_sub(REMOVED_MAX);
        if excess > 0 {
            let mut oldest: Vec<_> = self.removed.iter().map(|(at, until)| (*until, *at)).collect();
            oldest.select_nth_unstable(excess - 1);
            for (_, address) in &oldest[..excess] {
                self.removed.remove(address);
            }
        }
    }

    /// Returns whether `address` belongs to a back end that was removed from the configuration and
    /// may still have dialogs.
    pub(crate) fn was_removed(&self, now: Timestamp, address: SocketAddr) -> bool {
        self.removed.get(&canonical(address)).is_some_and(|until| now < *until)
    }

    /// Returns whether an address that comes from outside, such as from the DNS, may be a target:
    /// it is not ours, belongs to one host, has a port, and a listener can reach it.
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
        self.backend_refs.get(&canonical(address)).copied()
    }

    /// Returns the origin of messages from the other end of `flow`.
    pub(crate) fn origin(&self, flow: &Flow) -> Origin {
        let ip = canonical(flow.remote).ip();
        if let Some(backend_ref) = self.backend_ref(flow.remote)
            && self.may_be_port_of(backend_ref, flow, ip)
        {
            return Origin::Backend(backend_ref);
        }
        if may_come_from_backend(flow.transport)
            && let Some(&backend_ref) = self.hosts.get(&ip)
            && !self.is_shared(ip)
        {
            return Origin::Backend(backend_ref);
        }
        if let Some((_, backend_ref)) = self.networks.iter().find(|(net, _)| net.contains(&ip)) {
            return Origin::Backend(*backend_ref);
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
        let address = canonical(flow.remote);
        flow.transport.is_reliable()
            && flow.connection.is_none_or(ConnectionId::is_opened)
            && !self.backend_refs.contains_key(&address)
            && !self.removed.contains_key(&address)
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
        let is_clear = self.is_by_stream(backend_ref) || !self.is_shared(ip);
        may_come_from_backend(flow.transport) && is_clear
    }

    /// Returns whether requests to this back end leave over streams.
    fn is_by_stream(&self, backend_ref: BackendRef) -> bool {
        self.stream_pools[usize::from(backend_ref.pool)]
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
        let is_clear = self.is_by_stream(backend_ref) || !self.is_shared(ip);
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

    /// Returns whether other programs may send from this address, because it is an address of this
    /// machine.
    pub(crate) fn is_shared(&self, ip: IpAddr) -> bool {
        self.listeners.iter().any(|own| own.is_here(ip))
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
            None => self.listeners.iter().any(|l| is_host(&host, &l.host)),
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
    /// 2. `recorded`, which the Record-Route of the dialog names;
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
        let names =
            |own: &Own| is_named(own.transport, transport) && own.is_host(uri) && own.is_port(port);
        let index = self.listeners.iter().position(names)?;
        u8::try_from(index).ok()
    }

    /// Returns whether `uri`, a Route value of a message on `flow`, names us: it is our own
    /// Record-Route, or the outbound proxy that the client has configured.
    pub(crate) fn is_own_route(&self, uri: &Uri<'_>, flow: &Flow) -> bool {
        let port = port_of(uri);
        // A browser names the port of its URL only if that is not the default one.
        let is_default = |own: &Own| {
            let named = || transport_of(uri).is_some_and(|by| is_named(own.transport, by));
            uri.port.is_none() && own.is_port(default_port(own.transport)) && named()
        };
        self.is_own(uri, flow, |own| own.is_port(port) || is_default(own))
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
        self.is_own(uri, flow, |l| uri.port.is_none_or(|port| l.is_port(port)))
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
        let transport = transport_of(uri)?;
        if !self.listeners.iter().any(|own| own.transport == transport) {
            return None;
        }
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

/// Returns whether back ends open connections of this transport.
fn may_come_from_backend(transport: Transport) -> bool {
    transport.is_reliable() && !transport.is_websocket()
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
