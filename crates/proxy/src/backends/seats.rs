//! Seats: the places of pools and back ends, by which calls and transactions know them.
//!
//! Who stays keeps its seat. The seat of one that is configured no more is kept as long
//! as anything refers to it, and given to another then. It gets no new calls, because its
//! [`Duty`](tidegate_balance::Duty) is `Removed`.

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use tidegate_balance::{Backend, Pool, Site};

use crate::settings::{Choice, PoolSettings};

/// Stands for the pool as a whole.
pub(crate) const ANY: u16 = u16::MAX;

/// Pools, and back ends of a pool, at the most, with those whose seats are still taken.
const SEATS_MAX: usize = ANY as usize;

/// Returns whether there are seats for all, even if nobody of before leaves one.
pub(crate) fn have_seats(old: &[PoolSettings], new: &[PoolSettings]) -> bool {
    let named = places_by(old.iter().map(|settings| settings.pool.name()));
    let seats = |settings: &PoolSettings| settings.pool.backends().len();
    let before =
        |settings: &PoolSettings| named.get(settings.pool.name()).map_or(0, |&at| seats(&old[at]));
    old.len() + new.len() <= SEATS_MAX
        && new.iter().all(|pool| before(pool) + seats(pool) <= SEATS_MAX)
}

/// Pools in their seats.
pub(crate) struct Seated {
    pub(crate) pools: Vec<PoolSettings>,
    /// Where each of the new ones is.
    pub(crate) places: Vec<u16>,
}

/// Seats the new pools among the old ones.
pub(crate) fn seat_pools(
    old: Vec<PoolSettings>,
    new: Vec<PoolSettings>,
    is_held: impl Fn((u16, u16)) -> bool,
) -> Seated {
    let mut places: Vec<Option<usize>> = {
        let named = places_by(old.iter().map(|settings| settings.pool.name()));
        new.iter().map(|settings| named.get(settings.pool.name()).copied()).collect()
    };
    let taken: HashSet<_> = places.iter().flatten().copied().collect();
    let is_free = |&place: &usize| !taken.contains(&place) && !is_held((place as u16, ANY));
    let mut free = (0..old.len()).filter(is_free).chain(old.len()..);
    for place in &mut places {
        if place.is_none() {
            *place = free.next();
        }
    }
    let places: Vec<usize> = places.into_iter().flatten().collect();
    // The domains of a pool that goes are asked for no more.
    let mut pools: Vec<_> = old
        .into_iter()
        .map(|old| Some(PoolSettings { pool: old.pool.with_services(Arc::default()), ..old }))
        .collect();
    let length = places.iter().map(|place| place + 1).max().unwrap_or_default();
    pools.resize_with(pools.len().max(length), || None);
    for (settings, &place) in new.into_iter().zip(&places) {
        let before = pools[place].take().filter(|old| old.pool.name() == settings.pool.name());
        let backends = before.iter().flat_map(|old| old.pool.backends());
        let backends: Vec<_> = backends.cloned().collect();
        let is_held = |backend: usize| is_held((place as u16, backend as u16));
        let backup = settings.backup.map(|pool| places[usize::from(pool)] as u16);
        pools[place] = Some(PoolSettings { backup, ..seat_backends(&backends, settings, is_held) });
    }
    // Every place up to the last has one: those that went, and those that came.
    let pools = pools.into_iter().flatten().collect();
    Seated { pools, places: places.into_iter().map(|place| place as u16).collect() }
}

fn seat_backends(
    old: &[Arc<Backend>],
    settings: PoolSettings,
    is_held: impl Fn(usize) -> bool,
) -> PoolSettings {
    let new = settings.pool.backends();
    let named = places_by(new.iter().map(|backend| identity(backend)));
    let mut seats: Vec<Option<usize>> =
        old.iter().map(|backend| named.get(&identity(backend)).copied()).collect();
    let stays: HashSet<_> = seats.iter().flatten().copied().collect();
    let mut newcomers = (0..new.len()).filter(|i| !stays.contains(i));
    for (i, seat) in seats.iter_mut().enumerate() {
        if seat.is_none() && !is_held(i) {
            *seat = newcomers.next();
        }
    }
    seats.extend(newcomers.map(Some));
    while seats.last().is_some_and(|last| last.is_none() && !is_held(seats.len() - 1)) {
        seats.pop();
    }
    let backends: Vec<_> = (seats.iter().enumerate())
        .map(|(i, seat)| Arc::clone(seat.map_or_else(|| &old[i], |new_place| &new[new_place])))
        .collect();
    let choice = match settings.choice {
        Choice::All(qs) => {
            Choice::All(seats.iter().map(|seat| seat.map_or(0, |i| qs[i])).collect())
        }
        one => one,
    };
    let mut networks = settings.sources;
    networks.resize_with(new.len(), Vec::new);
    let sources = seats.iter().map(|seat| seat.map_or_else(Vec::new, |i| networks[i].clone()));
    let sources = sources.collect();
    let services = Arc::clone(settings.pool.services());
    let pool = Pool::of(settings.pool.name(), backends).with_services(services);
    PoolSettings { pool, choice, sources, ..settings }
}

