//! Addresses and connections in the bytes of a token, as route tokens and flow tokens contain them.

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use tidegate_world::ConnectionId;

use crate::keys::{CONNECTION_NAME, Keys};

/// Length of an IPv6 address and port in bytes.
pub(super) const ADDRESS_MAX: usize = 16 + 2;

/// Maximum length in bytes of the last part of a token before the MAC: the name of a connection, or
/// a local address.
pub(super) const END_MAX: usize = 16;
const _: () = assert!(CONNECTION_NAME <= END_MAX, "a connection fits");

pub(super) fn put_address<const MAX: usize>(raw: &mut ArrayVec<u8, MAX>, address: SocketAddr) {
    put_ip(raw, address.ip());
    raw.extend(address.port().to_be_bytes());
}

fn put_ip<const MAX: usize>(raw: &mut ArrayVec<u8, MAX>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => raw.extend(ip.octets()),
        IpAddr::V6(ip) => raw.extend(ip.octets()),
    }
}

/// Writes the last part of a token before the MAC: the name of the connection or, without a
/// connection, the local address. A name and an address differ in length, so a reader can
/// distinguish them. A process of an earlier version reads an address as the name of a connection
/// of another process.
pub(super) fn put_end<const MAX: usize>(
    raw: &mut ArrayVec<u8, MAX>,
    keys: &Keys,
    connection: Option<ConnectionId>,
    local: Option<IpAddr>,
) {
    match (connection, local) {
        (Some(connection), _) => raw.extend(keys.name_of(connection)),
        (None, Some(ip)) => put_ip(raw, ip),
        (None, None) => {}
    }
}

/// Reads an address and port: IPv4 from 6 bytes, IPv6 from 18 bytes. Returns `None` for any other
/// length.
pub(super) fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let (bytes, port) = bytes.split_last_chunk::<2>()?;
    Some((ip(bytes)?, u16::from_be_bytes(*port)).into())
}

/// Reads an IPv4 address from 4 bytes, and an IPv6 address from 16 bytes. Returns `None` for any
/// other length.
pub(super) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}
