//! Per-source policy (limits, bans, priority), applied before a message is parsed.

pub(crate) mod kernel_lists;

use std::net::IpAddr;

use ipnet::IpNet;
use tidegate_control::{Ban, BanCause, BanList, BanView, Proofs, Sender, Watch};
use tidegate_world::{Flow, Received, Stream, Timestamp};

use crate::message::priority::Claim;
use crate::network::{PREFIXES, networks_of, source_of};
use crate::settings::sources::{Excess, HARM_CPS, KNOWN_WEIGHT, SourceWeight, Sources};
use crate::transport::addresses::{Addresses, Origin};

/// The policy for each source (limits, bans, weights), and the message counts that it depends on.
pub(crate) struct SourcePolicy {
    sources: Sources,
    /// Networks that get overload feedback, in addition to back ends and trusted sources.
    peers: Vec<IpNet>,
    /// True if the gate needs to know the source of new work, for fair shares or for a limit.
    needs_source: bool,
    /// True if admitted work is shared fairly among sources.
    is_fair: bool,
    /// Counts of the messages that [`on_message`](Self::on_message) handles, by source. There is
    /// one table for each size of network around an address. `None` if floods do not cause bans.
    flood: Option<[Watch; PREFIXES.len()]>,
    /// Counts of messages that exceed a limit with [`Excess::Ban`]. `None` if no limit has this
    /// consequence.
    excess: Option<Watch>,
    /// Sources that have proved that they receive messages. `None` if no source can be banned.
    proofs: Option<Proofs>,
    bans: BanView,
    /// Version of the ban list at the last call of [`compare`](Self::compare).
    compared: Option<u64>,
}

impl SourcePolicy {
    /// Creates a policy that distinguishes up to `sources_max` sources. The keys of the hash tables
    /// are drawn from `stream`.
    pub(crate) fn new(
        sources: Sources,
        peers: Vec<IpNet>,
        is_fair: bool,
        sources_max: usize,
        bans: BanList,
        stream: &mut Stream,
    ) -> Self {
        let mut watch = |above: u32, s: u32| Watch::new(above, s, sources_max, stream);
        let flood =
            sources.flood.map(|flood| PREFIXES.map(|_| watch(flood.above_cps, flood.after_s)));
        let bans_excess = sources.limits.iter().any(|limit| matches!(limit.then, Excess::Ban(_)));
        Self {
            flood,
            excess: bans_excess.then(|| watch(HARM_CPS - 1, 1)),
            proofs: sources.may_ban().then(|| Proofs::new(sources_max, stream)),
            needs_source: is_fair || !sources.limits.is_empty(),
            is_fair,
            sources,
            peers,
            bans: BanView::new(bans),
            compared: None,
        }
    }

    /// Returns the ban list, which all shards of the process share.
    pub(crate) fn bans(&self) -> &BanList {
        self.bans.list()
    }

    /// Returns how often the messages of a source were not counted, or a proof was not kept,
    /// because a table was full.
    pub(crate) fn overflowed(&self) -> u64 {
        let watches = self.flood.iter().flatten().chain(&self.excess);
        let proofs = self.proofs.as_ref().map_or(0, Proofs::overflowed);
        watches.map(Watch::overflowed).sum::<u64>() + proofs
    }

    /// Tells the other shards which banned sources have proved to this shard that they receive
    /// messages.
    fn compare(&mut self, now: Timestamp) {
        let Some(proofs) = &self.proofs else { return };
        self.bans.bans();
        if self.compared.replace(self.bans.version()) == Some(self.bans.version()) {
            return;
        }
        let bans = self.bans.bans().each(now).filter(|ban| !ban.is_proven);
        let proven: Vec<u128> =
            bans.map(|ban| ban.source).filter(|source| proofs.holds(now, *source)).collect();
        for source in proven {
            self.bans().prove(source);
        }
    }

    /// Returns the ban that applies to the sender of a message, if there is one.
    #[inline]
    pub(crate) fn ban_of(
        &mut self,
        now: Timestamp,
        flow: &Flow,
        addresses: &Addresses,
    ) -> Option<Ban> {
        if self.bans.bans().is_empty() {
            return None;
        }
        self.find_ban(now, flow, addresses)
    }

    fn find_ban(&mut self, now: Timestamp, flow: &Flow, addresses: &Addresses) -> Option<Ban> {
        let address = flow.remote.ip();
        let mut networks = networks_of(address);
        let source = networks.next()?;
        let bans = self.bans.bans();
        let own = bans.get(now, source).copied();
        let wide = || networks.find_map(|network| bans.get(now, network)).copied();
        let ban = own.or_else(wide)?;
        // If another shard banned the source, only this shard may have a proof for it.
        let is_proven = ban.is_proven || self.is_proven(now, source);
        // A known source is not banned for messages of its neighbours.
        let is_known = own.is_none() && (is_proven || self.is_spared(flow, addresses));
        (!is_known).then_some(Ban { is_proven, ..ban })
    }

    /// Records that the source at `address` receives the messages that are sent to it, so `address`
    /// is not forged.
    pub(crate) fn prove(&mut self, now: Timestamp, address: IpAddr) {
        let Some(proofs) = &mut self.proofs else { return };
        let source = source_of(address);
        proofs.prove(now, source);
        if self.bans.bans().get(now, source).is_some_and(|ban| !ban.is_proven) {
            self.bans().prove(source);
        }
    }

    fn is_proven(&self, now: Timestamp, source: u128) -> bool {
        self.proofs.as_ref().is_some_and(|proofs| proofs.holds(now, source))
    }

