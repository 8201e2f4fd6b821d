//! The registry through which the shards of a process share back ends.
//!
//! On a reload, each shard gets the new configuration at a different time and rebuilds its pools.
//! All shards must update the counts of the same objects. So a shard that rebuilds its pools gets
//! the existing object for a back end with the same name and address, and the health and counts of
//! the back end survive the reload. A back end that is no longer configured is kept as long as any
//! shard may have calls there. The administrative state that an operator has set is kept even
//! longer, so that a server that is being repaired gets no calls when the DNS or the configuration
//! lists it again.
//!
//! A server may be in several pools, for example one for calls and one for registrations. In all of
//! them it is the same back end, with the same health, count of calls and limit. Its weight,
//! priority and limits are those of the first pool that names it. If it leaves one pool, it stays
//! the same back end in the others.
//!
//! Commands are numbered, with the same numbers in every shard. The first shard that receives a
//! command executes it. When other shards receive it later, they do not execute it again. So the
//! other shards do not undo the changes of later commands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tidegate_world::{Timestamp, Transport};

use crate::{AdminState, Backend, EndpointAddress, Limits, Pool, Service};

/// The configuration of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSpec {
    /// Unique name of the pool.
    pub name: String,
    /// Time for which the weight of a back end grows after the back end has come back up.
    pub slow_start: Duration,
    /// Configurations of the back ends of the pool.
    pub backends: Vec<BackendSpec>,
    /// Domains whose servers are looked up in the DNS and become back ends, each with the transport
    /// to reach them.
    pub services: Vec<(Arc<str>, Transport)>,
}

/// The configuration of a back end.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendSpec {
    /// Name of the back end, unique in the pool.
    pub name: String,
    /// Configured address of the back end.
    pub endpoint_address: EndpointAddress,
    /// Relative share of the load: a back end with weight 2 gets twice the load of a back end with
    /// weight 1.
    pub weight: u32,
    /// The priority. Calls go to the available back ends with the lowest number.
    pub priority: u32,
    /// Limits on the calls and requests of the back end.
    pub limits: Limits,
}

/// All back ends of a process, shared by its shards. A clone is another handle to the same
/// registry.
#[derive(Clone, Debug)]
pub struct BackendRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    pools: Vec<Pool>,
    /// Back ends that are no longer configured, with the names of their pools. The registry does
    /// not keep them alive: the shards do, while they have calls there.
    leaving: Vec<(String, Weak<Backend>)>,
    /// The administrative states other than [`AdminState::InService`] that operators have set.
    /// States of back ends that are not configured at present are included.
    assigned: HashMap<Identity, AdminState>,
    /// Number of the last command that any shard has received.
    heard: u64,
    /// Number of the command that set the current pools.
    enlisted: u64,
}

/// The identity of a back end: its name and its address.
type Identity = (String, EndpointAddress);

/// Maximum number of administrative states that are remembered. When it is reached, the registry
/// forgets the states of back ends that are not configured.
const ASSIGNED_MAX: usize = 65_536;

impl BackendRegistry {
    /// Creates a registry with the back ends of the initial configuration.
    pub fn new(pool_specs: &[PoolSpec]) -> Self {
        let mut state = RegistryState::default();
        state.enlist(Timestamp::ZERO, pool_specs);
        Self(Arc::new(Mutex::new(state)))
    }

    /// Returns each pool with its configured back ends, followed by its former back ends that still
    /// have calls or transactions. Leaves out a former back end if the pool has a configured back
    /// end of the same name.
    pub fn pools(&self) -> Vec<Pool> {
        let (configured, leaving) = {
            let state = self.lock();
            (state.pools.clone(), state.leaving().collect::<Vec<_>>())
        };
        let mut after: BTreeMap<String, Vec<Arc<Backend>>> = BTreeMap::new();
        for (pool, backend) in leaving.into_iter().filter(|(_, backend)| !backend.is_idle()) {
            after.entry(pool).or_default().push(backend);
        }
        let mut pools: Vec<_> = (configured.iter())
            .map(|pool| and_after(pool, after.remove(pool.name()).unwrap_or_default()))
            .collect();
        let none = |name: &str| Pool::of(name, Vec::new());
        pools.extend(after.into_iter().map(|(name, leaving)| and_after(&none(&name), leaving)));
        pools
    }

    /// Returns the services whose servers become back ends. Each service occurs once.
    pub fn services(&self) -> Vec<Arc<Service>> {
        let mut services = services(&self.lock().pools);
        let mut seen = HashSet::new();
        services.retain(|service| seen.insert(Arc::as_ptr(service)));
        services
    }

