//! Tests of the effect that the throttle and the measurements have in a closed loop.

use tidegate_control::{Decide, ThrottleKind, bound};

use crate::plant::{Setup, run};
use crate::{COSTS, DECIDE, goodput, setup};

// In a closed loop, the law corrects a throttle that passes more or less than its share.
#[test]
fn pi_keeps_most_of_the_bound_by_every_throttle() {
    for kind in ThrottleKind::ALL {
        for decide in DECIDE {
            let law = setup("pi", &[], decide, &[(30.0, 2.0)]);
            let goodput = goodput(&run(&Setup { throttle: (kind, 5), ..law }));
            let bound = bound::goodput(2.0, COSTS.ratio());
            assert!(goodput >= 0.8 * bound, "{kind:?}, {decide:?}: {goodput} of {bound}");
        }
    }
}

/// Returns the time in seconds until the law admits less than nine in ten calls, after the load has
/// risen from half the capacity to three times the capacity.
fn noticed_s(params: &[(&str, f64)]) -> f64 {
    let params = [&[("k", 2.0), ("w", 0.3)], params].concat();
    let law = setup("occupancy", &params, Decide::Arrival, &[(10.0, 0.5), (10.0, 3.0)]);
    let outcome = run(&Setup { queue_max: 1000, ..law });
    let first = outcome.noted(10.0, 20.0).find(|note| note.admitted < 0.9);
    first.map_or(f64::INFINITY, |note| note.at.as_secs_f64() - 10.0)
}

// 000 §6.3, equation 13: 0.3·(1 − 0.95) of the arrivals in half a second are 3 messages before the step.
#[test]
fn left_to_itself_occupancy_notices_an_overload_in_time() {
    let rare = noticed_s(&[("measure", 4000.0)]);
    let left = noticed_s(&[("measure", 0.0), ("notice_s", 0.5)]);
    assert!(left < 0.75 && rare > 1.5, "{left} s, and {rare} s");
}
