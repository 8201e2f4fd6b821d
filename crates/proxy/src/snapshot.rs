//! The configuration, pools, addresses and keys that the stages of a shard see.
//!
//! No stage changes a snapshot. A snapshot changes only between two inputs: by a reload, a new key,
//! or a new address of a back end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tidegate_balance::{AdminState, Backend};
use tidegate_control::Tier;
use tidegate_control::feedback::Category;
use tidegate_sip::Method;
use tidegate_transaction::Timing;
use tidegate_world::{Flow, Pool, Seed, Timestamp, Transport};

use crate::dialog::Call;
use crate::keys::Keys;
use crate::message::branch::{LISTENERS_MAX, SHARDS_MAX};
use crate::message::flow_token::RegisteredFlow;
use crate::message::token::{Minutes, PeerFlow, RouteToken};
use crate::pushback::next_hops::{Admission, NextHops, Obedience};
use crate::pushback::wire::OverloadOffer;
use crate::rejection::Rejection;
use crate::settings::{BackendRef, Mode, PoolSettings, Rule, RuleTarget, Senders, Settings};
use crate::shares::SourceBucket;
use crate::target::Target;
use crate::transport::addresses::{Addresses, Origin, Own};

/// Maximum length of a chain of backup pools. The configuration rejects a loop of backup pools. So
/// this limit is only a safeguard against an endless search.
const BACKUPS_MAX: usize = 256;

/// The view of a shard's configuration, which no stage changes.
pub(crate) struct Snapshot {
    pub(crate) shard: u16,
    pub(crate) shards: u16,
    pub(crate) seed: Seed,
    /// The product name in Server and User-Agent, or empty for none.
    pub(crate) name: Box<str>,
    pub(crate) keys: Keys,
    pub(crate) addresses: Addresses,
    pub(crate) pools: Vec<PoolSettings>,
    /// For each back end of each pool, the reference to the same back end in the first pool that
    /// contains it.
    firsts: Vec<Box<[BackendRef]>>,
    /// For each back end of each pool, its [`obedience_to`](Self::obedience_to).
    obediences: Vec<Box<[Obedience]>>,
    pub(crate) rules: Vec<Rule>,
    timing: Timing,
    /// Time for which a failed back end gets no new calls if it is not probed.
    pub(crate) failure_pause: Duration,
    /// Maximum ratio of bytes sent to bytes received, for an unverified address, or 0 for no limit.
    pub(crate) amplification_max: u32,
    /// Pools to which rules route calls from sources other than back ends, and the backups of these
    /// pools, each once. Empty if none of these pools has limits, or if a rule routes such calls to
    /// users.
    pub(crate) limited_pools: Box<[u16]>,
    /// Unix time at [`Timestamp::ZERO`].
    start: Duration,
    /// The overload restrictions that next hops have requested.
    pub(crate) next_hops: NextHops,
    /// Buffers into which outgoing messages are written.
    pub(crate) buffers: Pool,
}

impl Snapshot {
    /// Creates the snapshot of a shard at its start.
    ///
    /// # Panics
    /// Panics if there is no listener or no pool, if there are more listeners or shards than a
    /// branch can name, or if there is no shard with the index `shard`.
    pub(crate) fn new(settings: &Settings, buffers: Pool) -> Self {
        assert!((1..=LISTENERS_MAX).contains(&settings.listeners.len()), "not 1 to 16 listeners");
        assert!(settings.shard < settings.shards && settings.shards <= SHARDS_MAX);
        assert!(!settings.pools.is_empty(), "there is no pool");
        let firsts = firsts(&settings.pools, &[]);
        Self {
            shard: settings.shard,
            shards: settings.shards,
            seed: settings.seed,
            name: settings.name.as_str().into(),
            // The mark in the keys distinguishes this process from the previous one.
            keys: Keys::new(&settings.secret, settings.seed.0)
                .after(&settings.secret, settings.before.map(|seed| seed.0)),
            addresses: Addresses::new(settings),
            limited_pools: limited_pools(&settings.pools, &settings.rules),
            pools: settings.pools.clone(),
            obediences: obediences(&settings.pools, &firsts),
            firsts,
            rules: settings.rules.clone(),
            timing: settings.timing,
            failure_pause: settings.failure_pause,
            amplification_max: settings.amplification_max,
            start: settings.start,
            next_hops: settings.next_hops.clone(),
            buffers,
        }
    }

