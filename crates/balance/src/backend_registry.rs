//! The registry through which the shards of a process share back ends.
//!
//! On a reload, each shard gets the new configuration in its turn and rebuilds its pools. All
//! shards must count on the same objects. Therefore enlisting a back end returns the existing
//! object with the same pool, name and address, and its health and counts survive a reload. The
//! same applies to back ends that are no longer configured, as long as any shard may have calls
//! there.
//!
//! A server may be in several pools, for example one for calls and one for registrations. In all of
//! them it is the same back end, with the same health, count of calls and limit. Its weight,
//! priority and limits are those of the first pool that names it.
//!
//! Commands are numbered, with the same numbers in every shard. The first shard that receives a
//! command executes it. When other shards receive it later, they do not execute it again. So they
//! do not undo the changes of later commands.

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
    /// Time for which the weight of a back end grows after its return.
    pub slow_start: Duration,
    /// Configuration of its back ends.
    pub backends: Vec<BackendSpec>,
    /// Domains whose servers are looked up, and the transport to reach them.
    pub services: Vec<(Arc<str>, Transport)>,
}

/// The configuration of a back end.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendSpec {
    /// Name, unique in the pool.
    pub name: String,
    /// Configured address.
    pub endpoint_address: EndpointAddress,
    /// Share of the load, relative to the other back ends.
    pub weight: u32,
    /// The priority. Lower numbers come first.
    pub priority: u32,
    /// Limits on its calls and requests.
    pub limits: Limits,
}

/// All back ends. A clone is another handle to the same registry.
#[derive(Clone, Debug)]
pub struct BackendRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    /// The configured pools.
    pools: Vec<Pool>,
    /// Back ends that are no longer configured, with the names of their pools. The registry does
    /// not keep them alive: the shards do, while they have calls there.
    leaving: Vec<(String, Weak<Backend>)>,
    /// Number of the last command that any shard has received.
    heard: u64,
    /// Number of the command that set the current pools.
    enlisted: u64,
}

impl BackendRegistry {
    /// Creates the registry with the initial back ends, before any command.
    pub fn new(pool_specs: &[PoolSpec]) -> Self {
        let mut state = RegistryState::default();
        state.enlist(Timestamp::ZERO, pool_specs);
        Self(Arc::new(Mutex::new(state)))
    }

    /// Returns each pool with its back ends. After them come the back ends that are no longer
    /// configured but still have calls. The first back end with a name is the configured one.
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

    /// Returns the services whose servers are back ends. Each service occurs once.
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

    /// Sets the administrative state of a back end, for the command with that number. If the back
    /// end is no longer configured, nothing happens.
    pub fn assign(&self, now: Timestamp, order: u64, name: &str, admin_state: AdminState) {
        let mut state = self.lock();
        if order > state.heard {
            state.heard = order;
            state.find(name).inspect(|backend| backend.set_admin_state(now, admin_state));
        }
    }

    /// Returns the pools configured by the command with that number. A back end that is in none of
    /// them becomes [removed](AdminState::Removed), and drains.
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

/// Returns a copy of the pool with the `further` back ends after its own. A back end whose name is
/// already present is left out.
fn and_after(pool: &Pool, further: Vec<Arc<Backend>>) -> Pool {
    if further.is_empty() {
        return pool.clone();
    }
    let mut all = pool.backends().to_vec();
    let mut names: BTreeSet<String> = all.iter().map(|backend| backend.name().to_owned()).collect();
    all.extend(further.into_iter().filter(|backend| names.insert(backend.name().to_owned())));
    Pool::of(pool.name(), all).with_services(Arc::clone(pool.services()))
}

/// The key of a back end: its pool, its name and its address.
type Key<'a> = (&'a str, &'a str, EndpointAddress);

type Known<'a> = HashMap<Key<'a>, Arc<Backend>>;

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
        let split = take_split(&mut known, pool_specs);
        let services = services(&before);
        self.pools =
            pools(now, pool_specs, &mut known, services, |pool_spec, backend_spec, backend| {
                backend.set_weight(backend_spec.weight);
                backend.set_priority(backend_spec.priority);
                backend.set_slow_start(pool_spec.slow_start);
                backend.set_limits(&backend_spec.limits);
                if backend.admin_state() == AdminState::Removed {
                    backend.set_admin_state(now, AdminState::InService);
                }
            });
        known.extend(split);
        let mut known: Vec<_> = known.into_iter().collect();
        known.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        known.iter().for_each(|(_, backend)| backend.set_admin_state(now, AdminState::Removed));
        let leaving = known.iter();
        let leaving =
            leaving.map(|((pool, ..), backend)| ((*pool).to_owned(), Arc::downgrade(backend)));
        self.leaving = leaving.collect();
    }

    /// Returns the pools of a command that a later command has already replaced. Changes no state.
    /// Back ends that are no longer configured get no calls in these pools either.
    fn past(&self, now: Timestamp, pool_specs: &[PoolSpec]) -> Vec<Pool> {
        let leaving: Vec<_> = self.leaving().collect();
        let mut known = known(&self.pools, &leaving);
        let configured = self.pools.iter().flat_map(|pool| pool.backends()).map(Arc::as_ptr);
        let configured: HashSet<_> = configured.collect();
        pools(now, pool_specs, &mut known, services(&self.pools), |_, _, backend| {
            if !configured.contains(&Arc::as_ptr(backend)) {
                backend.set_admin_state(now, AdminState::Removed);
            }
        })
    }
}

