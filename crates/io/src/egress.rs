//! Finds the listener from whose address the kernel would send to each network.
//!
//! A socket that is bound to an address sends from that address on any route. On a machine with an
//! inside and an outside network, a packet from the inside address may never reach the outside. So
//! a proxy with several listeners must use the listener whose address the kernel itself would use.
//! To find this address, the proxy connects a UDP socket, which sends no packet, once for each
//! network of the kernel's routing table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Maximum number of routes examined in each of the routing tables for IPv4 and IPv6. It may be
/// much smaller than a full Internet table, in which most routes lead to the same listener.
const ROUTES_MAX: usize = 4096;

/// Maximum number of networks in the result of [`egress_networks`].
pub const NETWORKS_MAX: usize = 256;

/// Returns the networks in the kernel's main routing table, the longest prefix first. Each network
/// comes with the index of the listener whose address the kernel uses as the source toward it.
///
/// A network is left out if no listener has that address, or if the next wider network leads to the
/// same listener. If more than [`NETWORKS_MAX`] remain, the list has only the widest. The list is
/// empty with fewer than two listeners, or if `/proc` cannot be read.
pub fn egress_networks(listeners: &[SocketAddr]) -> Vec<(IpNet, usize)> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    networks(listeners, &read("/proc/net/route"), &read("/proc/net/ipv6_route"), source_toward)
}

