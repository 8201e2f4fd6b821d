//! The lists of sources for the kernel: banned sources, sources that the kernel must spare, and
//! heavy sources.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_control::{Ban, Gate, HeavySource, Ladder};
use tidegate_world::{Network, Shedding, Timestamp};

use super::SourcePolicy;
use crate::network::{canonical, network_of};
use crate::observe::counters::Counters;
use crate::settings::sources::Sources;
use crate::snapshot::Snapshot;

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

/// The state of the lists of sources for the kernel.
pub(crate) struct KernelLists {
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

impl KernelLists {
    pub(crate) fn new() -> Self {
        Self {
            listed: None,
            banned_due: Timestamp::ZERO,
            spared_due: Timestamp::ZERO,
            heavy_due: Timestamp::ZERO,
            heavy: Vec::new(),
        }
    }

    /// Writes into `banned` the [addresses](write_banned) whose INVITEs and REGISTERs the kernel
    /// may drop. If the ban list has not changed and the last list is recent, `banned` stays the
    /// same.
    pub(crate) fn list_banned(
        &mut self,
        now: Timestamp,
        policy: &mut SourcePolicy,
        banned: &mut Vec<IpAddr>,
    ) {
        policy.bans.bans();
        if self.must_list_banned(now, policy.bans.version()) {
            policy.compare(now);
            write_banned(policy.bans.bans().each(now), banned);
        }
    }

    /// Returns whether the list of banned addresses has to be made now, from the ban list with this
    /// version. It is made if the ban list has changed, or if the last list is old.
    fn must_list_banned(&mut self, now: Timestamp, version: u64) -> bool {
        if self.listed.replace(version) == Some(version) && now < self.banned_due {
            return false;
        }
        self.banned_due = now + BANNED_EVERY;
        true
    }

    /// Writes into `spared` the networks whose INVITEs and REGISTERs the kernel must not drop under
    /// overload. These are, in this order, networks that may claim priority, networks of back ends,
    /// networks that are never banned, networks with a weight, and networks that get overload
    /// feedback. If there are too many, the first ones are listed. If the last list is recent,
    /// `spared` stays the same.
    ///
    /// The address of a back end is not listed if it is an address of this machine, because other
    /// programs may send from there. Trusted networks are not listed: trust only decides about
    /// targets, and a trusted trunk may send most of the load.
    pub(crate) fn list_spared(
        &mut self,
        now: Timestamp,
        policy: &SourcePolicy,
        snapshot: &Snapshot,
        spared: &mut Vec<Network>,
    ) {
        if now < self.spared_due {
            return;
        }
        self.spared_due = now + SPARED_EVERY;
        let SourcePolicy { sources: Sources { priority, weights, never_ban, .. }, peers, .. } =
            policy;
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
            .chain(peers.iter().copied())
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
    pub(crate) fn list_heavy(
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
}

/// Writes into `banned` the IPv4 addresses of the `bans` whose INVITEs and REGISTERs the kernel may
/// drop, in ascending order. If there are more than a driver can take (addresses can be forged),
/// lists those with the highest rates. Sources that have shown that they receive messages are not
/// listed, because they may send an INVITE in an existing call.
fn write_banned<'a>(bans: impl Iterator<Item = &'a Ban>, banned: &mut Vec<IpAddr>) {
    let is_listed = |ban: &&Ban| !ban.is_proven && network_of(ban.source).addr().is_ipv4();
    let mut bans: Vec<&Ban> = bans.filter(is_listed).collect();
    if bans.len() > Shedding::BANNED_MAX {
        bans.select_nth_unstable_by_key(Shedding::BANNED_MAX, |ban| {
            (Reverse(ban.rate), ban.source)
        });
        bans.truncate(Shedding::BANNED_MAX);
        bans.sort_unstable_by_key(|ban| ban.source);
    }
    banned.clear();
    banned.extend(bans.iter().map(|ban| network_of(ban.source).addr()));
}

/// Writes the networks of the largest of these `floods` into `unspared`. A network that is already
/// in `unspared` stays there, unless another flood with more than twice its rate needs the place.
/// The reason: the measured rates vary, and the kernel gets a new program for each change of
/// `unspared`.
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

#[cfg(test)]
mod tests {
    use tidegate_control::{BanCause, BanList};
    use tidegate_world::{Purpose, Seed};

    use super::*;
    use crate::network::source_of;
    use crate::testing::at_ms as at;

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

    fn ban(number: u8, until_ms: u64) -> Ban {
        let source = source_of([192, 0, 2, number].into());
        let (until, cause) = (at(until_ms), BanCause::Rate);
        Ban { source, until, cause, rate: 500, is_proven: false }
    }

    /// The load is read every 2 ms, and searching a list of a thousand bans each time would take
    /// too long.
    #[test]
    fn the_bans_are_searched_only_after_a_change_or_100_ms() {
        let bans = BanList::new(4);
        let mut stream = Seed(1).stream(Purpose::Floods, 0);
        let mut policy =
            SourcePolicy::new(Sources::default(), Vec::new(), false, 4, bans.clone(), &mut stream);
        let mut lists = KernelLists::new();
        // Returns the number of listed addresses, or `None` if the list was not made again.
        let mut list = |ms: u64| -> Option<usize> {
            let old = vec![IpAddr::from([203, 0, 113, 1])];
            let mut banned = old.clone();
            lists.list_banned(at(ms), &mut policy, &mut banned);
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
