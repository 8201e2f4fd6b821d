//! What agents counted, as an outcome and as readings.

use serde_json::Value;
use tidegate_agent::{AnswererStats, CallerStats, Measured};

use super::agents;
use crate::outcome::{CallersOutcome, Outcome, Quantiles};
use crate::point::Point;
use crate::recovery::{overload_ends, recovery};
use crate::timeline::{CallersReading, Timeline};
use crate::topology::Topology;

/// The file of a run's course.
pub(super) const TIMELINE: &str = "timeline.csv";

/// The file of the configuration of the server at `place`.
pub(super) fn configuration_name(topology: &Topology, place: usize) -> String {
    match topology.nodes() {
        [_] => "tidegate.toml".to_owned(),
        nodes => format!("{}.toml", nodes[place].name),
    }
}

/// What the agents of a run of `point` say, those at each entry and all answerers together. What
/// servers say is not in it.
pub(super) fn outcome(
    point: &Point,
    callers: &[CallerStats],
    answerers: &AnswererStats,
    timeline: &Timeline,
) -> Outcome {
    let all = callers.iter().fold(CallerStats::default(), |mut all, stats| {
        all.merge(stats);
        all
    });
    let measured: &Measured = &all.measured;
    let quantile = |q: f64| measured.set_up_delay.quantile(q).as_secs_f64() * 1e3;
    let topology = &point.conditions.topology;
    let crowd = |((place, _), stats): ((usize, f64), &CallerStats)| CallersOutcome {
        to: topology.nodes()[place].name.clone(),
        stats: value(stats),
    };
    Outcome {
        offered: measured.offered,
        set_up: measured.set_up,
        set_up_in_time: measured.set_up_in_time,
        good: measured.set_up_in_time,
        refused: measured.refused,
        repeated_invites: measured.repeated_invites,
        measured_s: point.measured.as_secs_f64(),
        set_up_delay: (measured.set_up > 0).then(|| Quantiles {
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            max_ms: measured.set_up_delay.max().as_secs_f64() * 1e3,
        }),
        recovery_s: recovered_after_s(point, timeline),
        callers: topology.entries().zip(callers).map(crowd).collect(),
        answerers: value(answerers),
        ..Outcome::default()
    }
}

/// What callers have counted so far.
pub(super) fn reading(stats: &CallerStats) -> CallersReading {
    CallersReading {
        offered: stats.offered,
        set_up: stats.set_up,
        in_time: stats.set_up_in_time,
        refused: stats.failed.status.get(&503).copied().unwrap_or(0),
        repeated: stats.repeated.invite,
        open: stats.open,
    }
}

fn recovered_after_s(point: &Point, timeline: &Timeline) -> Option<f64> {
    let capacity_cps = point.capacity_cps();
    let end = overload_ends(&agents::load(point, 1.0), capacity_cps)?;
    let time = recovery(&timeline.offered(), &timeline.in_time(), capacity_cps, end)?;
    Some(time.as_secs_f64())
}

fn value(stats: &impl serde::Serialize) -> Value {
    serde_json::to_value(stats).expect("counts have names")
}