/// Returns the result of [`egress_networks`] for the texts of two routing tables. `source_toward`
/// returns the source address that the kernel uses toward a target.
fn networks(
    listeners: &[SocketAddr],
    v4: &str,
    v6: &str,
    source_toward: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Vec<(IpNet, usize)> {
    if listeners.len() < 2 {
        return Vec::new();
    }
    let v4 = v4.lines().filter_map(ipv4_route).map(IpNet::V4).take(ROUTES_MAX);
    let v6 = v6.lines().filter_map(ipv6_route).map(IpNet::V6).take(ROUTES_MAX);
    let of = |net: IpNet| {
        let source = source_toward(host_of(net))?;
        let listener = listeners.iter().position(|local| local.ip() == source)?;
        Some((net, listener))
    };
    compressed(v4.chain(v6).filter_map(of).collect())
}

/// Sorts networks by the length of their prefix, the longest first. Leaves out networks with the
/// same listener as the next wider one, and keeps at most the [`NETWORKS_MAX`] widest.
fn compressed(mut networks: Vec<(IpNet, usize)>) -> Vec<(IpNet, usize)> {
    networks.sort_by_key(|(net, _)| net.prefix_len());
    networks.dedup_by_key(|(net, _)| *net);
    let mut kept: Vec<(IpNet, usize)> = Vec::new();
    for (net, listener) in networks {
        let wider = kept.iter().rev().find(|(wider, _)| wider.contains(&net));
        if wider.is_none_or(|(_, other)| *other != listener) && kept.len() < NETWORKS_MAX {
            kept.push((net, listener));
        }
    }
    kept.reverse();
    kept
}

/// Returns the source address that the kernel uses toward `target`.
fn source_toward(target: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match target {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // The port does not matter: nothing is sent.
    socket.connect((target, 9)).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// Returns an address in the network that narrower routes usually do not cover. This is the first
/// host of the network. For the default route, it is an address that RFC 5737 or RFC 3849 reserves
/// for documentation.
fn host_of(net: IpNet) -> IpAddr {
    match net {
        IpNet::V4(net) if net.prefix_len() == 0 => Ipv4Addr::new(198, 51, 100, 1).into(),
        IpNet::V6(net) if net.prefix_len() == 0 => {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()
        }
        net => net.hosts().next().unwrap_or_else(|| net.network()),
    }
}

/// Parses a line of `/proc/net/route`. Each address is printed in hexadecimal: its four bytes, in
/// network byte order, are read as an integer in the byte order of this machine. An entry that is
/// not up, or that rejects packets, is not a route.
fn ipv4_route(line: &str) -> Option<Ipv4Net> {
    const UP: u32 = 1;
    const REJECT: u32 = 0x200;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    let address = |at| number(at).map(|n| Ipv4Addr::from(n.to_ne_bytes()));
    let (destination, mask) = (address(1)?, address(7)?);
    if number(3)? & (UP | REJECT) != UP {
        return None;
    }
    Ipv4Net::with_netmask(destination, mask).ok()
}

/// Parses a line of `/proc/net/ipv6_route`. Link-local, multicast and loopback addresses are left
/// out, because a proxy has no peers there.
fn ipv6_route(line: &str) -> Option<Ipv6Net> {
    const UP: u32 = 1;
    const REJECT: u32 = 0x200;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let destination = Ipv6Addr::from(u128::from_str_radix(fields.first()?, 16).ok()?);
    let length = u8::from_str_radix(fields.get(1)?, 16).ok()?;
    let flags = u32::from_str_radix(fields.get(8)?, 16).ok()?;
    let is_peer = !destination.is_unicast_link_local()
        && !destination.is_multicast()
        && !destination.is_loopback();
    if flags & (UP | REJECT) != UP || !is_peer {
        return None;
    }
    Ipv6Net::new(destination, length).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernels_tables_are_networks() {
        let v4 = |line| ipv4_route(line).map(|net| net.to_string());
        let line = "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        assert_eq!(v4(line).as_deref(), Some("192.0.2.0/24"));
        let line = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        assert_eq!(v4(line).as_deref(), Some("0.0.0.0/0"));
        let rejects = "*\t000200C0\t00000000\t0201\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        assert_eq!(v4(rejects), None);
        assert_eq!(v4("Iface\tDestination\tGateway \tFlags"), None);
        let v6 = |destination: &str, flags: &str| {
            let zero = "0".repeat(32);
            let line = format!("{destination} 40 {zero} 00 {zero} 00000100 1 0 {flags} eth0");
            ipv6_route(&line).map(|net| net.to_string())
        };
        let documentation = "20010db8000000000000000000000000";
        assert_eq!(v6(documentation, "00000001").as_deref(), Some("2001:db8::/64"));
        assert_eq!(v6(documentation, "00200200"), None);
        assert_eq!(v6("fe800000000000000000000000000000", "00000001"), None);
    }

    #[test]
    fn the_longest_prefix_comes_first_and_repetitions_of_a_wider_one_are_left_out() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let given = vec![
            (net("10.1.0.0/16"), 1),
            (net("0.0.0.0/0"), 0),
            (net("10.1.2.0/24"), 1),
            (net("192.0.2.0/24"), 0),
            (net("10.1.3.0/24"), 2),
            (net("::/0"), 3),
        ];
        let kept = compressed(given);
        assert_eq!(kept[..2], [(net("10.1.3.0/24"), 2), (net("10.1.0.0/16"), 1)]);
        assert_eq!(kept.len(), 4, "{kept:?}");
    }

    /// A packet from the inside address would not reach the outside.
    #[test]
    fn each_network_is_reached_from_the_listener_with_its_source() {
        let v4 = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                  out 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n\
                  in 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\n\
                  odd 000010AC 00000000 0001 0 0 0 0000F0FF 0 0 0\n";
        let [outside, inside] = ["192.0.2.9:5060", "10.0.0.9:5060"].map(|at| at.parse().unwrap());
        let kernel = |target: IpAddr| match target.to_string().as_str() {
            "198.51.100.1" => Some([192, 0, 2, 9].into()),
            "10.0.0.1" => Some([10, 0, 0, 9].into()),
            "172.16.0.1" => Some([172, 16, 0, 9].into()),
            other => panic!("asked for {other}"),
        };
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let expected = [(net("10.0.0.0/8"), 1), (net("0.0.0.0/0"), 0)];
        assert_eq!(networks(&[outside, inside], v4, "", kernel), expected);
        assert_eq!(networks(&[outside], v4, "", kernel), [], "there is no choice");
    }

    #[test]
    fn a_network_is_asked_for_by_an_address_in_it() {
        for (net, host) in [
            ("0.0.0.0/0", "198.51.100.1"),
            ("::/0", "2001:db8::1"),
            ("10.1.0.0/16", "10.1.0.1"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("2001:db8:5::/48", "2001:db8:5::"),
        ] {
            assert_eq!(host_of(net.parse().unwrap()).to_string(), host, "{net}");
        }
    }

    #[test]
    fn at_most_the_distinguished_networks_are_kept() {
        let given = (0..300).map(|n| (Ipv4Net::from(Ipv4Addr::from(n)).into(), n as usize));
        assert_eq!(compressed(given.collect()).len(), NETWORKS_MAX);
    }

    #[test]
    fn the_kernel_is_asked_for_the_source_toward_a_target() {
        assert_eq!(source_toward([127, 0, 0, 9].into()), Some([127, 0, 0, 1].into()));
    }
}
