//! The measures (functions of a run's results) that the expressions of claims may use.

use serde_json::Value;

use super::points::Point;
use crate::outage::Outage;
use crate::timeline::series;

/// Limit for the fraction of the requests that are handled. At every load up to the peak, the
/// fraction is above this limit. Paper 003 §VI.b:
/// "while successfully handling more than 99.99% of all requests".
const HANDLED: f64 = 0.9999;

/// Time in seconds from the start of a run to the first sample that is used. Earlier samples are
/// ignored, because the server has not settled.
const SETTLED_S: f64 = 20.0;

/// The value of the measures `recovered_s` and `recovery_of_limit` if the goodput does not recover,
/// and of `registered_s` if the devices do not stay registered. It is longer than any run, but
/// finite, because a value of a claim must be finite. Texts show it as ∞.
pub(super) const NEVER: f64 = 1e9;

/// A measure of one run, or of all runs that differ only in their load.
pub(super) struct Measure {
    /// The name by which expressions call the measure, such as `goodput`.
    pub name: &'static str,
    /// The function that calculates the measure from the results of one or several runs.
    pub of: Of,
}

impl Measure {
    /// Returns whether the measure counts the callers of one server, which the argument `source`
    /// selects.
    pub(super) fn is_of_one_source(&self) -> bool {
        self.name == "source_goodput"
    }
}

/// The function that calculates a measure. The variants differ in the runs that the function needs.
pub(super) enum Of {
    /// The measure applies to one run.
    One(fn(&Point) -> f64),
    /// The measure applies to several runs together, one at each load.
    All(fn(&[&Point]) -> f64),
    /// The measure applies to a part of one run.
    Part(fn(&Point, &Part) -> f64),
}

/// A part of a run: the callers that call one server, from one time to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    /// Number of the server, counted from 1, among the servers to which callers send.
    source: f64,
    /// Start of the part, in seconds after the start of the load. `to_s` is the end.
    from_s: f64,
    to_s: f64,
}

impl Default for Part {
    /// Returns the part of a run with the callers of the first server, over the whole measured
    /// time.
    fn default() -> Self {
        Self { source: 1.0, from_s: 0.0, to_s: f64::INFINITY }
    }
}

impl Part {
    /// Returns whether the part is not limited in time.
    fn is_whole(&self) -> bool {
        self.from_s == 0.0 && self.to_s == f64::INFINITY
    }

    /// Returns the field that the named argument `name` of a measure sets. Returns `None` if the
    /// argument does not select a part of a run.
    pub(super) fn value_mut(&mut self, name: &str) -> Option<&mut f64> {
        match name {
            "source" => Some(&mut self.source),
            "from_s" => Some(&mut self.from_s),
            "to_s" => Some(&mut self.to_s),
            _ => None,
        }
    }
}