/// Indexes the back ends of these pools together with those that are no longer configured. If two
/// have the same key, the one that is no longer configured is kept.
fn known<'a>(pools: &'a [Pool], leaving: &'a [(String, Arc<Backend>)]) -> Known<'a> {
    let configured =
        pools.iter().flat_map(|pool| pool.backends().iter().map(|backend| (pool.name(), backend)));
    let leaving = leaving.iter().map(|(pool, backend)| (pool.as_str(), backend));
    let key = |(pool, backend): (&'a str, &'a Arc<Backend>)| {
        ((pool, backend.name(), backend.endpoint().endpoint_address()), Arc::clone(backend))
    };
    configured.chain(leaving).map(key).collect()
}

/// Collects the services of these pools.
fn services(pools: &[Pool]) -> Vec<Arc<Service>> {
    pools.iter().flat_map(|pool| pool.services().iter().cloned()).collect()
}

/// Builds the pools. Takes known back ends out of `known`, and creates the others. Calls `see` for
/// each back end. Known services stay the same.
fn pools<'a>(
    now: Timestamp,
    pool_specs: &'a [PoolSpec],
    known: &mut Known<'a>,
    mut services: Vec<Arc<Service>>,
    see: impl Fn(&PoolSpec, &BackendSpec, &Arc<Backend>),
) -> Vec<Pool> {
    let mut made: HashMap<(&str, &EndpointAddress), Arc<Backend>> = HashMap::new();
    let mut pool = |pool_spec: &'a PoolSpec| {
        let PoolSpec { name, backends, services: wanted, .. } = pool_spec;
        let mut all = Vec::with_capacity(backends.len());
        for backend_spec in backends {
            let before = known.remove(&key_of(pool_spec, backend_spec));
            let server = (backend_spec.name.as_str(), &backend_spec.endpoint_address);
            if let Some(same) = made.get(&server) {
                all.push(Arc::clone(same));
                continue;
            }
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
            see(pool_spec, backend_spec, &backend);
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

fn key_of<'a>(pool_spec: &'a PoolSpec, backend_spec: &'a BackendSpec) -> Key<'a> {
    (&pool_spec.name, &backend_spec.name, backend_spec.endpoint_address.clone())
}

/// Takes out the back ends that stay in some of their pools and are removed from others. In a pool
/// from which it was removed, a back end gets no new calls because it is [`AdminState::Removed`].
/// So in the other pools it must be another object.
fn take_split<'a>(known: &mut Known<'a>, pool_specs: &[PoolSpec]) -> Known<'a> {
    let backend_specs = |pool_spec| {
        let PoolSpec { backends, .. }: &PoolSpec = pool_spec;
        backends.iter().map(move |backend_spec| key_of(pool_spec, backend_spec))
    };
    let configured: HashSet<Key<'_>> = pool_specs.iter().flat_map(backend_specs).collect();
    let mut kinds: HashMap<*const Backend, [bool; 2]> = HashMap::with_capacity(known.len());
    for (key, backend) in known.iter() {
        let stays = configured.contains(key);
        kinds.entry(Arc::as_ptr(backend)).or_default()[usize::from(stays)] = true;
    }
    let is_split = |backend: &Arc<Backend>| kinds[&Arc::as_ptr(backend)] == [true, true];
    known.extract_if(|_, backend| is_split(backend)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallLease, State};

    const NOW: Timestamp = Timestamp::from_nanos(5);

    fn pool_spec(pool: &str, backends: &[(&str, u16, u32)]) -> PoolSpec {
        let backend_spec = |&(name, port, weight): &(&str, u16, u32)| BackendSpec {
            name: name.to_owned(),
            endpoint_address: EndpointAddress::Address(([127, 0, 0, 1], port).into()),
            weight,
            priority: 0,
            limits: Limits { calls_max: Some(10 * u64::from(port)), ..Limits::default() },
        };
        let backends = backends.iter().map(backend_spec).collect();
        let name = pool.to_owned();
        PoolSpec { name, slow_start: Duration::ZERO, backends, services: Vec::new() }
    }

    fn names(pools: &[Pool]) -> Vec<Vec<String>> {
        let names = |pool: &Pool| pool.backends().iter().map(|b| b.name().to_owned()).collect();
        pools.iter().map(names).collect()
    }

    fn are_same(one: &[Pool], other: &[Pool]) -> bool {
        let backends = |pools: &[Pool]| -> Vec<_> {
            pools.iter().flat_map(|pool| pool.backends().iter().map(Arc::as_ptr)).collect()
        };
        backends(one) == backends(other)
    }

    #[test]
    fn a_kept_back_end_keeps_its_state_and_a_removed_one_drains() {
        let registry =
            BackendRegistry::new(&[pool_spec("app", &[("a", 1, 1), ("b", 2, 1), ("c", 3, 1)])]);
        let [a, b, c] = ["a", "b", "c"].map(|name| registry.find(name).unwrap());
        registry.assign(NOW, 1, "a", AdminState::Draining);
        b.on_failed(NOW, Duration::from_secs(5));
        let held = CallLease::new(&c);
        // `b` has another address now, which makes it another back end. `c` is gone.
        let moved = [pool_spec("app", &[("b", 9, 1), ("a", 1, 7)])];
        let second = registry.enlist(NOW, 2, &moved);
        assert!(Arc::ptr_eq(&second[0].backends()[1], &a));
        assert_eq!((a.weight(), a.admin_state()), (7, AdminState::Draining));
        assert_eq!((b.calls_max(), second[0].backends()[0].calls_max()), (Some(20), Some(90)));
        assert!(second[0].backends()[0].is_up(NOW) && !b.is_up(NOW));
        assert_eq!([&b, &c].map(|b| b.state(NOW).0), [State::Removed; 2]);
        assert_eq!(names(&registry.pools()), [["b", "a", "c"]], "`c` has calls left");
        assert!(registry.find("a").is_some() && registry.find("c").is_none());
        registry.assign(NOW, 3, "c", AdminState::InService);
        assert_eq!(c.admin_state(), AdminState::Removed, "a removed back end cannot be enabled");
        drop(held);
        assert!(are_same(&registry.enlist(NOW, 4, &moved), &second));
        assert_eq!(names(&registry.pools()), [["b", "a"]]);
    }

    #[test]
    fn a_server_in_two_pools_is_one_back_end() {
        let one = || pool_spec("calls", &[("a", 1, 3)]);
        let two =
            || PoolSpec { slow_start: Duration::ZERO, ..pool_spec("register", &[("a", 1, 9)]) };
        let registry = BackendRegistry::new(&[one(), two()]);
        let pools = registry.pools();
        let a = Arc::clone(&pools[0].backends()[0]);
        assert!(Arc::ptr_eq(&a, &pools[1].backends()[0]));
        assert_eq!(a.weight(), 3, "that of the first pool");
        let held = CallLease::new(&a);
        registry.assign(NOW, 1, "a", AdminState::Draining);
        assert!(are_same(&registry.enlist(NOW, 2, &[one(), two()]), &pools));
        assert_eq!(a.admin_state(), AdminState::Draining);
        // It leaves one pool. The one that stays in the other pool is a new back end, and the calls
        // end at the old one.
        let after = registry.enlist(NOW, 3, &[two()]);
        assert!(!Arc::ptr_eq(&a, &after[0].backends()[0]));
        assert_eq!(
            (a.admin_state(), after[0].backends()[0].admin_state()),
            (AdminState::Removed, AdminState::InService)
        );
        assert_eq!(names(&registry.pools()).len(), 2, "its call is still shown");
        drop(held);
    }

    #[test]
    fn a_back_end_that_is_added_is_up_since_then() {
        let registry = BackendRegistry::new(&[pool_spec("app", &[("a", 1, 1)])]);
        let at = |ns| Timestamp::from_nanos(ns);
        registry.enlist(at(11), 1, &[pool_spec("app", &[("a", 1, 1), ("b", 2, 1)])]);
        let state = |name: &str, now| registry.find(name).unwrap().state(at(now));
        assert_eq!(state("a", 12), (State::Up, Timestamp::ZERO));
        assert_eq!(state("b", 12), (State::Up, at(11)));
        registry.find("b").unwrap().on_failed(at(13), Duration::from_nanos(5));
        assert_eq!(state("b", 14), (State::Down, at(13)));
        assert_eq!(state("b", 18), (State::Up, at(18)));
    }

    #[test]
    fn a_back_end_added_again_is_the_same_while_its_calls_last() {
        let both = [pool_spec("app", &[("a", 1, 1)]), pool_spec("b", &[("b", 2, 1)])];
        let registry = BackendRegistry::new(&both);
        let b = registry.find("b").unwrap();
        let _held = CallLease::new(&b);
        registry.enlist(NOW, 1, &both[..1]);
        assert_eq!(names(&registry.pools()), [["a"], ["b"]]);
        // The configured back end of the same name is shown instead.
        let other = [pool_spec("b", &[("b", 3, 1)])];
        assert!(!Arc::ptr_eq(&registry.enlist(NOW, 2, &other)[0].backends()[0], &b));
        assert_eq!(names(&registry.pools()), [["b"]]);
        let back = registry.enlist(NOW, 3, &both);
        assert!(Arc::ptr_eq(&back[1].backends()[0], &b) && b.is_up(NOW));
    }

    #[test]
    fn shards_that_get_commands_late_end_up_with_the_same_back_ends() {
        let registry = BackendRegistry::new(&[pool_spec("app", &[("a", 1, 1)])]);
        let [first, second] = [
            pool_spec("app", &[("a", 1, 5), ("gone", 2, 1)]),
            pool_spec("app", &[("b", 3, 1), ("a", 1, 7)]),
        ];
        let (first, second) = ([first], [second]);
        let gone = {
            let early = registry.enlist(NOW, 1, &first);
            assert!(
                are_same(&registry.enlist(NOW, 1, &first), &early),
                "at the same order, the same"
            );
            Arc::clone(&early[0].backends()[1])
        };
        let held = CallLease::new(&gone);
        let early = registry.enlist(NOW, 2, &second);
        registry.assign(NOW, 3, "a", AdminState::Draining);
        registry.assign(NOW, 4, "a", AdminState::InService);
        registry.assign(NOW, 5, "b", AdminState::Maintenance);
        // The other shard receives the commands now.
        let past = registry.enlist(NOW, 1, &first);
        assert_eq!(names(&past), [["a", "gone"]]);
        assert!(Arc::ptr_eq(&past[0].backends()[1], &gone));
        assert!(Arc::ptr_eq(&past[0].backends()[0], &early[0].backends()[1]));
        assert_eq!((gone.admin_state(), early[0].backends()[1].weight()), (AdminState::Removed, 7));
        let late = registry.enlist(NOW, 2, &second);
        registry.assign(NOW, 3, "a", AdminState::Draining);
        assert!(are_same(&late, &early));
        let admin_states = [0, 1].map(|i| late[0].backends()[i].admin_state());
        assert_eq!(admin_states, [AdminState::Maintenance, AdminState::InService]);
        // A removed back end that is forgotten before the shard learns of it gets no calls.
        assert_eq!(Arc::strong_count(&gone), 3, "here, there, and by what it holds");
        drop((held, past, gone));
        let past = registry.enlist(NOW, 1, &first);
        assert_eq!(past[0].backends()[1].admin_state(), AdminState::Removed);
    }
}
