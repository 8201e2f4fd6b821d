//! Tests for assignments to back ends with limits.

use std::time::Duration;

use tidegate_world::{Purpose, Seed, Timestamp};

use super::*;
use crate::{AdminState, Learning, NoBackend, Picker, Policy, Pool, RateLearning};

fn learning() -> Learning {
    Learning { rate: Some(RateLearning::default()), window: None }
}

const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

fn pool(limits: &[Limits]) -> Pool {
    let names: Vec<_> = (0..limits.len()).map(|i| format!("b{i}")).collect();
    let at = |i: usize| ([127, 0, 0, 1], 5070 + i as u16).into();
    let backends: Vec<_> = (0..limits.len()).map(|i| (names[i].as_str(), at(i), 1)).collect();
    let pool = Pool::new("app", &backends);
    for (backend, limits) in pool.backends().iter().zip(limits) {
        backend.set_limits(limits);
    }
    pool
}

fn picker(pool: &Pool, policy: Policy) -> Picker {
    Picker::new(pool.clone(), policy, Seed(1).stream(Purpose::Balance, 0))
}

fn calls(calls_max: u64) -> Limits {
    Limits { calls_max: Some(calls_max), ..Limits::default() }
}

fn rate(cps_max: f64) -> Limits {
    Limits { cps_max: Some(cps_max), ..Limits::default() }
}

/// Assigns requests until no back end has headroom. Returns the number of requests that each back
/// end got, and the leases of the calls.
fn fill(picker: &mut Picker, now: Timestamp, demand: Demand) -> (Vec<u64>, Vec<CallLease>) {
    let (mut given, mut held) = (vec![0; picker.pool().backends().len()], Vec::new());
    for call in 0..10_000_u64 {
        let key = call.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match picker.assign(now, key, demand, |_, _| true) {
            Ok(assigned) => {
                given[assigned.index] += 1;
                held.extend(assigned.lease);
            }
            Err(why) => {
                assert_eq!(why, NoBackend::Full);
                return (given, held);
            }
        }
    }
    panic!("the back ends never become full");
}

/// A back end for less than ten calls has no reserve. Otherwise the reserve of a back end for one
/// call would be its only call.
#[test]
fn the_last_calls_are_a_reserve() {
    for (calls_max, spare) in [(1, 1), (9, 9), (10, 9), (49, 48), (100, 98)] {
        let pool = Pool::new("app", &[("a", "192.0.2.1:5060".parse().unwrap(), 1)]);
        let backend = &pool.backends()[0];
        backend.set_limits(&Limits { calls_max: Some(calls_max), ..Limits::default() });
        let mut held = Vec::new();
        while backend.has_spare_headroom(NOW) {
            held.push(backend.try_acquire(NOW, Demand::Call).unwrap());
        }
        assert_eq!(held.len(), spare, "of {calls_max}");
        assert!(calls_max < 10 || backend.has_headroom(NOW, Demand::Call));
    }
}

#[test]
fn every_policy_fills_each_back_end_exactly_to_its_limit() {
    for policy in Policy::ALL {
        let pool = pool(&[calls(5), calls(40), calls(1)]);
        let mut picker = picker(&pool, policy);
        let (given, mut held) = fill(&mut picker, NOW, Demand::Call);
        assert_eq!(given, [5, 40, 1], "{policy:?}");
        assert_eq!(pool.free_calls(NOW), Some(0));
        assert_eq!(pool.backends()[0].assigned(), 5);
        held.truncate(45);
        assert_eq!(pool.free_calls(NOW), Some(1));
        assert!(picker.assign(NOW, 1, Demand::Call, |_, _| true).is_ok());
    }
}

#[test]
fn a_reserve_is_kept_for_priority_calls() {
    let pool = pool(&[calls(100), calls(3)]);
    let mut picker = picker(&pool, Policy::Rr);
    let (_, _ordinary) = fill(&mut picker, NOW, Demand::Call);
    assert!(!pool.has_headroom(NOW, Demand::Call) && pool.has_headroom(NOW, Demand::Priority));
    let (given, _urgent) = fill(&mut picker, NOW, Demand::Priority);
    assert_eq!(given, [5, 1]);
    assert!(!pool.has_headroom(NOW, Demand::Priority));
    assert!(pool.has_headroom(NOW, Demand::Single), "it holds no call");
}

#[test]
fn a_rate_counts_single_requests_too() {
    let pool = pool(&[rate(50.0), rate(20.0)]);
    let mut picker = picker(&pool, Policy::Rr);
    assert_eq!(fill(&mut picker, NOW, Demand::Single).0, [5, 2]);
    assert_eq!(fill(&mut picker, NOW, Demand::Call).0, [0, 0]);
    let later = NOW + Duration::from_millis(20);
    assert_eq!(fill(&mut picker, later, Demand::Call).0, [1, 0]);
    assert_eq!(fill(&mut picker, later, Demand::Priority).0, [50, 20]);
}

