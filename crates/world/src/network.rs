//! IP networks.

use std::net::IpAddr;

/// An IP network, given by an address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// An address in the network.
    pub address: IpAddr,
    /// The number of leading bits that all addresses of the network have in common.
    pub prefix: u8,
}

impl Network {
    /// Returns whether an address is in the network. An IPv4 address may be mapped to IPv6.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let [own, other] = [self.address, ip].map(|ip| ip.to_canonical());
        let common = |own: u128, other: u128, bits: u32| {
            let differ = own ^ other;
            differ.checked_shr(bits.saturating_sub(self.prefix.into())).unwrap_or(0) == 0
        };
        match (own, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                common(own.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => common(own.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}
