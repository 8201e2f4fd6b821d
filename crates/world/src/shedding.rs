//! Datagrams that a core wants dropped before it reads them.

use std::net::IpAddr;

use crate::Transport;

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
/// and the key stay the same, all copies of a dropped datagram are dropped too. The address is in
/// the hash so that a sender that finds datagrams that pass cannot send them from forged addresses.
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
    /// not apply to emergency calls on streams: the datagrams of a flood may have forged sources,
    /// but a connection cannot. Only the first [`UNSPARED_MAX`](Self::UNSPARED_MAX) networks are
    /// used. A driver that combines the networks of several cores takes the first ones of each
    /// core.
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

    /// The bit of each byte of a 32-bit word that distinguishes an upper-case letter from a
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

    /// Returns whether the share applies to datagrams from `source`.
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

    /// Returns whether the share and the marks do not apply to calls from `source` to an [emergency
    /// service](Self::EMERGENCY).
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
mod tests {
    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn share(share: f64) -> Shedding {
        Shedding { shares: [share; 2], ..Shedding::NONE }
    }

    /// Returns INVITEs that differ in their branch alone.
    fn invites() -> impl Iterator<Item = String> {
        let via = "Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK";
        (0..10_000).map(move |n| format!("INVITE sip:a@b SIP/2.0\r\n{via}{n}\r\n{:300}", ""))
    }

    // RFC 5031 §4.2 registers `urn:service:sos`. RFC 8141 §3.1 and RFC 5031 §3 compare it without
    // regard to case.
    #[test]
    fn emergency_calls_are_never_dropped_by_the_share() {
        let invite = |uri: &str| format!("INVITE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1\r\n");
        for uri in ["urn:service:sos", "URN:Service:SOS.fire"] {
            assert!(!share(1.0).drops(SOURCE, invite(uri).as_bytes()), "{uri}");
        }
        for uri in ["urn:service:so", "urn:service:counseling", "sip:sos@urn:service", ""] {
            assert!(share(1.0).drops(SOURCE, invite(uri).as_bytes()), "{uri}");
        }
        assert!(share(1.0).drops(SOURCE, b"INVITE urn:service:so"), "cut off");
        let banned = Shedding { banned: vec![SOURCE], ..share(1.0) };
        assert!(banned.drops(SOURCE, invite("urn:service:sos").as_bytes()));
    }

    #[test]
    fn emergency_calls_of_a_source_that_floods_with_them_are_dropped_like_others() {
        let sos = b"INVITE urn:service:sos SIP/2.0\r\n";
        let [flooding, other]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let network = |address| Network { address, prefix: 32 };
        let unspared = vec![network(flooding)];
        let drops = |shedding: &Shedding| [flooding, other].map(|from| shedding.drops(from, sos));
        let all = Shedding { unspared: unspared.clone(), ..share(1.0) };
        assert_eq!(drops(&all), [true, false]);
        assert_eq!(drops(&Shedding { unspared: unspared.clone(), ..share(0.0) }), [false, false]);
        let marks = [flooding, other].map(|from| Shedding::NONE.hash(from, sos)).to_vec();
        let marked = Shedding { marks, unspared: unspared.clone(), ..Shedding::NONE };
        assert_eq!(drops(&marked), [true, false]);
        let of_other = Shedding { heavy: vec![network(other)], ..all.clone() };
        assert_eq!(drops(&of_other), [false, false], "the share does not apply to the source");
        let spared = Shedding { spared: unspared, ..all.clone() };
        assert_eq!(drops(&spared), [false, false], "a spared network stays spared");
        let nth = |n: u8| network([192, 0, 2, n].into());
        let many = Shedding { unspared: (3..7).chain([1]).map(nth).collect(), ..all };
        assert_eq!(drops(&many), [false, false], "there is room for four");
    }

    /// Anybody can send a datagram from a forged address, but nobody can open a connection from one.
    #[test]
    fn emergency_calls_on_streams_are_not_dropped_because_of_datagrams() {
        let [sos, other] =
            [&b"INVITE urn:service:sos SIP/2.0\r\n"[..], b"INVITE sip:a SIP/2.0\r\n"];
        let unspared = vec![Network { address: SOURCE, prefix: 32 }];
        let marks = [sos, other].map(|bytes| Shedding::NONE.hash(SOURCE, bytes)).to_vec();
        let marked = Shedding { marks, unspared: unspared.clone(), ..Shedding::NONE };
        for shedding in [Shedding { unspared, ..share(1.0) }, marked] {
            let drops_by_share =
                |transport, bytes| shedding.drops_by_share(transport, SOURCE, bytes);
            assert!(drops_by_share(Transport::Udp, sos));
            for transport in [Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss] {
                assert!(
                    !drops_by_share(transport, sos) && drops_by_share(transport, other),
                    "{transport:?}"
                );
            }
        }
    }

