use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;
use crate::outcome::{CallersOutcome, MessageCount, NodeOutcome, Outcome};
use crate::testing::planned;
use crate::worlds::Kind;

const SCENARIO: &str = "[emulate]\nserve_us = 1000\n[sweep]\nload = [0.5, 0.9, 1, 1.1]\n\
    [schedule]\nwarm_up_s = 5\nmeasured_s = 25\n[[variant]]\noverload = {}\n[[node]]\nname = \"se\"\nto = [\"re\"]\n\
    [[node]]\nname = \"re\"\nto = [\"answerers\"]\nunder_test = true\n";

/// Returns a run under each load with this outcome.
fn points(folder: &Path, outcome: impl Fn(f64) -> Outcome) -> Vec<Point> {
    let mut runs = planned(SCENARIO, Kind::Sim);
    runs.truncate(4);
    let point = |run: crate::run_spec::RunSpec| {
        let outcome = outcome(run.conditions.load);
        Point { run, outcome, folder: folder.to_owned() }
    };
    runs.into_iter().map(point).collect()
}

fn measured(name: &str, points: &[Point]) -> f64 {
    measured_in(name, points, Part::default())
}

fn measured_in(name: &str, points: &[Point], part: Part) -> f64 {
    let measure = MEASURES.iter().find(|measure| measure.name == name).unwrap();
    match measure.of {
        Of::One(of) => of(&points[0]),
        Of::All(of) => of(&points.iter().collect::<Vec<_>>()),
        Of::Part(of) => of(&points[0], &part),
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
            callers(json!({ "set_up_delay": delay(1, 1000), "begun": 4, "set_up": 3, "offered": 5,
                            "completed": 1, "measured": { "set_up_delay": delay(2, 7000) } })),
            callers(json!({ "set_up_delay": delay(3, 5000), "begun": 6, "set_up": 2, "offered": 5,
                            "completed": 0 })),
        ],
        answerers: json!({ "calls": 8 }),
        nodes: vec![
            NodeOutcome { early: 1, ..NodeOutcome::default() },
            NodeOutcome { early: 2, ..NodeOutcome::default() },
        ],
        set_up: 30,
        measured_s: 10.0,
        offered: 500,
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
        // A call is six messages of 1 ms, so the capacity is 166.7 calls/s.
        ("goodput", 0.15),
        // 50 calls/s were offered, and any law could serve them all.
        ("goodput_of_bound", 0.5),
    ] {
        let value = measured(name, &points);
        assert!((value - expected).abs() < 1e-9, "{name}: {value}");
    }
    let none = |_| Outcome::default();
    assert_eq!(measured("delay_ms", &self::points(Path::new("/"), none)), f64::INFINITY);
}

#[test]
fn the_figures_of_an_outage_are_read() {
    let outage = Outage {
        trigger_ended_s: 3.0,
        backlog_s: 10.0,
        backlog_calls_s: 4.0,
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
        ("backlog_calls_s", 4.0),
        ("recovered_s", NEVER),
        ("recovery_limit_s", 11.0),
        ("recovery_of_limit", NEVER),
        ("registered_s", NEVER),
        ("registered_end", 0.5),
        ("emergency_served", 0.75),
    ] {
        let value = measured(name, &points);
        assert!((value - expected).abs() < 1e-9, "{name}: {value}");
    }
    let none = self::points(Path::new("/"), |_| Outcome::default());
    assert!(measured("goodput_end", &none).is_nan());
}

#[test]
fn a_recovery_is_judged_by_the_backlog_of_its_own_run() {
    let of_limit = |recovered_s, backlog_s| {
        recovery_of_limit(&Outage { recovered_s, backlog_s, ..Outage::default() })
    };
    for (recovered_s, backlog_s, expected) in [
        (Some(5.5), 10.0, 0.5),
        (Some(22.0), 10.0, 2.0),
        // Goodput that has not recovered at the end of a run counts as never recovered, even if the
        // limit is later than the end.
        (None, 10_000.0, NEVER),
        (Some(0.0), 0.0, 0.0),
        (Some(1.0), 0.0, NEVER),
    ] {
        let value = of_limit(recovered_s, backlog_s);
        assert!((value - expected).abs() < 1e-9, "{recovered_s:?} of {backlog_s}: {value}");
    }
}