    /// Replaces pools and rules. `pools` also contains removed pools, which keep their slots.
    /// `places` contains the indexes in `pools` of the pools of the configuration, in the order of
    /// the configuration.
    pub(crate) fn set_pools(
        &mut self,
        now: Timestamp,
        pools: Vec<PoolSettings>,
        places: &[u16],
        rules: Vec<Rule>,
    ) {
        self.limited_pools = limited_pools(&pools, &rules);
        self.firsts = firsts(&pools, places);
        self.obediences = obediences(&pools, &self.firsts);
        (self.pools, self.rules) = (pools, rules);
        self.locate(now);
    }

    /// Returns the overload control (RFC 7339) that requests to a back end at `address` offer.
    pub(crate) fn offer_to(
        &self,
        now: Timestamp,
        backend_ref: BackendRef,
        address: SocketAddr,
    ) -> OverloadOffer {
        self.next_hops.offer_to(now, self.pool(backend_ref.pool).obedience, address)
    }

    /// Checks a request against the overload restriction of the back end at `address`, if there is
    /// one, and counts the request.
    ///
    /// # Errors
    /// Returns [`Rejection::Restricted`] if the restriction does not admit the request.
    pub(crate) fn admit(
        &self,
        now: Timestamp,
        backend_ref: BackendRef,
        address: SocketAddr,
        category: Category,
    ) -> Result<Admission, Rejection> {
        let obedience = self.pool(backend_ref.pool).obedience;
        let admission = self.next_hops.admit(now, obedience, address, category);
        admission.ok_or(Rejection::Restricted)
    }

    /// Rereads the addresses of the back ends. Forgets the overload restrictions at addresses that
    /// no longer belong to a back end whose feedback is obeyed.
    pub(crate) fn locate(&mut self, now: Timestamp) {
        self.addresses.locate(now, &self.pools);
        let backend_ref = |address| self.addresses.backend_ref(address);
        let is_obeyed = |of: BackendRef| self.obedience_to(of) != Obedience::Never;
        self.next_hops.retain(|address| backend_ref(address).is_some_and(is_obeyed));
    }

    pub(crate) fn pool(&self, pool: u16) -> &PoolSettings {
        &self.pools[usize::from(pool)]
    }

    /// Returns the transport of requests to the back ends of a pool.
    pub(crate) fn transport(&self, pool: u16) -> Transport {
        self.addresses.transport_of_pool(self.pool(pool))
    }

    /// Returns whether a party of a dialog can be reached only on its connection: it has registered,
    /// is behind address translation, or uses TLS or a WebSocket.
    pub(crate) fn is_bound(&self, peer: &PeerFlow) -> bool {
        let transport = self.addresses.transport(peer.listener.into());
        peer.is_registered || peer.is_translated || transport != Transport::Tcp
    }

    /// Returns the target for requests to this party of a dialog. If the party has a connection,
    /// the requests use that connection. If the connection has ended, or belonged to another
    /// process, and the party is not [bound](Self::is_bound) to it, they use another connection to
    /// the address in the Via of the party.
    ///
    /// RFC 3261 §18.1.1: "To handle this case, the transport layer MUST also be prepared to receive
    /// an incoming connection on the source IP address from which the request was sent and port
    /// number in the "sent-by" field."
    ///
    /// # Errors
    /// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
    /// response to the request." This happens if the party is bound to a connection to another
    /// process.
    pub(crate) fn target_of(&self, peer: &PeerFlow) -> Result<Target, Rejection> {
        if peer.is_elsewhere && self.is_bound(peer) {
            return Err(Rejection::FLOW_GONE);
        }
        let transport = self.addresses.transport(peer.listener.into());
        let PeerFlow { remote, connection, local, is_registered, .. } = *peer;
        // RFC 3261 §18.1.1 only recommends the open connection. A trunk closes idle connections.
        let may_reconnect = connection.is_some() && !self.is_bound(peer);
        let target = Target::new(transport, remote);
        Ok(Target { connection, is_registered, may_reconnect, local, ..target })
    }