    #[test]
    fn the_share_applies_to_invites_and_registers_only() {
        let all = share(1.0);
        for (bytes, dropped) in [
            (&b"INVITE sip:a"[..], true),
            (b"INVI", true),
            (b"INV", false),
            (b"REGISTER sip:a", true),
            (b"OPTIONS sip:a", false),
            (b"ACK sip:a", false),
            (b"BYE sip:a", false),
            (b"NOTIFY sip:a", false),
            (b"SIP/2.0 200 OK", false),
            (b"", false),
        ] {
            assert_eq!(all.drops(SOURCE, bytes), dropped, "{bytes:?}");
            for none in [0.0, -1.0, f64::NAN, 1e-11] {
                assert!(!share(none).drops(SOURCE, bytes));
            }
        }
    }

    #[test]
    fn each_method_has_its_own_share() {
        for (shares, dropped) in [([1.0, 0.0], [true, false]), ([0.0, 1.0], [false, true])] {
            let shedding = Shedding { shares, ..Shedding::NONE };
            let drops = |bytes: &[u8]| shedding.drops(SOURCE, bytes);
            assert_eq!([&b"INVITE sip:a"[..], b"REGISTER sip:a"].map(drops), dropped);
            assert!(shedding.has_share());
        }
    }

    #[test]
    fn the_share_is_met_and_a_larger_share_includes_a_smaller_one() {
        let dropped = |of: f64, key: u32| -> Vec<String> {
            let shedding = Shedding { key, ..share(of) };
            invites().filter(|text| shedding.drops(SOURCE, text.as_bytes())).collect()
        };
        for (of, key) in [(0.1f64, 0), (0.5, 7), (0.97, u32::MAX)] {
            let deviation = (10_000.0 * of * (1.0 - of)).sqrt();
            let off = dropped(of, key).len() as f64 - 10_000.0 * of;
            assert!(off.abs() < 5.0 * deviation, "{off} at {of}");
        }
        let (few, many) = (dropped(0.3, 1), dropped(0.6, 1));
        assert!(few.iter().all(|text| many.contains(text)));
        // With another key, three tenths of these datagrams are dropped too.
        let other = dropped(0.3, 2);
        let both = few.iter().filter(|text| other.contains(text)).count();
        assert!((700..1_100).contains(&both), "{both}");
    }

    // RFC 3261 §8.1.1.7: the branch is unique to the request, and short INVITEs have one too.
    #[test]
    fn the_share_is_met_by_invites_of_any_length() {
        for length in (130..=300).step_by(10) {
            let invite = |call: u32| {
                let via = format!("Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK{call:08}");
                let start = format!("INVITE sip:someone@example.com SIP/2.0\r\n{via}\r\n");
                format!("{start:-<length$}")
            };
            let drops = |call: &u32| share(0.5).drops(SOURCE, invite(*call).as_bytes());
            let dropped = (0..1000).filter(drops).count();
            assert!((400..600).contains(&dropped), "{dropped} of {length} bytes");
        }
    }

    #[test]
    fn datagrams_with_one_of_the_marks_are_dropped_and_no_others() {
        let [alike, other] = [300, 700].map(|branch| {
            move |call: u32| format!("INVITE sip:a SIP/2.0\r\nVia: {branch}{:300}{call}", "")
        });
        let mark = Shedding::NONE.hash(SOURCE, alike(0).as_bytes());
        let shedding = Shedding { marks: vec![1, mark], ..Shedding::NONE };
        for call in 0..100 {
            assert!(shedding.drops(SOURCE, alike(call).as_bytes()));
            assert!(!shedding.drops(SOURCE, other(call).as_bytes()));
            assert!(!shedding.drops([192, 0, 2, 2].into(), alike(call).as_bytes()));
        }
        let beyond = (0..Shedding::MARKS_MAX as u32).chain([mark]).collect();
        let shedding = Shedding { marks: beyond, ..Shedding::NONE };
        assert!(!shedding.drops(SOURCE, alike(0).as_bytes()));
    }

