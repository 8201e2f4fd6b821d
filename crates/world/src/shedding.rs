//! Datagrams that a core wants dropped before it reads them.

use std::net::IpAddr;

use crate::{Network, Transport};

/// Rules by which the driver drops datagrams before the core reads them. Dropping is the cheapest
/// way to shed, but also the least precise: senders get no response, and only the beginning and the
/// source of a datagram are examined.
///
/// Only INVITEs and REGISTERs may be dropped, because they ask for new work and floods mostly
/// consist of them. Their first bytes show the method ([`PREFIXES`](Self::PREFIXES)). Other
/// requests often belong to a call.
///
/// A caller without an answer sends its INVITE up to seven times, always with the same bytes (RFC
/// 3261 §17.1.1.2), and other requests up to eleven times (§17.1.2.2). If each copy were drawn at
/// random, a share `p` would exclude only `p^7` of these callers, and the others would be admitted
/// late. So a [hash](Self::hash) of the source address and the first bytes decides. While the share
/// and the key stay the same, all copies of a dropped datagram are dropped too. The hash includes
/// the address. So if a sender has found a datagram that passes, the same datagram with a forged
/// source address need not pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shedding {
    /// For each [method](DroppableMethod), the share of its datagrams that are dropped, 0 to 1. It
    /// applies to datagrams that begin with the method's [prefix](Self::PREFIXES), including
    /// in-dialog requests. It does not apply to sources in [`spared`](Self::spared) networks. It
    /// applies to calls to an [emergency service](Self::EMERGENCY) only if they come from
    /// [`unspared`](Self::unspared) networks.
    pub shares: [f64; 2],
    /// [Hashes](Self::hash) of datagrams that are dropped, even if the share is 0. The exceptions
    /// for spared networks and emergency calls are the same as for the share. Only the first
    /// [`MARKS_MAX`](Self::MARKS_MAX) hashes are used. A driver that combines the hashes of several
    /// cores takes the first ones of each core.
    pub marks: Vec<u32>,
    /// Secret key of the [hash](Self::hash), so that peers cannot predict which datagrams are
    /// dropped.
    pub key: u32,
    /// Sources whose datagrams are dropped if they begin with one of [`PREFIXES`](Self::PREFIXES).
    /// Other datagrams of these sources are not dropped, because they may belong to an existing
    /// call. Only the first [`BANNED_MAX`](Self::BANNED_MAX) sources are used. An IPv4 address may
    /// be mapped to IPv6 (RFC 4291 §2.5.5.2).
    pub banned: Vec<IpAddr>,
    /// Networks of sources to which the share and the marks do not apply. Only the first
    /// [`SPARED_MAX`](Self::SPARED_MAX) networks are used.
    pub spared: Vec<Network>,
    /// Networks of the sources that cause the overload. If there are any, the share applies only to
    /// datagrams from these networks. If there are more than [`HEAVY_MAX`](Self::HEAVY_MAX), the
    /// share applies to all sources.
    pub heavy: Vec<Network>,
    /// Networks of heavy sources that flood with calls to an emergency service. The share and the
    /// marks apply to emergency calls in datagrams from these networks as to other calls. They do
    /// not apply to emergency calls on streams. The datagrams of a flood may have forged sources,
    /// so a real caller may have one of these addresses. The source of a connection cannot be
    /// forged. Only the first [`UNSPARED_MAX`](Self::UNSPARED_MAX) networks are used. A driver that
    /// combines the networks of several cores takes the first ones of each core.
    pub unspared: Vec<Network>,
}

/// A method whose requests may be dropped before they are read. The methods are in the order of
/// [`PREFIXES`](Shedding::PREFIXES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppableMethod {
    /// INVITE.
    Invite,
    /// REGISTER.
    Register,
}

impl DroppableMethod {
    /// All methods whose requests may be dropped.
    pub const ALL: [Self; 2] = [Self::Invite, Self::Register];

    /// Returns the method of a message, by its first bytes, or `None` if the message may not be
    /// dropped.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let start: &[u8; 4] = bytes.first_chunk()?;
        let index = Shedding::PREFIXES.iter().position(|prefix| prefix == start)?;
        Some(Self::ALL[index])
    }
}

impl Shedding {
    /// Rules that drop no datagram.
    pub const NONE: Self = Self {
        shares: [0.0; 2],
        marks: Vec::new(),
        key: 0,
        banned: Vec::new(),
        spared: Vec::new(),
        heavy: Vec::new(),
        unspared: Vec::new(),
    };

