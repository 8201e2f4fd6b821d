//! What a core wants kept from it.

use std::net::IpAddr;

/// What is to be dropped before the core has it read: the cheapest refusal there is, and the
/// bluntest. Nobody is told, nothing is looked at but the first bytes and the source.
///
/// A caller sends its INVITE up to seven times (RFC 3261 §17.1.1.2), so a share `p` of the
/// datagrams keeps only `p^7` of such callers out, and lets the others in late.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shedding {
    /// The share, 0 to 1, of the datagrams that begin with `INVI`, each drawn by itself.
    /// Requests within a call that begin so are among them.
    pub share: f64,
    /// Sources all of whose datagrams are dropped. The first [`BANNED_MAX`](Self::BANNED_MAX)
    /// count. An IPv4 address may be written as one of IPv6 (RFC 4291 §2.5.5.2).
    pub banned: Vec<IpAddr>,
}

impl Shedding {
    /// Nothing is dropped.
    pub const NONE: Self = Self { share: 0.0, banned: Vec::new() };

    /// Sources that can be banned at the same time.
    pub const BANNED_MAX: usize = 64;

    /// What a datagram begins with that the share is of.
    pub const PREFIX: [u8; 4] = *b"INVI";

    /// Of the 2^32 numbers that can be drawn for a datagram, those from 0 on that drop it.
    /// What is no number is no share.
    pub fn threshold(&self) -> u64 {
        (self.share.clamp(0.0, 1.0) * (1u64 << 32) as f64).round() as u64
    }

    /// The sources that are banned, in their own families.
    pub fn banned(&self) -> impl Iterator<Item = IpAddr> {
        self.banned.iter().take(Self::BANNED_MAX).map(IpAddr::to_canonical)
    }

    /// Whether a datagram with this content is dropped. `draw` gives 32 random bits, and is
    /// asked only where chance decides.
    pub fn drops(&self, source: IpAddr, bytes: &[u8], draw: impl FnOnce() -> u32) -> bool {
        if self.banned().any(|banned| banned == source.to_canonical()) {
            return true;
        }
        let threshold = self.threshold();
        threshold > 0
            && bytes.starts_with(&Self::PREFIX)
            && (threshold > u64::from(u32::MAX) || u64::from(draw()) < threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn share(share: f64) -> Shedding {
        Shedding { share, ..Shedding::NONE }
    }

    #[test]
    fn the_share_is_of_invites_alone() {
        let half = share(0.5);
        for (bytes, draw, dropped) in [
            (&b"INVITE sip:a"[..], 0x7fff_ffff, true),
            (b"INVI", 0, true),
            (b"INVITE sip:a", 0x8000_0000, false),
            (b"INV", 0, false),
            (b"ACK sip:a", 0, false),
            (b"SIP/2.0 200 OK", 0, false),
            (b"", 0, false),
        ] {
            assert_eq!(half.drops(SOURCE, bytes, || draw), dropped, "{bytes:?}");
        }
    }

    #[test]
    fn nothing_and_everything_need_no_chance() {
        let drops = |share: Shedding| share.drops(SOURCE, b"INVITE", || panic!("drawn"));
        for none in [0.0, -1.0, f64::NAN, 1e-11] {
            assert!(!drops(share(none)), "{none}");
        }
        for all in [1.0, 2.0, f64::INFINITY] {
            assert!(drops(share(all)), "{all}");
        }
    }

    #[test]
    fn who_is_banned_gets_nothing_through_whatever_the_address_is_written_as() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let banned = vec![ip("::ffff:192.0.2.1"), ip("2001:db8::1")];
        let shedding = Shedding { share: 0.0, banned };
        for (source, dropped) in [
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("2001:db8::1", true),
            ("192.0.2.2", false),
            ("2001:db8::2", false),
        ] {
            assert_eq!(shedding.drops(ip(source), b"BYE", || panic!("drawn")), dropped, "{source}");
        }
    }

    #[test]
    fn there_are_no_more_bans_than_the_limit() {
        let nth = |n: u8| IpAddr::from([192, 0, 2, n]);
        let shedding = Shedding { share: 0.0, banned: (0..100).map(nth).collect() };
        assert!(shedding.drops(nth(63), b"BYE", || 0) && !shedding.drops(nth(64), b"BYE", || 0));
    }
}
