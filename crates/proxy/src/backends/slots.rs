//! Slots: the indices by which calls and transactions refer to pools, and to the back ends of a
//! pool.
//!
//! A pool or back end that stays in the configuration keeps its slot. After a pool or back end is
//! removed, its slot is kept as long as a call or transaction refers to the slot, and is then
//! reused. A removed back end gets no new calls, because its [`AdminState`] is `Removed`. If a back
//! end leaves one pool but stays in another, its old slot gets a [copy](Backend::removed_copy) of
//! the back end, whose state is `Removed`.

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use tidegate_balance::{AdminState, Backend, EndpointAddress, Pool};

use crate::settings::{Choice, PoolSettings};

/// Index that refers to a pool as a whole, in place of the index of a back end.
pub(crate) const ANY: u16 = u16::MAX;

/// Maximum number of slots for pools, and of slots for the back ends of one pool. Slots of removed
/// pools and back ends count too, as long as a call or transaction refers to them.
const SLOTS_MAX: usize = ANY as usize;

/// Returns whether there are enough slots for all old and new pools and back ends, even if no old
/// slot becomes free. `new` contains the name and the number of back ends of each new pool.
pub(crate) fn have_slots<'a>(
    old: &[PoolSettings],
    new: impl ExactSizeIterator<Item = (&'a str, usize)>,
) -> bool {
    let named = places_by(old.iter().map(|settings| settings.pool.name()));
    let before = |name| named.get(name).map_or(0, |&at: &usize| old[at].pool.backends().len());
    old.len() + new.len() <= SLOTS_MAX
        && new.map(|(name, backends)| before(name) + backends).all(|slots| slots <= SLOTS_MAX)
}

/// A list of pools in which the index of each pool is its slot.
pub(crate) struct SlottedPools {
    pub(crate) pools: Vec<PoolSettings>,
    /// The slot of each new pool, in the order in which the new pools were given.
    pub(crate) places: Vec<u16>,
}

/// Assigns slots to the new pools. The old pools are at the indices of their slots. `is_held`
/// returns true if a call or transaction refers to a slot. Its argument is the slot of a pool, with
/// the slot of a back end in this pool, or with [`ANY`] for the pool itself.
pub(crate) fn assign_pool_slots(
    old: Vec<PoolSettings>,
    new: Vec<PoolSettings>,
    is_held: impl Fn((u16, u16)) -> bool,
) -> SlottedPools {
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
    let mut pools: Vec<_> = old.into_iter().map(Some).collect();
    let length = places.iter().map(|place| place + 1).max().unwrap_or_default();
    pools.resize_with(pools.len().max(length), || None);
    for (settings, &place) in new.into_iter().zip(&places) {
        let before = pools[place].take().filter(|old| old.pool.name() == settings.pool.name());
        let backends = before.iter().flat_map(|old| old.pool.backends());
        let backends: Vec<_> = backends.cloned().collect();
        let is_held = |backend: usize| is_held((place as u16, backend as u16));
        let backup = settings.backup.map(|pool| places[usize::from(pool)] as u16);
        pools[place] =
            Some(PoolSettings { backup, ..assign_backend_slots(&backends, settings, is_held) });
    }
    // Removed and new pools together fill every slot up to the last one.
    let configured: HashSet<usize> = places.iter().copied().collect();
    let pools = (pools.into_iter().flatten().enumerate())
        .map(|(place, pool)| if configured.contains(&place) { pool } else { removed_pool(pool) })
        .collect();
    SlottedPools { pools, places: places.into_iter().map(|place| place as u16).collect() }
}

