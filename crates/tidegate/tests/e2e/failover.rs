//! Tests of a back end that dies and returns.

use crate::stage::{Configuration, Load, Sipp, Stage, Tidegate};

#[test]
fn new_calls_skip_a_dead_back_end_until_it_returns() {
    let stage = Stage::new();
    let [stays, dies] = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let backends = [stays.address(), dies.address()];
    let configuration =
        Configuration { backend_pause_seconds: 1, ..Configuration::new(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let call = |calls| {
        let load = Load { scenario: "uac-routes", calls, ..Load::default() };
        Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(calls);
    };
    let assigned = |i: usize| tidegate.metrics().backend("backend_assigned_total", backends[i]);

    call(50);
    assert_eq!((assigned(0), assigned(1)), (25, 25));

    // The first INVITE to the dead back end causes an ICMP error. The caller retransmits this
    // INVITE after T1, and Tidegate sends it to the other back end. The same happens each time the
    // pause of the dead back end ends. The 200 calls take two seconds, and a pause takes one.
    let died = dies.address();
    dies.kill();
    call(200);
    let metrics = tidegate.metrics();
    let failures = metrics.backend("backend_failures_total", died);
    assert!((2..100).contains(&failures), "{failures} failures");
    assert!(metrics.sum("calls_moved_total", &[]) >= 2);
    metrics.assert_nothing_held();

    let before = assigned(1);
    let returned = Sipp::callee_at(&stage, "uas-record-route", died);
    tidegate.wait_for("its pause is over", |metrics| metrics.backend("backend_up", died) == 1);
    call(50);
    assert_eq!(assigned(1) - before, 25);
    returned.finish().assert_all_well(25);
    // `stays` gets all calls, except those that went to the other back end before its death and
    // after its return.
    stays.finish().assert_all_well(25 + 200 + 25);
}