    /// Maximum number of hashes in [`marks`](Self::marks) that are used.
    pub const MARKS_MAX: usize = 16;

    /// Maximum number of sources that are banned at the same time.
    pub const BANNED_MAX: usize = 64;

    /// Maximum number of networks in [`spared`](Self::spared) that are used.
    pub const SPARED_MAX: usize = 64;

    /// Maximum number of networks in [`heavy`](Self::heavy).
    pub const HEAVY_MAX: usize = 12;

    /// Maximum number of networks in [`unspared`](Self::unspared) that are used.
    pub const UNSPARED_MAX: usize = 4;

    /// The first bytes of the datagrams that may be dropped: INVITEs and REGISTERs.
    pub const PREFIXES: [[u8; 4]; 2] = [*b"INVI", *b"REGI"];

    /// The four 32-bit words, in lower case, that an INVITE to an emergency service has at
    /// [`EMERGENCY_AT`](Self::EMERGENCY_AT): ` urn:service:sos` (RFC 5031 §4.2).
    pub const EMERGENCY: [u32; 4] = [
        u32::from_be_bytes(*b" urn"),
        u32::from_be_bytes(*b":ser"),
        u32::from_be_bytes(*b"vice"),
        u32::from_be_bytes(*b":sos"),
    ];

    /// Offset in a datagram of the words that are compared with [`EMERGENCY`](Self::EMERGENCY).
    /// They follow `INVITE`.
    pub const EMERGENCY_AT: usize = 6;

    /// In each byte of a 32-bit word, the bit that distinguishes an upper-case letter from a
    /// lower-case one.
    pub const CASE: u32 = 0x2020_2020;

    /// The possible numbers of bytes that are hashed at the beginning of a datagram. The largest
    /// number that does not exceed the length of the datagram is used. These bytes normally contain
    /// the first line and the topmost Via, whose branch is unique to the request (RFC 3261
    /// §8.1.1.7).
    pub const HASHED: [usize; 5] = [256, 192, 128, 64, 4];

    /// Multipliers of the hash: odd, with well spread bits (2^32 divided by the golden ratio,
    /// and a constant of MurmurHash3).
    pub const MIX: [u32; 2] = [0x9e37_79b1, 0x85eb_ca6b];

    /// Returns the share of a method as a threshold: datagrams of the method whose hash is below
    /// this number, of 2^32 possible hashes, are dropped. A share that is NaN counts as 0.
    pub fn threshold(&self, method: DroppableMethod) -> u64 {
        (self.shares[method as usize].clamp(0.0, 1.0) * (1u64 << 32) as f64).round() as u64
    }

    /// Returns the hash of a datagram from `source`. The program that the driver loads into the
    /// kernel computes the same hash.
    pub fn hash(&self, source: IpAddr, bytes: &[u8]) -> u32 {
        let [golden, murmur] = Self::MIX;
        let mix = |hash: u32, word: u32| hash.wrapping_mul(golden) ^ word;
        let start = match source.to_canonical() {
            IpAddr::V4(ip) => mix(self.key, ip.to_bits()),
            IpAddr::V6(ip) => {
                let words = [96, 64, 32, 0].map(|shift| (ip.to_bits() >> shift) as u32);
                words.into_iter().fold(self.key, mix)
            }
        };
        let len = Self::HASHED.into_iter().find(|len| bytes.len() >= *len).unwrap_or(0);
        let (words, _) = bytes[..len].as_chunks::<4>();
        let mut hash = words.iter().fold(start, |hash, word| mix(hash, u32::from_be_bytes(*word)));
        for (shift, multiplier) in [(16, murmur), (13, golden)] {
            hash = (hash ^ hash >> shift).wrapping_mul(multiplier);
        }
        hash ^ hash >> 16
    }

    /// Returns the banned sources. An IPv4 address that is mapped to IPv6 is returned as an IPv4
    /// address.
    pub fn banned(&self) -> impl Iterator<Item = IpAddr> {
        self.banned.iter().take(Self::BANNED_MAX).map(IpAddr::to_canonical)
    }

    /// Returns the spared networks that are used: the first [`SPARED_MAX`](Self::SPARED_MAX).
    pub fn spared(&self) -> &[Network] {
        &self.spared[..self.spared.len().min(Self::SPARED_MAX)]
    }

