//! Tests of the selection of the excluded back ends that are spared.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{AdminState, Endpoint, Named, Pool, State, UNTIL_PROBED};

const SHARE: f64 = 0.5;
const PAUSE: Duration = Duration::from_secs(5);

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(1000 + ms)
}

fn pool(count: usize) -> Pool {
    let backends = [("a", 1), ("b", 2), ("c", 3), ("d", 4)];
    let backends = backends.map(|(name, port)| (name, ([127, 0, 0, 1], port).into(), 1));
    Pool::new("app", &backends[..count])
}

/// Excludes the back ends at the indices `which` because of failed requests. Excludes the first at
/// `at_ms`, and each further one 1 ms later.
fn exclude(pool: &Pool, at_ms: u64, which: &[usize], pause: Duration) {
    for (i, ms) in which.iter().zip(at_ms..) {
        let backend = &pool.backends()[*i];
        backend.on_failed(at(ms), pause);
        backend.record_excluded(at(ms));
        spare(pool, at(ms), SHARE, true);
    }
}

/// Spares back ends of a pool that shares none with other pools. Returns whether an additional back
/// end is now spared.
fn spare(pool: &Pool, now: Timestamp, share_max: f64, may_spare: bool) -> bool {
    let spared = pool.spare(now, share_max, may_spare);
    let mut is_any_new = false;
    for (index, backend) in pool.backends().iter().enumerate() {
        is_any_new |= backend.set_spared(now, spared.contains(&index));
    }
    is_any_new
}

fn states(pool: &Pool, now: Timestamp) -> Vec<State> {
    pool.backends().iter().map(|backend| backend.state(now).0).collect()
}

#[test]
fn requests_exclude_no_more_than_a_share_and_the_oldest_exclusion_is_spared() {
    use State::{Down, Spared, Up};
    let pool = pool(4);
    exclude(&pool, 0, &[2, 0], PAUSE);
    assert_eq!(states(&pool, at(2)), [Down, Up, Down, Up]);
    exclude(&pool, 2, &[1], PAUSE);
    assert_eq!(states(&pool, at(3)), [Down, Down, Spared, Up]);
    exclude(&pool, 3, &[3], PAUSE);
    assert_eq!(states(&pool, at(4)), [Spared, Down, Spared, Down]);
    assert!(pool.backends()[0].is_up(at(4)) && pool.backends()[0].is_alive(at(4)));
    // A back end that fails again is the last one to be spared.
    exclude(&pool, 4, &[2], PAUSE);
    assert_eq!(states(&pool, at(5)), [Spared, Spared, Down, Down]);
    assert_eq!(states(&pool, at(6000)), [Up; 4], "a pause is over");
    assert!(!spare(&pool, at(6000), SHARE, true));
    assert!(pool.backends().iter().all(|backend| !backend.is_spared()));
}

/// In binary, .29 times 100 is a little less than 29.
#[test]
fn the_share_that_requests_may_exclude_is_exact() {
    for percent in 1..100 {
        let backend = |port: u16| ("a", ([127, 0, 0, 1], port).into(), 1);
        let pool = Pool::new("app", &(1..=100).map(backend).collect::<Vec<_>>());
        pool.backends().iter().for_each(|backend| backend.on_failed(at(0), PAUSE));
        spare(&pool, at(1), f64::from(percent) / 100.0, true);
        let excluded = states(&pool, at(2)).iter().filter(|state| **state == State::Down).count();
        assert_eq!(excluded, percent as usize);
    }
}

#[test]
fn the_only_one_is_never_excluded_by_requests() {
    let pool = pool(1);
    exclude(&pool, 0, &[0], PAUSE);
    assert_eq!(states(&pool, at(1)), [State::Spared]);
    // The share that may be excluded makes no difference.
    spare(&pool, at(1), 1.0, true);
    assert_eq!(states(&pool, at(1)), [State::Spared]);
}

#[test]
fn probes_may_exclude_all_and_take_precedence_over_requests() {
    use State::{Down, Spared};
    let pool = pool(2);
    exclude(&pool, 0, &[0, 1], UNTIL_PROBED);
    assert_eq!(states(&pool, at(2)), [Spared, Down]);
    pool.backends()[0].on_probe_failed(at(3), 3, None);
    spare(&pool, at(3), SHARE, true);
    assert_eq!(
        states(&pool, at(3)),
        [Down, Spared],
        "only requests are evidence against the other one"
    );
    pool.backends()[1].on_probe_failed(at(4), 3, Some(503));
    assert!(!spare(&pool, at(4), SHARE, true));
    assert_eq!(states(&pool, at(4)), [Down, Down]);
    pool.backends()[1].on_probe_answered(at(5), 2);
    assert!(spare(&pool, at(5), SHARE, true));
    assert_eq!(states(&pool, at(5)), [Down, Spared], "it answers again");
}

