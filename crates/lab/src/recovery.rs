//! Computes the time that a server takes to recover from an overload.

use std::ops::Range;
use std::time::Duration;

use tidegate_agent::Load;

/// Interval at which the offered rate is sampled.
const STEP: Duration = Duration::from_millis(100);

/// The condition under which the goodput counts as steady.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    /// Time over which the goodput is averaged.
    pub window: Duration,
    /// Time for which the goodput must stay high enough.
    pub stays: Duration,
}

impl Steady {
    /// The condition under which a server has recovered after an overload.
    pub(crate) const RECOVERED: Self =
        Self { window: Duration::from_secs(1), stays: Duration::from_secs(5) };
    /// The condition under which a server has settled after the beginning of an overload.
    pub(crate) const SETTLED: Self =
        Self { window: Duration::from_millis(500), stays: Duration::from_secs(2) };
}

/// The minimum goodput that counts as steady, as a fraction of the offered load or of the possible
/// goodput, whichever is smaller.
const ENOUGH: f64 = 0.9;

/// Returns the time at which the rate of `load` last falls to the capacity or below. Returns `None`
/// if the rate is never above the capacity, or is still above it when the load ends. For a recorded
/// trace it always returns `None`, because the rate of a trace counts as constant.
pub(crate) fn overload_ends(load: &Load, capacity_cps: f64) -> Option<Duration> {
    let is_over = |at| load.rate_at(at) > capacity_cps;
    let steps = (load.duration.as_secs_f64() / STEP.as_secs_f64()).ceil() as u32;
    if is_over(load.duration) {
        return None;
    }
    let last = (0..steps).rev().find(|&step| is_over(STEP * step))?;
    Some(STEP * (last + 1))
}

/// Returns the time at which the rate of `load` last rises above the capacity, or `None` if the
/// rate is never above the capacity.
pub(crate) fn overload_begins(load: &Load, capacity_cps: f64) -> Option<Duration> {
    let is_over = |step: u32| load.rate_at(STEP * step) > capacity_cps;
    let steps = (load.duration.as_secs_f64() / STEP.as_secs_f64()).ceil() as u32;
    let begins = |step: &u32| is_over(*step) && (*step == 0 || !is_over(step - 1));
    (0..steps).rev().find(begins).map(|step| STEP * step)
}

