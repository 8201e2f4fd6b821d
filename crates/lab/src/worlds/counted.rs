//! What agents counted, as an outcome.

use tidegate_agent::CallerStats;

use crate::outcome::{Outcome, Quantiles};
use crate::point::Point;

/// What callers say of a run of `point`; who they were and what the server says is not in it.
pub(super) fn outcome(point: &Point, calls: &CallerStats) -> Outcome {
    let measured = &calls.measured;
    let quantile = |q: f64| measured.set_up_delay.quantile(q).as_secs_f64() * 1e3;
    Outcome {
        offered: measured.offered,
        set_up: measured.set_up,
        set_up_in_time: measured.set_up_in_time,
        refused: measured.refused,
        repeated_invites: measured.repeated_invites,
        measured_s: point.measured.as_secs_f64(),
        set_up_delay: (measured.set_up > 0).then(|| Quantiles {
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            max_ms: measured.set_up_delay.max().as_secs_f64() * 1e3,
        }),
        ..Outcome::default()
    }
}
