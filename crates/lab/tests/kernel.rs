//! Tests of drops by the kernel, on an emulated processor in simulated time.

use std::sync::atomic::AtomicBool;

use tidegate_lab::outcome::Outcome;
use tidegate_lab::run_spec::runs;
use tidegate_lab::scenario::Scenario;
use tidegate_lab::worlds::{Kind, Simulated, World};

/// A call of six messages costs 6 ms, so the capacity is 166.7 calls/s. A rejection costs a tenth
/// of a call.
const CAPACITY_CPS: f64 = 1_000.0 / 6.0;
const SECONDS: f64 = 20.0;

/// Returns the outcome at a load of `load` times the capacity, and its goodput divided by the
/// capacity.
fn run(load: f64, disposal: &str) -> (Outcome, f64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    let text = format!(
        "title = \"t\"\n[workload]\nload = {load}\n\
         [schedule]\nwarm_up_s = 10\nmeasured_s = {SECONDS}\nrepetitions = 1\n\
         [emulate]\nserve_us = 1000\nreject_us = 600\n\
         [[variant]]\noverload = {{ law = \"pi\", disposal = \"{disposal}\" }}\n"
    );
    let scenario = Scenario::parse(&file, text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let run = runs(&scenario, Kind::Sim).remove(0);
    let outcome = Simulated::new().run(&run, folder.path(), &AtomicBool::new(false)).unwrap();
    let goodput = outcome.good as f64 / SECONDS / CAPACITY_CPS;
    (outcome, goodput)
}

#[test]
fn the_kernel_keeps_goodput_if_rejections_would_take_the_whole_processor() {
    let (rejecting, without) = run(15.0, "reject");
    let (shedding, with) = run(15.0, "kernel");
    assert_eq!(rejecting.nodes[0].filtered, 0);
    assert!(shedding.nodes[0].filtered > 10_000, "{:?}", shedding.nodes[0]);
    assert!(without < 0.02 && with > 0.45, "{with} against {without}");
    let (auto, with) = run(15.0, "auto");
    assert!(auto.nodes[0].filtered > 10_000 && with > 0.45, "{with}: {:?}", auto.nodes[0]);
}

#[test]
fn the_kernel_drops_nothing_if_rejections_cost_little() {
    let (rejecting, without) = run(1.2, "reject");
    let (shedding, with) = run(1.2, "kernel");
    assert_eq!((shedding.nodes[0].filtered, shedding.good), (0, rejecting.good));
    assert!(with > 0.8 && without > 0.8, "{with} against {without}");
    let (auto, with) = run(1.2, "auto");
    assert_eq!(auto.nodes[0].filtered, 0);
    assert!(with > 0.85, "{with}");
}