    /// Returns the target for requests to a registered phone on the flow of its registration.
    ///
    /// # Errors
    /// Returns an error if the listener of the flow no longer exists or has changed.
    pub(crate) fn target_on(&self, flow: &RegisteredFlow) -> Result<Target, Rejection> {
        let RegisteredFlow { listener, transport, remote, connection, local, .. } = *flow;
        let is_it = |own: &Own| own.transport == transport;
        match self.addresses.listener(listener.into()).is_some_and(is_it) {
            true => {
                let target = Target::new(transport, remote);
                Ok(Target { connection, is_registered: true, local, ..target })
            }
            false => Err(Rejection::FLOW_GONE),
        }
    }

    pub(crate) fn pool_name(&self, pool: Option<u16>) -> Option<&str> {
        pool.and_then(|pool| Some(self.pools.get(usize::from(pool))?.pool.name()))
    }

    pub(crate) fn backend(&self, backend_ref: BackendRef) -> &Backend {
        &self.pool(backend_ref.pool).pool.backends()[usize::from(backend_ref.backend)]
    }

    /// Returns the address to which the requests of a call go: that of its back end when the call
    /// began. Returns `None` if the name of the back end has no address.
    pub(crate) fn address_of(&self, entry: &Call) -> Option<SocketAddr> {
        self.backend(entry.backend_ref).address_at(entry.address_generation)
    }

    /// Returns the reference to the same back end in the first pool that contains it, in the order
    /// of the configuration. The settings of that pool apply to the health of the back end. All
    /// shards find the same pool, although the pool may have another index in each shard.
    pub(crate) fn first(&self, backend_ref: BackendRef) -> BackendRef {
        self.firsts[usize::from(backend_ref.pool)][usize::from(backend_ref.backend)]
    }

    /// Returns the strongest [`Obedience`] of all pools that contain a back end. The back end has
    /// one overload restriction, which applies to all these pools except those that never obey. So
    /// the feedback of the back end is read according to the strongest obedience. If this is
    /// [`Obedience::Proven`] and the back end is not probed regularly, returns
    /// [`Obedience::Never`]: no probe would renew the proof.
    pub(crate) fn obedience_to(&self, backend_ref: BackendRef) -> Obedience {
        self.obediences[usize::from(backend_ref.pool)][usize::from(backend_ref.backend)]
    }

    /// Returns every back end of every pool.
    pub(crate) fn backend_refs(&self) -> impl Iterator<Item = (BackendRef, &Arc<Backend>)> {
        (0..).zip(&self.pools).flat_map(|(pool, settings)| {
            let backends = (0..).zip(settings.pool.backends());
            backends.map(move |(backend, b)| (BackendRef { pool, backend }, b))
        })
    }

    /// Returns each back end once, with the [first](Self::first) pool that contains it.
    pub(crate) fn each_backend(&self) -> impl Iterator<Item = (BackendRef, &Arc<Backend>)> {
        self.backend_refs().filter(|(backend_ref, _)| self.first(*backend_ref) == *backend_ref)
    }

    /// Returns a pool and its backup pools, in their order.
    pub(crate) fn and_backups(&self, pool: u16) -> impl Iterator<Item = u16> {
        let next = |&pool: &u16| self.pool(pool).backup;
        std::iter::successors(Some(pool), next).take(BACKUPS_MAX)
    }

    /// Returns the tier of requests that belong to no pool: stateless if every pool is stateless.
    pub(crate) fn tier_elsewhere(&self) -> Tier {
        let is_stateless = |pool: &PoolSettings| pool.mode == Mode::Stateless;
        if self.pools.iter().all(is_stateless) { Tier::Stateless } else { Tier::Stateful }
    }

