//! Numbers that identify the sources of packets.

use std::net::IpAddr;

/// Returns a number that identifies the source to which this address belongs. A source is an IPv4
/// address or an IPv6 /64 network.
pub fn source_of(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits() & !u128::from(u64::MAX),
    }
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
