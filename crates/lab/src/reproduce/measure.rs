//! The measures that claims may name.

use serde_json::Value;

use super::points::Point;
use crate::outage::Outage;
use crate::timeline::series;

/// The share of the requests that must be handled up to the peak. Paper 003 §VI.b: "while
/// successfully handling more than 99.99% of all requests".
const HANDLED: f64 = 0.9999;

/// Samples of a timeline count only after this many seconds.
const SETTLED_S: f64 = 20.0;

/// A measure of a run, or of the runs under all loads.
pub(super) struct Measure {
    /// Name of the measure in expressions.
    pub name: &'static str,
    /// The function that calculates the measure from outcomes.
    pub of: Of,
}

/// The runs that a measure takes.
pub(super) enum Of {
    /// The measure takes one run.
    One(fn(&Point) -> f64),
    /// The measure takes the runs under all loads.
    All(fn(&[&Point]) -> f64),
    /// The measure takes a part of one run.
    Part(fn(&Point, &Part) -> f64),
}

/// A part of a run: the callers of one server, from one time to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    /// Number of the server among those to which callers send, from 1.
    source: f64,
    /// Seconds after the start of the load.
    from_s: f64,
    to_s: f64,
}

impl Default for Part {
    /// Returns the callers of the first server, until the end of the measured time.
    fn default() -> Self {
        Self { source: 1.0, from_s: 0.0, to_s: f64::INFINITY }
    }
}

impl Part {
    /// Returns the field that the argument `name` sets, or `None` if it is not an argument of a
    /// part.
    pub(super) fn value_mut(&mut self, name: &str) -> Option<&mut f64> {
        match name {
            "source" => Some(&mut self.source),
            "from_s" => Some(&mut self.from_s),
            "to_s" => Some(&mut self.to_s),
            _ => None,
        }
    }
}

