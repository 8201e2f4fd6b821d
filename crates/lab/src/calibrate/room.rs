//! Measures the number of datagrams that fit in a listener's receive buffer. The size of the buffer
//! does not determine this number, because the kernel counts more bytes for a datagram than the
//! datagram contains.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use tidegate_io::{Listen, open};

/// Number of datagrams sent: more than fit in any listener's buffer.
const SENT: usize = 20_000;

/// Fills a listener's receive buffer of the default size with datagrams of `bytes` bytes, and
/// returns the number of datagrams that fit, at least 1. If `bytes` is 0 or above 60,000, the
/// datagrams have 1 or 60,000 bytes.
///
/// # Errors
/// Returns an error when a socket fails.
pub(super) fn datagrams(bytes: usize) -> io::Result<usize> {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    // There is one socket, so that all datagrams wait in the same buffer.
    let group = open(&Listen { split: false, ..Listen::new(any) }).map_err(io::Error::other)?;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    sender.connect(group.local())?;
    let datagram = vec![b'x'; bytes.clamp(1, 60_000)];
    for _ in 0..SENT {
        sender.send(&datagram)?;
    }
    let listener = group.listener(0);
    let socket = listener.ordinary();
    socket.set_nonblocking(true)?;
    let mut buffer = [0; 64];
    let held = (0..SENT).take_while(|_| socket.recv(&mut buffer).is_ok()).count();
    Ok(held.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_more_small_datagrams_than_large_ones() {
        let [small, large] = [100, 1400].map(|bytes| datagrams(bytes).unwrap());
        assert!(small > large && large > 100, "{small} and {large}");
        assert!(small < SENT, "a buffer has an end");
    }
}