    /// Returns the configured back end with that name, or `None` if there is none.
    pub fn find(&self, name: &str) -> Option<Arc<Backend>> {
        self.lock().find(name)
    }

    /// Returns the configured back ends to which `text` refers: the one with that name, or
    /// otherwise all back ends [at](Backend::is_at) that address or host name.
    pub fn find_all(&self, text: &str) -> Vec<Arc<Backend>> {
        let state = self.lock();
        if let Some(backend) = state.find(text) {
            return vec![backend];
        }
        let mut seen = HashSet::new();
        let backends = state.pools.iter().flat_map(|pool| pool.backends());
        let found = backends.filter(|b| b.is_at(text) && seen.insert(Arc::as_ptr(b)));
        found.cloned().collect()
    }

    /// Sets the administrative state of the back end `name`, for the command with the number
    /// `order`. The registry remembers the state while the back end is not configured. Does nothing
    /// if the back end is not configured now, or if another shard has already executed the command.
    pub fn assign(&self, now: Timestamp, order: u64, name: &str, admin_state: AdminState) {
        let mut state = self.lock();
        if order > state.heard {
            state.heard = order;
            if let Some(backend) = state.find(name) {
                backend.set_admin_state(now, admin_state);
                state.remember(&backend, admin_state);
            }
        }
    }

    /// Returns the pools that the command with the number `order` configures, even if a later
    /// command has already replaced them. The first shard that executes the command makes these
    /// pools the current ones. A back end that is in none of them is then
    /// [removed](AdminState::Removed): it finishes its calls and gets no new ones.
    pub fn enlist(&self, now: Timestamp, order: u64, pool_specs: &[PoolSpec]) -> Vec<Pool> {
        let mut state = self.lock();
        if order > state.heard {
            (state.heard, state.enlisted) = (order, order);
            state.enlist(now, pool_specs);
        } else if order < state.enlisted {
            return state.past(now, pool_specs);
        }
        state.pools.clone()
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a copy of the pool with the `further` back ends added at the end, except back ends whose
/// names the pool already contains.
fn and_after(pool: &Pool, further: Vec<Arc<Backend>>) -> Pool {
    if further.is_empty() {
        return pool.clone();
    }
    let mut all = pool.backends().to_vec();
    let mut names: BTreeSet<String> = all.iter().map(|backend| backend.name().to_owned()).collect();
    all.extend(further.into_iter().filter(|backend| names.insert(backend.name().to_owned())));
    Pool::of(pool.name(), all).with_services(Arc::clone(pool.services()))
}

/// The known back ends, by name and address.
type Known<'a> = HashMap<(&'a str, EndpointAddress), Arc<Backend>>;

impl RegistryState {
    fn find(&self, name: &str) -> Option<Arc<Backend>> {
        let mut backends = self.pools.iter().flat_map(|pool| pool.backends());
        backends.find(|backend| backend.name() == name).cloned()
    }

    fn leaving(&self) -> impl Iterator<Item = (String, Arc<Backend>)> {
        let leaving = self.leaving.iter();
        leaving.filter_map(|(pool, backend)| Some((pool.clone(), backend.upgrade()?)))
    }

    fn enlist(&mut self, now: Timestamp, pool_specs: &[PoolSpec]) {
        let (before, leaving) =
            (std::mem::take(&mut self.pools), self.leaving().collect::<Vec<_>>());
        let mut known = known(&before, &leaving);
        let see = |pool_spec: &PoolSpec, backend_spec: &BackendSpec, seen: Seen<'_>| {
            let Seen { backend, is_new } = seen;
            backend.set_weight(backend_spec.weight);
            backend.set_priority(backend_spec.priority);
            backend.set_slow_start(pool_spec.slow_start);
            backend.set_limits(&backend_spec.limits);
            if is_new || backend.admin_state() == AdminState::Removed {
                let assigned = self.assigned.get(&identity(backend));
                backend.set_admin_state(now, *assigned.unwrap_or(&AdminState::InService));
            }
        };
        self.pools = pools(now, pool_specs, &mut known, services(&before), see);
        let configured = self.configured();
        let before = before
            .iter()
            .flat_map(|pool| pool.backends().iter().map(move |backend| (pool.name(), backend)));
        let all = before.chain(leaving.iter().map(|(pool, backend)| (pool.as_str(), backend)));
        let is_gone =
            |(_, backend): &(&str, &Arc<Backend>)| !configured.contains(&Arc::as_ptr(backend));
        let mut gone: Vec<_> = all.filter(is_gone).collect();
        gone.sort_by_cached_key(|(pool, backend)| (*pool, identity(backend)));
        gone.iter().for_each(|(_, backend)| backend.set_admin_state(now, AdminState::Removed));
        let gone =
            gone.into_iter().map(|(pool, backend)| (pool.to_owned(), Arc::downgrade(backend)));
        self.leaving = gone.collect();
    }

