//! Per-source policy (limits, bans, priority), applied before a message is parsed.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_control::{
    Ban, BanCause, BanList, BanView, Gate, Headroom, HeavySource, Ladder, Proofs, Sender, Watch,
};
use tidegate_world::{Flow, Network, Received, Shedding, Stream, Timestamp};

use crate::message::priority::Claim;
use crate::network::{PREFIXES, canonical, network_of, networks_of, source_of};
use crate::observe::counters::Counters;
use crate::settings::sources::{Excess, HARM_CPS, KNOWN_WEIGHT, SourceWeight, Sources};
use crate::snapshot::Snapshot;
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
    /// Version of the ban list from which the list of addresses for the kernel was last made.
    listed: Option<u64>,
    /// Time from which the kernel's list of banned addresses is updated even if the ban list is
    /// unchanged.
    banned_due: Timestamp,
    /// Time from which the list of networks whose messages the kernel must not drop is updated
    /// again.
    spared_due: Timestamp,
    /// Time from which the list of heavy sources is updated again.
    heavy_due: Timestamp,
    /// The heavy sources, as last listed.
    heavy: Vec<HeavySource>,
}

/// Minimum time between updates of the list of networks whose messages the kernel must not drop.
/// These networks change only after a reload, or when a back end gets a new address. Listing a
/// thousand back ends at each reading of the load would take too much time.
const SPARED_EVERY: Duration = Duration::from_secs(1);

/// Minimum time between updates of the list of banned addresses while the ban list does not change.
/// The kernel keeps an address for at most this time after its ban has ended. Searching a thousand
/// bans at each reading of the load would take too much time.
const BANNED_EVERY: Duration = Duration::from_millis(100);

/// Minimum time between updates of the list of heavy sources. Each update compares the rates of
/// thousands of sources.
const HEAVY_EVERY: Duration = Duration::from_millis(100);