#[test]
fn calls_rejected_by_the_rate_hold_no_lease() {
    let both = Limits { cps_max: Some(10.0), ..calls(100) };
    let pool = pool(&[both]);
    let (given, held) = fill(&mut picker(&pool, Policy::Tlwl), NOW, Demand::Call);
    assert_eq!((given, held.len(), pool.backends()[0].calls()), (vec![2], 2, 2));
}

#[test]
fn a_request_that_is_not_admitted_takes_nothing_and_is_not_counted() {
    let both = Limits { cps_max: Some(10.0), ..calls(100) };
    let pool = pool(&[both]);
    let backend = &pool.backends()[0];
    let mut picker = picker(&pool, Policy::Rr);
    let held_back = || Err::<(), Option<NoBackend>>(None);
    for demand in [None, Some(Demand::Call), Some(Demand::Single)] {
        for _ in 0..10 {
            let held_back = picker.assign_admitted(NOW, 0, demand, |_, _| true, |_| held_back());
            assert_eq!(held_back.unwrap_err(), None, "{demand:?}");
        }
    }
    let held_back = picker.assign_to(NOW, 0, Demand::Call, held_back);
    assert_eq!(held_back.unwrap_err(), None);
    assert_eq!((backend.assigned(), backend.calls()), (0, 0));
    let (given, held) = fill(&mut picker, NOW, Demand::Call);
    assert_eq!((given, held.len(), backend.assigned()), (vec![2], 2, 2));
    // `admit` is not called for a back end without headroom.
    let full = picker.assign_to(NOW, 0, Demand::Call, || -> Result<(), Option<NoBackend>> {
        panic!("the rate is used up")
    });
    assert_eq!(full.unwrap_err(), Some(NoBackend::Full));
}

#[test]
fn down_back_ends_add_no_headroom_and_unlimited_ones_take_the_rest() {
    let pool = pool(&[calls(5), Limits::default()]);
    let mut picker = picker(&pool, Policy::Cjsq);
    assert_eq!(pool.free_calls(NOW), None);
    let held: Vec<_> =
        (0..100).map(|_| picker.assign(NOW, 0, Demand::Call, |_, _| true).unwrap().lease).collect();
    assert_eq!([0, 1].map(|i| pool.backends()[i].calls()), [5, 95]);
    drop(held);
    pool.backends()[1].on_failed(NOW, Duration::from_secs(5));
    assert_eq!(pool.free_calls(NOW), None);
    let (given, _held) = fill(&mut picker, NOW, Demand::Call);
    assert_eq!(given, [5, 0]);
    pool.backends()[0].on_failed(NOW, Duration::from_secs(5));
    let nobody = picker.assign(NOW, 0, Demand::Call, |_, _| true);
    assert_eq!(nobody.unwrap_err(), NoBackend::Down);
    pool.backends()[1].set_limits(&calls(7));
    pool.backends()[1].on_answered(NOW);
    assert_eq!(pool.free_calls(NOW), Some(7));
}

#[test]
fn the_next_group_gets_calls_for_which_the_first_has_no_headroom() {
    let pool = pool(&[calls(2), calls(2), calls(3)]);
    pool.backends()[2].set_priority(1);
    let mut picker = picker(&pool, Policy::Rr);
    let mut held = Vec::new();
    let mut assign = || {
        let assigned = picker.assign(NOW, 0, Demand::Call, |_, _| true).unwrap();
        held.push(assigned.lease);
        assigned.index
    };
    let order: Vec<_> = (0..7).map(|_| assign()).collect();
    assert_eq!(order, [0, 1, 0, 1, 2, 2, 2]);
}

#[test]
fn limits_change_while_calls_are_held() {
    let pool = pool(&[calls(10)]);
    let backend = &pool.backends()[0];
    let mut picker = picker(&pool, Policy::Rr);
    let (_, mut held) = fill(&mut picker, NOW, Demand::Call);
    backend.set_limits(&calls(4));
    assert_eq!((backend.free_calls(Demand::Call), backend.calls()), (Some(0), 10));
    held.truncate(3);
    assert_eq!(fill(&mut picker, NOW, Demand::Call).0, [1]);
    backend.set_limits(&Limits::default());
    assert_eq!((backend.calls_max(), backend.rate_max_cps()), (None, None));
    assert!(backend.has_headroom(NOW, Demand::Call));
}

