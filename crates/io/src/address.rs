//! Socket addresses as the kernel reads and writes them.
#![allow(unsafe_code)]

use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{c_int, sa_family_t, sockaddr_in, sockaddr_in6, socklen_t};

/// Memory for an IPv4 or IPv6 socket address in the kernel's form.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union Address {
    family: sa_family_t,
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

impl Address {
    /// The size of an [`Address`], in bytes.
    pub(crate) const ROOM: socklen_t = size_of::<Self>() as socklen_t;

    /// Returns an empty address, which the kernel can fill in.
    pub(crate) fn empty() -> Self {
        // SAFETY: every field of every variant is an integer, for which zero is valid.
        unsafe { std::mem::zeroed() }
    }

    /// Returns the kernel's form of `address`, and its length.
    pub(crate) fn encode(address: SocketAddr) -> (Self, socklen_t) {
        let mut raw = Self::empty();
        match address {
            SocketAddr::V4(a) => {
                let v4 = sockaddr_in {
                    sin_family: libc::AF_INET as sa_family_t,
                    sin_port: a.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                    sin_zero: [0; 8],
                };
                raw.v4 = v4;
                (raw, size_of::<sockaddr_in>() as socklen_t)
            }
            SocketAddr::V6(a) => {
                let v6 = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as sa_family_t,
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                    sin6_scope_id: a.scope_id(),
                };
                raw.v6 = v6;
                (raw, size_of::<sockaddr_in6>() as socklen_t)
            }
        }
    }

    /// Returns the socket address, or `None` if it is neither an IPv4 nor an IPv6 address.
    pub(crate) fn decode(&self) -> Option<SocketAddr> {
        // SAFETY: the union is always initialised as a whole (`empty`), its variants
        // hold integers only, and all begin with the family (`repr(C)`).
        unsafe {
            match c_int::from(self.family) {
                libc::AF_INET => {
                    let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                    Some(SocketAddrV4::new(ip, u16::from_be(self.v4.sin_port)).into())
                }
                libc::AF_INET6 => {
                    let v6 = &self.v6;
                    let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                    let port = u16::from_be(v6.sin6_port);
                    Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
                }
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_tokens_are_decoded() {
        for text in ["192.0.2.7:5060", "[2001:db8::7]:5061", "[fe80::1%3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let (raw, len) = Address::encode(address);
            assert!(len <= Address::ROOM);
            assert_eq!(raw.decode(), Some(address));
        }
        assert_eq!(Address::empty().decode(), None);
    }
}