/// Time from the gate's first count of messages by source to the first list of heavy sources.
const HEAVY_AFTER: Duration = Duration::from_millis(10);

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
            listed: None,
            banned_due: Timestamp::ZERO,
            spared_due: Timestamp::ZERO,
            heavy_due: Timestamp::ZERO,
            heavy: Vec::new(),
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

    /// Writes into `banned` the banned IPv4 addresses whose INVITEs and REGISTERs the kernel may
    /// drop, in ascending order. If there are more than a driver can take (addresses can be
    /// forged), lists those with the highest rates. Sources that have shown that they receive
    /// messages are not listed, because they may send an INVITE in an existing call. If the ban
    /// list has not changed and the last list is recent, `banned` stays the same.
    pub(crate) fn banned(&mut self, now: Timestamp, banned: &mut Vec<IpAddr>) {
        self.bans.bans();
        let version = self.bans.version();
        if self.listed.replace(version) == Some(version) && now < self.banned_due {
            return;
        }
        self.banned_due = now + BANNED_EVERY;
        banned.clear();
        self.compare(now);
        let is_listed = |ban: &&Ban| !ban.is_proven && network_of(ban.source).addr().is_ipv4();
        let mut bans: Vec<&Ban> = self.bans.bans().each(now).filter(is_listed).collect();
        if bans.len() > Shedding::BANNED_MAX {
            bans.select_nth_unstable_by_key(Shedding::BANNED_MAX, |ban| {
                (Reverse(ban.rate), ban.source)
            });
            bans.truncate(Shedding::BANNED_MAX);
            bans.sort_unstable_by_key(|ban| ban.source);
        }
        banned.extend(bans.iter().map(|ban| network_of(ban.source).addr()));
    }

    /// Writes into `spared` the networks whose INVITEs and REGISTERs the kernel must not drop under
    /// overload. These are, in this order, the networks that may claim priority, those of back
    /// ends, those that are never banned, those that have a weight, and those that get overload
    /// feedback. If there are too many, the first ones are listed. If the last list is recent,
    /// `spared` stays the same.
    ///
    /// The address of a back end is not listed if it is an address of this machine, because other
    /// programs may send from there. Trusted networks are not listed: trust only decides about
    /// targets, and a trusted trunk may send most of the load.
    pub(crate) fn spared(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        spared: &mut Vec<Network>,
    ) {
        if now < self.spared_due {
            return;
        }
        self.spared_due = now + SPARED_EVERY;
        let Sources { priority, weights, never_ban, .. } = &self.sources;
        let Snapshot { addresses, pools, .. } = snapshot;
        let backends = pools.iter().flat_map(|pool| pool.pool.backends());
        let backends = backends.filter_map(|backend| Some(canonical(backend.address()?).ip()));
        let all: Vec<IpNet> = priority
            .iter()
            .flat_map(|priority| priority.from.iter().copied())
            .chain(backends.filter(|ip| !addresses.is_shared(*ip)).map(IpNet::from))
            .chain(pools.iter().flat_map(|pool| pool.sources.iter().flatten()).copied())
            .chain(never_ban.iter().copied())
            .chain(weights.iter().map(|weight| weight.from))
            .chain(self.peers.iter().copied())
            .collect();
        let joined = IpNet::aggregate(&all);
        let listed = if joined.len() <= Shedding::SPARED_MAX { joined } else { all };
        spared.clear();
        spared.extend(listed.into_iter().take(Shedding::SPARED_MAX).map(network));
    }

    /// Writes into `shedding` the heavy sources that the gate has found, so that the share of drops
    /// applies only to them. Writes none if nothing is dropped, or if dropping only their messages
    /// has not helped. Also writes the heavy sources that flood with emergency calls, even while
    /// nothing is dropped. The share applies to emergency calls only of these sources, so without
    /// this list the ladder would never begin to drop such calls. If the last lists are recent,
    /// they stay the same. Publishes new lists in `counters`. The gate counts messages by source
    /// only while `ladder` is alert: messages are dropped, or probably will be soon.
    pub(crate) fn heavy(
        &mut self,
        now: Timestamp,
        gate: &mut Gate,
        ladder: &Ladder,
        shedding: &mut Shedding,
        counters: &Counters,
    ) {
        if gate.set_counts_droppable(now, ladder.is_alert()) {
            self.heavy_due = now + HEAVY_AFTER;
        }
        let is_due = now >= self.heavy_due;
        if !gate.counts_droppable() {
            self.heavy.clear();
            shedding.unspared.clear();
            counters.emergency_floods.publish(false, Vec::new);
        } else if is_due {
            self.heavy_due = now + HEAVY_EVERY;
            let spared = |source| shedding.spares(network_of(source).addr());
            gate.heavy_sources(now, Shedding::HEAVY_MAX, spared, &mut self.heavy);
            let floods = gate.emergency_floods();
            set_unspared(&mut shedding.unspared, floods);
            let is_listed =
                |flood: &&HeavySource| shedding.unspared.contains(&network_of_flood(flood));
            counters
                .emergency_floods
                .publish(!floods.is_empty(), || floods.iter().filter(is_listed).copied().collect());
        }
        let is_targeted = ladder.may_target(now) && shedding.has_share();
        if is_targeted && !is_due && !shedding.heavy.is_empty() {
            return;
        }
        let heavy = if is_targeted { &self.heavy[..] } else { &[] };
        shedding.heavy.clear();
        shedding.heavy.extend(heavy.iter().map(|heavy| network(network_of(heavy.source))));
        counters.heavy.publish(!heavy.is_empty(), || heavy.to_vec());
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

    /// Returns the sender of a request as the gate sees it, and the priority claim of the request.
    /// Only an INVITE can claim priority.
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
            exceeds_limit: false,
            has_priority: claim == Claim::Priority,
            headroom: Headroom::Any,
            restricted: false,
            is_late: false,
            is_admitted: false,
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

    /// Returns true if a configured limit bans the sources that exceed it.
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

/// Writes the networks of the largest of these floods into `unspared`. A network that `unspared`
/// already contains keeps its place, unless another flood sends more than twice as much: the measured
/// rates vary, and the kernel gets a new program for each change of `unspared`.
fn set_unspared(unspared: &mut Vec<Network>, floods: &[HeavySource]) {
    let rank = |flood: &HeavySource| {
        let is_listed = unspared.contains(&network_of_flood(flood));
        if is_listed { 2.0 * flood.rate_cps } else { flood.rate_cps }
    };
    let mut ranked: Vec<(f64, Network)> =
        floods.iter().map(|flood| (rank(flood), network_of_flood(flood))).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.truncate(Shedding::UNSPARED_MAX);
    unspared.retain(|network| ranked.iter().any(|(_, ranked)| ranked == network));
    for (_, new) in ranked {
        if !unspared.contains(&new) {
            unspared.push(new);
        }
    }
}

fn network_of_flood(flood: &HeavySource) -> Network {
    network(network_of(flood.source))
}

fn network(net: IpNet) -> Network {
    Network { address: net.addr(), prefix: net.prefix_len() }
}

/// Returns the weight of a source: the number of sources that it counts as, 1 by default.
fn weight_of(weights: &[SourceWeight], address: IpAddr) -> u32 {
    find_weight(weights, address.to_canonical()).unwrap_or(1)
}

fn find_weight(weights: &[SourceWeight], address: IpAddr) -> Option<u32> {
    weights.iter().find(|weight| weight.from.contains(&address)).map(|weight| weight.weight)
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;
    use crate::testing::at_ms as at;

    fn ban(number: u8, until_ms: u64) -> Ban {
        let source = source_of([192, 0, 2, number].into());
        let (until, cause) = (at(until_ms), BanCause::Rate);
        Ban { source, until, cause, rate: 500, is_proven: false }
    }

    /// If the order changed, two floods of about the same rate would change the kernel's program
    /// every 100 ms.
    #[test]
    fn the_networks_of_emergency_floods_keep_their_places() {
        let mut unspared = Vec::new();
        let mut set = |rates: &[(u8, f64)]| -> Vec<IpAddr> {
            let flood = |&(number, rate_cps): &(u8, f64)| {
                let source = source_of([192, 0, 2, number].into());
                HeavySource { source, rate_cps }
            };
            let floods: Vec<HeavySource> = rates.iter().map(flood).collect();
            set_unspared(&mut unspared, &floods);
            unspared.iter().map(|network| network.address).collect()
        };
        let addresses = |numbers: &[u8]| -> Vec<IpAddr> {
            numbers.iter().map(|number| [192, 0, 2, *number].into()).collect()
        };
        let all: Vec<(u8, f64)> = (1..=7).map(|number| (number, 100.0)).collect();
        for (floods, expected) in [
            (&[(2, 120.0), (1, 100.0)][..], &[2, 1][..]),
            (&[(1, 120.0), (2, 100.0)], &[2, 1]),
            (&[(3, 120.0), (1, 100.0), (4, 100.0)], &[1, 3, 4]),
            // There is room for four networks. Others do not replace them by sending a little more.
            (&[(7, 190.0), (6, 150.0), (1, 100.0), (3, 100.0), (4, 100.0)], &[1, 3, 4, 7]),
            (&all, &[1, 3, 4, 7]),
            // A much larger flood takes the place of the smallest one.
            (&[(6, 500.0), (7, 190.0), (1, 120.0), (4, 110.0), (3, 100.0)], &[1, 4, 7, 6]),
            (&[(4, 100.0)], &[4]),
            (&[], &[]),
        ] {
            assert_eq!(set(floods), addresses(expected), "{floods:?}");
        }
    }

    /// The load is read every 2 ms, and searching a list of a thousand bans each time would take
    /// too long.
    #[test]
    fn the_bans_are_searched_only_after_a_change_or_100_ms() {
        let bans = BanList::new(4);
        let mut stream = Seed(1).stream(Purpose::Floods, 0);
        let mut policy =
            SourcePolicy::new(Sources::default(), Vec::new(), false, 4, bans.clone(), &mut stream);
        // Returns the number of listed addresses, or `None` if the list was not made again.
        let mut list = |ms: u64| -> Option<usize> {
            let old = vec![IpAddr::from([203, 0, 113, 1])];
            let mut banned = old.clone();
            policy.banned(at(ms), &mut banned);
            (banned != old).then_some(banned.len())
        };
        assert!(bans.ban(at(0), ban(1, 150)));
        assert_eq!([0, 2, 99].map(&mut list), [Some(1), None, None]);
        assert!(bans.ban(at(99), ban(2, 10_000)));
        assert_eq!([100, 102, 199, 200].map(&mut list), [Some(2), None, None, Some(1)]);
        assert!(bans.lift(at(200), 1, [ban(2, 0).source]));
        assert_eq!(list(201), Some(0));
    }
}
