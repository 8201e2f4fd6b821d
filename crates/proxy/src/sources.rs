//! Who a message comes from, and what is held against him before it is read.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use tidegate_control::{Ban, BanCause, BanList, BanView, Headroom, Limit, Per, Sender, Watch};
use tidegate_world::{Received, Shedding, Stream, Timestamp};

use crate::endpoint::Endpoint;
use crate::origin::Origin;
use crate::priority::{Claim, Priority};

/// How sources are told apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Sources {
    /// Calls that go before others.
    pub priority: Option<Priority>,
    /// Limits; the first that is for a source holds.
    pub limits: Vec<SourceLimit>,
    /// Who floods is banned.
    pub flood: Option<Flood>,
    /// Who is never banned, but by an operator. Back ends never are.
    pub never_ban: Vec<IpNet>,
    /// Sources of the whole process that may be banned at the same time.
    pub bans_max: usize,
}

impl Default for Sources {
    /// They are not.
    fn default() -> Self {
        Self {
            priority: None,
            limits: Vec::new(),
            flood: None,
            never_ban: Vec::new(),
            bans_max: BANS_MAX,
        }
    }
}

/// Sources that may be banned at the same time, unless configured otherwise.
pub const BANS_MAX: usize = 1024;

/// A limit on the new work of the sources in a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceLimit {
    /// The network.
    pub from: IpNet,
    /// Calls, and requests that stand alone, in a second.
    pub rate_cps: f64,
    /// At once.
    pub burst: u32,
    /// Whether each source may send as much, or all together.
    pub per: Per,
    /// What becomes of what is beyond.
    pub then: Excess,
}

/// What becomes of what goes beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// It is disposed of as what a law does not admit.
    Refuse,
    /// It is dropped in silence.
    Drop,
    /// So is all that its source sends for so long.
    Ban(Duration),
}

/// What a flood is, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// Messages a second that ask for new work, or make no sense: more is a flood.
    pub above_cps: u32,
    /// In so many seconds in a row.
    pub after_s: u32,
    /// Its source is banned for so long.
    pub ban: Duration,
}

impl Sources {
    /// Whether anybody may come to be banned.
    pub fn may_ban(&self) -> bool {
        let bans = |limit: &SourceLimit| matches!(limit.then, Excess::Ban(_));
        self.flood.is_some() || self.limits.iter().any(bans)
    }
}

impl SourceLimit {
    /// As the gate has it.
    pub(crate) fn limit(&self) -> Limit {
        let Self { rate_cps: rate, burst, per, then, .. } = *self;
        Limit { rate, burst, per, sticky: then == Excess::Refuse }
    }
}

/// The number of a source: its IPv4 address, or the network of 64 bits that its IPv6 address is
/// in. RFC 4291 §2.5.1: a host may have any of the addresses in that.
pub fn source_of(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits() & !u128::from(u64::MAX),
    }
}

/// The address, or the first one, of the source with this number.
pub fn address_of(source: u128) -> IpAddr {
    Ipv6Addr::from_bits(source).to_canonical()
}

/// Holds against a source what it sends.
pub(crate) struct Watchman {
    sources: Sources,
    /// Whether anything depends on who a sender is.
    tells_apart: bool,
    watch: Option<Watch>,
    bans: BanView,
}

impl Watchman {
    /// Tells up to `sources_max` sources apart. The key of its table is drawn from `stream`.
    pub(crate) fn new(
        sources: Sources,
        is_fair: bool,
        sources_max: usize,
        bans: BanList,
        stream: &mut Stream,
    ) -> Self {
        let watch = |flood: Flood| Watch::new(flood.above_cps, flood.after_s, sources_max, stream);
        Self {
            watch: sources.flood.map(watch),
            tells_apart: is_fair || !sources.limits.is_empty(),
            sources,
            bans: BanView::new(bans),
        }
    }

    /// The bans of the process.
    pub(crate) fn bans(&self) -> &BanList {
        self.bans.list()
    }

    /// Times that a source was not watched, for want of room.
    pub(crate) fn overflowed(&self) -> u64 {
        self.watch.as_ref().map_or(0, Watch::overflowed)
    }

    /// Puts down the addresses that are banned, as many as a driver can heed. Networks are not
    /// among them.
    pub(crate) fn banned(&mut self, now: Timestamp, banned: &mut Vec<IpAddr>) {
        banned.clear();
        let addresses = self.bans.bans().each(now).map(|ban| address_of(ban.source));
        banned.extend(addresses.filter(IpAddr::is_ipv4).take(Shedding::BANNED_MAX));
    }

    /// Whether the sender of a message is banned.
    #[inline]
    pub(crate) fn is_banned(&mut self, now: Timestamp, received: &Received) -> bool {
        let bans = self.bans.bans();
        !bans.is_empty() && bans.is_banned(now, source_of(received.path.remote.ip()))
    }

    /// A message asks for new work, or makes no sense. Whether its sender is banned for it.
    pub(crate) fn on_message(
        &mut self,
        now: Timestamp,
        received: &Received,
        endpoint: &Endpoint,
    ) -> bool {
        let (Some(watch), Some(flood)) = (&mut self.watch, self.sources.flood) else {
            return false;
        };
        watch.on_message(now, source_of(received.path.remote.ip()))
            && self.ban(now, received, endpoint, flood.ban, BanCause::Rate)
    }

    /// Whose work an INVITE asks for, or another request, and what it claims.
    pub(crate) fn sender(&self, received: &Received, is_invite: bool) -> (Sender, Claim) {
        let address = received.path.remote.ip().to_canonical();
        let claim = match &self.sources.priority {
            Some(priority) if is_invite => priority.claim(address, &received.bytes),
            _ => Claim::Ordinary,
        };
        let mut limits = self.sources.limits.iter();
        let sender = Sender {
            source: self.tells_apart.then(|| source_of(address)),
            limit: limits.position(|limit| limit.from.contains(&address)),
            has_priority: claim == Claim::Priority,
            headroom: Headroom::Any,
        };
        (sender, claim)
    }

    /// A message goes beyond this limit. What becomes of it.
    pub(crate) fn on_excess(
        &mut self,
        now: Timestamp,
        received: &Received,
        endpoint: &Endpoint,
        limit: usize,
    ) -> Excess {
        let then = self.sources.limits[limit].then;
        if let Excess::Ban(time) = then {
            self.ban(now, received, endpoint, time, BanCause::Limit);
        }
        then
    }

    fn ban(
        &self,
        now: Timestamp,
        received: &Received,
        endpoint: &Endpoint,
        time: Duration,
        cause: BanCause,
    ) -> bool {
        let address = received.path.remote.ip().to_canonical();
        let is_member = matches!(endpoint.addresses().origin(&received.path), Origin::Member(_));
        if is_member || self.sources.never_ban.iter().any(|net| net.contains(&address)) {
            return false;
        }
        self.bans().ban(now, Ban { source: source_of(address), until: now + time, cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_or_the_64_bits_of_its_network() {
        let of = |text: &str| source_of(text.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        for (text, shown) in [("192.0.2.1", "192.0.2.1"), ("2001:db8:1:2::3", "2001:db8:1:2::")] {
            assert_eq!(address_of(of(text)), shown.parse::<IpAddr>().unwrap());
        }
    }
}
