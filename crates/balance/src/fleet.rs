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

use crate::{Backend, Duty, Limits, Pool, Service, Site};

/// A pool as it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Muster {
    /// Its name, different from every other pool's.
    pub name: String,
    /// For how long the weight of a back end grows after its return.
    pub slow_start: Duration,
    /// Its back ends.
    pub backends: Vec<Post>,
    /// Domains whose servers are to be asked for, and the transport by which they are reached.
    pub services: Vec<(Arc<str>, Transport)>,
}

/// A back end as it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Post {
    /// Its name, different from every other's in the pool.
    pub name: String,
    /// Where it is.
    pub site: Site,
    /// Its share of the load against its fellows'.
    pub weight: u32,
    /// Which come before it: those of a lower number.
    pub priority: u32,
    /// What it may be given.
    pub limits: Limits,
}

/// All back ends; a clone is another handle on the same.
#[derive(Clone, Debug)]
pub struct Fleet(Arc<Mutex<Roll>>);

#[derive(Debug, Default)]
struct Roll {
    /// Those that are configured.
    pools: Vec<Pool>,
    /// Those that are configured no more, by their pools. Who holds them are the shards.
    leaving: Vec<(String, Weak<Backend>)>,
    /// The last order that any shard has heard.
    heard: u64,
    /// The order by which the pools became what they are.
    enlisted: u64,
}

impl Fleet {
    /// The back ends that a process begins with, before any order.
    pub fn new(musters: &[Muster]) -> Self {
        let mut roll = Roll::default();
        roll.enlist(Timestamp::ZERO, musters);
        Self(Arc::new(Mutex::new(roll)))
    }

