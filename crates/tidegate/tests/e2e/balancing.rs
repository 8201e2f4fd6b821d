//! Tests of the division of calls between two back ends, by each policy.

use crate::stage::{Configuration, Load, Sipp, Stage, Tidegate};

const CALLS: u32 = 1000;

/// Makes the calls, and returns the number of calls at the first of the two back ends.
fn share_of_the_first(policy: &'static str) -> u32 {
    let stage = Stage::new();
    let callees = [Sipp::callee(&stage, "uas"), Sipp::callee(&stage, "uas")];
    let backends = callees.each_ref().map(Sipp::address);
    let configuration = Configuration { policy, ..Configuration::new(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);

    let load = Load { calls: CALLS, rate_cps: 500, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(CALLS);

    let served = callees.map(Sipp::finish);
    let metrics = tidegate.metrics();
    for (calls, backend) in served.iter().zip(backends) {
        calls.assert_all_well(calls.created);
        assert_eq!(metrics.backend("backend_assigned_total", backend), u64::from(calls.created));
        assert_eq!(metrics.backend("backend_failures_total", backend), 0);
    }
    assert_eq!(served[0].created + served[1].created, CALLS);
    metrics.assert_nothing_lost();
    metrics.assert_nothing_held();
    served[0].created
}

#[test]
fn rr_gives_each_back_end_half_of_the_calls() {
    assert_eq!(share_of_the_first("rr"), CALLS / 2);
}

#[test]
fn hash_gives_each_back_end_about_half_of_the_calls() {
    // The number is binomial with a standard deviation of 16. The test allows six standard
    // deviations.
    assert!(share_of_the_first("hash").abs_diff(CALLS / 2) < 100);
}

#[test]
fn cjsq_gives_equal_back_ends_equal_shares() {
    assert_shared(share_of_the_first("cjsq"));
}

#[test]
fn tlwl_gives_equal_back_ends_equal_shares() {
    assert_shared(share_of_the_first("tlwl"));
}

/// Checks that each back end got at least a fifth of the calls. While one back end gets no CPU
/// time, the policy selects the other one, so the shares may differ from a half.
fn assert_shared(first: u32) {
    assert!((CALLS / 5..=CALLS * 4 / 5).contains(&first), "{first} of {CALLS}");
}
