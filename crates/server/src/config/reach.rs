//! Whether every back end can be reached from some listener, and is not one.

use std::net::{IpAddr, SocketAddr};

use toml::Spanned;

use super::diagnostic::Report;
use super::{listen, pool};

/// Reports back ends that are ourselves, and those no listener can send to.
pub(super) fn check(listeners: &[listen::Draft], pools: &[pool::Draft], report: &mut Report) {
    // A listener whose address could not be read may be the one that reaches.
    let known: Vec<_> = listeners.iter().filter_map(|listener| listener.address.as_ref()).collect();
    let all_known = known.len() == listeners.len() && !known.is_empty();

    for backend in pools.iter().flat_map(|pool| &pool.backends) {
        let Some(address) = &backend.address else { continue };
        if let Some(own) = listeners.iter().find_map(|own| is_own(own, *address.get_ref())) {
            report.clash(
                "a back end that is this process: a loop",
                (address.span(), "calls would come back"),
                (own, "listened at here"),
                "write the address of the server behind",
            );
        } else if all_known
            && !known.iter().any(|from| reaches(*from.get_ref(), *address.get_ref()))
        {
            report_unreachable(address, known[0], report);
        }
    }
}

/// Where `listener` says that it is found at `address`.
fn is_own(listener: &listen::Draft, address: SocketAddr) -> Option<std::ops::Range<usize>> {
    if let Some(advertised) = &listener.advertise
        && advertised.get_ref().to_string() == address.to_string()
    {
        return Some(advertised.span());
    }
    let own = listener.address.as_ref()?;
    let same_ip = own.get_ref().ip() == address.ip()
        || own.get_ref().ip().is_unspecified()
            && same_family(*own.get_ref(), address)
            && address.ip().is_loopback();
    (same_ip && own.get_ref().port() == address.port()).then(|| own.span())
}

/// Whether a socket bound to `from` can send to `to`.
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
        ("outside this machine", "sends within this machine only")
    } else if family == "IPv4" {
        ("an IPv4 address", "sends over IPv6 only")
    } else {
        ("an IPv6 address", "sends over IPv4 only")
    };
    report.clash(
        "a back end that no listener can reach",
        (address.span(), label),
        (listener.span(), other),
        format!("add a `[[listen]]` with an {family} address of the network it is in"),
    );
}
