//! Calculates the values that describe an outage from the counts of a run.

use std::time::Duration;

use tidegate_agent::CallerStats;
use tidegate_proxy::Class;

use super::agents;
use crate::cost::{self, Capacity};
use crate::outage::Outage;
use crate::recovery::{overload_begins, overload_ends};
use crate::run_spec::RunSpec;
use crate::timeline::{CallersReading, Timeline};

/// Time over which goodput is averaged to find the recovery.
const WINDOW: Duration = Duration::from_secs(5);

/// The minimum goodput that counts as recovered, as a fraction of the first attempts or of the
/// capacity, whichever is smaller.
const ENOUGH: f64 = 0.95;

/// The fraction of the devices that must be registered for registrations to count as recovered.
const REGISTERED: f64 = 0.99;

/// Time at the end of the load. The goodput in this time shows whether the servers have recovered.
const LAST: Duration = Duration::from_secs(30);

/// Returns the values that describe the outage in `run`. Returns `None` if neither people redial
/// nor devices register. Also returns `None` if the run has no trigger of an outage, or
/// if a trigger lasts to the end of the load.
pub(super) fn outage(run: &RunSpec, timeline: &Timeline, all: &CallerStats) -> Option<Outage> {
    let conditions = &run.conditions;
    if conditions.redial.is_none() && conditions.devices.is_none() {
        return None;
    }
    let load = agents::load(run, 1.0);
    let capacity = Capacity::under(conditions);
    let ended = trigger_ended(run)?;
    let came = timeline.sum(|reading| reading.came);
    let good = timeline.in_time();
    let registered = timeline.sum(|reading| reading.registered);
    let end = load.duration.min(came.last()?.0);
    let devices = all.devices.devices;
    let backlog = timeline.sum(CallersReading::waiting_people);
    let register_s = cost::call(&conditions.emulate, &[Class::Register, Class::Final]);
    let register = register_s.as_secs_f64() / capacity.call.as_secs_f64();
    let lacking = devices.saturating_sub(at(&registered, ended));
    let calls = at(&backlog, ended) as f64;
    let after = |time: Duration| (time - ended).as_secs_f64();
    let enough = |reading: u64| reading as f64 >= REGISTERED * devices as f64;
    Some(Outage {
        trigger_ended_s: ended.as_secs_f64(),
        backlog_s: (calls + lacking as f64 * register) / capacity.cps,
        backlog_calls_s: calls / capacity.cps,
        recovered_s: good_from(&came, &good, capacity.cps, ended, end).map(after),
        registered_s: (devices > 0).then(|| since(&registered, ended, enough).map(after)).flatten(),
        goodput_end: part(&good, &came, end.saturating_sub(LAST), end),
        registered_end: (devices > 0).then(|| at(&registered, end) as f64 / devices as f64),
        emergency: all.emergency.offered,
        emergency_in_time: all.emergency.set_up_in_time,
    })
}

/// Returns the time at which the last trigger of an outage ends. Triggers are an overload, a fault,
/// and the REGISTERs of devices that lost their registrations. Returns `None` if there is no
/// trigger, or if one lasts to the end of the load.
fn trigger_ended(run: &RunSpec) -> Option<Duration> {
    let load = agents::load(run, 1.0);
    let capacity_cps = run.capacity_cps();
    let overload = match overload_begins(&load, capacity_cps) {
        Some(_) => Some(overload_ends(&load, capacity_cps)?),
        None => None,
    };
    let faults = run.faults().iter().map(crate::network::Fault::end).max();
    let loss = run.conditions.devices.and_then(|devices| devices.loss);
    let loss = loss.map(|loss| loss.at + loss.within);
    [overload, faults, loss].into_iter().flatten().max().filter(|&ended| ended < load.duration)
}

/// Returns the count in the first sample at or after `time`, or the last count if no sample is so
/// late.
fn at(counts: &[(Duration, u64)], time: Duration) -> u64 {
    let later = counts.iter().find(|(at, _)| *at >= time);
    later.or(counts.last()).map_or(0, |(_, count)| *count)
}

/// Returns the growth of `some` from the time `from` to the time `to`, divided by the growth of
/// `whole`. Returns 1 if `whole` does not grow.
fn part(some: &[(Duration, u64)], whole: &[(Duration, u64)], from: Duration, to: Duration) -> f64 {
    let growth = |counts| at(counts, to).saturating_sub(at(counts, from)) as f64;
    if growth(whole) > 0.0 { growth(some) / growth(whole) } else { 1.0 }
}

/// Returns the earliest time, not before `from`, from which the goodput is high enough in all
/// windows until `end`. Returns `None` if it is too low in the last window, or if there is no
/// window.
fn good_from(
    came: &[(Duration, u64)],
    good: &[(Duration, u64)],
    capacity_cps: f64,
    from: Duration,
    end: Duration,
) -> Option<Duration> {
    let is_good = |first: Duration| {
        let last = first + WINDOW;
        let growth = |counts| at(counts, last).saturating_sub(at(counts, first)) as f64;
        growth(good) >= ENOUGH * growth(came).min(capacity_cps * WINDOW.as_secs_f64())
    };
    let firsts = || came.iter().map(|(at, _)| *at).filter(|&at| at >= from && at + WINDOW <= end);
    firsts().next()?;
    match firsts().rfind(|&first| !is_good(first)) {
        None => Some(from),
        Some(bad) => firsts().find(|&at| at > bad),
    }
}

