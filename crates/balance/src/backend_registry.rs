//! The back ends of a process, by which its shards share them.
//!
//! When the configuration is read again each shard is told so in its turn, and each makes its pools
//! anew. What they count in has to be the same: whoever enlists a back end gets the one that is
//! there, if there is one of that pool, name and site. So what is known of it stays, and so does what
//! is counted on those that are configured no more, as long as any shard may have something there.
//!
//! A server may be in several pools, such as one for calls and one for registrations: in each it is
//! the same back end, with one health, one count of calls and one limit. Its weight, its priority and
//! its limits are those of the first pool that names it.
//!
//! Orders have numbers, the same in every shard. The first shard that hears one has it done. For
//! those that hear it later it is done already, and what a later order has changed it leaves alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tidegate_world::{Timestamp, Transport};

use crate::{AdminState, Backend, EndpointAddress, Limits, Pool, Service};

/// A pool as it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSpec {
    /// Its name, different from every other pool's.
    pub name: String,
    /// For how long the weight of a back end grows after its return.
    pub slow_start: Duration,
    /// Its back ends.
    pub backends: Vec<BackendSpec>,
    /// Domains whose servers are to be asked for, and the transport by which they are reached.
    pub services: Vec<(Arc<str>, Transport)>,
}

/// A back end as it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendSpec {
    /// Its name, different from every other's in the pool.
    pub name: String,
    /// Where it is.
    pub endpoint_address: EndpointAddress,
    /// Its share of the load against its fellows'.
    pub weight: u32,
    /// Which come before it: those of a lower number.
    pub priority: u32,
    /// What it may be given.
    pub limits: Limits,
}

/// All back ends; a clone is another handle on the same.
#[derive(Clone, Debug)]
pub struct BackendRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    /// Those that are configured.
    pools: Vec<Pool>,
    /// Those that are configured no more, by their pools. Who holds them are the shards.
    leaving: Vec<(String, Weak<Backend>)>,
    /// The last order that any shard has heard.
    heard: u64,
    /// The order by which the pools became what they are.
    enlisted: u64,
}

impl BackendRegistry {
    /// The back ends that a process begins with, before any order.
    pub fn new(pool_specs: &[PoolSpec]) -> Self {
        let mut state = RegistryState::default();
        state.enlist(Timestamp::ZERO, pool_specs);
        Self(Arc::new(Mutex::new(state)))
    }

    /// What is known of each pool: its back ends, and after them those that are configured no more
    /// and still hold calls. Of those with the name of another it is the first.
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

    /// Returns the services whose servers are back ends, each once.
    pub fn services(&self) -> Vec<Arc<Service>> {
        let mut services = services(&self.lock().pools);
        let mut seen = HashSet::new();
        services.retain(|service| seen.insert(Arc::as_ptr(service)));
        services
    }

    /// The back end of that name, if it is configured.
    pub fn find(&self, name: &str) -> Option<Arc<Backend>> {
        self.lock().find(name)
    }

    /// Gives a back end a duty, by the order of that number. If it is configured no more, nothing
    /// happens.
    pub fn assign(&self, now: Timestamp, order: u64, name: &str, admin_state: AdminState) {
        let mut state = self.lock();
        if order > state.heard {
            state.heard = order;
            state.find(name).inspect(|backend| backend.set_admin_state(now, admin_state));
        }
    }

    /// The pools as they are configured from the order of that number on. Who is in none of them any
    /// more is [removed](AdminState::Removed), and drains.
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

/// Returns a pool with further back ends after its own, each name once.
fn and_after(pool: &Pool, further: Vec<Arc<Backend>>) -> Pool {
    if further.is_empty() {
        return pool.clone();
    }
    let mut all = pool.backends().to_vec();
    let mut names: BTreeSet<String> = all.iter().map(|backend| backend.name().to_owned()).collect();
    all.extend(further.into_iter().filter(|backend| names.insert(backend.name().to_owned())));
    Pool::of(pool.name(), all).with_services(Arc::clone(pool.services()))
}

/// The pool of a back end, its name, and its site: the same three are the same back end.
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

    /// The pools of an order that another one has followed: nobody's state changes, and who is
    /// configured no more gets no calls here either.
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

/// Indexes the back ends of these pools and those that are configured no more. Of two with the same
/// key the latter is kept.
fn known<'a>(pools: &'a [Pool], leaving: &'a [(String, Arc<Backend>)]) -> Known<'a> {
    let configured =
        pools.iter().flat_map(|pool| pool.backends().iter().map(|backend| (pool.name(), backend)));
    let leaving = leaving.iter().map(|(pool, backend)| (pool.as_str(), backend));
    let key = |(pool, backend): (&'a str, &'a Arc<Backend>)| {
        ((pool, backend.name(), backend.endpoint().endpoint_address()), Arc::clone(backend))
    };
    configured.chain(leaving).map(key).collect()
}

/// Returns the services of these pools.
fn services(pools: &[Pool]) -> Vec<Arc<Service>> {
    pools.iter().flat_map(|pool| pool.services().iter().cloned()).collect()
}

/// The pools of these back ends: those that are known, which are taken out of there, and new ones.
/// Each is seen by `see`. Services that are known stay the same.
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
                // A domain that several pools name is asked for once.
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

/// Takes out the back ends that stay in some of their pools and leave others. In a pool that it has
/// left a back end gets no new calls because it is [`AdminState::Removed`], so the one that stays has to be
/// another.
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
    fn who_stays_keeps_what_is_known_and_who_goes_drains() {
        let registry =
            BackendRegistry::new(&[pool_spec("app", &[("a", 1, 1), ("b", 2, 1), ("c", 3, 1)])]);
        let [a, b, c] = ["a", "b", "c"].map(|name| registry.find(name).unwrap());
        registry.assign(NOW, 1, "a", AdminState::Draining);
        b.on_failed(NOW, Duration::from_secs(5));
        let held = CallLease::new(&c);
        // `b` is elsewhere now, which makes it another; `c` is gone.
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
        assert_eq!(c.admin_state(), AdminState::Removed, "it is nobody's to enable");
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
        // It leaves one pool: who stays in the other is another one, and the calls end at the old.
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
    fn who_comes_back_is_who_it_was_while_its_calls_last() {
        let both = [pool_spec("app", &[("a", 1, 1)]), pool_spec("b", &[("b", 2, 1)])];
        let registry = BackendRegistry::new(&both);
        let b = registry.find("b").unwrap();
        let _held = CallLease::new(&b);
        registry.enlist(NOW, 1, &both[..1]);
        assert_eq!(names(&registry.pools()), [["a"], ["b"]]);
        // Another of its name is shown instead, and is not it.
        let other = [pool_spec("b", &[("b", 3, 1)])];
        assert!(!Arc::ptr_eq(&registry.enlist(NOW, 2, &other)[0].backends()[0], &b));
        assert_eq!(names(&registry.pools()), [["b"]]);
        let back = registry.enlist(NOW, 3, &both);
        assert!(Arc::ptr_eq(&back[1].backends()[0], &b) && b.is_up(NOW));
    }

    #[test]
    fn shards_that_hear_orders_late_end_up_with_the_same_back_ends() {
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
        // The other shard hears them now.
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
        // Who was gone and forgotten before it was heard of gets no calls.
        assert_eq!(Arc::strong_count(&gone), 3, "here, there, and by what it holds");
        drop((held, past, gone));
        let past = registry.enlist(NOW, 1, &first);
        assert_eq!(past[0].backends()[1].admin_state(), AdminState::Removed);
    }
}