    /// Returns the networks to which the share is limited. If there are none, the share applies to
    /// all sources.
    pub fn heavy(&self) -> &[Network] {
        if self.heavy.len() > Self::HEAVY_MAX { &[] } else { &self.heavy }
    }

    /// Returns the networks that flood with calls to an emergency service: the first
    /// [`UNSPARED_MAX`](Self::UNSPARED_MAX).
    pub fn unspared(&self) -> &[Network] {
        &self.unspared[..self.unspared.len().min(Self::UNSPARED_MAX)]
    }

    /// Returns whether a datagram with this content from `source` is dropped.
    pub fn drops(&self, source: IpAddr, bytes: &[u8]) -> bool {
        if !Self::may_be_dropped(bytes) {
            return false;
        }
        if self.banned().any(|banned| banned == source.to_canonical()) {
            return true;
        }
        self.drops_by_share(Transport::Udp, source, bytes)
    }

    /// Returns whether the share or a mark drops a message with this content from `source`. Unlike
    /// [`drops`](Self::drops), this does not depend on bans, and the message may come on a stream.
    pub fn drops_by_share(&self, transport: Transport, source: IpAddr, bytes: &[u8]) -> bool {
        let Some(method) = DroppableMethod::of(bytes) else { return false };
        if !self.has_share() || !self.applies(transport, source, bytes) {
            return false;
        }
        let mark = self.hash(source, bytes);
        let is_below = u64::from(mark) < self.threshold(method) && self.is_heavy(source);
        is_below || self.marks().contains(&mark)
    }

    /// Returns whether `source` is in a spared network. Datagrams from such a network are dropped
    /// only if their source is banned.
    pub fn spares(&self, source: IpAddr) -> bool {
        contain(self.spared(), source)
    }

    /// Returns whether `source` is in a [heavy](Self::heavy) network, or there are no heavy
    /// networks. The share applies only to such sources.
    pub fn is_heavy(&self, source: IpAddr) -> bool {
        self.heavy().is_empty() || contain(self.heavy(), source)
    }

    /// Returns whether the shares or the marks drop any datagrams.
    pub fn has_share(&self) -> bool {
        self.drops_shares() || !self.marks.is_empty()
    }

    /// Returns whether the share of a method is above 0.
    pub fn drops_shares(&self) -> bool {
        DroppableMethod::ALL.iter().any(|method| self.threshold(*method) > 0)
    }

    /// Returns the hashes that are used: the first [`MARKS_MAX`](Self::MARKS_MAX).
    pub fn marks(&self) -> &[u32] {
        &self.marks[..self.marks.len().min(Self::MARKS_MAX)]
    }

    /// Returns whether [`marks`](Self::marks) apply to a message with this content from `source`.
    /// The share applies to the same messages if their source is [heavy](Self::is_heavy).
    pub fn applies(&self, transport: Transport, source: IpAddr, bytes: &[u8]) -> bool {
        Self::may_be_dropped(bytes)
            && !contain(self.spared(), source)
            && !(Self::is_emergency(bytes) && self.spares_emergency(transport, source))
    }

    /// Returns whether calls from `source` to an [emergency service](Self::EMERGENCY) are exempt
    /// from the share and the marks.
    fn spares_emergency(&self, transport: Transport, source: IpAddr) -> bool {
        transport != Transport::Udp || !contain(self.unspared(), source)
    }

    /// Returns whether a datagram with this content is of a kind that may be dropped: whether it
    /// begins with one of [`PREFIXES`](Self::PREFIXES).
    pub fn may_be_dropped(bytes: &[u8]) -> bool {
        DroppableMethod::of(bytes).is_some()
    }

    /// Returns whether a datagram that [may be dropped](Self::may_be_dropped) calls an [emergency
    /// service](Self::EMERGENCY).
    pub fn is_emergency(bytes: &[u8]) -> bool {
        let words = bytes.get(Self::EMERGENCY_AT..).unwrap_or_default().as_chunks::<4>().0;
        words.len() >= Self::EMERGENCY.len()
            && words
                .iter()
                .zip(Self::EMERGENCY)
                .all(|(word, expected)| u32::from_be_bytes(*word) | Self::CASE == expected)
    }
}

fn contain(networks: &[Network], ip: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(ip))
}

#[cfg(test)]
#[path = "shedding_tests.rs"]
mod tests;