    /// What is known of each pool: its back ends, and after them those that are configured no more
    /// and still hold calls. Of those with the name of another it is the first.
    pub fn pools(&self) -> Vec<Pool> {
        let (configured, leaving) = {
            let roll = self.lock();
            (roll.pools.clone(), roll.leaving().collect::<Vec<_>>())
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
    pub fn assign(&self, now: Timestamp, order: u64, name: &str, duty: Duty) {
        let mut roll = self.lock();
        if order > roll.heard {
            roll.heard = order;
            roll.find(name).inspect(|backend| backend.set_duty(now, duty));
        }
    }

    /// The pools as they are configured from the order of that number on. Who is in none of them any
    /// more is [removed](Duty::Removed), and drains.
    pub fn enlist(&self, now: Timestamp, order: u64, musters: &[Muster]) -> Vec<Pool> {
        let mut roll = self.lock();
        if order > roll.heard {
            (roll.heard, roll.enlisted) = (order, order);
            roll.enlist(now, musters);
        } else if order < roll.enlisted {
            return roll.past(now, musters);
        }
        roll.pools.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Roll> {
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
type Key<'a> = (&'a str, &'a str, Site);

type Known<'a> = HashMap<Key<'a>, Arc<Backend>>;

impl Roll {
    fn find(&self, name: &str) -> Option<Arc<Backend>> {
        let mut backends = self.pools.iter().flat_map(|pool| pool.backends());
        backends.find(|backend| backend.name() == name).cloned()
    }

    fn leaving(&self) -> impl Iterator<Item = (String, Arc<Backend>)> {
        let leaving = self.leaving.iter();
        leaving.filter_map(|(pool, backend)| Some((pool.clone(), backend.upgrade()?)))
    }

    fn enlist(&mut self, now: Timestamp, musters: &[Muster]) {
        let (before, leaving) =
            (std::mem::take(&mut self.pools), self.leaving().collect::<Vec<_>>());
        let mut known = known(&before, &leaving);
        let split = take_split(&mut known, musters);
        let services = services(&before);
        self.pools = pools(now, musters, &mut known, services, |muster, post, backend| {
            backend.set_weight(post.weight);
            backend.set_priority(post.priority);
            backend.set_slow_start(muster.slow_start);
            backend.set_limits(&post.limits);
            if backend.duty() == Duty::Removed {
                backend.set_duty(now, Duty::InService);
            }
        });
        known.extend(split);
        let mut known: Vec<_> = known.into_iter().collect();
        known.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        known.iter().for_each(|(_, backend)| backend.set_duty(now, Duty::Removed));
        let leaving = known.iter();
        let leaving =
            leaving.map(|((pool, ..), backend)| ((*pool).to_owned(), Arc::downgrade(backend)));
        self.leaving = leaving.collect();
    }

    /// The pools of an order that another one has followed: nobody's state changes, and who is
    /// configured no more gets no calls here either.
    fn past(&self, now: Timestamp, musters: &[Muster]) -> Vec<Pool> {
        let leaving: Vec<_> = self.leaving().collect();
        let mut known = known(&self.pools, &leaving);
        let configured = self.pools.iter().flat_map(|pool| pool.backends()).map(Arc::as_ptr);
        let configured: HashSet<_> = configured.collect();
        pools(now, musters, &mut known, services(&self.pools), |_, _, backend| {
            if !configured.contains(&Arc::as_ptr(backend)) {
                backend.set_duty(now, Duty::Removed);
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
        ((pool, backend.name(), backend.location().site()), Arc::clone(backend))
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
    musters: &'a [Muster],
    known: &mut Known<'a>,
    mut services: Vec<Arc<Service>>,
    see: impl Fn(&Muster, &Post, &Arc<Backend>),
) -> Vec<Pool> {
    let mut made: HashMap<(&str, &Site), Arc<Backend>> = HashMap::new();
    let mut pool = |muster: &'a Muster| {
        let Muster { name, backends, services: wanted, .. } = muster;
        let mut all = Vec::with_capacity(backends.len());
        for post in backends {
            let before = known.remove(&key_of(muster, post));
            let server = (post.name.as_str(), &post.site);
            if let Some(same) = made.get(&server) {
                all.push(Arc::clone(same));
                continue;
            }
            let new = || {
                let backend = Backend::new(&post.name, &post.site, post.weight);
                backend.set_known_since(now);
                Arc::new(backend)
            };
            let backend = before.unwrap_or_else(new);
            see(muster, post, &backend);
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
    musters.iter().map(&mut pool).collect()
}

fn key_of<'a>(muster: &'a Muster, post: &'a Post) -> Key<'a> {
    (&muster.name, &post.name, post.site.clone())
}

/// Takes out the back ends that stay in some of their pools and leave others. In a pool that it has
/// left a back end gets no new calls because it is [`Duty::Removed`], so the one that stays has to be
/// another.
fn take_split<'a>(known: &mut Known<'a>, musters: &[Muster]) -> Known<'a> {
    let posts = |muster| {
        let Muster { backends, .. }: &Muster = muster;
        backends.iter().map(move |post| key_of(muster, post))
    };
    let configured: HashSet<Key<'_>> = musters.iter().flat_map(posts).collect();
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

    fn muster(pool: &str, backends: &[(&str, u16, u32)]) -> Muster {
        let post = |&(name, port, weight): &(&str, u16, u32)| Post {
            name: name.to_owned(),
            site: Site::Address(([127, 0, 0, 1], port).into()),
            weight,
            priority: 0,
            limits: Limits { calls_max: Some(10 * u64::from(port)), ..Limits::default() },
        };
        let backends = backends.iter().map(post).collect();
        let name = pool.to_owned();
        Muster { name, slow_start: Duration::ZERO, backends, services: Vec::new() }
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
        let fleet = Fleet::new(&[muster("app", &[("a", 1, 1), ("b", 2, 1), ("c", 3, 1)])]);
        let [a, b, c] = ["a", "b", "c"].map(|name| fleet.find(name).unwrap());
        fleet.assign(NOW, 1, "a", Duty::Draining);
        b.on_failed(NOW, Duration::from_secs(5));
        let held = CallLease::new(&c);
        // `b` is elsewhere now, which makes it another; `c` is gone.
        let moved = [muster("app", &[("b", 9, 1), ("a", 1, 7)])];
        let second = fleet.enlist(NOW, 2, &moved);
        assert!(Arc::ptr_eq(&second[0].backends()[1], &a));
        assert_eq!((a.weight(), a.duty()), (7, Duty::Draining));
        assert_eq!((b.calls_max(), second[0].backends()[0].calls_max()), (Some(20), Some(90)));
        assert!(second[0].backends()[0].is_up(NOW) && !b.is_up(NOW));
        assert_eq!([&b, &c].map(|b| b.state(NOW).0), [State::Removed; 2]);
        assert_eq!(names(&fleet.pools()), [["b", "a", "c"]], "`c` has calls left");
        assert!(fleet.find("a").is_some() && fleet.find("c").is_none());
        fleet.assign(NOW, 3, "c", Duty::InService);
        assert_eq!(c.duty(), Duty::Removed, "it is nobody's to enable");
        drop(held);
        assert!(are_same(&fleet.enlist(NOW, 4, &moved), &second));
        assert_eq!(names(&fleet.pools()), [["b", "a"]]);
    }

    #[test]
    fn a_server_in_two_pools_is_one_back_end() {
        let one = || muster("calls", &[("a", 1, 3)]);
        let two = || Muster { slow_start: Duration::ZERO, ..muster("register", &[("a", 1, 9)]) };
        let fleet = Fleet::new(&[one(), two()]);
        let pools = fleet.pools();
        let a = Arc::clone(&pools[0].backends()[0]);
        assert!(Arc::ptr_eq(&a, &pools[1].backends()[0]));
        assert_eq!(a.weight(), 3, "that of the first pool");
        let held = CallLease::new(&a);
        fleet.assign(NOW, 1, "a", Duty::Draining);
        assert!(are_same(&fleet.enlist(NOW, 2, &[one(), two()]), &pools));
        assert_eq!(a.duty(), Duty::Draining);
        // It leaves one pool: who stays in the other is another one, and the calls end at the old.
        let after = fleet.enlist(NOW, 3, &[two()]);
        assert!(!Arc::ptr_eq(&a, &after[0].backends()[0]));
        assert_eq!((a.duty(), after[0].backends()[0].duty()), (Duty::Removed, Duty::InService));
        assert_eq!(names(&fleet.pools()).len(), 2, "its call is still shown");
        drop(held);
    }

    #[test]
    fn a_back_end_that_is_added_is_up_since_then() {
        let fleet = Fleet::new(&[muster("app", &[("a", 1, 1)])]);
        let at = |ns| Timestamp::from_nanos(ns);
        fleet.enlist(at(11), 1, &[muster("app", &[("a", 1, 1), ("b", 2, 1)])]);
        let state = |name: &str, now| fleet.find(name).unwrap().state(at(now));
        assert_eq!(state("a", 12), (State::Up, Timestamp::ZERO));
        assert_eq!(state("b", 12), (State::Up, at(11)));
        fleet.find("b").unwrap().on_failed(at(13), Duration::from_nanos(5));
        assert_eq!(state("b", 14), (State::Down, at(13)));
        assert_eq!(state("b", 18), (State::Up, at(18)));
    }

    #[test]
    fn who_comes_back_is_who_it_was_while_its_calls_last() {
        let both = [muster("app", &[("a", 1, 1)]), muster("b", &[("b", 2, 1)])];
        let fleet = Fleet::new(&both);
        let b = fleet.find("b").unwrap();
        let _held = CallLease::new(&b);
        fleet.enlist(NOW, 1, &both[..1]);
        assert_eq!(names(&fleet.pools()), [["a"], ["b"]]);
        // Another of its name is shown instead, and is not it.
        let other = [muster("b", &[("b", 3, 1)])];
        assert!(!Arc::ptr_eq(&fleet.enlist(NOW, 2, &other)[0].backends()[0], &b));
        assert_eq!(names(&fleet.pools()), [["b"]]);
        let back = fleet.enlist(NOW, 3, &both);
        assert!(Arc::ptr_eq(&back[1].backends()[0], &b) && b.is_up(NOW));
    }

    #[test]
    fn shards_that_hear_orders_late_end_up_with_the_same_back_ends() {
        let fleet = Fleet::new(&[muster("app", &[("a", 1, 1)])]);
        let [first, second] = [
            muster("app", &[("a", 1, 5), ("gone", 2, 1)]),
            muster("app", &[("b", 3, 1), ("a", 1, 7)]),
        ];
        let (first, second) = ([first], [second]);
        let gone = {
            let early = fleet.enlist(NOW, 1, &first);
            assert!(are_same(&fleet.enlist(NOW, 1, &first), &early), "at the same order, the same");
            Arc::clone(&early[0].backends()[1])
        };
        let held = CallLease::new(&gone);
        let early = fleet.enlist(NOW, 2, &second);
        fleet.assign(NOW, 3, "a", Duty::Draining);
        fleet.assign(NOW, 4, "a", Duty::InService);
        fleet.assign(NOW, 5, "b", Duty::Maintenance);
        // The other shard hears them now.
        let past = fleet.enlist(NOW, 1, &first);
        assert_eq!(names(&past), [["a", "gone"]]);
        assert!(Arc::ptr_eq(&past[0].backends()[1], &gone));
        assert!(Arc::ptr_eq(&past[0].backends()[0], &early[0].backends()[1]));
        assert_eq!((gone.duty(), early[0].backends()[1].weight()), (Duty::Removed, 7));
        let late = fleet.enlist(NOW, 2, &second);
        fleet.assign(NOW, 3, "a", Duty::Draining);
        assert!(are_same(&late, &early));
        let duties = [0, 1].map(|i| late[0].backends()[i].duty());
        assert_eq!(duties, [Duty::Maintenance, Duty::InService]);
        // Who was gone and forgotten before it was heard of gets no calls.
        assert_eq!(Arc::strong_count(&gone), 3, "here, there, and by what it holds");
        drop((held, past, gone));
        let past = fleet.enlist(NOW, 1, &first);
        assert_eq!(past[0].backends()[1].duty(), Duty::Removed);
    }
}
