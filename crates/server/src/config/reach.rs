//! Checks that every back end can be reached from a listener at which its responses arrive, and
//! that no back end is a listener of this process.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use tidegate_world::Transport;
use toml::Spanned;

use super::address::SIP_PORT;
use super::diagnostic::Report;
use super::endpoint::Endpoint;
use super::pool;
use super::tables::listen::ListenDraft;
use super::tables::pool::NO_WEBSOCKETS;

/// Reports three kinds of back ends: back ends that are listeners of this process, back ends that
/// no listener can reach, and back ends that only shared listeners can reach. At a shared listener,
/// their responses could reach another instance.
pub(super) fn check(listeners: &[ListenDraft], pools: &[pool::Draft], report: &mut Report) {
    // The reader has reported that there is no listener.
    if listeners.is_empty() {
        return;
    }
    pools.iter().for_each(|pool| check_listener(pool, listeners, report));
    for pool in pools {
        check_backends(pool, listeners, report);
        check_shared(pool, listeners, report);
    }
}

/// Returns whether the transport to the pool is known, and all listeners. A listener that could not
/// be read may be the one that reaches the back ends.
fn are_known(pool: &pool::Draft, listeners: &[ListenDraft]) -> bool {
    pool.is_transport_known(listeners)
        && listeners.iter().all(|l| l.address.is_some() && l.transport.is_some())
}

fn check_backends(pool: &pool::Draft, listeners: &[ListenDraft], report: &mut Report) {
    let all_known = are_known(pool, listeners);
    let transport = pool.reached_by(listeners);
    if let Some(tls) = pool.tls.given()
        && !transport.is_secure()
        && all_known
    {
        let help = "remove `[pool.tls]`, or write `transport = \"tls\"` in its `[[pool]]`";
        report.error(tls, "`[pool.tls]` has no effect", "the pool does not use TLS", help);
    }
    let has_it =
        |l: &&ListenDraft| l.transport.as_ref().is_some_and(|by| *by.get_ref() == transport);
    let known: Vec<_> =
        listeners.iter().filter(has_it).filter_map(|listener| listener.address.as_ref()).collect();
    if known.is_empty()
        && all_known
        && let Some(given) = &pool.transport
    {
        let word = transport.name().to_ascii_lowercase();
        report.error(
            given.span(),
            format!("there is no listener for `{word}`"),
            "Tidegate cannot send requests to this pool",
            format!("add a `[[listen]]` with `transport = \"{word}\"`"),
        );
    }
    check_large(pool, transport, listeners, all_known, report);
    if known.is_empty()
        && all_known
        && pool.transport.is_none()
        && let Some(only) = listeners.iter().find_map(|l| l.transport.as_ref())
    {
        let help = "add a `[[listen]]` with `transport = \"udp\"`, `\"tcp\"` or `\"tls\"`";
        report.error(
            only.span(),
            "there is no listener that can reach back ends",
            NO_WEBSOCKETS,
            help,
        );
    }
    let all_known = all_known && !known.is_empty();
    for backend in &pool.backends {
        let Some(endpoint) = &backend.endpoint else { continue };
        let advertised = |own: &ListenDraft| advertises(own, endpoint.get_ref());
        if let Some(own) = listeners.iter().find_map(advertised) {
            report_loop(endpoint.span(), own, report);
            continue;
        }
        // The address of a host name is checked when it is resolved.
        let Endpoint::Address(address) = *endpoint.get_ref() else { continue };
        let address = Spanned::new(endpoint.span(), address);
        if let Some(own) = listeners.iter().find_map(|own| is_own(own, *address.get_ref())) {
            report_loop(address.span(), own, report);
        } else if all_known
            && !known.iter().any(|from| reaches(*from.get_ref(), *address.get_ref()))
        {
            report_unreachable(&address, known[0], report);
        }
    }
}