/// Returns the time from the start of `span` until the goodput became steady, or `None` if it did
/// not become steady within `span`. The span starts when an overload ends or begins. The goodput is
/// steady if it is at least 90 % of the offered load or of `possible_cps`, whichever is smaller, in
/// every window for the time `stays`. Windows without offered calls, and windows that end after
/// `span`, do not count. `offered` and `good` count calls since the start of the run, sampled at
/// the same times.
pub fn recovery(
    offered: &[(Duration, u64)],
    good: &[(Duration, u64)],
    possible_cps: f64,
    span: Range<Duration>,
    steady: Steady,
) -> Option<Duration> {
    let Range { start: from, end: until } = span;
    let Steady { window, stays } = steady;
    let within = |counts: &[(Duration, u64)], first: usize, to: usize| {
        counts[to].1.saturating_sub(counts[first].1) as f64
    };
    let mut since = None;
    let mut first = 0;
    for to in 0..good.len().min(offered.len()) {
        let at = good[to].0;
        if at > until {
            break;
        }
        while first < to && good[first + 1].0 + window <= at {
            first += 1;
        }
        // A window that starts before `from` also covers time before `span`.
        if good[first].0 < from || at < good[first].0 + window {
            continue;
        }
        let seconds = (at - good[first].0).as_secs_f64();
        let offered_cps = within(offered, first, to) / seconds;
        if offered_cps > 0.0 {
            let can = offered_cps.min(possible_cps);
            let is_good = within(good, first, to) / seconds >= ENOUGH * can;
            since = is_good.then(|| since.unwrap_or(good[first].0));
        }
        if let Some(begun) = since.filter(|&begun| at >= begun + stays) {
            return Some(begun - from);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tidegate_agent::{Profile, Trace};

    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn load(profile: &str) -> Load {
        let profile: Profile = profile.parse().unwrap();
        Load { profile, rate_cps: 100.0, duration: s(60.0), ..Load::default() }
    }

    #[test]
    fn an_overload_ends_where_the_rate_last_falls_to_the_capacity() {
        assert_eq!(overload_ends(&load("steps:0=0.5,10=3,20=0.5"), 100.0), Some(s(20.0)));
        assert_eq!(overload_ends(&load("gradual:10,10,10"), 50.0), Some(s(25.0)));
        assert_eq!(overload_ends(&load("steps:0=0.5"), 100.0), None);
        assert_eq!(overload_ends(&load("instant:5"), 50.0), None);
    }

    #[test]
    fn an_overload_by_a_trace_has_no_end() {
        let trace = (0..50).map(|index| s(0.02 * f64::from(index))).chain([s(20.0)]);
        let trace = Trace::new(trace.collect::<Vec<_>>()).unwrap();
        for capacity_cps in [1.0, 10.0] {
            let load = Load { duration: s(60.0), ..Load::of_trace(trace.clone()) };
            assert_eq!(overload_ends(&load, capacity_cps), None);
        }
    }

    #[test]
    fn an_overload_begins_where_the_rate_last_rises_above_the_capacity() {
        assert_eq!(overload_begins(&load("steps:0=0.5,10=3,20=0.5"), 100.0), Some(s(10.0)));
        assert_eq!(overload_begins(&load("steps:0=3,10=0.5,20=3"), 100.0), Some(s(20.0)));
        assert_eq!(overload_begins(&load("constant"), 50.0), Some(s(0.0)));
        assert_eq!(overload_begins(&load("constant"), 100.0), None);
    }

    /// Returns the counts of each 100 ms, from the calls of each second.
    fn counts(each_s: &[u64]) -> Vec<(Duration, u64)> {
        let mut sum = 0;
        let tenths = each_s.iter().flat_map(|&calls| [calls / 10; 10]).enumerate();
        let count = |(index, calls): (usize, u64)| {
            sum += calls;
            (Duration::from_millis(100) * (index as u32 + 1), sum)
        };
        tenths.map(count).collect()
    }

    #[test]
    fn it_has_recovered_once_each_second_is_good_for_five() {
        let offered = counts(&[300; 20]);
        let recovered = |good: &[u64]| {
            let good = counts(good);
            recovery(&offered, &good, 100.0, s(2.0)..s(20.0), Steady::RECOVERED)
                .map(|time| time.as_secs_f64())
        };
        assert_eq!(recovered(&[100; 20]), Some(0.0));
        let mut late = [100; 20];
        late[..7].fill(0);
        let time = recovered(&late).unwrap();
        assert!((4.8..=5.0).contains(&time), "90 % of a second from 7 s on: {time}");
        late[9] = 50;
        let time = recovered(&late).unwrap();
        assert!((7.0..=8.0).contains(&time), "it fell back until 10 s: {time}");
        assert_eq!(recovered(&[80; 20]), None);
        late[14..].fill(0);
        assert_eq!(recovered(&late), None, "not for long enough");
    }

    #[test]
    fn a_lower_goodput_suffices_if_fewer_calls_are_offered() {
        let (offered, good) = (counts(&[20; 20]), counts(&[20; 20]));
        let recovered = recovery(&offered, &good, 100.0, s(2.0)..s(20.0), Steady::RECOVERED);
        assert_eq!(recovered, Some(Duration::ZERO));
    }

    /// Returns the recovery between 2 s and `until`, in s. `offered` and `good` are the calls of
    /// each second.
    fn recovered_until(until: f64, offered: [u64; 21], good: [u64; 21]) -> Option<f64> {
        let (offered, good) = (counts(&offered), counts(&good));
        let span = s(2.0)..s(until);
        let time = recovery(&offered, &good, 100.0, span, Steady::RECOVERED);
        time.map(|time| time.as_secs_f64())
    }

    #[test]
    fn the_time_after_the_last_call_is_no_recovery() {
        let mut offered = [100; 21];
        offered[14..].fill(0);
        assert_eq!(recovered_until(21.0, offered, [0; 21]), None);
        // Goodput is back from 14 s on. A span that ends at 14 s does not contain the recovery.
        let mut good = [0; 21];
        good[14..].fill(100);
        assert_eq!(recovered_until(14.0, [100; 21], good), None);
        let time = recovered_until(21.0, [100; 21], good).unwrap();
        assert!((11.8..=12.0).contains(&time), "{time}");
    }

    #[test]
    fn a_time_without_calls_neither_begins_nor_ends_a_recovery() {
        // The first calls come at 8 s.
        let mut late = [100; 21];
        late[..8].fill(0);
        let time = recovered_until(21.0, late, late).unwrap();
        assert!((5.0..=6.0).contains(&time), "{time}");
        // No calls come for 2 s.
        let mut paused = [100; 21];
        paused[4..6].fill(0);
        assert_eq!(recovered_until(21.0, paused, paused), Some(0.0));
        let mut bad = paused;
        bad[6] = 0;
        let time = recovered_until(21.0, paused, bad).unwrap();
        assert!((4.8..=5.0).contains(&time), "{time}");
    }
}
