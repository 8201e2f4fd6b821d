//! The addresses of the current and removed back ends.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hashbrown::HashMap;
use ipnet::IpNet;
use tidegate_balance::{AdminState, Named};
use tidegate_world::Timestamp;

use crate::network::canonical;
use crate::settings::{BackendRef, PoolSettings, Settings};

/// Maximum number of addresses of removed back ends that are remembered. The oldest ones are
/// forgotten first.
const REMOVED_MAX: usize = 65_536;

/// The addresses of the back ends of a proxy.
pub(super) struct BackendAddresses {
    backend_refs: HashMap<SocketAddr, BackendRef>,
    /// Hosts of back ends that are reached over streams, each with its first back end. The
    /// connections that these back ends open have arbitrary ports.
    hosts: HashMap<IpAddr, BackendRef>,
    /// Networks from which back ends send, besides their addresses.
    networks: Vec<(IpNet, BackendRef)>,
    /// For each pool, whether its back ends are reached over streams.
    stream_pools: Vec<bool>,
    /// Addresses of back ends that were removed from the configuration, each with the time up to
    /// which its dialogs continue.
    removed: HashMap<SocketAddr, Timestamp>,
    /// Time for which the dialogs of a removed back end continue.
    removed_for: Duration,
}

impl BackendAddresses {
    /// Creates a table that has only the addresses of back ends that were removed before the start.
    pub(super) fn new(settings: &Settings) -> Self {
        let until = Timestamp::ZERO + settings.removed_backend;
        let removed = settings.removed.iter().take(REMOVED_MAX);
        Self {
            backend_refs: HashMap::new(),
            hosts: HashMap::new(),
            networks: Vec::new(),
            stream_pools: Vec::new(),
            removed: removed.map(|address| (canonical(*address), until)).collect(),
            removed_for: settings.removed_backend,
        }
    }

    /// Reads the addresses of the back ends in these pools. If several back ends have the same
    /// address, a current address takes precedence over a former one, and a configured back end
    /// over a removed one. Otherwise the first back end is used. A removed back end stays known
    /// while it has leases. `stream_pools` says, for each pool, whether its back ends are reached
    /// over streams.
    pub(super) fn locate(
        &mut self,
        now: Timestamp,
        pools: &[PoolSettings],
        stream_pools: Vec<bool>,
    ) {
        let before = std::mem::take(&mut self.backend_refs);
        self.networks.clear();
        for (pool, settings) in (0..).zip(pools) {
            for (backend, networks) in (0..).zip(&settings.sources) {
                let backend_ref = BackendRef { pool, backend };
                self.networks.extend(networks.iter().map(|net| (*net, backend_ref)));
            }
        }
        self.stream_pools = stream_pools;
        let backend_refs = || {
            pools.iter().enumerate().flat_map(|(p, pool)| {
                let backends = pool.pool.backends().iter().enumerate();
                backends.map(move |(b, backend)| {
                    (BackendRef { pool: p as u16, backend: b as u16 }, backend)
                })
            })
        };
        let of = |is_removed: bool| {
            let all = backend_refs()
                .filter(move |(_, b)| (b.admin_state() == AdminState::Removed) == is_removed);
            all.filter(move |(_, b)| !is_removed || !b.is_idle())
        };
        for (backend_ref, backend) in of(false).chain(of(true)) {
            if let Some(address) = backend.address() {
                self.backend_refs.entry(canonical(address)).or_insert(backend_ref);
            }
        }
        for (backend_ref, backend) in of(false).chain(of(true)) {
            let addresses = backend.named().map(Named::addresses).unwrap_or_default();
            for address in addresses.into_iter().skip(1) {
                self.backend_refs.entry(canonical(address)).or_insert(backend_ref);
            }
        }
        self.hosts.clear();
        for (address, &backend_ref) in &self.backend_refs {
            if self.stream_pools[usize::from(backend_ref.pool)] {
                let first = self.hosts.entry(address.ip()).or_insert(backend_ref);
                *first = backend_ref.min(*first);
            }
        }
        self.remember_removed(now, before, pools);
    }

    /// Remembers each former address of a back end for the time `removed_for`, unless a configured
    /// back end has this address now. An address is remembered longer while its removed back end
    /// has leases. It is forgotten as soon as a back end is configured with it.
    fn remember_removed(
        &mut self,
        now: Timestamp,
        before: HashMap<SocketAddr, BackendRef>,
        pools: &[PoolSettings],
    ) {
        let is_configured = |address: &SocketAddr| {
            self.backend_refs.get(address).is_some_and(|backend_ref| {
                let pool = &pools[usize::from(backend_ref.pool)].pool;
                let backend = &pool.backends()[usize::from(backend_ref.backend)];
                backend.admin_state() != AdminState::Removed
            })
        };
        let until = now + self.removed_for;
        for address in before.into_keys().filter(|address| !is_configured(address)) {
            self.removed.entry(address).or_insert(until);
        }
        self.removed.retain(|address, until| {
            !is_configured(address) && (now < *until || self.backend_refs.contains_key(address))
        });
        let excess = self.removed.len().saturating_sub(REMOVED_MAX);
        if excess > 0 {
            let mut oldest: Vec<_> = self.removed.iter().map(|(at, until)| (*until, *at)).collect();
            oldest.select_nth_unstable(excess - 1);
            for (_, address) in &oldest[..excess] {
                self.removed.remove(address);
            }
        }
    }

    /// Returns whether `address` belongs to a back end that was removed from the configuration and
    /// may still have dialogs.
    pub(super) fn was_removed(&self, now: Timestamp, address: SocketAddr) -> bool {
        self.removed.get(&canonical(address)).is_some_and(|until| now < *until)
    }

    /// Returns whether `address` belongs to a back end, or is remembered as the address of a removed
    /// one.
    pub(super) fn remembers(&self, address: SocketAddr) -> bool {
        let address = canonical(address);
        self.backend_refs.contains_key(&address) || self.removed.contains_key(&address)
    }

    /// Returns the back end with this address.
    pub(super) fn at(&self, address: SocketAddr) -> Option<BackendRef> {
        self.backend_refs.get(&canonical(address)).copied()
    }

    /// Returns the first back end at a host that is reached over streams.
    pub(super) fn on_streams_at(&self, ip: IpAddr) -> Option<BackendRef> {
        self.hosts.get(&ip).copied()
    }

    /// Returns the back end that sends from a network that contains this address.
    pub(super) fn in_network_of(&self, ip: IpAddr) -> Option<BackendRef> {
        let found = self.networks.iter().find(|(net, _)| net.contains(&ip));
        found.map(|&(_, backend_ref)| backend_ref)
    }

    /// Returns whether requests to this back end leave over streams.
    pub(super) fn is_by_stream(&self, backend_ref: BackendRef) -> bool {
        self.stream_pools[usize::from(backend_ref.pool)]
    }
}