/// Every measure.
pub(super) static MEASURES: [Measure; 28] = [
    // Calls that count as goodput, as a part of the capacity.
    one("goodput", |point| point.outcome.goodput_cps() / point.run.capacity_cps()),
    // Calls set up per second.
    one("cps", |point| point.outcome.set_up as f64 / point.outcome.measured_s),
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
    // People whose call was answered, as a part of those who made a first attempt.
    one("persons_served", |point| point.outcome.served_part()),
    // Redials, as a part of the offered calls.
    one("redial_part", |point| part(point.outcome.redials() as f64, point.outcome.offered as f64)),
    // Calls set up in time per first attempt, in the last 30 s.
    one("goodput_end", |point| outage(point, |outage| outage.goodput_end)),
    // Work that waits at the end of the trigger, in seconds of work at full capacity.
    one("backlog_s", |point| outage(point, |outage| outage.backlog_s)),
    // Seconds from the end of the trigger until goodput has recovered, and the limit for this time.
    // If goodput has not recovered at the end of the run, the value is ten times the rest of the
    // run, so that it exceeds the limit.
    one("recovered_s", |point| {
        let end_s = point.run.measured_until().as_secs_f64();
        outage(point, |o| o.recovered_s.unwrap_or(10.0 * (end_s - o.trigger_ended_s)))
    }),
    one("recovery_limit_s", |point| outage(point, Outage::limit_s)),
    // Devices that are registered at the end, as a part of all.
    one("registered_end", |point| outage(point, |o| o.registered_end.unwrap_or(f64::NAN))),
    // Emergency calls set up in time, as a part of those offered.
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
    // Calls rejected although the processor had idle time in the last 0.1 s, as a part of the
    // offered calls.
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

/// Returns the mean of a quantity over time, separately for each server to which callers send.
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

/// Returns two rates for each server to which calls were offered: the calls offered per second, and
/// the calls set up in time per second.
fn pairs(point: &Point, part: &Part) -> impl Iterator<Item = (f64, f64)> {
    let offered = of_sources(point, part, "offered_cps").into_iter();
    let pairs = offered.zip(of_sources(point, part, "in_time_cps"));
    pairs.filter(|(offered, _)| *offered > 0.0)
}

/// Returns Jain's index of fairness: 1 if all values are equal, 1/n if only one of n is above 0.
fn jain(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    values.iter().sum::<f64>().powi(2) / (values.len() as f64 * squares)
}

/// Returns the mean of one kind of delay over all callers, or infinity if there is no such delay.
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

/// Returns a value of an outage, or NaN if the run has no outage.
fn outage(point: &Point, figure: impl Fn(&Outage) -> f64) -> f64 {
    point.outcome.outage.as_ref().map_or(f64::NAN, figure)
}

/// Returns `some` divided by `whole`, or NaN if `whole` is 0: a claim about nothing has no verdict.
fn part(some: f64, whole: f64) -> f64 {
    if whole > 0.0 { some / whole } else { f64::NAN }
}

fn reached(point: &Point) -> f64 {
    let calls = point.outcome.answerers["calls"].as_f64().unwrap_or(f64::NAN);
    part(calls, point.outcome.counted("offered"))
}

/// Returns the share of one kind of response that was lost at the servers under test.
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

/// Returns the samples of a quantity until the end of the measured time. Later samples are left
/// out, because the load ends soon after the measured time.
fn samples(point: &Point, node: &str, quantity: &str) -> impl Iterator<Item = (f64, f64)> + use<> {
    let end_s = point.run.measured_until().as_secs_f64();
    series(&point.folder, node, quantity).into_iter().take_while(move |(at, _)| *at <= end_s)
}

fn settled(point: &Point, quantity: &str) -> Vec<f64> {
    let samples = samples(point, "server", quantity);
    samples.filter(|(at, _)| *at >= SETTLED_S).map(|(_, value)| value).collect()
}

/// Returns the seconds from the first sample with a full processor to the first later sample
/// without, or to the last sample. Returns NaN without samples, and 0 if the processor was never
/// full.
fn full_s(point: &Point) -> f64 {
    let occupancy: Vec<_> = samples(point, "server", "occupancy").collect();
    if occupancy.is_empty() {
        return f64::NAN;
    }
    let Some(&(began, _)) = occupancy.iter().find(|(_, value)| *value >= 0.98) else { return 0.0 };
    let ended = occupancy.iter().find(|(at, value)| *at > began && *value < 0.95);
    ended.or(occupancy.last()).map_or(0.0, |(at, _)| at - began)
}

/// Returns the smallest number that the part `wanted` of a histogram's entries does not exceed, or
/// NaN if the histogram is empty.
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

fn peak(points: &[&Point]) -> f64 {
    let mut loads: Vec<_> =
        points.iter().map(|p| (p.run.conditions.load, p.outcome.handled_part())).collect();
    loads.sort_by(|a, b| a.0.total_cmp(&b.0));
    let handled = loads.iter().take_while(|(_, handled)| *handled > HANDLED);
    handled.last().map_or(0.0, |(load, _)| *load)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::outcome::{CallersOutcome, MessageCount, NodeOutcome, Outcome};
    use crate::run_spec::runs;
    use crate::scenario::Scenario;
    use crate::worlds::Kind;

    const SCENARIO: &str = "title = \"t\"\n[emulate]\nserve_us = 1000\n[sweep]\nload = [0.5, 0.9, 1, 1.1]\n\
        [schedule]\nwarm_up_s = 5\nmeasured_s = 25\n[[variant]]\noverload = {}\n[[node]]\nname = \"se\"\nto = [\"re\"]\n\
        [[node]]\nname = \"re\"\nto = [\"answerers\"]\nunder_test = true\n";

    /// Returns a run under each load with this outcome.
    fn points(folder: &Path, outcome: impl Fn(f64) -> Outcome) -> Vec<Point> {
        let scenario = Scenario::parse(Path::new("s"), SCENARIO.as_bytes()).unwrap();
        let mut runs = runs(&scenario, Kind::Sim);
        runs.truncate(4);
        let point = |run: crate::run_spec::RunSpec| {
            let outcome = outcome(run.conditions.load);
            Point { run, outcome, folder: folder.to_owned() }
        };
        runs.into_iter().map(point).collect()
    }

    fn measured(name: &str, points: &[Point]) -> f64 {
        let measure = MEASURES.iter().find(|measure| measure.name == name).unwrap();
        match measure.of {
            Of::One(of) => of(&points[0]),
            Of::All(of) => of(&points.iter().collect::<Vec<_>>()),
            Of::Part(of) => of(&points[0], &Part { from_s: 10.0, to_s: 30.0, ..Part::default() }),
        }
    }

    fn callers(stats: serde_json::Value) -> CallersOutcome {
        CallersOutcome { to: "se".to_owned(), stats }
    }

    #[test]
    fn means_and_shares_cover_all_callers() {
        let delay = |count: u64, mean_us: u64| json!({ "count": count, "mean_us": mean_us });
        let outcome = |_| Outcome {
            callers: vec![
                callers(
                    json!({ "set_up_delay": delay(1, 1000), "begun": 4, "set_up": 3, "offered": 5,
                                "completed": 1, "measured": { "set_up_delay": delay(2, 7000) } }),
                ),
                callers(
                    json!({ "set_up_delay": delay(3, 5000), "begun": 6, "set_up": 2, "offered": 5,
                                "completed": 0 }),
                ),
            ],
            answerers: json!({ "calls": 8 }),
            nodes: vec![
                NodeOutcome { early: 1, ..NodeOutcome::default() },
                NodeOutcome { early: 2, ..NodeOutcome::default() },
            ],
            set_up: 30,
            measured_s: 10.0,
            good: 250,
            ..Outcome::default()
        };
        let points = points(Path::new("/nonexistent"), outcome);
        for (name, expected) in [
            ("delay_ms", 7.0),
            ("set_up_part", 0.5),
            ("completed_part", 0.1),
            ("reached", 0.8),
            ("early_part", 0.3),
            ("reached_of_capacity", 0.4),
            ("cps", 3.0),
            // Six messages of 1 ms: 166.7 calls/s.
            ("goodput", 0.15),
        ] {
            let value = measured(name, &points);
            assert!((value - expected).abs() < 1e-9, "{name}: {value}");
        }
        let none = |_| Outcome::default();
        assert_eq!(
            measured("delay_ms", &super::tests::points(Path::new("/"), none)),
            f64::INFINITY
        );
    }

    #[test]
    fn the_figures_of_an_outage_are_read() {
        let outage = Outage {
            trigger_ended_s: 3.0,
            backlog_s: 10.0,
            recovered_s: None,
            goodput_end: 0.25,
            registered_end: Some(0.5),
            emergency: 8,
            emergency_in_time: 6,
            ..Outage::default()
        };
        let outcome = |_| Outcome {
            offered: 40,
            persons: 30,
            persons_served: 15,
            outage: Some(outage.clone()),
            ..Outcome::default()
        };
        let points = points(Path::new("/"), outcome);
        for (name, expected) in [
            ("persons_served", 0.5),
            ("redial_part", 0.25),
            ("goodput_end", 0.25),
            ("backlog_s", 10.0),
            // Ten times the rest: 5 s of warm-up, 25 s measured.
            ("recovered_s", 270.0),
            ("recovery_limit_s", 11.0),
            ("registered_end", 0.5),
            ("emergency_served", 0.75),
        ] {
            let value = measured(name, &points);
            assert!((value - expected).abs() < 1e-9, "{name}: {value}");
        }
        let none = super::tests::points(Path::new("/"), |_| Outcome::default());
        assert!(measured("goodput_end", &none).is_nan());
    }

    /// A part of nothing must not count as 1. Otherwise a claim about emergency calls would hold
    /// although its scenario has none.
    #[test]
    fn a_part_of_nothing_has_no_value() {
        let nothing = |_| Outcome {
            callers: vec![callers(
                json!({ "begun": 0, "set_up": 0, "completed": 0, "offered": 0 }),
            )],
            answerers: json!({ "calls": 0 }),
            outage: Some(Outage::default()),
            ..Outcome::default()
        };
        let points = points(Path::new("/"), nothing);
        for name in [
            "emergency_served",
            "registered_end",
            "set_up_part",
            "completed_part",
            "reached",
            "redial_part",
            "early_part",
            "lost_180",
        ] {
            assert!(measured(name, &points).is_nan(), "{name}");
        }
    }

    #[test]
    fn a_measure_of_data_that_are_missing_has_no_value() {
        let lacking = |_| Outcome {
            callers: vec![callers(
                json!({ "offered": 5, "measured": { "set_up_delay": { "count": 2 } } }),
            )],
            ..Outcome::default()
        };
        let points = points(Path::new("/nonexistent"), lacking);
        for name in [
            "met_by_999",
            "full_s",
            "occupancy",
            "delay_ms",
            "set_up_part",
            "reached",
            "jain",
            "source_goodput",
        ] {
            assert!(measured(name, &points).is_nan(), "{name}");
        }
        assert!(!measured("queue_swing", &points).is_finite());
    }

    #[test]
    fn responses_are_lost_if_the_tested_server_does_not_pass_them_on() {
        let flow = |from: &str, to: &str, message: &str, sent| MessageCount {
            from: from.to_owned(),
            to: to.to_owned(),
            message: message.to_owned(),
            sent,
            lost: 0,
        };
        let flows = vec![
            flow("answerers", "re", "180 INVITE", 10),
            flow("re", "se", "180 INVITE", 1),
            flow("se", "callers", "180 INVITE", 1),
            flow("answerers", "re", "200 INVITE", 4),
            flow("re", "se", "200 INVITE", 3),
        ];
        let points =
            points(Path::new("/"), |_| Outcome { flows: flows.clone(), ..Outcome::default() });
        assert!((measured("lost_180", &points) - 0.9).abs() < 1e-9);
        assert!((measured("lost_200", &points) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn the_peak_ends_at_the_first_load_that_is_not_handled() {
        let handled = |load| match load {
            0.5 | 1.1 => 100_000,
            0.9 => 99_995,
            _ => 99_900,
        };
        let outcome = |load| Outcome {
            requests: 100_000,
            requests_handled: handled(load),
            ..Outcome::default()
        };
        let points = points(Path::new("/"), outcome);
        assert_eq!(measured("peak", &points), 0.9);
        assert!((measured("peak_cps", &points) - 0.9 / 0.006).abs() < 1e-6);
    }

    #[test]
    fn the_quantile_of_transactions_that_others_met_is_found() {
        assert_eq!(met_by(&[90, 9, 0, 1], 0.9), 0.0);
        assert_eq!(met_by(&[90, 9, 0, 1], 0.99), 1.0);
        assert_eq!(met_by(&[90, 9, 0, 1], 0.999), 3.0);
    }

    #[test]
    fn a_part_of_a_run_has_the_shares_of_its_sources() {
        let folder = tempfile::tempdir().unwrap();
        let scenario = SCENARIO.replace(
            "[[node]]\nname = \"re\"",
            "[[node]]\nname = \"se-2\"\nto = [\"re\"]\n[[node]]\nname = \"se-3\"\nto = [\"re\"]\n\
             [[node]]\nname = \"re\"",
        );
        let mut text = "t_s,node,quantity,value\n".to_owned();
        for (at, good) in [(10, [9.0, 9.0]), (20, [10.0, 20.0]), (30, [20.0, 40.0])] {
            for (node, good, offered) in [("se", good[0], 30.0), ("se-2", good[1], 60.0)] {
                text += &format!("{at},callers-{node},in_time_cps,{good}\n");
                text += &format!("{at},callers-{node},offered_cps,{offered}\n");
            }
            text += &format!("{at},callers-se-3,in_time_cps,0\n{at},callers-se-3,offered_cps,0\n");
        }
        fs::write(folder.path().join("timeline.csv"), text).unwrap();
        let scenario = Scenario::parse(Path::new("s"), scenario.as_bytes()).unwrap();
        let run = runs(&scenario, Kind::Sim).remove(0);
        let outcome = Outcome::default();
        let points = [Point { run, outcome, folder: folder.path().to_owned() }];
        // Six messages of 1 ms are a call. The sample at 10 s is of the time before.
        assert!((measured("source_goodput", &points) - 15.0 * 0.006).abs() < 1e-9);
        assert!((measured("jain", &points) - 0.9).abs() < 1e-9, "the third does not call");
        assert!((measured("jain_success", &points) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_timeline_has_the_time_at_full_load_and_what_follows() {
        let folder = tempfile::tempdir().unwrap();
        let mut text = "t_s,node,quantity,value\n".to_owned();
        for (at, occupancy, waiting) in [
            (1, 0.5, 9),
            (2, 0.99, 500),
            (9, 1.0, 700),
            (12, 0.9, 300),
            (20, 0.8, 10),
            (30, 0.6, 40),
            // The measured time has ended, and the load ends.
            (31, 0.0, 0),
        ] {
            text +=
                &format!("{at},server,occupancy,{occupancy}\n{at},callers-server,occupancy,1\n");
            text += &format!("{at},server,waiting,{waiting}\n");
        }
        fs::write(folder.path().join("timeline.csv"), text).unwrap();
        let points = points(folder.path(), |_| Outcome::default());
        assert_eq!(measured("full_s", &points), 10.0);
        assert_eq!(measured("queue_swing", &points), 30.0);
        assert!((measured("occupancy", &points) - 0.7).abs() < 1e-9);
    }
}