/// Reports the first back end of a pool that only shared listeners reach. Does nothing if the pool
/// names its listener, because [`check_listener`] checks that listener.
fn check_shared(pool: &pool::Draft, listeners: &[ListenDraft], report: &mut Report) {
    if !are_known(pool, listeners) || pool.listener_name.is_some() {
        return;
    }
    let transport = pool.reached_by(listeners);
    for endpoint in pool.backends.iter().filter_map(|backend| backend.endpoint.as_ref()) {
        let to = endpoint.get_ref().address();
        let leads = |own: &&ListenDraft| {
            bound(own, transport).is_some_and(|from| to.is_none_or(|to| reaches(from, to)))
        };
        let shared: Option<Vec<_>> = listeners
            .iter()
            .filter(leads)
            .map(|own| Some((own, own.scatters_responses()?)))
            .collect();
        // Another check reports a listener without any unshared one of its address family.
        let mut shared = shared.into_iter().flatten();
        if let Some((_, shared)) = shared.find(|(own, _)| own.has_unshared(listeners)) {
            let word = transport.name().to_ascii_lowercase();
            return report.clash(
                "only a shared listener can reach this back end",
                (endpoint.span(), "its responses could reach another instance"),
                (shared, "this listener is shared"),
                format!(
                    "add a `[[listen]]` with `transport = \"{word}\"` and an address that no other \
                     instance has"
                ),
            );
        }
    }
}

/// Reports `large_requests` of a pool if no TCP listener has the IP address from which the pool's
/// UDP requests leave, or if the pool does not use UDP.
fn check_large(
    pool: &pool::Draft,
    transport: Transport,
    listeners: &[ListenDraft],
    all_known: bool,
    report: &mut Report,
) {
    let Some(given) = pool.large_over_tcp.as_ref().filter(|large| *large.get_ref()) else { return };
    if !pool.is_transport_known(listeners) {
        return;
    }
    if transport != Transport::Udp {
        let help = "remove `large_requests`";
        let why = "the pool does not use UDP";
        return report.error(given.span(), "`large_requests` has no effect", why, help);
    }
    let usual: Vec<_> = match pool.named(listeners) {
        Some(listener) => bound(listener, Transport::Udp).into_iter().collect(),
        // Requests to back ends do not leave from shared listeners. `check_shared` reports a pool
        // that only shared listeners reach.
        None => {
            let own = listeners.iter().filter(|own| own.scatters_responses().is_none());
            let all = own.filter_map(|own| bound(own, Transport::Udp));
            all.filter(|from| may_reach(*from, pool)).collect()
        }
    };
    let over_tcp = listeners.iter().filter_map(|own| bound(own, Transport::Tcp));
    let mut beside = over_tcp.filter(|own| usual.iter().any(|from| from.ip() == own.ip()));
    if let Some(from) = usual.first().filter(|_| all_known)
        && beside.next().is_none()
    {
        let ip = from.ip();
        let help = format!("add a `[[listen]]` with `transport = \"tcp\"` and the address {ip}");
        let why = "Tidegate cannot send large requests to this pool over TCP";
        let title = format!("there is no listener for `tcp` at {ip}");
        report.error(given.span(), title, why, help);
    }
}

/// Returns the address of `listener`, or `None` if the listener has another transport than
/// `transport`.
fn bound(listener: &ListenDraft, transport: Transport) -> Option<SocketAddr> {
    let is_it = listener.transport.as_ref().is_some_and(|by| *by.get_ref() == transport);
    listener.address.as_ref().filter(|_| is_it).map(|address| *address.get_ref())
}

/// Returns whether a socket bound to `from` may reach at least one back end of a pool. A back end
/// with a host name counts as reachable, because its address is not known yet.
fn may_reach(from: SocketAddr, pool: &pool::Draft) -> bool {
    pool.backends.iter().any(|backend| {
        let address = backend.endpoint.as_ref().and_then(|endpoint| endpoint.get_ref().address());
        address.is_none_or(|to| reaches(from, to))
    })
}