    fn configured(&self) -> HashSet<*const Backend> {
        self.pools.iter().flat_map(|pool| pool.backends()).map(Arc::as_ptr).collect()
    }

    fn remember(&mut self, backend: &Backend, admin_state: AdminState) {
        if admin_state == AdminState::InService {
            self.assigned.remove(&identity(backend));
            return;
        }
        if self.assigned.len() >= ASSIGNED_MAX {
            let configured = self.pools.iter().flat_map(|pool| pool.backends());
            let configured: HashSet<_> = configured.map(|backend| identity(backend)).collect();
            self.assigned.retain(|known, _| configured.contains(known));
        }
        self.assigned.insert(identity(backend), admin_state);
    }

    /// Returns the pools that a command configures although a later command has already been
    /// executed. Does not change the registry. Back ends that the later command does not configure
    /// get no calls in these pools.
    fn past(&self, now: Timestamp, pool_specs: &[PoolSpec]) -> Vec<Pool> {
        let leaving: Vec<_> = self.leaving().collect();
        let mut known = known(&self.pools, &leaving);
        let configured = self.configured();
        pools(now, pool_specs, &mut known, services(&self.pools), |_, _, Seen { backend, .. }| {
            if !configured.contains(&Arc::as_ptr(backend)) {
                backend.set_admin_state(now, AdminState::Removed);
            }
        })
    }
}

fn identity(backend: &Backend) -> Identity {
    (backend.name().to_owned(), backend.endpoint().endpoint_address())
}

/// Indexes the back ends of `pools` together with the `leaving` ones, by name and address.
fn known<'a>(pools: &'a [Pool], leaving: &'a [(String, Arc<Backend>)]) -> Known<'a> {
    let configured = pools.iter().flat_map(|pool| pool.backends());
    let all = leaving.iter().map(|(_, backend)| backend).chain(configured);
    let of = |backend: &'a Arc<Backend>| {
        ((backend.name(), backend.endpoint().endpoint_address()), Arc::clone(backend))
    };
    all.map(of).collect()
}

fn services(pools: &[Pool]) -> Vec<Arc<Service>> {
    pools.iter().flat_map(|pool| pool.services().iter().cloned()).collect()
}

/// A back end of a new configuration.
struct Seen<'a> {
    backend: &'a Arc<Backend>,
    /// False if the registry already had this back end.
    is_new: bool,
}

/// Builds the pools of a configuration. Takes existing back ends from `known` and existing services
/// from `services`, and creates those that are missing. Calls `see` once for each back end, with
/// the first pool that names it.
fn pools<'a>(
    now: Timestamp,
    pool_specs: &'a [PoolSpec],
    known: &mut Known<'a>,
    mut services: Vec<Arc<Service>>,
    see: impl Fn(&PoolSpec, &BackendSpec, Seen<'_>),
) -> Vec<Pool> {
    let mut made = Known::new();
    let mut pool = |pool_spec: &'a PoolSpec| {
        let PoolSpec { name, backends, services: wanted, .. } = pool_spec;
        let mut all = Vec::with_capacity(backends.len());
        for backend_spec in backends {
            let server = (backend_spec.name.as_str(), backend_spec.endpoint_address.clone());
            if let Some(same) = made.get(&server) {
                all.push(Arc::clone(same));
                continue;
            }
            let before = known.remove(&server);
            let is_new = before.is_none();
            let new = || {
                let backend = Backend::new(
                    &backend_spec.name,
                    &backend_spec.endpoint_address,
                    backend_spec.weight,
                );
                backend.set_known_since(now);
                Arc::new(backend)
            };
            let backend = before.unwrap_or_else(new);
            see(pool_spec, backend_spec, Seen { backend: &backend, is_new });
            made.insert(server, Arc::clone(&backend));
            all.push(backend);
        }
        let wanted = wanted.iter().map(|(domain, transport)| {
            let known = services.iter().find(|service| service.is_of(domain, *transport));
            known.inspect(|known| known.on_enlisted()).cloned().unwrap_or_else(|| {
                // A domain that several pools name is looked up once.
                services.push(Arc::new(Service::new(domain, *transport)));
                Arc::clone(&services[services.len() - 1])
            })
        });
        Pool::of(name, all).with_services(wanted.collect())
    };
    pool_specs.iter().map(&mut pool).collect()
}

#[cfg(test)]
#[path = "backend_registry_tests.rs"]
mod tests;