pub(super) static MEASURES: [Measure; 32] = [
    // Calls that count as goodput, as a part of the capacity.
    one("goodput", |point| point.outcome.goodput_cps() / point.run.capacity_cps()),
    // Goodput as a part of the highest possible goodput (the bound) at the load that was offered.
    one("goodput_of_bound", |point| {
        let capacity_cps = point.run.capacity_cps();
        let bound_cps = capacity_cps * point.run.bound(point.outcome.offered_cps() / capacity_cps);
        part(point.outcome.goodput_cps(), bound_cps)
    }),
    // Calls set up per second: those that came in the measured time, or those that were set up in a
    // part of this time.
    part_of("cps", |point, part| {
        if part.is_whole() {
            return point.outcome.set_up as f64 / point.outcome.measured_s;
        }
        of_sources(point, part, "set_up_cps").iter().sum()
    }),
    // Mean time in ms from the first INVITE to the 200, of the calls in the measured time.
    one("delay_ms", |point| mean_ms(point, "/measured/set_up_delay")),
    // INVITEs retransmitted per INVITE first sent.
    one("repeated", |point| point.outcome.retransmission_ratio()),
    // Calls that were set up, and calls that were also ended by a BYE, as parts of the calls begun.
    one("set_up_part", |point| {
        part(point.outcome.counted("set_up"), point.outcome.counted("begun"))
    }),
    one("completed_part", |point| {
        part(point.outcome.counted("completed"), point.outcome.counted("begun"))
    }),
    // Calls whose INVITE reached the callee, as a part of the offered calls, and as a part of the
    // capacity.
    one("reached", reached),
    one("reached_of_capacity", |point| reached(point) * point.run.conditions.load),
    // Responses of the callee that the servers under test did not pass on, as a part of those sent
    // to them.
    one("lost_180", |point| lost(point, "180 INVITE")),
    one("lost_200", |point| lost(point, "200 INVITE")),
    // Seconds from the time at which the server's processor is first full until it is no longer
    // full.
    one("full_s", full_s),
    // The difference between the longest and the shortest queue after the first 20 s, in messages.
    one("queue_swing", |point| {
        let waiting = settled(point, "waiting");
        let greatest = waiting.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        greatest - waiting.iter().copied().fold(f64::INFINITY, f64::min)
    }),
    // Mean occupancy of the server's processor after the first 20 s.
    one("occupancy", |point| {
        let samples = settled(point, "occupancy");
        samples.iter().sum::<f64>() / samples.len() as f64
    }),
    // The number of open transactions that 99.9 % of new ones did not exceed at their server.
    one("met_by_999", |point| met_by(&point.outcome.occupancy, 0.999)),
    // People whose call was answered, as a part of those who made a first attempt after the
    // warm-up.
    one("persons_served", |point| point.outcome.served_part()),
    // Redials, as a part of the offered calls.
    one("redial_part", |point| part(point.outcome.redials() as f64, point.outcome.offered as f64)),
    // Calls set up in time per first attempt, in the last 30 s.
    one("goodput_end", |point| outage(point, |outage| outage.goodput_end)),
    // Work that waits at the end of the trigger, in seconds of work at full capacity.
    one("backlog_s", |point| outage(point, |outage| outage.backlog_s)),
    // The part of this work that the calls take.
    one("backlog_calls_s", |point| outage(point, |outage| outage.backlog_calls_s)),
    // Seconds from the end of the trigger until goodput has recovered, the limit for this time, and
    // the time divided by the limit. Each run has its own limit, so a rule can only use the third
    // measure.
    one("recovered_s", |point| outage(point, |o| o.recovered_s.unwrap_or(NEVER))),
    one("recovery_limit_s", |point| outage(point, Outage::limit_s)),
    one("recovery_of_limit", |point| outage(point, recovery_of_limit)),
    // Seconds from the end of the trigger until 99 % of the devices stay registered.
    one("registered_s", |point| outage(point, registered_s)),
    // Devices that are registered at the end, as a part of all.
    one("registered_end", |point| outage(point, |o| o.registered_end.unwrap_or(f64::NAN))),
    // Emergency calls set up in time, as a part of those offered after the warm-up.
    one("emergency_served", |point| outage(point, |o| o.emergency_part().unwrap_or(f64::NAN))),
    // Calls of one source set up in time, as a part of the capacity.
    part_of("source_goodput", |point, part| {
        let rate = of_sources(point, part, "in_time_cps")
            .get((part.source as usize).wrapping_sub(1))
            .copied();
        rate.unwrap_or(f64::NAN) / point.run.capacity_cps()
    }),
    // Jain's index of the calls set up in time, for all sources that call.
    part_of("jain", |point, part| {
        jain(&pairs(point, part).map(|(_, good)| good).collect::<Vec<_>>())
    }),
    // Jain's index of the part of its calls that each source sets up in time.
    part_of("jain_success", |point, part| {
        jain(&pairs(point, part).map(|(offered, good)| good / offered).collect::<Vec<_>>())
    }),
    // Calls that the law or the limits of its queue rejected although the processor had idle time
    // in the last 0.1 s, as a part of the offered calls.
    one("early_part", |point| {
        let early: u64 = point.outcome.nodes.iter().map(|node| node.early).sum();
        part(early as f64, point.outcome.counted("offered"))
    }),
    // The highest rate, in calls/s and as a part of the capacity, up to which requests are handled.
    Measure { name: "peak_cps", of: Of::All(|points| peak(points) * capacity(points)) },
    Measure { name: "peak", of: Of::All(peak) },
];

