//! The back ends of a process, by which its shards share them.
//!
//! When the configuration is read again each shard is told so in its turn, and each makes its pools
//! anew. What they count in has to be the same: whoever enlists a back end gets the one that is
//! there, if there is one of that pool, name and site. So what is known of it stays, and so do
//! the counts of those that are configured no more, until their calls have ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Backend, Duty, Pool, Site};

/// A pool as it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Muster {
    /// Its name, different from every other pool's.
    pub name: String,
    /// For how long the weight of a back end grows after its return.
    pub slow_start: Duration,
    /// Its back ends.
    pub backends: Vec<Post>,
}

/// A back end as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Its name, different from every other's in the pool.
    pub name: String,
    /// Where it is.
    pub site: Site,
    /// Its share of the load against its fellows'.
    pub weight: u32,
    /// Which come before it: those of a lower number.
    pub priority: u32,
}

/// All back ends; a clone is another handle on the same.
#[derive(Clone, Debug, Default)]
pub struct Fleet(Arc<Mutex<Vec<Pool>>>);

impl Fleet {
    /// What is known of each pool: its back ends, and after them those that are configured no more
    /// and still hold calls.
    pub fn pools(&self) -> Vec<Pool> {
        self.lock().clone()
    }

    /// The back end of that name, if it is configured.
    pub fn find(&self, name: &str) -> Option<Arc<Backend>> {
        let pools = self.lock();
        let mut backends = pools.iter().flat_map(|pool| pool.backends());
        let found = backends.find(|b| b.name() == name && b.duty() != Duty::Removed);
        found.cloned()
    }

    /// The pools as they are configured from now on. Who is in none of them any more is
    /// [removed](Duty::Removed), and drains.
    pub fn enlist(&self, now: Timestamp, musters: &[Muster]) -> Vec<Pool> {
        let mut listed = self.lock();
        let mut known: Vec<(String, Arc<Backend>)> = listed
            .iter()
            .flat_map(|pool| pool.backends().iter().map(|b| (pool.name().to_owned(), b.clone())))
            .collect();
        let mut pools = Vec::new();
        for muster in musters {
            let mut backends = Vec::new();
            for post in &muster.backends {
                let same = |(pool, b): &(String, Arc<Backend>)| {
                    *pool == muster.name
                        && b.name() == post.name
                        && b.location().site() == post.site
                };
                let backend = match known.iter().position(same) {
                    Some(i) => known.swap_remove(i).1,
                    None => Arc::new(Backend::new(&post.name, &post.site, post.weight)),
                };
                backend.set_weight(post.weight);
                backend.set_priority(post.priority);
                backend.set_slow_start(muster.slow_start);
                if backend.duty() == Duty::Removed {
                    backend.set_duty(now, Duty::InService);
                }
                backends.push(backend);
            }
            pools.push(Pool::of(&muster.name, backends));
        }
        for (_, backend) in &known {
            backend.set_duty(now, Duty::Removed);
        }
        // Two of one pool and name could not be told apart.
        let rank = |(pool, b): &(String, Arc<Backend>)| {
            (pool.clone(), b.name().to_owned(), b.location().site())
        };
        known.sort_by_cached_key(rank);
        known.dedup_by(|(a, x), (b, y)| a == b && x.name() == y.name());
        known.retain(|(pool, b)| {
            let same = |now: &Pool| now.name() == *pool && now.has(b.name());
            (b.calls() > 0 || b.work() > 0) && !pools.iter().any(same)
        });
        *listed = pools.clone();
        for (pool, backend) in known {
            match listed.iter_mut().find(|p| p.name() == pool) {
                Some(p) => {
                    let all = p.backends().iter().cloned().chain([backend]).collect();
                    *p = Pool::of(&pool, all);
                }
                None => listed.push(Pool::of(&pool, vec![backend])),
            }
        }
        pools
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lease, State};

    const NOW: Timestamp = Timestamp::from_nanos(5);

    fn muster(pool: &str, backends: &[(&str, u16, u32)]) -> Muster {
        let post = |&(name, port, weight): &(&str, u16, u32)| Post {
            name: name.to_owned(),
            site: Site::Address(([127, 0, 0, 1], port).into()),
            weight,
            priority: 0,
        };
        let backends = backends.iter().map(post).collect();
        Muster { name: pool.to_owned(), slow_start: Duration::ZERO, backends }
    }

    fn names(pools: &[Pool]) -> Vec<Vec<String>> {
        let names = |pool: &Pool| pool.backends().iter().map(|b| b.name().to_owned()).collect();
        pools.iter().map(names).collect()
    }

    #[test]
    fn who_stays_keeps_what_is_known_and_who_goes_drains() {
        let fleet = Fleet::default();
        let first = fleet.enlist(NOW, &[muster("app", &[("a", 1, 1), ("b", 2, 1), ("c", 3, 1)])]);
        let [a, b, c] = [0, 1, 2].map(|i| Arc::clone(&first[0].backends()[i]));
        a.set_duty(NOW, Duty::Draining);
        b.on_failed(NOW, Duration::from_secs(5));
        let held = Lease::call(&c);
        // `b` is elsewhere now, which makes it another; `c` is gone.
        let second = fleet.enlist(NOW, &[muster("app", &[("b", 9, 1), ("a", 1, 7)])]);
        assert!(Arc::ptr_eq(&second[0].backends()[1], &a));
        assert_eq!((a.weight(), a.duty()), (7, Duty::Draining));
        assert!(second[0].backends()[0].is_up(NOW) && !b.is_up(NOW));
        assert_eq!([&b, &c].map(|b| b.state(NOW).0), [State::Removed; 2]);
        assert_eq!(names(&fleet.pools()), [["b", "a", "c"]], "`c` has calls left");
        assert!(fleet.find("a").is_some() && fleet.find("c").is_none());
        drop(held);
        // Another shard is told the same.
        let again = fleet.enlist(NOW, &[muster("app", &[("b", 9, 1), ("a", 1, 7)])]);
        assert!(Arc::ptr_eq(&again[0].backends()[0], &second[0].backends()[0]));
        assert_eq!(names(&fleet.pools()), [["b", "a"]]);
    }

    #[test]
    fn who_comes_back_is_who_it_was_while_its_calls_last() {
        let fleet = Fleet::default();
        let both = [muster("app", &[("a", 1, 1)]), muster("b", &[("b", 2, 1)])];
        let pools = fleet.enlist(NOW, &both);
        let b = Arc::clone(&pools[1].backends()[0]);
        let _held = Lease::call(&b);
        fleet.enlist(NOW, &both[..1]);
        assert_eq!(names(&fleet.pools()), [["a"], ["b"]]);
        let back = fleet.enlist(NOW, &both);
        assert!(Arc::ptr_eq(&back[1].backends()[0], &b) && b.is_up(NOW));
    }
}
