//! Tests of back ends with limits: they get as many calls as allowed, and not one more.

use std::time::Instant;

use crate::stage::{Configuration, Load, Metrics, Peer, Sipp, Stage, Tidegate};

/// Returns a configuration with a pool of these callees, each with `limit`, and two shards.
fn configuration(stage: &Stage, callees: &[Sipp], limit: &str) -> Configuration {
    let backend =
        |callee: &Sipp| format!("[[pool.backend]]\nuri = \"sip:{}\"\n{limit}\n", callee.address());
    let more = callees.iter().map(backend).collect();
    Configuration { shards: 2, more, ..Configuration::new(stage, &[]) }
}

/// Returns a load whose calls have ports of their own, so that each shard gets some.
fn calls(calls: u32, hold_ms: u32) -> Load<'static> {
    let rate_cps = 100;
    Load { scenario: "uac-routes", calls, rate_cps, hold_ms, socket_each: true, is_tcp: false }
}

fn rejected(metrics: &Metrics) -> u64 {
    metrics.sum("work_rejected_total", &[("reason", "pool_full")])
}

#[test]
fn calls_up_to_the_limit_are_taken_and_the_next_is_rejected_until_one_has_ended() {
    let stage = Stage::new();
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let first = configuration(&stage, &callees, "calls_max = 20");
    let tidegate = Tidegate::start(&stage, &first);
    let here = tidegate.address();
    let make = |load: &Load| Sipp::caller(&stage, here, load);
    let held = |metrics: &Metrics| metrics.sum("backend_calls", &[]);

    // Each caller has a port of its own, so that each shard gets some of the calls.
    let callers: Vec<_> = (0..40).map(|_| Peer::new(stage.ip())).collect();
    let long: Vec<_> = callers.iter().map(|caller| caller.set_up(here)).collect();
    let metrics = tidegate.wait_for("the pool is full", |metrics| held(metrics) == 40);
    for callee in &callees {
        assert_eq!(metrics.backend("backend_calls", callee.address()), 20);
        assert_eq!(metrics.backend("backend_calls_max", callee.address()), 20);
    }
    assert_eq!(metrics.sum("pool_headroom_calls", &[]), 0);
    let beyond = make(&calls(10, 0)).wait();
    assert_eq!((beyond.created, beyond.failed), (10, 10), "{beyond}");
    let metrics = tidegate.metrics();
    assert_eq!((rejected(&metrics), held(&metrics)), (10, 40));

    // After a reload, each back end has room for one more call, so two more calls succeed.
    configuration(&stage, &callees, "calls_max = 21").write(&stage, "tidegate.toml");
    let (status, said) = tidegate.ctl(&stage, &["reload"]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(
        said.lines().filter(|line| line.contains(" 20 ") && line.contains(" 21 ")).count(),
        2
    );
    let two = make(&calls(2, 0)).wait();
    two.assert_all_well(2);

    // When calls end, the back ends have room again.
    for (caller, ok) in callers.iter().zip(&long) {
        assert_eq!(caller.hang_up(here, ok), 200);
    }
    tidegate.wait_for("there is room", |metrics| metrics.sum("pool_headroom_calls", &[]) == 42);
    make(&calls(42, 500)).wait().assert_all_well(42);
    let metrics = tidegate.metrics();
    assert_eq!(rejected(&metrics), 10);
    metrics.assert_nothing_held();
    for callee in callees {
        let served = callee.finish();
        served.assert_all_well(served.created);
    }
}

#[test]
fn a_rate_is_kept_by_all_shards_together() {
    let stage = Stage::new();
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let configuration = configuration(&stage, &callees, "cps_max = 20");
    let tidegate = Tidegate::start(&stage, &configuration);
    let began = Instant::now();
    let offered = Sipp::caller(&stage, tidegate.address(), &calls(300, 0)).wait();
    let elapsed_s = began.elapsed().as_secs_f64();
    // Each of the two back ends may get two calls at once, and both together 40 a second.
    let taken_max = 4.0 + 40.0 * elapsed_s;
    assert!(f64::from(offered.successful) <= taken_max, "{offered} in {elapsed_s} s");
    // SIPp needs at least three seconds to offer 300 calls.
    assert!(offered.successful >= 100, "{offered} in {elapsed_s} s");
    let metrics = tidegate.metrics();
    assert_eq!(rejected(&metrics), u64::from(offered.failed));
    for callee in callees {
        assert_eq!(metrics.backend("backend_rejections_total", callee.address()), 0);
        let served = callee.finish();
        served.assert_all_well(served.created);
    }
}