#[test]
fn a_back_end_stays_spared_since_the_first_failure_of_an_exclusion() {
    let pool = pool(1);
    exclude(&pool, 0, &[0], PAUSE);
    exclude(&pool, 20, &[0], PAUSE);
    assert_eq!(pool.backends()[0].state(at(30)), (State::Spared, at(0)));
    // The pause is over, and the back end fails again.
    exclude(&pool, 6000, &[0], PAUSE);
    assert_eq!(pool.backends()[0].state(at(6010)), (State::Spared, at(6000)));
}

#[test]
fn a_back_end_is_suspect_since_the_first_request_without_a_response() {
    let pool = pool(1);
    let backend = &pool.backends()[0];
    assert_eq!(backend.on_silent(at(10), at(0)), 1);
    assert_eq!(backend.on_silent(at(20), at(5)), 2);
    assert_eq!(backend.state(at(30)), (State::Suspect, at(10)));
    backend.on_answered(at(40));
    assert_eq!(backend.state(at(40)), (State::Up, Timestamp::ZERO));
    assert_eq!(backend.on_silent(at(60), at(50)), 1);
    assert_eq!(backend.state(at(70)), (State::Suspect, at(60)));
}

#[test]
fn requests_without_a_response_until_the_end_of_maintenance_do_not_count() {
    let pool = pool(1);
    let backend = &pool.backends()[0];
    assert_eq!(backend.on_silent(at(10), at(0)), 1);
    backend.set_admin_state(at(20), AdminState::Maintenance);
    assert_eq!(backend.on_silent(at(40), at(30)), 0);
    backend.set_admin_state(at(50), AdminState::InService);
    assert_eq!(backend.on_silent(at(60), at(45)), 0, "sent before the end");
    assert_eq!(backend.state(at(60)).0, State::Up);
    assert_eq!(backend.on_silent(at(80), at(70)), 1);
    assert_eq!(backend.failures(), 4, "all of them are counted for operators");
}

#[test]
fn failures_at_an_earlier_address_do_not_count() {
    let named = Endpoint::Name(Named::new("a.example", 5070));
    let pool = Pool::located("app", [("a", named, 1)]);
    let backend = &pool.backends()[0];
    backend.move_to([192, 0, 2, 1].into());
    assert_eq!(backend.on_silent(at(10), at(0)), 1);
    backend.move_to([192, 0, 2, 2].into());
    assert_eq!(backend.state(at(20)).0, State::Up);
    assert_eq!(backend.on_silent(at(40), at(30)), 1);
    backend.on_failed(at(50), UNTIL_PROBED);
    backend.move_to([192, 0, 2, 2].into());
    assert_eq!(backend.state(at(60)).0, State::Down, "it is the same address");
    backend.move_to([192, 0, 2, 3].into());
    assert_eq!(backend.state(at(60)).0, State::Up);
}

#[test]
fn back_ends_out_of_service_are_neither_counted_nor_spared() {
    use State::{Draining, Spared};
    let pool = pool(2);
    pool.backends()[1].set_admin_state(at(0), AdminState::Draining);
    exclude(&pool, 0, &[1, 0], PAUSE);
    assert_eq!(states(&pool, at(2)), [Spared, Draining]);
    assert!(!pool.backends()[1].is_up(at(2)));
}

#[test]
fn no_back_end_is_readmitted_while_a_backup_pool_is_used() {
    let pool = pool(2);
    exclude(&pool, 0, &[0, 1], PAUSE);
    assert!(pool.can_be_up(at(2)), "one of them can be spared");
    spare(&pool, at(2), SHARE, false);
    assert_eq!(states(&pool, at(2)), [State::Down; 2]);
    pool.backends().iter().for_each(|backend| backend.on_probe_failed(at(3), 3, None));
    assert!(!pool.can_be_up(at(3)));
}

#[test]
fn calls_to_a_spared_back_end_are_counted() {
    use tidegate_world::{Purpose, Seed};
    let pool = pool(1);
    let draws = Seed(1).stream(Purpose::Balance, 0);
    let mut picker = crate::Picker::new(pool.clone(), crate::Policy::Rr, draws);
    let mut given = |ms| picker.pick(at(ms), 0, None).is_some();
    assert!(given(0));
    exclude(&pool, 1, &[0], PAUSE);
    assert!(given(2) && given(3));
    assert!(given(6000), "it is up");
    assert_eq!((pool.backends()[0].assigned(), pool.backends()[0].spared()), (4, 2));
}

/// Another thread reads the counts at any moment, for metrics.
#[test]
fn the_count_of_answered_probes_never_falls() {
    let pool = pool(1);
    let backend = &pool.backends()[0];
    backend.on_probe_answered(at(0), 1);
    let is_over = AtomicBool::new(false);
    let answered = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                backend.on_probe_failed(at(1), 3, None);
            }
        });
        let read = |_| {
            let (probes, failed) = backend.probes();
            probes - failed
        };
        let answered: BTreeSet<u64> = (0..2_000_000).map(read).collect();
        is_over.store(true, Relaxed);
        answered
    });
    assert_eq!(answered, BTreeSet::from([1]));
}
