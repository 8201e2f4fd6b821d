//! Callers and answerers as a point has them, wherever they are.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_agent::{AnswererConfig, CallerConfig, Load, Timing};

use crate::point::Point;

/// Beyond the deadline of the last call, for what is still on its way to be counted.
const MARGIN: Duration = Duration::from_millis(100);

/// How long `point` lasts: its load, and the deadline of the last call.
pub(super) fn lasts(point: &Point) -> Duration {
    point.warm_up + point.measured + millis(point.conditions.deadline_ms) + MARGIN
}

/// Callers at `local` who call whoever is at `target`.
pub(super) fn caller(point: &Point, local: SocketAddr, target: SocketAddr) -> CallerConfig {
    let conditions = &point.conditions;
    CallerConfig {
        load: Load {
            process: conditions.arrivals.clone(),
            rate_cps: point.rate_cps(),
            calls: u32::MAX,
            duration: point.warm_up + point.measured,
            ..Load::default()
        },
        hold: Duration::from_secs_f64(conditions.hold_s).into(),
        patience: Duration::from_secs_f64(conditions.patience_s).into(),
        deadline: millis(conditions.deadline_ms),
        warm_up: point.warm_up,
        timing: Timing { t1: millis(conditions.t1_ms), ..Timing::default() },
        ..CallerConfig::new(local, target)
    }
}

/// The answerer numbered `index`, at `local`: it answers at once.
pub(super) fn answerer(index: usize, local: SocketAddr) -> AnswererConfig {
    AnswererConfig { name: format!("answerer-{index}"), ..AnswererConfig::new(local) }
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