    /// Returns the timers of transactions over a transport.
    pub(crate) fn timing(&self, transport: Transport) -> Timing {
        Timing { reliable: transport.is_reliable(), ..self.timing }
    }

    /// Returns the current time in the unit of route tokens.
    pub(crate) fn minutes(&self, now: Timestamp) -> Minutes {
        Minutes::at(self.start, now)
    }

    /// Returns whether a route token alone proves that a request with this method belongs to a
    /// dialog. The token must be recent, unless the dialog may be a subscription, which has no time
    /// limit.
    ///
    /// RFC 6665 §4.1.2.2: "At any time before a subscription expires, the subscriber may refresh
    /// the timer on such a subscription by sending another SUBSCRIBE request on the same dialog as
    /// the existing subscription." The dialog keeps its first token (RFC 3261 §12.2).
    pub(crate) fn is_fresh(&self, now: Timestamp, method: Method, token: &RouteToken) -> bool {
        matches!(method, Method::Subscribe | Method::Notify) || token.is_fresh(self.minutes(now))
    }

    /// Returns whether there is a back end whose name has not been resolved yet, or a domain whose
    /// servers are not back ends yet.
    pub(crate) fn has_unresolved(&self) -> bool {
        let is_unresolved = |backend: &Backend| {
            backend.admin_state() != AdminState::Removed
                && backend.named().is_some_and(|named| !named.is_known())
        };
        let mut services = self.pools.iter().flat_map(|pool| pool.pool.services().iter());
        services.any(|service| !service.is_in_force())
            || self.backend_refs().any(|(_, backend)| is_unresolved(backend))
    }

    /// Selects the listener from which a request that came in at `ingress` leaves for `target`.
    /// `recorded` is the listener toward the target that a Route value of the request names, or
    /// that is stored with the flow of the target. `None` if there is no such listener.
    pub(crate) fn egress(
        &self,
        ingress: usize,
        recorded: Option<u8>,
        target: &Target,
    ) -> Result<u8, Rejection> {
        let egress = self.addresses.egress(ingress, recorded, target);
        egress.map(|egress| egress as u8).ok_or(Rejection::UNREACHABLE)
    }

    /// Returns the bucket in which the source of a message on `flow` is counted against its share
    /// of a table. Returns `None` for back ends and trusted sources. They act for many users, so no
    /// share applies to them.
    pub(crate) fn share_of(&self, flow: &Flow) -> Option<SourceBucket> {
        match self.addresses.origin(flow) {
            Origin::Backend(_) | Origin::Trusted => None,
            Origin::Stranger => Some(SourceBucket::of(&self.keys.source, flow.remote.ip())),
        }
    }
}

/// Returns, for each back end of each pool, the reference to the same back end in the first pool
/// that contains it. The pools of the configuration come first. `places` contains their indexes in
/// `pools`, in the order of the configuration. Removed pools come after them.
fn firsts(pools: &[PoolSettings], places: &[u16]) -> Vec<Box<[BackendRef]>> {
    let mut firsts: HashMap<*const Backend, BackendRef> = HashMap::new();
    for pool in places.iter().copied().chain(0..pools.len() as u16) {
        for (backend, b) in (0..).zip(pools[usize::from(pool)].pool.backends()) {
            firsts.entry(Arc::as_ptr(b)).or_insert(BackendRef { pool, backend });
        }
    }
    let of = |backend: &Arc<Backend>| firsts[&Arc::as_ptr(backend)];
    pools.iter().map(|settings| settings.pool.backends().iter().map(of).collect()).collect()
}

/// Returns, for each back end of each pool, its [`obedience_to`](Snapshot::obedience_to).
fn obediences(pools: &[PoolSettings], firsts: &[Box<[BackendRef]>]) -> Vec<Box<[Obedience]>> {
    let mut strongest: HashMap<BackendRef, Obedience> = HashMap::new();
    for (settings, firsts) in pools.iter().zip(firsts) {
        for first in firsts {
            let obedience = strongest.entry(*first).or_insert(settings.obedience);
            *obedience = settings.obedience.max(*obedience);
        }
    }
    // The settings of the first pool apply to the probes of a back end.
    let is_probed = |first: &BackendRef| pools[usize::from(first.pool)].health.probe.is_some();
    let of = |first: &BackendRef| match strongest[first] {
        Obedience::Proven if !is_probed(first) => Obedience::Never,
        obedience => obedience,
    };
    firsts.iter().map(|firsts| firsts.iter().map(of).collect()).collect()
}

