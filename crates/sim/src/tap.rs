//! Taps: observers of the packets of a network.

use std::net::IpAddr;

use arrayvec::ArrayVec;
use tidegate_world::{Flow, Timestamp};
use twox_hash::XxHash3_128 as Hasher;

use crate::node_id::NodeId;

/// The reason why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// The link lost the packet at random.
    Link,
    /// The queue of the link was full.
    Queue,
    /// The link was cut, or the two nodes were partitioned.
    Partition,
    /// The receiver had crashed and was not up again when the packet arrived.
    Down,
    /// The receiver was stalled, and its buffers were full.
    Stalled,
    /// The receiver's core wanted to [shed](tidegate_world::Core::poll_shedding) the packet unread.
    Filtered,
    /// No node has the destination address of the packet.
    Nobody,
    /// The connection ended before the packet was read.
    Closed,
    /// The packet was sent on a stream, but named no open connection.
    Unconnected,
}

/// An observer of every packet of a network. The tap `()` does nothing and costs nothing.
pub trait Tap {
    /// Records that `from` has sent a packet. The flow is given as the sender sees it.
    fn sent(&mut self, _now: Timestamp, _from: NodeId, _path: Flow, _bytes: &[u8]) {}

    /// Records that a packet has arrived at `to`, which may be stalled. The flow is given as the
    /// receiver sees it.
    fn delivered(&mut self, _now: Timestamp, _to: NodeId, _path: Flow, _bytes: &[u8]) {}

    /// Records that a packet or a copy is lost, either when it is sent or when it would have
    /// arrived. The flow is given as the sender sees it.
    fn lost(&mut self, _now: Timestamp, _why: Loss, _path: Flow, _bytes: &[u8]) {}
}

impl Tap for () {}

impl<T: Tap> Tap for &mut T {
    fn sent(&mut self, now: Timestamp, from: NodeId, flow: Flow, bytes: &[u8]) {
        (**self).sent(now, from, flow, bytes);
    }
    fn delivered(&mut self, now: Timestamp, to: NodeId, flow: Flow, bytes: &[u8]) {
        (**self).delivered(now, to, flow, bytes);
    }
    fn lost(&mut self, now: Timestamp, why: Loss, flow: Flow, bytes: &[u8]) {
        (**self).lost(now, why, flow, bytes);
    }
}

/// Both taps see every packet.
impl<A: Tap, B: Tap> Tap for (A, B) {
    fn sent(&mut self, now: Timestamp, from: NodeId, flow: Flow, bytes: &[u8]) {
        self.0.sent(now, from, flow, bytes);
        self.1.sent(now, from, flow, bytes);
    }
    fn delivered(&mut self, now: Timestamp, to: NodeId, flow: Flow, bytes: &[u8]) {
        self.0.delivered(now, to, flow, bytes);
        self.1.delivered(now, to, flow, bytes);
    }
    fn lost(&mut self, now: Timestamp, why: Loss, flow: Flow, bytes: &[u8]) {
        self.0.lost(now, why, flow, bytes);
        self.1.lost(now, why, flow, bytes);
    }
}

/// A hash over every packet sent: its time, its addresses, its bytes, and, on a stream, its
/// transport. Two runs with the same hash sent the same bytes at the same times.
///
/// The hash is XXH3 of 128 bits, which is fast enough for a simulation. It need not be secure,
/// because no sender of packets benefits from a collision.
#[derive(Clone)]
pub struct Trace(Hasher);

impl Trace {
    /// Returns the trace of a run without packets.
    pub fn new() -> Self {
        Self(Hasher::new())
    }

    /// Returns the hash of the packets so far.
    pub fn digest(&self) -> u128 {
        self.0.finish_128()
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

impl Tap for Trace {
    fn sent(&mut self, now: Timestamp, _: NodeId, flow: Flow, bytes: &[u8]) {
        // The parts before the bytes are hashed in one call, because each call has a fixed cost.
        let mut head = ArrayVec::<u8, HEAD>::new();
        let mut put = |bytes: &[u8]| head.try_extend_from_slice(bytes).expect("room for both");
        put(&now.as_nanos().to_le_bytes());
        for address in [flow.local, flow.remote] {
            match address.ip() {
                IpAddr::V4(ip) => put(&ip.octets()),
                IpAddr::V6(ip) => put(&ip.octets()),
            }
            put(&address.port().to_le_bytes());
        }
        // The transport and the length are added only for streams. So a run of datagrams alone has
        // the same hash as before streams were added.
        if flow.transport.is_reliable() {
            put(&[flow.transport as u8]);
        }
        put(&(bytes.len() as u32).to_le_bytes());
        self.0.write(&head);
        self.0.write(bytes);
    }
}

/// Maximum length of the data that are hashed before the bytes of a packet: a time, two IPv6
/// addresses with their ports, a transport and a length.
const HEAD: usize = 8 + 2 * (16 + 2) + 1 + 4;

#[cfg(test)]
mod tests {
    use tidegate_world::Transport;

    use super::*;

    fn packet(ns: u64, local: &str, bytes: &[u8]) -> Trace {
        let mut trace = Trace::new();
        let [local, remote] = [local, "127.0.0.1:2"].map(|address| address.parse().unwrap());
        let flow = Flow::udp(local, remote);
        trace.sent(Timestamp::from_nanos(ns), NodeId::new(0), flow, bytes);
        trace
    }

    #[test]
    fn a_hash_distinguishes_times_addresses_and_bytes() {
        let digests = [
            Trace::new(),
            packet(1, "127.0.0.1:1", b"INVITE"),
            packet(2, "127.0.0.1:1", b"INVITE"),
            packet(1, "127.0.0.1:3", b"INVITE"),
            packet(1, "127.0.0.3:1", b"INVITE"),
            packet(1, "[::1]:1", b"INVITE"),
            packet(1, "127.0.0.1:1", b"INVITES"),
            packet(1, "127.0.0.1:1", b"INVITF"),
        ]
        .map(|trace| trace.digest());
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest), "number {index}");
        }
        assert_eq!(packet(1, "127.0.0.1:1", b"INVITE").digest(), digests[1]);
        let streams = [Transport::Tcp, Transport::Tls].map(|transport| {
            let [local, remote] = ["127.0.0.1:1", "127.0.0.1:2"].map(|a| a.parse().unwrap());
            let flow = Flow { transport, ..Flow::udp(local, remote) };
            let mut trace = Trace::new();
            trace.sent(Timestamp::from_nanos(1), NodeId::new(0), flow, b"INVITE");
            trace.digest()
        });
        assert!(streams[0] != streams[1] && !digests.contains(&streams[0]));
    }

    #[test]
    fn a_hash_depends_on_the_order_but_not_on_how_the_tap_is_passed() {
        let send = |tap: &mut dyn Tap, ns: u64| {
            let flow = Flow::udp("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
            tap.sent(Timestamp::from_nanos(ns), NodeId::new(0), flow, b"BYE");
        };
        let (mut one, mut other, mut pair) = (Trace::new(), Trace::new(), Default::default());
        let both: &mut (Trace, Trace) = &mut pair;
        for ns in [1, 2] {
            send(&mut one, ns);
            send(&mut &mut other, 3 - ns);
            send(both, ns);
        }
        assert_ne!(one.digest(), other.digest());
        assert_eq!([pair.0.digest(), pair.1.digest()], [one.digest(); 2]);
    }
}
