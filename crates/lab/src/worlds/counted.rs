//! Converts the counts of callers and answerers to the outcome of a run.

use std::time::Duration;

use serde_json::Value;
use tidegate_agent::{AnswererStats, CallerStats, Delays, Measured};

use super::possible::possible_cps;
use super::{agents, outage};
use crate::outcome::{CallersOutcome, Outcome, Quantiles};
use crate::recovery::{Steady, overload_begins, overload_ends, recovery};
use crate::run_spec::RunSpec;
use crate::timeline::Timeline;
use crate::topology::Topology;

/// Name of the file with the values of a run over time.
pub(super) const TIMELINE: &str = "timeline.csv";

/// The fraction of the calls in the measured time that callers may fail to start. If they fail to
/// start more, the run does not have the requested load.
const NOT_BEGUN_MAX: f64 = 0.01;

/// Returns the name of the configuration file of the server at index `place`.
pub(super) fn configuration_name(topology: &Topology, place: usize) -> String {
    match topology.nodes() {
        [_] => "tidegate.toml".to_owned(),
        nodes => format!("{}.toml", nodes[place].name),
    }
}

/// Returns the outcome of `run` without the counts of servers. `callers` are the counts of the
/// callers of each server, and `answerers` those of all answerers together.
pub(super) fn outcome(
    run: &RunSpec,
    callers: &[CallerStats],
    answerers: &AnswererStats,
    timeline: &Timeline,
) -> Outcome {
    let all = callers.iter().fold(CallerStats::default(), |mut all, stats| {
        all.merge(stats);
        all
    });
    let measured: &Measured = &all.measured;
    let topology = &run.conditions.topology;
    let crowd = |((place, _), stats): ((usize, f64), &CallerStats)| CallersOutcome {
        to: topology.nodes()[place].name.clone(),
        stats: value(stats),
    };
    Outcome {
        offered: measured.offered,
        set_up: measured.set_up,
        set_up_in_time: measured.set_up_in_time,
        good: measured.set_up_in_time,
        rejected: measured.rejected,
        repeated_invites: measured.repeated_invites,
        measured_s: run.measured.as_secs_f64(),
        set_up_delay: quantiles(&measured.set_up_delay),
        requests: measured.requests(),
        requests_handled: measured.requests_handled(),
        bye_delay: quantiles(&measured.bye_delay),
        recovery_s: recovered_after_s(run, timeline),
        settled_s: settled_after_s(run, timeline),
        persons: all.persons.measured_came,
        persons_served: all.persons.measured_served,
        outage: outage::outage(run, timeline, &all),
        callers: topology.entries().zip(callers).map(crowd).collect(),
        answerers: value(answerers),
        ..Outcome::default()
    }
}

/// Returns quantiles of `delays`, or `None` if there are no delays.
fn quantiles(delays: &Delays) -> Option<Quantiles> {
    let ms = |delay: Duration| delay.as_secs_f64() * 1e3;
    (delays.count() > 0).then(|| Quantiles {
        p50_ms: ms(delays.quantile(0.5)),
        p90_ms: ms(delays.quantile(0.9)),
        p99_ms: ms(delays.quantile(0.99)),
        max_ms: ms(delays.max()),
    })
}

/// Returns an error text if, in the measured time of `run`, the callers of a server failed to start
/// more than [`NOT_BEGUN_MAX`] of their calls, because too many calls were open. Returns `None` if
/// the scenario sets `open_max`, because the limit is then intended. Callers in simulated time have
/// no other reason to offer less than the requested load.
pub(super) fn too_slow<'a>(
    run: &RunSpec,
    callers: impl IntoIterator<Item = &'a CallerStats>,
) -> Option<String> {
    if run.conditions.open_max.is_some() {
        return None;
    }
    let is_doubt =
        |stats: &&Measured| stats.not_begun as f64 > NOT_BEGUN_MAX * stats.offered as f64;
    let mut measured = callers.into_iter().map(|stats| &stats.measured);
    let Measured { offered, not_begun, .. } = measured.find(is_doubt)?;
    Some(format!(
        "{not_begun} of {offered} calls did not begin, because too many calls were open; set \
         `open_max` in `[workload]`"
    ))
}

fn recovered_after_s(run: &RunSpec, timeline: &Timeline) -> Option<f64> {
    let capacity_cps = run.capacity_cps();
    let load = agents::load(run, 1.0);
    let end = overload_ends(&load, capacity_cps)?;
    let (offered, good) = (timeline.offered(), timeline.in_time());
    let time = recovery(&offered, &good, capacity_cps, end..load.duration, Steady::RECOVERED)?;
    Some(time.as_secs_f64())
}