/// Returns the place of each of these; of equal ones, that of the first.
fn places_by<K: Eq + Hash>(keys: impl Iterator<Item = K>) -> HashMap<K, usize> {
    let mut places = HashMap::with_capacity(keys.size_hint().0);
    for (place, key) in keys.enumerate() {
        places.entry(key).or_insert(place);
    }
    places
}

/// Returns what a back end of a pool is known by: another name or another site makes it another.
fn identity(backend: &Backend) -> (&str, Site) {
    (backend.name(), backend.location().site())
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use tidegate_balance::Policy;

    use super::*;

    fn pool(name: &str, backends: &[&str]) -> PoolSettings {
        let port = |name: &str| u16::from(name.as_bytes()[0]);
        let address = |name| ([127, 0, 0, 1], port(name)).into();
        let backends: Vec<_> = backends.iter().map(|&b| (b, address(b), 1)).collect();
        PoolSettings::new(Pool::new(name, &backends), Policy::Rr)
    }

    fn names(settings: &PoolSettings) -> Vec<&str> {
        settings.pool.backends().iter().map(|backend| backend.name()).collect()
    }

    fn reseated(old: &[&str], new: &[&str], held: &[usize]) -> Vec<String> {
        let old = pool("app", old);
        let seated =
            seat_backends(old.pool.backends(), pool("app", new), |seat| held.contains(&seat));
        names(&seated).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn who_stays_keeps_its_seat_and_a_seat_is_given_on_when_nothing_refers_to_it() {
        assert_eq!(reseated(&["a", "b", "c"], &["c", "a"], &[1]), ["a", "b", "c"]);
        assert_eq!(reseated(&["a", "b", "c"], &["c", "a"], &[]), ["a", "b", "c"]);
        assert_eq!(reseated(&["a", "b", "c"], &["a"], &[]), ["a"]);
        assert_eq!(reseated(&["a", "b", "c"], &["a"], &[2]), ["a", "b", "c"]);
        assert_eq!(reseated(&["a", "b"], &["x", "b", "y"], &[]), ["x", "b", "y"]);
        assert_eq!(reseated(&["a", "b"], &["x", "b", "y"], &[0]), ["a", "b", "x", "y"]);
        assert_eq!(reseated(&[], &["x"], &[]), ["x"]);
        // The one that was removed and the one that came back are the same to a seat.
        assert_eq!(reseated(&["a", "a"], &["a", "b"], &[0]), ["a", "a", "b"]);
        assert_eq!(reseated(&["a"], &["a", "a"], &[]), ["a", "a"]);
    }

    #[test]
    fn there_are_so_many_seats() {
        let full = |backends: usize| {
            let backend = Arc::clone(&pool("app", &["a"]).pool.backends()[0]);
            let pool = Pool::of("app", vec![backend; backends]);
            vec![PoolSettings::new(pool, Policy::Rr)]
        };
        let other = || vec![pool("other", &["a"])];
        assert!(have_seats(&full(SEATS_MAX - 1), &full(1)));
        assert!(!have_seats(&full(SEATS_MAX), &full(1)) && have_seats(&full(SEATS_MAX), &other()));
        assert!(have_seats(&vec![other().remove(0); SEATS_MAX - 1], &full(1)));
        assert!(!have_seats(&vec![other().remove(0); SEATS_MAX], &full(1)));
    }

    #[test]
    fn a_fork_keeps_the_q_of_each_and_the_networks_it_sends_from() {
        let old = pool("app", &["a", "b"]);
        let choice = Choice::All(vec![300, 700]);
        let net: IpNet = "192.0.2.0/24".parse().unwrap();
        let new = PoolSettings { choice, sources: vec![vec![net]], ..pool("app", &["c", "b"]) };
        let seated = seat_backends(old.pool.backends(), new, |seat| seat == 0);
        assert_eq!(names(&seated), ["a", "b", "c"]);
        assert_eq!(seated.choice, Choice::All(vec![0, 700, 300]));
        assert_eq!(seated.sources, [vec![], vec![], vec![net]]);
    }

    #[test]
    fn pools_have_seats_too_and_are_referred_to_by_them() {
        let old = || ["p", "q", "r"].map(|name| pool(name, &["a"])).to_vec();
        let new = || {
            let r = PoolSettings { backup: Some(1), ..pool("r", &["b", "a"]) };
            vec![r, pool("s", &["c"]), pool("t", &["d"])]
        };
        let places = |held: &'static [(u16, u16)]| {
            let Seated { pools, places } = seat_pools(old(), new(), |seat| held.contains(&seat));
            assert_eq!(pools[2].backup, Some(places[1]));
            let names: Vec<_> = pools.iter().map(|p| p.pool.name().to_owned()).collect();
            (names, places)
        };
        let owned = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        assert_eq!(places(&[]), (owned(&["s", "t", "r"]), vec![2, 0, 1]));
        assert_eq!(places(&[(0, ANY), (0, 0)]), (owned(&["p", "s", "r", "t"]), vec![2, 1, 3]));
    }
}
