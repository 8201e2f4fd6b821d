//! Callers and answerers as a point has them, wherever they are.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_agent::{AnswererConfig, CallerConfig, Load, Span, Timing};

use crate::run_spec::RunSpec;
use crate::scenario::Hold;

/// Who is called: a name, so that no server takes it for a stranger's address.
const CALLED: &str = "sip:service@example.com";

/// As many users are called where it matters that there are several.
const CALLEES: u32 = 100;

/// Beyond the deadline of the last call, for what is still on its way to be counted.
const MARGIN: Duration = Duration::from_millis(100);

/// How long `run` lasts: its load, and the deadline of the last call.
pub(crate) fn lasts(run: &RunSpec) -> Duration {
    run.warm_up + run.measured + deadline(run) + MARGIN
}

/// This part of the calls of `run`.
pub(crate) fn load(run: &RunSpec, share: f64) -> Load {
    Load {
        process: run.conditions.arrivals.clone(),
        profile: run.conditions.profile.clone(),
        rate_cps: share * run.rate_cps(),
        calls: u32::MAX,
        duration: run.warm_up + run.measured,
    }
}

/// Up to which set-up delay a call counts.
pub(super) fn deadline(run: &RunSpec) -> Duration {
    millis(run.conditions.deadline_ms)
}

/// Callers at `local` who make this part of the calls, to the entry numbered `index` of those that
/// are at `entries`.
pub(super) fn caller(
    run: &RunSpec,
    share: f64,
    local: SocketAddr,
    entries: &[SocketAddr],
    index: usize,
) -> CallerConfig {
    let conditions = &run.conditions;
    let (before, others) = entries.split_at(index);
    let (&target, after) = others.split_first().expect("an entry of the topology");
    let alternates = after.iter().chain(before).copied();
    let hold = Duration::from_secs_f64(conditions.hold_s);
    CallerConfig {
        uri: CALLED.to_owned(),
        callees: callees(run),
        load: load(run, share),
        hold: match conditions.hold {
            Hold::Fixed => Span::Fixed(hold),
            Hold::Exponential => Span::Exponential(hold),
            Hold::Lognormal(sigma) => Span::LogNormal { mean: hold, sigma },
        },
        patience: Duration::from_secs_f64(conditions.patience_s).into(),
        deadline: deadline(run),
        warm_up: run.warm_up,
        timing: timing(run),
        retransmissions: conditions.retransmissions,
        open_max: conditions.open_max,
        open_limit: conditions.open_limit,
        alternates: alternates.filter(|_| conditions.failover).collect(),
        ..CallerConfig::new(local, target)
    }
}

/// Users that are called. A server that learns from refusals believes those of several of them.
fn callees(run: &RunSpec) -> u32 {
    let of_nodes =
        run.conditions.topology.nodes().iter().filter_map(|node| node.balancing.as_ref());
    let mut pools = of_nodes.chain(&run.variant.pool);
    let learns = pools.any(|pool| pool.learning.is_some());
    if learns { CALLEES } else { 1 }
}

/// The answerer numbered `index`, at `local`: it answers at once.
pub(super) fn answerer(run: &RunSpec, index: usize, local: SocketAddr) -> AnswererConfig {
    let conditions = &run.conditions;
    AnswererConfig {
        name: format!("answerer-{index}"),
        trying: conditions.trying,
        deadline: deadline(run),
        timing: timing(run),
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
pub(super) fn timing(run: &RunSpec) -> Timing {
    Timing { t1: millis(run.conditions.t1_ms), ..Timing::default() }
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
