//! Finds the source to which an address belongs, and checks whether it can be a target.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv6Net};
/// IPv6 prefix lengths for flood detection, each with a factor. The messages of a network with such
/// a prefix are a flood if their rate exceeds the limit for a single source times the factor.
pub(crate) use tidegate_world::SOURCE_PREFIXES as PREFIXES;
pub use tidegate_world::{networks_of, source_of};

/// Returns the network with the number `source`: for IPv4, a single address.
pub fn network_of(source: u128) -> IpNet {
    match Ipv6Addr::from_bits(source).to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4).into(),
        IpAddr::V6(_) => {
            let length = match source as u64 {
                0 => 64,
                length => length.min(128) as u8,
            };
            let network = Ipv6Addr::from_bits(source & !u128::from(u64::MAX));
            Ipv6Net::new(network, length).map_or_else(|_| IpAddr::V6(network).into(), IpNet::V6)
        }
    }
}

/// Converts `::ffff:a.b.c.d` of an IPv6 socket to IPv4. Removes the scope and the flow label of other
/// IPv6 addresses.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(_) => SocketAddr::new(address.ip().to_canonical(), address.port()),
        IpAddr::V4(_) => address,
    }
}

/// Returns a number of 64 bits that identifies the source at `address`: the /64 of an IPv6 address,
/// or the IPv4 address.
pub(crate) fn caller_of(address: IpAddr) -> u64 {
    let source = source_of(address);
    (source >> 64) as u64 | source as u64
}

/// Returns whether an address is routed only within its own network: an address of RFC 1918, RFC
/// 6598, RFC 3927 or RFC 4193, a loopback or a link-local one.
fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let is_shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_private() || is_shared || ip.is_link_local() || ip.is_loopback()
        }
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_loopback(),
    }
}

/// Returns whether a party that sends from `source` can be reached at `ip` only from within its own
/// network or machine: `ip` is in a private network or is a loopback address, and `source` is not.
pub(crate) fn is_inside(ip: IpAddr, source: IpAddr) -> bool {
    is_local(ip) && !is_local(source) || ip.is_loopback() && !source.is_loopback()
}

/// Returns whether a message can be sent to an address: it belongs to one host, and has a port.
pub(crate) fn may_be_sent_to(address: SocketAddr) -> bool {
    address.port() != 0 && is_of_one_host(address.ip().to_canonical())
}

/// Returns whether an address belongs to one host. Multicast and broadcast addresses do not. The
/// unspecified address does not count either, because Linux sends its packets to the machine
/// itself.
fn is_of_one_host(ip: IpAddr) -> bool {
    !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_of_a_call_is_its_source_in_64_bits() {
        let of = |text: &str| super::caller_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn local_addresses_are_those_that_are_not_routed_everywhere() {
        let local = ["10.1.2.3", "172.31.0.1", "192.168.0.1", "100.64.0.1", "100.127.255.255"];
        let local = local.iter().chain(&["169.254.1.1", "127.0.0.1", "fd00::1", "fe80::1", "::1"]);
        local.for_each(|text| assert!(is_local(text.parse().unwrap()), "{text}"));
        for text in ["172.32.0.1", "100.63.0.1", "100.128.0.1", "192.0.2.1", "2001:db8::1"] {
            assert!(!is_local(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn nothing_is_sent_to_port_0_or_to_an_address_of_no_single_host() {
        let no_host = ["0.0.0.0", "::", "224.0.1.75", "ff02::1", "255.255.255.255"];
        for text in no_host.iter().chain(&["::ffff:0.0.0.0", "::ffff:224.0.1.75"]) {
            assert!(!may_be_sent_to(SocketAddr::new(text.parse().unwrap(), 5060)), "{text}");
        }
        for text in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "::1", "::ffff:192.0.2.1"] {
            let at = |port| SocketAddr::new(text.parse().unwrap(), port);
            assert!(may_be_sent_to(at(5060)) && !may_be_sent_to(at(0)), "{text}");
        }
    }

    #[test]
    fn an_ipv6_address_is_in_three_networks_and_an_ipv4_address_alone() {
        let written = |text: &str| -> Vec<String> {
            let networks = networks_of(text.parse().unwrap());
            networks.map(|number| network_of(number).to_string()).collect()
        };
        assert_eq!(written("192.0.2.1"), ["192.0.2.1/32"]);
        assert_eq!(written("::ffff:192.0.2.1"), ["192.0.2.1/32"]);
        let networks = ["2001:db8:1:2ff::/64", "2001:db8:1:200::/56", "2001:db8:1::/48"];
        assert_eq!(written("2001:db8:1:2ff::3"), networks);
        // No two of these networks have the same number, although their address bits are the same.
        assert_eq!(written("2001:db8::1"), ["2001:db8::/64", "2001:db8::/56", "2001:db8::/48"]);
        assert_eq!(written("::1"), ["::/64", "::/56", "::/48"]);
    }
}