fn settled_after_s(run: &RunSpec, timeline: &Timeline) -> Option<f64> {
    let load = agents::load(run, 1.0);
    let from = overload_begins(&load, run.capacity_cps())?;
    let until = (from + Steady::SETTLED.stays).min(load.duration);
    let possible_cps = possible_cps(run, from, until, 1.0);
    let (offered, good) = (timeline.offered(), timeline.in_time());
    let time = recovery(&offered, &good, possible_cps, from..load.duration, Steady::SETTLED)?;
    Some(time.as_secs_f64())
}

/// Minimum number of calls of each source for an index of fairness. With fewer calls, chance would
/// decide the fraction of a source's calls that is set up. If half of 20 calls are set up by chance
/// alone, the index of equally treated sources is .95.
const CALLS_MIN: u64 = 20;

/// Returns Jain's index of fairness among `sources`, computed from the fraction of each source's
/// calls that was set up in time. The index is 1 if all fractions are equal, and 1/n if only one of
/// n sources set up calls. Returns `None` if fewer than two sources have calls, if a source has
/// fewer than [`CALLS_MIN`] calls, or if no call was set up in time.
pub(super) fn fairness<'a>(sources: impl IntoIterator<Item = &'a CallerStats>) -> Option<f64> {
    let measured = sources.into_iter().map(|stats| &stats.measured).filter(|m| m.offered > 0);
    let measured: Vec<&Measured> = measured.collect();
    if measured.len() < 2 || measured.iter().any(|m| m.offered < CALLS_MIN) {
        return None;
    }
    let parts = || measured.iter().map(|m| m.set_up_in_time as f64 / m.offered as f64);
    let (sum, squares) = (parts().sum::<f64>(), parts().map(|part| part * part).sum::<f64>());
    (sum > 0.0).then(|| sum * sum / (measured.len() as f64 * squares))
}

/// Returns the fraction of the calls of `sources` that was set up in time, or `None` if the sources
/// made no calls.
pub(super) fn in_time<'a>(sources: impl Iterator<Item = &'a CallerStats>) -> Option<f64> {
    let (offered, in_time) = sources.fold((0, 0), |(offered, in_time), stats| {
        (offered + stats.measured.offered, in_time + stats.measured.set_up_in_time)
    });
    (offered > 0).then(|| in_time as f64 / offered as f64)
}

fn value(stats: &impl serde::Serialize) -> Value {
    serde_json::to_value(stats).expect("counts have names")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned;
    use crate::worlds::Kind;

    fn source(offered: u64, set_up_in_time: u64) -> CallerStats {
        let measured = Measured { offered, set_up_in_time, ..Measured::default() };
        CallerStats { measured, ..CallerStats::default() }
    }

    /// If this were no error, the results would count calls as offered that were never sent.
    #[test]
    fn callers_that_begin_too_few_calls_are_too_slow_unless_the_scenario_limits_them() {
        let is_doubt = |keys: &str, not_begun: u64| {
            let text = format!(
                "[emulate]\nserve_us = 1000\n[workload]\n{keys}\
                 [[variant]]\noverload = {{}}\n"
            );
            let run = planned(&text, Kind::Sim).remove(0);
            // All calls that were not started are in the measured time, but they are only a small
            // share of the whole run.
            let stats = |not_begun| {
                let measured = Measured { offered: 1000, not_begun, ..Measured::default() };
                CallerStats { offered: 1_000_000, not_begun, measured, ..CallerStats::default() }
            };
            too_slow(&run, &[stats(0), stats(not_begun)]).is_some()
        };
        assert!(is_doubt("", 11) && !is_doubt("", 10));
        assert!(!is_doubt("open_max = 50\n", 900));
    }

    #[test]
    fn sources_with_the_same_part_are_treated_fairly() {
        let index = |sources: &[CallerStats]| fairness(sources);
        assert_eq!(index(&[source(20, 10), source(1000, 500), source(0, 0)]), Some(1.0));
        assert_eq!(index(&[source(20, 20), source(20, 0)]), Some(0.5));
        assert_eq!(index(&[source(20, 10), source(0, 0)]), None);
        assert_eq!(index(&[source(20, 0), source(20, 0)]), None);
    }

    /// If each source has one call, it sets up all of its calls or none.
    #[test]
    fn sources_with_few_calls_have_no_fairness() {
        assert_eq!(fairness(&[source(19, 9), source(1000, 500)]), None);
        let single: Vec<_> = (0..1000).map(|number| source(1, number % 2)).collect();
        assert_eq!(fairness(&single), None);
    }

    #[test]
    fn the_part_in_time_is_that_of_all_calls_together() {
        assert_eq!(in_time([source(10, 10), source(30, 0)].iter()), Some(0.25));
        assert_eq!(in_time([source(0, 0)].iter()), None);
    }
}
