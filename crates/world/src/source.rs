//! Numbers that identify the sources of packets, and the networks around them.
//!
//! RFC 4291 §2.5.1: "For all unicast addresses, except those that start with the binary value 000,
//! Interface IDs are required to be 64 bits long": a host may have any address of its /64. A site
//! may have a whole /56 or /48 (RFC 6177 §2), and use all networks in it. A source of IPv6 is
//! therefore a /64 and has wider networks around it. In the number of an IPv6 network, the last 64
//! bits encode the length of the prefix: 0 for a /64, otherwise the length.

use std::net::IpAddr;

/// Prefix lengths of the IPv6 networks to which limits on sources apply, the narrowest network
/// first. The number beside a length is a factor. The limit for a network of this length is the
/// limit for a single source, times the factor.
pub const SOURCE_PREFIXES: [(u8, u32); 3] = [(64, 1), (56, 2), (48, 4)];

/// Returns a number that identifies the source to which this address belongs. A source is an IPv4
/// address or an IPv6 /64 network.
pub fn source_of(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits() & !u128::from(u64::MAX),
    }
}

/// Returns the numbers of the source at an address and of the wider networks around it, the
/// narrowest first. An IPv4 address has only its own number.
pub fn networks_of(address: IpAddr) -> impl Iterator<Item = u128> {
    let source = source_of(address);
    let wider = SOURCE_PREFIXES[1..].iter().filter(move |_| address.to_canonical().is_ipv6());
    let wider =
        wider.map(move |&(length, _)| source & u128::MAX << (128 - length) | length as u128);
    std::iter::once(source).chain(wider)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> u128 {
        source_of(text.parse().unwrap())
    }

    #[test]
    fn a_source_is_an_address_or_the_64_bits_of_its_network() {
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