#[test]
fn learned_limits_survive_a_reload_and_not_maintenance() {
    let limits = Limits { learning: learning(), ..rate(300.0) };
    let pool = pool(&[limits]);
    let backend = &pool.backends()[0];
    let mut picker = picker(&pool, Policy::Rr);
    assert!(backend.learns() && backend.learned_cps().is_none());
    assert_eq!(backend.rate_max_cps(), Some(300.0));
    for ms in (0..1000).step_by(10) {
        let now = NOW + Duration::from_millis(ms);
        let _ = picker.assign(now, 0, Demand::Single, |_, _| true);
        backend.on_not_taken(now, true);
    }
    let learned = backend.learned_cps().unwrap();
    assert!(learned < 100.0, "{learned}");
    assert_eq!((backend.cps_max(), backend.rate_max_cps()), (Some(300.0), Some(learned)));
    backend.set_limits(&Limits { cps_max: Some(200.0), ..limits });
    assert_eq!(backend.rate_max_cps(), Some(learned));
    backend.set_admin_state(NOW, AdminState::Draining);
    backend.set_admin_state(NOW, AdminState::InService);
    assert_eq!(backend.rate_max_cps(), Some(learned));
    backend.set_admin_state(NOW, AdminState::Maintenance);
    backend.set_admin_state(NOW, AdminState::InService);
    assert_eq!(backend.rate_max_cps(), Some(200.0));
    backend.set_limits(&Limits::default());
    assert!(!backend.learns() && backend.rate_max_cps().is_none() && backend.cps_max().is_none());
}

/// Requests arrive at random intervals, so some find no headroom even if they arrive at the learned
/// rate on average. These requests count as demand. Otherwise a rate that was learned too low would
/// never rise.
#[test]
fn a_low_rate_rises_while_more_is_wanted() {
    let limits = Limits { learning: learning(), ..Limits::default() };
    let pool = pool(&[limits]);
    let backend = &pool.backends()[0];
    let mut picker = picker(&pool, Policy::Rr);
    let mut draws = Seed(2).stream(Purpose::Arrivals, 0);
    let (mut now, mut rejected, mut minute) = (NOW, [0; 3], [0; 3]);
    while now < NOW + Duration::from_secs(180) {
        now = now + Duration::from_secs_f64(-(1.0 - draws.unit()).ln() / 10.0);
        let at = (now.since(NOW).as_secs() / 60).min(2) as usize;
        minute[at] += 1;
        match picker.assign(now, 0, Demand::Single, |_, _| true) {
            // Requests of the first seconds are rejected.
            Ok(_) if now < NOW + Duration::from_secs(3) => backend.on_not_taken(now, true),
            Ok(_) => {}
            Err(_) => rejected[at] += 1,
        }
    }
    assert!(rejected[0] > 10, "it was learned: {rejected:?} of {minute:?}");
    assert!(rejected[2] * 100 <= minute[2], "{rejected:?} of {minute:?}");
}

#[test]
fn shards_together_take_no_more_than_there_is() {
    let pool = pool(&[calls(1000), calls(500), calls(250)]);
    let shard = |number: u32| {
        let mut picker =
            Picker::new(pool.clone(), Policy::Tjsq, Seed(1).stream(Purpose::Balance, number));
        fill(&mut picker, NOW, Demand::Call).1
    };
    let held: Vec<_> = std::thread::scope(|scope| {
        let shards: Vec<_> = (0..4).map(|number| scope.spawn(move || shard(number))).collect();
        shards.into_iter().flat_map(|shard| shard.join().unwrap()).collect()
    });
    assert_eq!(held.len(), 1750);
    assert_eq!([0, 1, 2].map(|i| pool.backends()[i].calls()), [1000, 500, 250]);
}

#[test]
fn back_ends_with_other_limits_learn_nothing() {
    assert!(!pool(&[calls(5)]).backends()[0].learns());
}

/// An unused rate does not grow. Otherwise it would be too high to be of use when it is needed.
#[test]
fn a_hardly_used_rate_does_not_change() {
    let limits = Limits { learning: learning(), ..Limits::default() };
    let pool = pool(&[limits]);
    let backend = &pool.backends()[0];
    let mut picker = picker(&pool, Policy::Rr);
    let mut give = |ms| {
        let now = NOW + Duration::from_millis(ms);
        assert!(picker.assign(now, 0, Demand::Single, |_, _| true).is_ok());
        now
    };
    for ms in (0..=200).step_by(10) {
        backend.on_not_taken(give(ms), true);
    }
    assert_eq!(backend.learned_cps(), Some(52.5), "half of the 21 given");
    for ms in (300..10_000).step_by(100) {
        give(ms);
    }
    assert_eq!(backend.learned_cps(), Some(52.5));
}