    /// Counts a message that requests new work, is malformed, or falsely claims to belong to a
    /// call. Returns whether its sender is banned because of this message.
    pub(crate) fn on_message(
        &mut self,
        now: Timestamp,
        flow: &Flow,
        addresses: &Addresses,
    ) -> bool {
        let (Some(watches), Some(flood)) = (&mut self.flood, self.sources.flood) else {
            return false;
        };
        let address = flow.remote.ip();
        let weight = weight_of(&self.sources.weights, address);
        let networks = networks_of(address).zip(watches).zip(PREFIXES);
        // Evidence against one network does not count against the networks around it.
        let found = networks.into_iter().find_map(|((network, watch), (_, times))| {
            Some((network, watch.on_message(now, network, weight.saturating_mul(times))?))
        });
        let Some((network, rate)) = found else { return false };
        let (until, cause) = (now + flood.ban, BanCause::Rate);
        self.ban(
            now,
            flow,
            addresses,
            Ban { source: network, until, cause, rate, is_proven: false },
        )
    }

    /// Counts a dropped message of a banned source. If the source now sends at least twice the rate
    /// for which it was banned, the ban gets the new rate and lasts at least for the configured
    /// time from now.
    pub(crate) fn on_banned(
        &mut self,
        now: Timestamp,
        flow: &Flow,
        addresses: &Addresses,
        ban: &Ban,
    ) {
        let (Some([watch, ..]), Some(flood)) = (&mut self.flood, self.sources.flood) else {
            return;
        };
        let address = flow.remote.ip();
        let weight = weight_of(&self.sources.weights, address);
        let rate = watch.on_message(now, source_of(address), weight);
        if let Some(rate) = rate.filter(|&rate| rate / 2 >= ban.rate) {
            self.ban(now, flow, addresses, Ban { until: now + flood.ban, rate, ..*ban });
        }
    }

    /// Returns the configured weight of a source, or 1 if none is configured.
    pub(crate) fn weight_of(&self, source: IpAddr) -> u32 {
        weight_of(&self.sources.weights, source.to_canonical())
    }

    /// Returns the weight of the sender of a message in fair shares. If shares are fair and the
    /// operator has configured no weights, a back end, a trusted source or a source that gets
    /// overload feedback gets [`KNOWN_WEIGHT`]. Such a source serves many users, so a few strangers
    /// must not displace it.
    pub(crate) fn weight_in_shares(&self, flow: &Flow, addresses: &Addresses) -> u32 {
        let address = flow.remote.ip().to_canonical();
        let configured = find_weight(&self.sources.weights, address);
        configured.unwrap_or_else(|| {
            let is_known = self.is_fair
                && self.sources.weights.is_empty()
                && (addresses.origin(flow) != Origin::Stranger
                    || self.peers.iter().any(|net| net.contains(&address)));
            if is_known { KNOWN_WEIGHT } else { 1 }
        })
    }

    /// Returns what the policy knows of the sender of a request, and the priority claim of the
    /// request. The caller sets the other fields of the sender. Only an INVITE can claim priority.
    pub(crate) fn sender(
        &self,
        received: &Received,
        is_invite: bool,
        addresses: &Addresses,
    ) -> (Sender, Claim) {
        let address = received.flow.remote.ip().to_canonical();
        let claim = match &self.sources.priority {
            Some(priority) if is_invite => priority.claim(address, &received.bytes),
            _ => Claim::Ordinary,
        };
        let mut limits = self.sources.limits.iter();
        let sender = Sender {
            source: self.needs_source.then(|| source_of(address)),
            weight: self.weight_in_shares(&received.flow, addresses),
            limit: limits.position(|limit| limit.from.contains(&address)),
            has_priority: claim == Claim::Priority,
            ..Sender::default()
        };
        (sender, claim)
    }

    /// Handles a request that exceeds the limit with the index `limit`. Returns the consequence
    /// that is configured for this limit.
    pub(crate) fn on_excess(
        &mut self,
        now: Timestamp,
        flow: &Flow,
        addresses: &Addresses,
        limit: usize,
    ) -> Excess {
        let then = self.sources.limits[limit].then;
        if let (Excess::Ban(time), Some(watch)) = (then, &mut self.excess) {
            let source = source_of(flow.remote.ip());
            let weight = weight_of(&self.sources.weights, flow.remote.ip());
            if let Some(rate) = watch.on_message(now, source, weight) {
                let (until, cause) = (now + time, BanCause::Limit);
                let ban = Ban { source, until, cause, rate, is_proven: false };
                self.ban(now, flow, addresses, ban);
            }
        }
        then
    }

    /// Returns whether a configured limit bans the sources that exceed it.
    pub(crate) fn bans_excess(&self) -> bool {
        self.excess.is_some()
    }

    /// Returns whether the policy never bans the sender of a message: a back end, or a source in a
    /// network that is configured as never banned. Only an operator may ban such a sender.
    fn is_spared(&self, flow: &Flow, addresses: &Addresses) -> bool {
        let address = flow.remote.ip().to_canonical();
        matches!(addresses.origin(flow), Origin::Backend(_))
            || self.sources.never_ban.iter().any(|net| net.contains(&address))
    }

    fn ban(&self, now: Timestamp, flow: &Flow, addresses: &Addresses, ban: Ban) -> bool {
        let is_proven = self.is_proven(now, ban.source);
        !self.is_spared(flow, addresses) && self.bans().ban(now, Ban { is_proven, ..ban })
    }
}

/// Returns the weight of a source: the number of sources that it counts as, 1 by default.
fn weight_of(weights: &[SourceWeight], address: IpAddr) -> u32 {
    find_weight(weights, address.to_canonical()).unwrap_or(1)
}

fn find_weight(weights: &[SourceWeight], address: IpAddr) -> Option<u32> {
    weights.iter().find(|weight| weight.from.contains(&address)).map(|weight| weight.weight)
}
