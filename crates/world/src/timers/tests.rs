use std::cell::Cell;

use proptest::prelude::*;

use super::radix_heap::BUCKETS;
use super::*;

fn at(ns: u64) -> Timestamp {
    Timestamp::from_nanos(ns)
}

#[test]
fn timers_that_fire_together_fire_in_the_order_in_which_they_were_set() {
    let mut timers = Timers::new();
    timers.push(at(900), 'a');
    timers.push(at(700), 'b');
    timers.push(at(900), 'c');
    assert_eq!(timers.pop(at(700)), Some((at(700), 'b')));
    timers.push(at(900), 'd');
    assert_eq!(timers.pop(at(899)), None);
    let order: String = std::iter::from_fn(|| timers.pop(at(900))).map(|timer| timer.1).collect();
    assert_eq!(order, "acd");
}

#[test]
fn a_timer_set_for_a_time_that_has_passed_is_due_at_once() {
    let mut timers = Timers::new();
    timers.push(at(1000), 'a');
    assert!(timers.pop(at(1000)).is_some());
    timers.push(at(1001), 'b');
    timers.push(at(10), 'c');
    assert_eq!(timers.next(), Some(at(10)));
    assert_eq!(timers.pop(at(1000)), Some((at(10), 'c')));
    assert_eq!(timers.pop(at(1000)), None);
}

fn room(timers: &Timers<u32>) -> usize {
    let buckets = timers.near.buckets.iter().chain(timers.far.values());
    timers.spare.capacity() + buckets.map(|bucket| bucket.timers.capacity()).sum::<usize>()
}

#[test]
fn the_memory_of_a_peak_is_freed_after_it() {
    let mut timers = Timers::new();
    for key in 0..100_000u32 {
        timers.push(at(1_000_000 + u64::from(key)), key);
    }
    assert!(room(&timers) >= 100_000);
    timers.sweep(|_, key| key % 1000 == 0);
    assert_eq!(timers.len(), 100);
    assert!(room(&timers) <= BUCKETS * 4 * ROOM_MIN);
}

/// The longest time between two turns of a shard depends on the cost of a sweep.
#[test]
fn a_sweep_examines_a_few_epochs_and_the_next_one_continues() {
    let mut timers = Timers::new();
    // Each epoch gets 100 timers.
    for key in 0..100_000u32 {
        timers.push(at((u64::from(key) << EPOCH_BITS) / 100), key);
    }
    let mut sweeps = 0;
    while timers.len() > 100 {
        let seen = Cell::new(0);
        timers.sweep(|_, key| {
            seen.set(seen.get() + 1);
            key % 1000 == 0
        });
        assert!(seen.get() <= SWEEP + FEW + 100, "{}", seen.get());
        sweeps += 1;
    }
    assert!((100_000 / (SWEEP + 100)..=100_000 / SWEEP + 1).contains(&sweeps), "{sweeps}");
    assert!(room(&timers) <= 100 * 4 * ROOM_MIN);
    let left: Vec<_> = std::iter::from_fn(|| timers.pop(Timestamp::NEVER)).collect();
    assert!(left.iter().map(|timer| timer.1).eq((0..100).map(|i| 1000 * i)));
}

#[test]
fn timers_to_retain_are_found_in_all_epochs() {
    let mut timers = Timers::new();
    for key in 0..100_000u32 {
        timers.push(at((u64::from(key) << EPOCH_BITS) / 100), key);
    }
    timers.retain(|_, key| key % 1000 == 999);
    assert_eq!((timers.len(), timers.peek()), (100, timers.next().map(|at| (at, 999))));
    assert!(room(&timers) <= 100 * 4 * ROOM_MIN);
    let left: Vec<_> = std::iter::from_fn(|| timers.pop(Timestamp::NEVER)).collect();
    assert!(left.iter().map(|timer| timer.1).eq((0..100).map(|i| 1000 * i + 999)));
}

#[test]
fn no_more_than_an_epoch_enters_the_heap() {
    let mut timers = Timers::new();
    for key in 0..100_000u32 {
        timers.push(at((u64::from(key) << EPOCH_BITS) / 100), key);
    }
    for key in 0..100_000 {
        assert_eq!(timers.pop(Timestamp::NEVER).map(|timer| timer.1), Some(key));
        assert!(timers.near.len() <= FEW + 100);
    }
    assert!(timers.far.is_empty() && room(&timers) <= BUCKETS * 4 * ROOM_MIN);
}

/// After a peak, a few timers with very different times do not need a list each.
#[test]
fn the_last_timers_of_a_peak_return_to_the_heap() {
    let mut timers = Timers::new();
    let second = |n: u64| at(n * 1_000_000_000);
    (0..u64::from(FEW as u32) + 1).for_each(|n| timers.push(second(n), n));
    assert!(!timers.far.is_empty());
    for n in 0..1_000 {
        assert_eq!(timers.pop(Timestamp::NEVER).map(|timer| timer.1), Some(n));
        if timers.len() < FEW / 2 {
            let last = n + timers.len() as u64 + 1;
            timers.push(second(last), last);
        }
    }
    assert!(timers.far.is_empty() && timers.epoch == EVER);
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        after: u64,
    },
    /// Time advances, and expired timers fire.
    Fire {
        after: u64,
    },
    /// Drops the keys that are not multiples of `divisor`.
    Retain {
        divisor: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    // Delays of every magnitude, many of them equal.
    let after = || prop_oneof![0..4u64, (0..40u32, 0..4u64).prop_map(|(bits, x)| x << bits)];
    prop_oneof![
        6 => after().prop_map(|after| Step::Push { after }),
        3 => after().prop_map(|after| Step::Fire { after }),
        1 => (1..4usize).prop_map(|divisor| Step::Retain { divisor }),
    ]
}

proptest! {
    /// Compares the queue with a list sorted by time, and then by the order of insertion.
    #[test]
    fn the_order_is_that_of_time_and_entry(
        begin in prop_oneof![Just(0), any::<u32>().prop_map(u64::from)],
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut timers = Timers::new();
        let mut list: Vec<(Timestamp, usize)> = Vec::new();
        let mut now = begin;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push { after } => {
                    timers.push(at(now + after), number);
                    list.push((at(now + after), number));
                }
                Step::Fire { after } => {
                    now += after;
                    while let Some(timer) = timers.pop(at(now)) {
                        list.sort();
                        prop_assert_eq!(timer, list.remove(0));
                    }
                    prop_assert!(list.iter().all(|timer| timer.0 > at(now)));
                }
                Step::Retain { divisor } => {
                    // One sweep examines all timers because there are so few.
                    match divisor % 2 {
                        0 => timers.sweep(|_, key| key % divisor == 0),
                        _ => timers.retain(|_, key| key % divisor == 0),
                    }
                    list.retain(|timer| timer.1 % divisor == 0);
                }
            }
            prop_assert_eq!(timers.peek(), list.iter().min().copied());
            prop_assert_eq!(timers.next(), timers.peek().map(|timer| timer.0));
            prop_assert_eq!((timers.len(), timers.is_empty()), (list.len(), list.is_empty()));
        }
    }
}
