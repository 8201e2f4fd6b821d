//! Taps: who sees the packets of a network.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip128::{Hasher128, SipHasher13};
use tidegate_world::{Path, Timestamp};

use crate::network::NodeId;

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// The link lost it.
    Link,
    /// The queue before the link was full.
    Queue,
    /// The link was cut, or the two were partitioned.
    Partition,
    /// Its receiver was crashed when it arrived.
    Down,
    /// Its receiver was stalled, and had no room for more.
    Stalled,
    /// No node has its address.
    Nobody,
}

/// Sees every packet of a network. `()` sees none, and costs nothing.
pub trait Tap {
    /// `from` has sent a packet. `path` is as the sender sees it.
    fn sent(&mut self, _now: Timestamp, _from: NodeId, _path: Path, _bytes: &[u8]) {}

    /// A packet has come to `to`, which may be stalled. `path` is as the receiver sees it.
    fn delivered(&mut self, _now: Timestamp, _to: NodeId, _path: Path, _bytes: &[u8]) {}

    /// A packet is lost, or a copy of one: when it was sent or when it would have arrived.
    /// `path` is as the sender sees it.
    fn lost(&mut self, _now: Timestamp, _why: Loss, _path: Path, _bytes: &[u8]) {}
}

impl Tap for () {}

impl<T: Tap> Tap for &mut T {
    fn sent(&mut self, now: Timestamp, from: NodeId, path: Path, bytes: &[u8]) {
        (**self).sent(now, from, path, bytes);
    }
    fn delivered(&mut self, now: Timestamp, to: NodeId, path: Path, bytes: &[u8]) {
        (**self).delivered(now, to, path, bytes);
    }
    fn lost(&mut self, now: Timestamp, why: Loss, path: Path, bytes: &[u8]) {
        (**self).lost(now, why, path, bytes);
    }
}

/// Both see everything.
impl<A: Tap, B: Tap> Tap for (A, B) {
    fn sent(&mut self, now: Timestamp, from: NodeId, path: Path, bytes: &[u8]) {
        self.0.sent(now, from, path, bytes);
        self.1.sent(now, from, path, bytes);
    }
    fn delivered(&mut self, now: Timestamp, to: NodeId, path: Path, bytes: &[u8]) {
        self.0.delivered(now, to, path, bytes);
        self.1.delivered(now, to, path, bytes);
    }
    fn lost(&mut self, now: Timestamp, why: Loss, path: Path, bytes: &[u8]) {
        self.0.lost(now, why, path, bytes);
        self.1.lost(now, why, path, bytes);
    }
}

/// A hash over every packet sent: its time, its addresses, its bytes. Two runs with the same
/// hash sent the same bytes at the same times.
#[derive(Clone, Debug, Default)]
pub struct Trace(SipHasher13);

impl Trace {
    /// The hash of no packets.
    pub fn new() -> Self {
        Self::default()
    }

    /// The hash of what was sent so far.
    pub fn digest(&self) -> u128 {
        self.0.finish128().as_u128()
    }
}

impl Tap for Trace {
    fn sent(&mut self, now: Timestamp, _: NodeId, path: Path, bytes: &[u8]) {
        self.0.write_u64(now.as_nanos());
        for address in [path.local, path.remote] {
            match address.ip() {
                IpAddr::V4(ip) => self.0.write(&ip.octets()),
                IpAddr::V6(ip) => self.0.write(&ip.octets()),
            }
            self.0.write_u16(address.port());
        }
        self.0.write_usize(bytes.len());
        self.0.write(bytes);
    }
}