/// Returns the earliest time, not before `from`, from which the count in every sample is `enough`.
/// Returns `None` if there is no such time.
fn since(
    counts: &[(Duration, u64)],
    from: Duration,
    enough: impl Fn(u64) -> bool,
) -> Option<Duration> {
    let later = || counts.iter().filter(|(at, _)| *at >= from);
    later().next()?;
    match later().rfind(|(_, count)| !enough(*count)) {
        None => Some(from),
        Some((bad, _)) => later().map(|(at, _)| *at).find(|at| at > bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned;
    use crate::worlds::Kind;

    /// A call costs 6 ms, so the capacity is 166.7 calls/s. A registration costs 2 ms.
    const SCENARIO: &str = "[workload]\nload = 0.6\n[workload.redial]\n\
        [emulate]\nserve_us = 1000\n[schedule]\nwarm_up_s = 0\nmeasured_s = 60\n[[variant]]\n";

    const DEVICES: &str = "[workload.devices]\ncount = 3000\nlost_at_s = 8\nlost_within_s = 2\n";

    fn run(more: &str) -> RunSpec {
        planned(&format!("{SCENARIO}{more}"), Kind::Sim).remove(0)
    }

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Returns a timeline in which 100 people come per second. `served` returns the number of them
    /// that are served in a second.
    fn timeline(served: impl Fn(usize) -> u64) -> Timeline {
        timeline_with(served, |second| if second < 20 { 1000 } else { 2990 })
    }

    /// Returns the same timeline. `registered` returns the number of devices that are registered at
    /// the end of a second.
    fn timeline_with(served: impl Fn(usize) -> u64, registered: impl Fn(usize) -> u64) -> Timeline {
        let mut timeline = Timeline::new([], ["a"]);
        let mut in_time = 0;
        for second in 1..=60 {
            in_time += served(second);
            let reading = CallersReading {
                came: 100 * second as u64,
                in_time,
                redialing: 40,
                unanswered: 10,
                registered: registered(second),
                ..CallersReading::default()
            };
            timeline.callers(0, s(second as f64), reading);
        }
        timeline
    }

    fn stats() -> CallerStats {
        let mut stats = CallerStats::default();
        stats.devices.devices = 3000;
        stats.emergency.offered = 4;
        stats.emergency.set_up_in_time = 3;
        stats
    }

    #[test]
    fn the_trigger_ends_when_the_last_fault_and_overload_have_ended() {
        let ended = |more: &str| trigger_ended(&run(more)).map(|time| time.as_secs_f64());
        assert_eq!(ended(""), None);
        assert_eq!(ended(DEVICES), Some(10.0));
        let fault = "[[fault]]\nkind = \"crash\"\nat_s = 5\nfor_s = 20\n";
        assert_eq!(ended(&format!("{DEVICES}{fault}")), Some(25.0));
        assert_eq!(ended(&fault.replace("20", "100")), None, "it does not end");
    }

    #[test]
    fn an_outage_ends_when_every_later_window_is_good() {
        let bad_until = |end: usize| timeline(move |second| if second <= end { 20 } else { 100 });
        let outage_of = |timeline: &Timeline| outage(&run(DEVICES), timeline, &stats()).unwrap();
        let found = outage_of(&bad_until(30));
        // 50 calls of 6 ms and 2,000 REGISTERs of 2 ms are waiting.
        assert!((found.backlog_s - 4.3).abs() < 1e-9, "{found:?}");
        assert!((found.backlog_calls_s - 0.3).abs() < 1e-9, "{found:?}");
        assert!((found.limit_s() - 4.73).abs() < 1e-9);
        assert_eq!((found.trigger_ended_s, found.recovered_s), (10.0, Some(20.0)));
        assert_eq!(found.registered_s, Some(10.0));
        assert!((found.registered_end.unwrap() - 2990.0 / 3000.0).abs() < 1e-9);
        assert_eq!((found.goodput_end, found.emergency_part()), (1.0, Some(0.75)));
        let found = outage_of(&bad_until(100));
        assert_eq!((found.recovered_s, found.goodput_end), (None, 0.2));
        // If goodput falls again at the end, it has not recovered.
        let relapse = timeline(|second| if second < 58 { 100 } else { 0 });
        assert_eq!(outage_of(&relapse).recovered_s, None);
        assert_eq!(outage_of(&bad_until(5)).recovered_s, Some(0.0));
        // The load ends before a whole window after the end of the trigger.
        let late = run(&DEVICES.replace("lost_at_s = 8", "lost_at_s = 55"));
        assert_eq!(outage(&late, &timeline(|_| 0), &stats()).unwrap().recovered_s, None);
    }

    /// Calls need no registration here. So goodput alone does not show that the servers register no
    /// device.
    #[test]
    fn devices_that_stay_unregistered_have_not_recovered() {
        let found = outage(&run(DEVICES), &timeline_with(|_| 100, |_| 1000), &stats()).unwrap();
        assert_eq!((found.recovered_s, found.registered_s), (Some(0.0), None));
        assert!((found.registered_end.unwrap() - 1000.0 / 3000.0).abs() < 1e-9);
    }

    #[test]
    fn without_people_or_devices_there_is_no_outage() {
        let mut run = run(DEVICES);
        run.conditions.devices = None;
        run.conditions.redial = None;
        assert_eq!(outage(&run, &timeline(|_| 100), &stats()), None);
    }
}