const fn one(name: &'static str, of: fn(&Point) -> f64) -> Measure {
    Measure { name, of: Of::One(of) }
}

const fn part_of(name: &'static str, of: fn(&Point, &Part) -> f64) -> Measure {
    Measure { name, of: Of::Part(of) }
}

/// Returns the mean over time of a quantity of callers, separately for each server that they call.
fn of_sources(point: &Point, part: &Part, quantity: &str) -> Vec<f64> {
    let topology = &point.run.conditions.topology;
    let name = |(place, _): (usize, f64)| format!("callers-{}", topology.nodes()[place].name);
    let means = topology.entries().map(name).map(|name| {
        let within = |(at, _): &(f64, f64)| part.from_s < *at && *at <= part.to_s;
        let values = samples(point, &name, quantity).filter(within);
        let (sum, count) = values.fold((0.0, 0.0), |(sum, n), (_, value)| (sum + value, n + 1.0));
        sum / count
    });
    means.collect()
}

/// Returns the calls offered per second and the calls set up in time per second, for each server to
/// which calls were offered.
fn pairs(point: &Point, part: &Part) -> impl Iterator<Item = (f64, f64)> {
    let offered = of_sources(point, part, "offered_cps").into_iter();
    let pairs = offered.zip(of_sources(point, part, "in_time_cps"));
    pairs.filter(|(offered, _)| *offered > 0.0)
}

/// Returns Jain's index of fairness. The index is 1 if all values are equal, and 1/n if only one of
/// n values is above 0.
fn jain(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    values.iter().sum::<f64>().powi(2) / (values.len() as f64 * squares)
}

/// Returns the mean over all callers of the delay at the JSON pointer `delays`, in ms, or infinity
/// if no delay was measured.
fn mean_ms(point: &Point, delays: &str) -> f64 {
    let mut sum_us = 0.0;
    let mut count = 0.0;
    for callers in &point.outcome.callers {
        let delay = callers.stats.pointer(delays).unwrap_or(&Value::Null);
        let Some(delayed) = delay["count"].as_f64().filter(|count| *count > 0.0) else { continue };
        sum_us += delayed * delay["mean_us"].as_f64().unwrap_or(f64::NAN);
        count += delayed;
    }
    if count > 0.0 { sum_us / count / 1e3 } else { f64::INFINITY }
}

/// Returns a value of the run's outage results, or NaN if the run has no outage.
fn outage(point: &Point, figure: impl Fn(&Outage) -> f64) -> f64 {
    point.outcome.outage.as_ref().map_or(f64::NAN, figure)
}

/// Returns the recovery time divided by its limit, or [`NEVER`] if goodput has not recovered. If no
/// work was waiting, the limit is 0, and only an immediate recovery is within the limit.
fn recovery_of_limit(outage: &Outage) -> f64 {
    match (outage.recovered_s, outage.limit_s()) {
        (Some(0.0), _) => 0.0,
        (Some(time), limit) if limit > 0.0 => (time / limit).min(NEVER),
        (Some(_) | None, _) => NEVER,
    }
}

/// Returns the time until the devices stay registered, or [`NEVER`] if they do not. Returns NaN if
/// there are no devices.
fn registered_s(outage: &Outage) -> f64 {
    match outage.registered_end {
        Some(_) => outage.registered_s.unwrap_or(NEVER),
        None => f64::NAN,
    }
}

/// Returns `some` divided by `whole`. Returns NaN if `whole` is 0, so that a claim with this value
/// gets no verdict.
fn part(some: f64, whole: f64) -> f64 {
    if whole > 0.0 { some / whole } else { f64::NAN }
}