fn assign_backend_slots(
    old: &[Arc<Backend>],
    settings: PoolSettings,
    is_held: impl Fn(usize) -> bool,
) -> PoolSettings {
    let new = settings.pool.backends();
    let named = places_by(new.iter().map(|backend| identity(backend)));
    let mut slots: Vec<Option<usize>> =
        old.iter().map(|backend| named.get(&identity(backend)).copied()).collect();
    let stays: HashSet<_> = slots.iter().flatten().copied().collect();
    let mut newcomers = (0..new.len()).filter(|i| !stays.contains(i));
    for (i, slot) in slots.iter_mut().enumerate() {
        if slot.is_none() && !is_held(i) {
            *slot = newcomers.next();
        }
    }
    slots.extend(newcomers.map(Some));
    while slots.last().is_some_and(|last| last.is_none() && !is_held(slots.len() - 1)) {
        slots.pop();
    }
    let backends: Vec<_> = (slots.iter().enumerate())
        .map(|(i, slot)| slot.map_or_else(|| removed(&old[i]), |place| Arc::clone(&new[place])))
        .collect();
    let choice = match settings.choice {
        Choice::All(qs) => {
            Choice::All(slots.iter().map(|slot| slot.map_or(0, |i| qs[i])).collect())
        }
        one => one,
    };
    let mut networks = settings.sources;
    networks.resize_with(new.len(), Vec::new);
    let sources = slots.iter().map(|slot| slot.map_or_else(Vec::new, |i| networks[i].clone()));
    let sources = sources.collect();
    let services = Arc::clone(settings.pool.services());
    let pool = Pool::of(settings.pool.name(), backends).with_services(services);
    PoolSettings { pool, choice, sources, ..settings }
}

/// Returns a copy of a removed pool that keeps its slot. The domains of the copy are not resolved,
/// its networks have no rights, and it has no backup pool, because another pool may take the slot
/// of the backup.
fn removed_pool(settings: PoolSettings) -> PoolSettings {
    let backends = settings.pool.backends().iter().map(removed).collect();
    let pool = Pool::of(settings.pool.name(), backends);
    PoolSettings { pool, sources: Vec::new(), backup: None, ..settings }
}

/// Returns the back end that keeps the slot of a back end that was removed from the pool.
fn removed(backend: &Arc<Backend>) -> Arc<Backend> {
    match backend.admin_state() {
        AdminState::Removed => Arc::clone(backend),
        // The back end is still in service in another pool, so the slot gets a copy.
        _ => Arc::new(backend.removed_copy()),
    }
}

/// Returns a map from each key to its index among `keys`. If keys are equal, the index is that of
/// the first.
fn places_by<K: Eq + Hash>(keys: impl Iterator<Item = K>) -> HashMap<K, usize> {
    let mut places = HashMap::with_capacity(keys.size_hint().0);
    for (place, key) in keys.enumerate() {
        places.entry(key).or_insert(place);
    }
    places
}