/// Reports a pool with an unsuitable listener: it is unknown, has another transport, is for
/// WebSockets, is shared, or cannot reach one of the back ends of the pool.
fn check_listener(pool: &pool::Draft, listeners: &[ListenDraft], report: &mut Report) {
    let Some(wanted) = &pool.listener_name else { return };
    let Some(listener) = pool.named(listeners) else {
        let names = listeners.iter().filter_map(|l| Some(l.name.as_ref()?.get_ref().as_str()));
        return report.unknown_name(
            (wanted.span(), wanted.get_ref().as_str()),
            "`listener` names",
            "listener",
            &names.collect::<Vec<_>>(),
            "add this `name` to a `[[listen]]`",
        );
    };
    if let (Some(given), Some(has)) = (&pool.transport, &listener.transport)
        && given.get_ref() != has.get_ref()
    {
        return report.clash(
            "the pool and its listener have different transports",
            (given.span(), "the transport of the pool"),
            (has.span(), "the transport of its listener"),
            "remove `transport` from the pool, or name another listener",
        );
    }
    if let Some(transport) = listener.transport.as_ref().filter(|by| by.get_ref().is_websocket()) {
        return report.clash(
            "a pool cannot use a listener for WebSockets",
            (wanted.span(), NO_WEBSOCKETS),
            (transport.span(), "its listener"),
            "name another listener, or leave `listener` out",
        );
    }
    if let Some(shared) = listener.scatters_responses() {
        return report.clash(
            "a pool cannot use a shared listener",
            (wanted.span(), "responses of back ends could reach another instance"),
            (shared, "its listener"),
            "name another listener, or leave `listener` out",
        );
    }
    let Some(from) = &listener.address else { return };
    let addresses = pool.backends.iter().filter_map(|b| b.endpoint.as_ref()?.get_ref().address());
    for to in addresses {
        if !reaches(*from.get_ref(), to) {
            report.clash(
                format!("the listener of this pool cannot reach {to}"),
                (wanted.span(), "the pool sends requests from this listener"),
                (
                    from.span(),
                    "this listener has another address family, or sends within this machine only",
                ),
                "name another listener, or leave `listener` out",
            );
            return;
        }
    }
}

fn report_loop(backend: Range<usize>, own: Range<usize>, report: &mut Report) {
    report.clash(
        "the back end is this process, so calls would loop",
        (backend, "calls to this address would come back to this process"),
        (own, "this is an address of this process"),
        "write the address of the server that gets the calls",
    );
}

/// Returns the position in the file of `advertise` or `names` of `listener`, if this key contains
/// the host of `endpoint` and the ports match. Returns `None` if neither key does.
fn advertises(listener: &ListenDraft, endpoint: &Endpoint) -> Option<Range<usize>> {
    let leads_to = |host: &str, port: u16| match endpoint {
        Endpoint::Domain(domain) => domain == host && port == SIP_PORT,
        _ => format!("{host}:{port}") == endpoint.to_string(),
    };
    let ListenDraft { advertise, address, names, .. } = listener;
    if let Some(advertised) = advertise
        && leads_to(&advertised.get_ref().host, advertised.get_ref().port)
    {
        return Some(advertised.span());
    }
    let names = names.as_ref()?;
    let advertised = advertise.as_ref().map(|at| at.get_ref().port);
    let bound = address.as_ref().map(|at| at.get_ref().port());
    let is_own =
        |name: &String| [advertised, bound].into_iter().flatten().any(|port| leads_to(name, port));
    names.get_ref().iter().any(is_own).then(|| names.span())
}

/// Returns the position of the listener's address in the file, if the listener receives at
/// `address`.
pub(super) fn is_own(listener: &ListenDraft, address: SocketAddr) -> Option<Range<usize>> {
    let own = listener.address.as_ref()?;
    let same_ip = own.get_ref().ip() == address.ip()
        || own.get_ref().ip().is_unspecified()
            && same_family(*own.get_ref(), address)
            && address.ip().is_loopback();
    (same_ip && own.get_ref().port() == address.port()).then(|| own.span())
}

/// Returns whether a socket bound to `from` can send to `to`.
fn reaches(from: SocketAddr, to: SocketAddr) -> bool {
    // Linux refuses to send from a loopback address to the outside (EINVAL).
    same_family(from, to) && (!from.ip().is_loopback() || to.ip().is_loopback())
}

fn same_family(one: SocketAddr, other: SocketAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

fn report_unreachable(
    address: &Spanned<SocketAddr>,
    listener: &Spanned<SocketAddr>,
    report: &mut Report,
) {
    let family = match address.get_ref().ip() {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    };
    let (label, other) = if same_family(*address.get_ref(), *listener.get_ref()) {
        ("this address is outside this machine", "this listener sends within this machine only")
    } else if family == "IPv4" {
        ("an IPv4 address", "this listener sends over IPv6 only")
    } else {
        ("an IPv6 address", "this listener sends over IPv4 only")
    };
    report.clash(
        "no listener can reach this back end",
        (address.span(), label),
        (listener.span(), other),
        format!("add a `[[listen]]` with an {family} address in the network of this back end"),
    );
}