/// A fraction of nothing must not count as 1. Otherwise a claim about emergency calls would hold in
/// a scenario without emergency calls.
#[test]
fn a_part_of_nothing_has_no_value() {
    let nothing = |_| Outcome {
        callers: vec![callers(json!({ "begun": 0, "set_up": 0, "completed": 0, "offered": 0 }))],
        answerers: json!({ "calls": 0 }),
        outage: Some(Outage::default()),
        ..Outcome::default()
    };
    let points = points(Path::new("/"), nothing);
    for name in [
        "emergency_served",
        "registered_end",
        "registered_s",
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
    let points = points(Path::new("/"), |_| Outcome { flows: flows.clone(), ..Outcome::default() });
    assert!((measured("lost_180", &points) - 0.9).abs() < 1e-9);
    assert!((measured("lost_200", &points) - 0.25).abs() < 1e-9);
}

/// Returns the runs under all loads. Under each load that `is_handled` accepts, 99.995 % of the
/// requests are handled, and 99.9 % under any other.
fn handled(is_handled: impl Fn(f64) -> bool) -> Vec<Point> {
    points(Path::new("/"), |load| Outcome {
        requests: 100_000,
        requests_handled: if is_handled(load) { 99_995 } else { 99_900 },
        ..Outcome::default()
    })
}

#[test]
fn the_peak_ends_at_the_first_load_that_is_not_handled() {
    let points = handled(|load| load != 1.0);
    assert_eq!(measured("peak", &points), 0.9);
    assert!((measured("peak_cps", &points) - 0.9 / 0.006).abs() < 1e-6);
}

/// If the peak is outside the sweep, the end of the sweep is not the peak.
#[test]
fn a_sweep_that_does_not_contain_the_peak_has_none() {
    for beyond in [handled(|_| true), handled(|load| load != 0.5)] {
        assert!(measured("peak", &beyond).is_nan());
        assert!(measured("peak_cps", &beyond).is_nan());
    }
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
    let run = planned(&scenario, Kind::Sim).remove(0);
    let outcome = Outcome::default();
    let points = [Point { run, outcome, folder: folder.path().to_owned() }];
    // A call is six messages of 1 ms. The sample at 10 s covers the time before `from_s`.
    let measured = |name| measured_in(name, &points, Part { from_s: 10.0, ..Part::default() });
    assert!((measured("source_goodput") - 15.0 * 0.006).abs() < 1e-9);
    assert!((measured("jain") - 0.9).abs() < 1e-9, "the third does not call");
    assert!((measured("jain_success") - 1.0).abs() < 1e-9);
}

/// The mean over a run hides that no call is set up for a time.
#[test]
fn the_calls_per_second_of_a_part_of_a_run_are_those_of_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "t_s,node,quantity,value\n".to_owned();
    for (at, cps) in [(5, 60.0), (10, 30.0), (15, 0.0), (20, 0.0), (30, 9.0)] {
        text += &format!("{at},callers-se,set_up_cps,{cps}\n");
    }
    fs::write(folder.path().join("timeline.csv"), text).unwrap();
    let outcome = |_| Outcome { set_up: 500, measured_s: 25.0, ..Outcome::default() };
    let points = points(folder.path(), outcome);
    let within =
        |from_s, to_s| measured_in("cps", &points, Part { from_s, to_s, ..Part::default() });
    assert_eq!(within(0.0, 10.0), 45.0);
    assert_eq!(within(10.0, 20.0), 0.0);
    assert_eq!(measured("cps", &points), 20.0);
    assert!(within(21.0, 29.0).is_nan());
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
        // The measured time has ended before this sample, and the load ends.
        (31, 0.0, 0),
    ] {
        text += &format!("{at},re,occupancy,{occupancy}\n{at},se,occupancy,1\n");
        text += &format!("{at},re,waiting,{waiting}\n");
    }
    fs::write(folder.path().join("timeline.csv"), text).unwrap();
    let points = points(folder.path(), |_| Outcome::default());
    assert_eq!(measured("full_s", &points), 10.0);
    assert_eq!(measured("queue_swing", &points), 30.0);
    assert!((measured("occupancy", &points) - 0.7).abs() < 1e-9);
}

/// The end of the run must not count as the end of the full load.
#[test]
fn a_processor_that_is_full_until_the_end_has_no_time_at_full_load() {
    let time = |last: f64| {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "t_s,node,quantity,value\n2,re,occupancy,1\n29,re,occupancy,{last}\n31,re,occupancy,0\n"
        );
        fs::write(folder.path().join("timeline.csv"), text).unwrap();
        measured("full_s", &points(folder.path(), |_| Outcome::default()))
    };
    assert_eq!(time(0.9), 27.0);
    assert!(time(1.0).is_nan());
}