/// Returns the identity of a back end within a pool. A back end with another name or address is a
/// different back end.
fn identity(backend: &Backend) -> (&str, EndpointAddress) {
    (backend.name(), backend.endpoint().endpoint_address())
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

    fn reassigned(old: &[&str], new: &[&str], held: &[usize]) -> Vec<String> {
        let old = pool("app", old);
        let slotted = assign_backend_slots(old.pool.backends(), pool("app", new), |slot| {
            held.contains(&slot)
        });
        names(&slotted).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn remaining_back_ends_keep_their_slots_and_unused_slots_are_reused() {
        assert_eq!(reassigned(&["a", "b", "c"], &["c", "a"], &[1]), ["a", "b", "c"]);
        assert_eq!(reassigned(&["a", "b", "c"], &["c", "a"], &[]), ["a", "b", "c"]);
        assert_eq!(reassigned(&["a", "b", "c"], &["a"], &[]), ["a"]);
        assert_eq!(reassigned(&["a", "b", "c"], &["a"], &[2]), ["a", "b", "c"]);
        assert_eq!(reassigned(&["a", "b"], &["x", "b", "y"], &[]), ["x", "b", "y"]);
        assert_eq!(reassigned(&["a", "b"], &["x", "b", "y"], &[0]), ["a", "b", "x", "y"]);
        assert_eq!(reassigned(&[], &["x"], &[]), ["x"]);
        // If a back end was removed and added again, it has two slots, and stays in both.
        assert_eq!(reassigned(&["a", "a"], &["a", "b"], &[0]), ["a", "a", "b"]);
        assert_eq!(reassigned(&["a"], &["a", "a"], &[]), ["a", "a"]);
    }

    #[test]
    fn the_number_of_slots_is_limited() {
        let full = |backends: usize| {
            let backend = Arc::clone(&pool("app", &["a"]).pool.backends()[0]);
            let pool = Pool::of("app", vec![backend; backends]);
            vec![PoolSettings::new(pool, Policy::Rr)]
        };
        let other = || vec![pool("other", &["a"])];
        let have_slots = |old: &[PoolSettings], new: &[PoolSettings]| {
            super::have_slots(old, new.iter().map(|s| (s.pool.name(), s.pool.backends().len())))
        };
        assert!(have_slots(&full(SLOTS_MAX - 1), &full(1)));
        assert!(!have_slots(&full(SLOTS_MAX), &full(1)) && have_slots(&full(SLOTS_MAX), &other()));
        assert!(have_slots(&vec![other().remove(0); SLOTS_MAX - 1], &full(1)));
        assert!(!have_slots(&vec![other().remove(0); SLOTS_MAX], &full(1)));
    }

    #[test]
    fn a_fork_keeps_the_q_of_each_and_the_networks_it_sends_from() {
        let old = pool("app", &["a", "b"]);
        let choice = Choice::All(vec![300, 700]);
        let net: IpNet = "192.0.2.0/24".parse().unwrap();
        let new = PoolSettings { choice, sources: vec![vec![net]], ..pool("app", &["c", "b"]) };
        let slotted = assign_backend_slots(old.pool.backends(), new, |slot| slot == 0);
        assert_eq!(names(&slotted), ["a", "b", "c"]);
        assert_eq!(slotted.choice, Choice::All(vec![0, 700, 300]));
        assert_eq!(slotted.sources, [vec![], vec![], vec![net]]);
    }

    #[test]
    fn pools_have_slots_too_and_are_referred_to_by_them() {
        let old = || ["p", "q", "r"].map(|name| pool(name, &["a"])).to_vec();
        let new = || {
            let r = PoolSettings { backup: Some(1), ..pool("r", &["b", "a"]) };
            vec![r, pool("s", &["c"]), pool("t", &["d"])]
        };
        let places = |held: &'static [(u16, u16)]| {
            let SlottedPools { pools, places } =
                assign_pool_slots(old(), new(), |slot| held.contains(&slot));
            assert_eq!(pools[2].backup, Some(places[1]));
            let names: Vec<_> = pools.iter().map(|p| p.pool.name().to_owned()).collect();
            (names, places)
        };
        let owned = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        assert_eq!(places(&[]), (owned(&["s", "t", "r"]), vec![2, 0, 1]));
        assert_eq!(places(&[(0, ANY), (0, 0)]), (owned(&["p", "s", "r", "t"]), vec![2, 1, 3]));
    }

    /// A backup is stored as the slot of a pool, and this slot may now belong to another pool.
    #[test]
    fn a_removed_pool_has_neither_a_backup_nor_networks() {
        let net: IpNet = "192.0.2.0/24".parse().unwrap();
        let with =
            |name, backup| PoolSettings { backup, sources: vec![vec![net]], ..pool(name, &["a"]) };
        let old = vec![with("p", Some(1)), with("q", None)];
        let held = |slot| [(0, ANY), (0, 0)].contains(&slot);
        let SlottedPools { pools, .. } = assign_pool_slots(old, vec![with("s", None)], held);
        let names: Vec<_> = pools.iter().map(|pool| pool.pool.name()).collect();
        assert_eq!(names, ["p", "s"]);
        assert_eq!(pools[0].backup, None);
        assert!(pools[0].sources.is_empty());
        assert_eq!(pools[1].sources, [vec![net]]);
    }
}
