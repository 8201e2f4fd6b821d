//! Tests of a scenario from its file to its results, in a computed world.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use serde_json::Value;
use tidegate_lab::experiment::{Experiment, Runner};
use tidegate_lab::outcome::{Outcome, Quantiles};
use tidegate_lab::progress::Lines;
use tidegate_lab::scenario::Scenario;
use tidegate_lab::store::Programs;
use tidegate_lab::worlds::{Computed, Kind, World};

const SCENARIO: &str = r#"
title = "Reckoned"
[emulate]
offer_us = 100
serve_us = 733
reject_us = 200
[sweep]
load = [0.5, 1, 2, 5]
[schedule]
measured_s = 100
[[variant]]
overload = { law = "none", decide = "service", queue = "fifo" }
[[variant]]
overload = { law = "pi" }
[[expect]]
variant = "pi (arrival, class)"
goodput_of_bound_min = 0.8
"#;

/// A world with a goodput of 90 % of the bound, in which the law `none` collapses beyond the
/// capacity. Each further seed adds two calls in a thousand. `count` is the number of runs.
fn reckoned(count: &AtomicUsize) -> impl World {
    Computed::new(Kind::Real, move |run, folder, _| {
        count.fetch_add(1, SeqCst);
        fs::write(folder.join("tidegate.toml"), "x").map_err(|error| error.to_string())?;
        let load = run.conditions.load;
        let collapses = run.variant.label == "none" && load > 1.0;
        let kept = if collapses { 0.0 } else { 0.9 * run.bound(load) };
        let capacity = run.rate_cps() / load;
        Ok(Outcome {
            offered: (run.rate_cps() * 100.0) as u64 + run.seed,
            good: (kept * capacity * 100.0 * (1.0 + run.seed as f64 / 500.0)) as u64,
            measured_s: 100.0,
            set_up_delay: (!collapses).then(Quantiles::default),
            ..Outcome::default()
        })
    })
}

fn perform_in(folder: &Path, world: &dyn World) -> Experiment {
    let scenario = Scenario::parse(Path::new("reckoned.toml"), SCENARIO.as_bytes()).unwrap();
    let programs = Programs::running().unwrap();
    let observer = Lines::new(std::io::sink());
    let runner = Runner {
        folder,
        programs: &programs,
        world,
        jobs: 2,
        observer: &observer,
        highlight: &[],
        cancelled: &AtomicBool::new(false),
    };
    runner.perform(&scenario).unwrap().expect("not cancelled")
}

#[test]
fn results_are_written_and_what_was_run_is_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicUsize::new(0);
    let world = reckoned(&count);
    let experiment = perform_in(folder.path(), &world);
    assert_eq!(count.load(SeqCst), 24);
    assert_eq!(experiment.rows.len(), 8);
    assert!(experiment.failed.is_empty());
    assert!(experiment.verdicts.iter().all(|verdict| verdict.held), "{:?}", experiment.verdicts);

    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let csv = String::from_utf8(read("results.csv")).unwrap();
    assert_eq!(csv.lines().count(), 25);
    assert!(csv.starts_with("world,variant,law,decide,queue,load,repetition,seed,"), "{csv}");
    let json: Value = serde_json::from_slice(&read("results.json")).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 8);
    assert_eq!(json["conditions"][0]["held"], true);
    let run = json["points"][0]["folder"].as_str().unwrap();
    assert!(folder.path().join(run).join("tidegate.toml").exists());
    for name in ["goodput", "set-up-delay", "retransmissions"] {
        assert!(read(&format!("{name}.svg")).starts_with(b"<svg "), "{name}");
        assert!(read(&format!("{name}.png")).starts_with(b"\x89PNG"), "{name}");
    }
    assert_eq!(read("scenario.toml"), SCENARIO.as_bytes());

    let again = perform_in(folder.path(), &world);
    assert_eq!(count.load(SeqCst), 24, "nothing was missing");
    assert_eq!(again.rows[0].goodput, experiment.rows[0].goodput);
}

#[test]
fn a_row_has_the_spread_of_its_runs_and_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = perform_in(folder.path(), &reckoned(&AtomicUsize::new(0)));
    let at = |variant: &str, load: f64| {
        let row = experiment.rows.iter().find(|r| r.variant.label == variant && r.load == load);
        row.unwrap()
    };
    let row = at("pi", 2.0);
    assert!((row.bound - (1.0 - 0.16) / 0.92).abs() < 1e-3, "{}", row.bound);
    assert!((row.goodput.median / row.bound - 0.9 * 1.004).abs() < 1e-3);
    assert!(row.goodput.min < row.goodput.median && row.goodput.median < row.goodput.max);
    let collapsed = at("none", 5.0);
    assert_eq!((collapsed.goodput.max, collapsed.p99_ms), (0.0, None));
}

#[test]
fn an_experiment_with_identical_repetitions_fails() {
    let folder = tempfile::tempdir().unwrap();
    // The seed changes nothing.
    let constant = Computed::new(Kind::Sim, |_, _, _| {
        Ok(Outcome { offered: 100, good: 100, measured_s: 1.0, ..Outcome::default() })
    });
    let experiment = perform_in(folder.path(), &constant);
    let failed: Vec<_> = experiment.verdicts.iter().filter(|verdict| !verdict.held).collect();
    let repeated = failed.iter().filter(|verdict| verdict.condition.contains("all 3 are equal"));
    assert_eq!(repeated.count(), 8, "two variants under four loads: {failed:?}");
    // The files of results contain the failed verdict too.
    let json: Value =
        serde_json::from_slice(&fs::read(folder.path().join("results.json")).unwrap()).unwrap();
    let told = json["conditions"].as_array().unwrap().iter();
    assert_eq!(told.filter(|condition| condition["held"] == false).count(), failed.len());
}

#[test]
fn results_list_the_runs_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let broken = Computed::new(Kind::Real, |run, folder, cancelled| {
        if run.seed == 2 && run.conditions.load == 5.0 {
            return Err("the server ended".to_owned());
        }
        reckoned(&AtomicUsize::new(0)).run(run, folder, cancelled)
    });
    let experiment = perform_in(folder.path(), &broken);
    assert_eq!((experiment.done.len(), experiment.failed.len()), (22, 2));
    let json: Value =
        serde_json::from_slice(&fs::read(folder.path().join("results.json")).unwrap()).unwrap();
    assert_eq!(json["points"].as_array().unwrap().len(), 22);
    let [none, pi] = &json["failed"].as_array().unwrap()[..] else { panic!("{}", json["failed"]) };
    for (failed, law) in [(none, "none"), (pi, "pi")] {
        assert!(failed["variant"].as_str().unwrap().starts_with(law), "{failed}");
        assert_eq!(failed["swept"]["load"], 5.0);
        assert_eq!((&failed["repetition"], &failed["seed"]), (&2.into(), &2.into()));
        assert_eq!(failed["error"], "the server ended");
    }
}