fn reached(point: &Point) -> f64 {
    let calls = point.outcome.answerers["calls"].as_f64().unwrap_or(f64::NAN);
    part(calls, point.outcome.counted("offered"))
}

/// Returns the fraction of the callees' responses of one kind, such as `180 INVITE`, that was lost
/// at the servers under test.
fn lost(point: &Point, message: &str) -> f64 {
    let nodes = point.run.conditions.topology.nodes();
    let is_tested = |name: &str| nodes.iter().any(|node| node.under_test && node.name == name);
    let sent = |of: &dyn Fn(&crate::outcome::MessageCount) -> bool| -> f64 {
        let flows = point.outcome.flows.iter().filter(|flow| flow.message == message && of(flow));
        flows.map(|flow| flow.sent as f64).sum()
    };
    let came = sent(&|flow| flow.from == "answerers" && is_tested(&flow.to));
    1.0 - part(sent(&|flow| is_tested(&flow.from)), came)
}

/// Returns the samples of a quantity until the end of the measured time. Later samples are omitted,
/// because the load ends soon after the measured time.
fn samples(point: &Point, node: &str, quantity: &str) -> impl Iterator<Item = (f64, f64)> + use<> {
    let end_s = point.run.measured_until().as_secs_f64();
    series(&point.folder, node, quantity).into_iter().take_while(move |(at, _)| *at <= end_s)
}

/// Returns the name of the first server under test.
fn tested(point: &Point) -> &str {
    let mut nodes = point.run.conditions.topology.nodes().iter();
    nodes.find(|node| node.under_test).map_or("", |node| &node.name)
}

fn settled(point: &Point, quantity: &str) -> Vec<f64> {
    let samples = samples(point, tested(point), quantity);
    samples.filter(|(at, _)| *at >= SETTLED_S).map(|(_, value)| value).collect()
}

/// Returns the seconds from the first sample with a full processor to the next sample with a
/// processor that is not full. Returns 0 if the processor was never full. Returns NaN if there are
/// no samples, or if the processor is still full at the end of the measured time.
fn full_s(point: &Point) -> f64 {
    let occupancy: Vec<_> = samples(point, tested(point), "occupancy").collect();
    if occupancy.is_empty() {
        return f64::NAN;
    }
    let Some(&(began, _)) = occupancy.iter().find(|(_, value)| *value >= 0.98) else { return 0.0 };
    let ended = occupancy.iter().find(|(at, value)| *at > began && *value < 0.95);
    ended.map_or(f64::NAN, |(at, _)| at - began)
}

/// Returns the smallest number of open transactions that the fraction `wanted` of the new
/// transactions did not exceed, or NaN if the histogram `occupancy` is empty.
fn met_by(occupancy: &[u64], wanted: f64) -> f64 {
    let total: u64 = occupancy.iter().sum();
    if total == 0 {
        return f64::NAN;
    }
    let mut seen = 0;
    let exceeds = |count: &u64| {
        seen += count;
        seen as f64 >= wanted * total as f64
    };
    occupancy.iter().position(exceeds).unwrap_or(occupancy.len()) as f64
}

fn capacity(points: &[&Point]) -> f64 {
    points.first().map_or(0.0, |point| point.run.capacity_cps())
}

/// Returns the highest load up to which the fraction of handled requests is above [`HANDLED`] at
/// every load. Returns NaN if the fraction is not above it at the lowest load, or is above it at all
/// loads, because the peak is then outside the sweep.
fn peak(points: &[&Point]) -> f64 {
    let mut loads: Vec<_> =
        points.iter().map(|p| (p.run.conditions.load, p.outcome.handled_part())).collect();
    loads.sort_by(|a, b| a.0.total_cmp(&b.0));
    match loads.iter().position(|(_, handled)| *handled <= HANDLED) {
        Some(first @ 1..) => loads[first - 1].0,
        Some(0) | None => f64::NAN,
    }
}

#[cfg(test)]
#[path = "measure/tests.rs"]
mod tests;
