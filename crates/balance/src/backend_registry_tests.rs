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
    let two = || PoolSpec { slow_start: Duration::ZERO, ..pool_spec("register", &[("a", 1, 9)]) };
    let registry = BackendRegistry::new(&[one(), two()]);
    let pools = registry.pools();
    let a = Arc::clone(&pools[0].backends()[0]);
    assert!(Arc::ptr_eq(&a, &pools[1].backends()[0]));
    assert_eq!(a.weight(), 3, "that of the first pool");
    let held = CallLease::new(&a);
    registry.assign(NOW, 1, "a", AdminState::Draining);
    assert!(are_same(&registry.enlist(NOW, 2, &[one(), two()]), &pools));
    assert_eq!(a.admin_state(), AdminState::Draining);
    // `a` leaves one pool, and stays the same back end in the other one.
    let after = registry.enlist(NOW, 3, &[two()]);
    assert!(Arc::ptr_eq(&a, &after[0].backends()[0]));
    assert_eq!((a.admin_state(), a.calls(), a.weight()), (AdminState::Draining, 1, 9));
    assert_eq!(names(&registry.pools()), [["a"]]);
    // `a` joins a pool that comes first in the configuration, and then moves to another pool.
    let further =
        [vec![one(), two()], vec![one()], vec![two()], vec![pool_spec("new", &[("a", 1, 2)])]];
    for (order, pool_specs) in (4..).zip(further) {
        let pools = registry.enlist(NOW, order, &pool_specs);
        assert!(pools.iter().all(|pool| Arc::ptr_eq(&a, &pool.backends()[0])));
        assert_eq!((a.admin_state(), a.calls()), (AdminState::Draining, 1));
    }
    drop(held);
    assert_eq!(a.calls(), 0);
}

/// The DNS does not list a server while the server restarts.
#[test]
fn a_back_end_that_is_gone_and_comes_back_is_as_the_operator_left_it() {
    for admin_state in [AdminState::Draining, AdminState::Maintenance] {
        let both = [pool_spec("app", &[("a", 1, 1), ("b", 2, 1)])];
        let only_b = [pool_spec("app", &[("b", 2, 1)])];
        let registry = BackendRegistry::new(&both);
        let a = registry.find("a").unwrap();
        let held = CallLease::new(&a);
        registry.assign(NOW, 1, "a", admin_state);
        registry.enlist(NOW, 2, &only_b);
        assert_eq!(a.admin_state(), AdminState::Removed);
        registry.enlist(NOW, 3, &both);
        assert_eq!(a.admin_state(), admin_state);
        // Without a call at `a`, its object is dropped, and the registry creates another one.
        drop((held, a));
        registry.enlist(NOW, 4, &only_b);
        registry.enlist(NOW, 5, &both);
        let a = registry.find("a").unwrap();
        assert_eq!(a.admin_state(), admin_state);
        // A server with the same name and another address is in service. The first server is in
        // service again after an operator has enabled it.
        registry.enlist(NOW, 6, &[pool_spec("app", &[("a", 7, 1)])]);
        assert_eq!(registry.find("a").unwrap().admin_state(), AdminState::InService);
        registry.enlist(NOW, 7, &both);
        registry.assign(NOW, 8, "a", AdminState::InService);
        registry.enlist(NOW, 9, &only_b);
        registry.enlist(NOW, 10, &both);
        assert_eq!(registry.find("a").unwrap().admin_state(), AdminState::InService);
    }
}

#[test]
fn the_number_of_remembered_states_is_limited() {
    let backend = |number: u32| {
        let mut pool = pool_spec("app", &[("a", 1, 1), ("kept", 2, 1)]);
        pool.backends[0].name = number.to_string();
        [pool]
    };
    let registry = BackendRegistry::new(&backend(0));
    registry.assign(NOW, 1, "kept", AdminState::Draining);
    let last = ASSIGNED_MAX as u32;
    for number in 0..=last {
        let order = u64::from(number) * 2 + 2;
        registry.enlist(NOW, order, &backend(number));
        registry.assign(NOW, order + 1, &number.to_string(), AdminState::Maintenance);
    }
    assert!(registry.lock().assigned.len() <= ASSIGNED_MAX);
    let order = u64::from(last) * 2 + 4;
    registry.enlist(NOW, order, &backend(0));
    let states = |name| registry.find(name).unwrap().admin_state();
    assert_eq!((states("0"), states("kept")), (AdminState::InService, AdminState::Draining));
    registry.enlist(NOW, order + 1, &backend(last));
    assert_eq!(states(&last.to_string()), AdminState::Maintenance);
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
fn a_back_end_whose_name_has_no_address_is_down_since_it_was_added() {
    let registry = BackendRegistry::new(&[pool_spec("app", &[("a", 1, 1)])]);
    let mut both = [pool_spec("app", &[("a", 1, 1), ("b", 2, 1)])];
    both[0].backends[1].endpoint_address = EndpointAddress::Name("b.example".into(), 5060);
    registry.enlist(NOW, 1, &both);
    let later = NOW + Duration::from_secs(1);
    assert_eq!(registry.find("b").unwrap().state(later), (State::Down, NOW));
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
            "the same command has the same result"
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
    assert_eq!(Arc::strong_count(&gone), 3, "`gone`, `past` and the lease have it");
    drop((held, past, gone));
    let past = registry.enlist(NOW, 1, &first);
    assert_eq!(past[0].backends()[1].admin_state(), AdminState::Removed);
}