    #[test]
    fn a_datagram_that_passes_need_not_pass_from_another_address() {
        let text = invites().find(|text| !share(0.5).drops(SOURCE, text.as_bytes())).unwrap();
        for addresses in [
            (0..250).map(|n| IpAddr::from([198, 51, 100, n])).collect::<Vec<_>>(),
            (0..250).map(|n| IpAddr::from([0x2001, 0xdb8, 0, n, 0, 0, 0, 1])).collect(),
        ] {
            let drops = |&&source: &&IpAddr| share(0.5).drops(source, text.as_bytes());
            let dropped = addresses.iter().filter(drops).count() as f64 / addresses.len() as f64;
            assert!((0.3..0.7).contains(&dropped), "{dropped}");
        }
    }

    #[test]
    fn a_ban_holds_for_every_form_of_an_address() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let banned = vec![ip("::ffff:192.0.2.1"), ip("2001:db8::1")];
        let shedding = Shedding { banned, ..Shedding::NONE };
        for (source, dropped) in [
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("2001:db8::1", true),
            ("192.0.2.2", false),
            ("2001:db8::2", false),
        ] {
            assert_eq!(shedding.drops(ip(source), b"INVITE sip:a"), dropped, "{source}");
            for finishing in ["BYE sip:a", "ACK sip:a", "SIP/2.0 200 OK", "INV", ""] {
                assert!(!shedding.drops(ip(source), finishing.as_bytes()), "{source}");
            }
        }
    }

    #[test]
    fn the_share_does_not_apply_to_spared_networks_and_a_ban_does() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let network = |text: &str, prefix| Network { address: ip(text), prefix };
        let spared =
            vec![network("192.0.2.16", 28), network("2001:db8::", 33), network("10.0.0.1", 32)];
        let shedding = Shedding { spared, banned: vec![ip("192.0.2.18")], ..share(1.0) };
        for (source, dropped) in [
            ("192.0.2.16", false),
            ("192.0.2.31", false),
            ("::ffff:192.0.2.31", false),
            ("192.0.2.32", true),
            ("192.0.2.15", true),
            ("192.0.2.18", true),
            ("10.0.0.1", false),
            ("10.0.0.0", true),
            ("2001:db8:7fff::1", false),
            ("2001:db8:8000::1", true),
            ("2001:db9::", true),
        ] {
            assert_eq!(shedding.drops(ip(source), b"INVITE sip:a"), dropped, "{source}");
        }
        let all = Shedding { spared: vec![network("0.0.0.0", 0)], ..share(1.0) };
        assert!(!all.drops(ip("192.0.2.1"), b"INVITE") && all.drops(ip("2001:db8::1"), b"INVITE"));
    }

    #[test]
    fn the_share_applies_only_to_heavy_networks_if_there_are_any() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let network = |text: &str, prefix| Network { address: ip(text), prefix };
        let heavy = vec![network("192.0.2.7", 32), network("2001:db8:0:1::", 64)];
        let spared = vec![network("2001:db8:0:1::7", 128)];
        let shedding = Shedding { heavy, spared, banned: vec![ip("192.0.2.8")], ..share(1.0) };
        for (source, dropped) in [
            ("192.0.2.7", true),
            ("::ffff:192.0.2.7", true),
            ("192.0.2.6", false),
            ("192.0.2.8", true),
            ("2001:db8:0:1::8", true),
            ("2001:db8:0:1::7", false),
            ("2001:db8::8", false),
        ] {
            assert_eq!(shedding.drops(ip(source), b"INVITE sip:a"), dropped, "{source}");
        }
        // A mark applies to datagrams of all sources, even if they are not heavy.
        let mark = shedding.hash(ip("192.0.2.6"), b"INVITE sip:a");
        let marked = Shedding { marks: vec![mark], ..shedding };
        assert!(marked.drops(ip("192.0.2.6"), b"INVITE sip:a"));
        let nth = |n: u8| Network { address: IpAddr::from([198, 51, 100, n]), prefix: 32 };
        let many = Shedding { heavy: (0..13).map(nth).collect(), ..share(1.0) };
        assert!(many.drops(ip("192.0.2.6"), b"INVITE sip:a"), "too many networks to list");
    }

    #[test]
    fn there_are_no_more_bans_than_the_limit() {
        let nth = |n: u8| IpAddr::from([192, 0, 2, n]);
        let shedding = Shedding { banned: (0..100).map(nth).collect(), ..Shedding::NONE };
        assert!(shedding.drops(nth(63), b"INVITE") && !shedding.drops(nth(64), b"INVITE"));
    }
}