/// Returns the pools to which rules route calls from sources other than back ends, and the backups
/// of these pools. The list is empty if none of these pools has limits, or if such calls may be
/// routed to users, which have no limits.
fn limited_pools(pools: &[PoolSettings], rules: &[Rule]) -> Box<[u16]> {
    let mut reached = vec![false; pools.len()];
    for rule in rules.iter().filter(|rule| rule.from != Senders::Pool) {
        let pool = match rule.to {
            RuleTarget::Pool(pool) => pool,
            RuleTarget::RequestUri => continue,
            RuleTarget::Users => return Box::default(),
        };
        let mut next = Some(pool);
        while let Some(pool) = next.filter(|&pool| !reached[pool]) {
            reached[pool] = true;
            next = pools[pool].backup.map(usize::from);
        }
    }
    let is_limited = pools.iter().zip(&reached).any(|(p, reached)| *reached && p.pool.is_limited());
    let reached = (0..).zip(reached).filter(|(_, reached)| *reached && is_limited);
    reached.map(|(pool, _)| pool).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_balance::{Limits, Policy, Pool};

    use super::*;
    use crate::settings::health::Probe;

    fn pools(limited: &[bool], backups: &[Option<u16>]) -> Vec<PoolSettings> {
        let pool = |(&is_limited, &backup): (&bool, _)| {
            let pool = Pool::new("p", &[("b", ([127, 0, 0, 1], 5070).into(), 1)]);
            let calls_max = is_limited.then_some(1);
            pool.backends()[0].set_limits(&Limits { calls_max, ..Limits::default() });
            PoolSettings { backup, ..PoolSettings::new(pool, Policy::Rr) }
        };
        limited.iter().zip(backups).map(pool).collect()
    }

    #[test]
    fn only_regular_probes_prove_that_a_back_end_gives_feedback() {
        for (obedience, is_probed, expected) in [
            (Obedience::Proven, true, Obedience::Proven),
            (Obedience::Proven, false, Obedience::Never),
            (Obedience::Always, false, Obedience::Always),
            (Obedience::Never, true, Obedience::Never),
        ] {
            let mut pools = pools(&[false], &[None]);
            pools[0].obedience = obedience;
            pools[0].health.probe = is_probed.then(Probe::default);
            assert_eq!(obediences(&pools, &firsts(&pools, &[]))[0][..], [expected]);
        }
    }

    #[test]
    fn limited_pools_are_listed_once_and_none_if_none_has_limits() {
        let to = |pool| Rule::new(Senders::Any, RuleTarget::Pool(pool));
        let others = [
            Rule::new(Senders::Pool, RuleTarget::Pool(0)),
            Rule::new(Senders::Any, RuleTarget::RequestUri),
        ];
        let rules = [&[to(3), to(1), to(3)], &others[..]].concat();
        let backups = [None, Some(2), None, Some(2)];
        let of = |limited: [bool; 4]| limited_pools(&pools(&limited, &backups), &rules);
        assert_eq!(of([true, false, true, false])[..], [1, 2, 3]);
        assert_eq!(of([true, false, false, false])[..], [0; 0]);
        let users = |from| [&rules[..], &[Rule::new(from, RuleTarget::Users)]].concat();
        let limited = pools(&[true, false, true, false], &backups);
        assert_eq!(limited_pools(&limited, &users(Senders::Any))[..], [0; 0]);
        assert_eq!(limited_pools(&limited, &users(Senders::Pool))[..], [1, 2, 3]);
        let circle = pools(&[true, false], &[Some(1), Some(0)]);
        assert_eq!(limited_pools(&circle, &[to(0)])[..], [0, 1]);
    }
}
