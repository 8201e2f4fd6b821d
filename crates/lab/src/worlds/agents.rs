//! Callers and answerers as a point has them, wherever they are.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_agent::{AnswererConfig, CallerConfig, Load, Span, Timing};

use crate::point::Point;
use crate::scenario::Hold;

/// Who is called: a name, so that no server takes it for a stranger's address.
const CALLED: &str = "sip:service@example.com";

/// As many users are called where it matters that there are several.
const CALLEES: u32 = 100;

/// Beyond the deadline of the last call, for what is still on its way to be counted.
const MARGIN: Duration = Duration::from_millis(100);

/// How long `point` lasts: its load, and the deadline of the last call.
pub(crate) fn lasts(point: &Point) -> Duration {
    point.warm_up + point.measured + deadline(point) + MARGIN
}

/// This part of the calls of `point`.
pub(crate) fn load(point: &Point, share: f64) -> Load {
    Load {
        process: point.conditions.arrivals.clone(),
        profile: point.conditions.profile.clone(),
        rate_cps: share * point.rate_cps(),
        calls: u32::MAX,
        duration: point.warm_up + point.measured,
    }
}

/// Up to which set-up delay a call counts.
pub(super) fn deadline(point: &Point) -> Duration {
    millis(point.conditions.deadline_ms)
}

/// Callers at `local` who make this part of the calls, to the entry numbered `index` of those that
/// are at `entries`.
pub(super) fn caller(
    point: &Point,
    share: f64,
    local: SocketAddr,
    entries: &[SocketAddr],
    index: usize,
) -> CallerConfig {
    let conditions = &point.conditions;
    let (before, others) = entries.split_at(index);
    let (&target, after) = others.split_first().expect("an entry of the topology");
    let alternates = after.iter().chain(before).copied();
    let hold = Duration::from_secs_f64(conditions.hold_s);
    CallerConfig {
        uri: CALLED.to_owned(),
        callees: callees(point),
        load: load(point, share),
        hold: match conditions.hold {
            Hold::Fixed => Span::Fixed(hold),
            Hold::Exponential => Span::Exponential(hold),
            Hold::Lognormal(sigma) => Span::LogNormal { mean: hold, sigma },
        },
        patience: Duration::from_secs_f64(conditions.patience_s).into(),
        deadline: deadline(point),
        warm_up: point.warm_up,
        timing: timing(point),
        retransmissions: conditions.retransmissions,
        open_max: conditions.open_max,
        open_limit: conditions.open_limit,
        alternates: alternates.filter(|_| conditions.failover).collect(),
        ..CallerConfig::new(local, target)
    }
}

/// Users that are called. A server that learns from refusals believes those of several of them.
fn callees(point: &Point) -> u32 {
    let of_nodes =
        point.conditions.topology.nodes().iter().filter_map(|node| node.balancing.as_ref());
    let mut pools = of_nodes.chain(&point.variant.pool);
    let learns = pools.any(|pool| pool.learning.is_some());
    if learns { CALLEES } else { 1 }
}

/// The answerer numbered `index`, at `local`: it answers at once.
pub(super) fn answerer(point: &Point, index: usize, local: SocketAddr) -> AnswererConfig {
    let conditions = &point.conditions;
    AnswererConfig {
        name: format!("answerer-{index}"),
        trying: conditions.trying,
        deadline: deadline(point),
        timing: timing(point),
        retransmissions: conditions.retransmissions,
        ..AnswererConfig::new(local)
    }
}

/// Number of the answerer at `index` among all agents, which draw from streams of their own.
pub(super) fn answerer_element(index: usize) -> u32 {
    1 + index as u32
}

/// The same of the callers of the entry at `index`; there are fewer than 65 answerers.
pub(super) fn caller_element(index: usize) -> u32 {
    if index == 0 { 0 } else { 64 + index as u32 }
}

/// The timers of agents.
pub(super) fn timing(point: &Point) -> Timing {
    Timing { t1: millis(point.conditions.t1_ms), ..Timing::default() }
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
