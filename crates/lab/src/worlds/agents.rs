//! Callers and answerers of a run, in any world.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_agent::{AnswererConfig, CallerConfig, DevicesConfig, Load, Profile, Timing};

use crate::run_spec::RunSpec;

/// The called URI. Its host is a name, so that no server takes it for an outside address.
const CALLED: &str = "sip:service@example.com";

/// Maximum number of open calls to one server if the scenario does not set one.
const OPEN_MAX: usize = 100_000;

/// Number of called users if a server learns its limits from rejections. It then needs rejections
/// by several users.
const CALLEES: u32 = 100;

/// Time after the deadline of the last call, in which messages in flight are counted.
const MARGIN: Duration = Duration::from_millis(100);

/// Returns the duration of `run`: its load, and the deadline of the last call.
pub(crate) fn lasts(run: &RunSpec) -> Duration {
    run.load_until() + run.deadline() + MARGIN
}

/// Returns the load of the measured time of `run`, and of the warm-up before, for this share of its
/// calls.
pub(crate) fn load(run: &RunSpec, share: f64) -> Load {
    Load {
        process: run.conditions.arrivals.clone(),
        profile: run.conditions.profile.clone(),
        rate_cps: share * run.rate_cps(),
        calls: u32::MAX,
        duration: run.measured_until(),
        ..Load::default()
    }
}

/// Returns the offered load as a multiple of the capacity, as its mean over the measured time. It
/// differs from the load of the scenario if the rate of the calls has a profile.
pub(crate) fn mean_load(run: &RunSpec) -> f64 {
    let entries = || run.conditions.topology.entries().enumerate();
    if entries().all(|(index, _)| profile(run, index) == Profile::Constant) {
        return run.conditions.load;
    }
    let (from, to) = (run.warm_up, run.measured_until());
    let calls = entries().map(|(index, (_, share))| {
        let load = Load { profile: profile(run, index), ..load(run, share) };
        load.calls_until(to) - load.calls_until(from)
    });
    calls.sum::<f64>() / run.measured.as_secs_f64() / run.capacity_cps()
}

/// A source of calls to one server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Source {
    /// Number of the source among the sources of the server, from 0.
    pub index: usize,
    /// The part of the calls of the server that comes from this source.
    pub part: f64,
}

/// Returns the sources of the calls to one server. The trunk is the last one.
pub(super) fn sources(run: &RunSpec) -> Vec<Source> {
    let (count, trunk) = (run.conditions.sources, run.conditions.trunk);
    let part = (1.0 - trunk) / f64::from(count);
    let mut parts = vec![part; count as usize];
    parts.extend((trunk > 0.0).then_some(trunk));
    parts.into_iter().enumerate().map(|(index, part)| Source { index, part }).collect()
}

/// Returns callers at `local` that make the calls of one source. `entries` are the addresses of all
/// servers to which callers send. These callers send to the one at `index`.
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
        load: Load { profile: profile(run, index), duration: run.load_until(), ..load(run, share) },
        hold: conditions.hold.span(hold),
        patience: Duration::from_secs_f64(conditions.patience_s).into(),
        deadline: run.deadline(),
        warm_up: run.warm_up,
        measured_until: run.measured_until(),
        timing: timing(run),
        retransmissions: conditions.retransmissions,
        open_max: conditions.open_max.unwrap_or(OPEN_MAX),
        open_limit: conditions.open_limit,
        redial: conditions.redial,
        emergency: conditions.emergency,
        devices: conditions.devices.map(|devices| DevicesConfig {
            count: (f64::from(devices.count) * share).round() as u32,
            ..devices
        }),
        transport: conditions.transport(),
        alternates: alternates.filter(|_| conditions.failover).collect(),
        ..CallerConfig::new(local, target)
    }
}

/// Returns the rate over time of the calls to the server at `index` among those to which callers
/// send.
fn profile(run: &RunSpec, index: usize) -> Profile {
    let topology = &run.conditions.topology;
    let entry = topology.entries().nth(index).map(|(place, _)| &topology.nodes()[place]);
    let own = entry.and_then(|node| node.profile.clone());
    own.unwrap_or_else(|| run.conditions.profile.clone())
}

/// Returns the number of called users. A server learns its limits from rejections only if they
/// concern several called users.
fn callees(run: &RunSpec) -> u32 {
    let of_nodes =
        run.conditions.topology.nodes().iter().filter_map(|node| node.balancing.as_ref());
    let mut pools = of_nodes.chain(&run.variant.pool);
    let learns = pools.any(|pool| pool.learning.rate.is_some());
    if learns { CALLEES } else { 1 }
}

/// Returns the answerer numbered `index`, at `local`: it answers at once.
pub(super) fn answerer(run: &RunSpec, index: usize, local: SocketAddr) -> AnswererConfig {
    let conditions = &run.conditions;
    AnswererConfig {
        name: format!("answerer-{index}"),
        trying: conditions.trying,
        deadline: run.deadline(),
        timing: timing(run),
        retransmissions: conditions.retransmissions,
        transport: conditions.transport(),
        ..AnswererConfig::new(local)
    }
}

/// Returns the number of the answerer at `index` among all agents. Each agent draws from its own
/// streams.
pub(super) fn answerer_element(index: usize) -> u32 {
    1 + index as u32
}

/// Returns the number of a source of calls among all agents. `index` is the index of its server
/// among the servers to which callers send. There are fewer than 65 answerers, and fewer than 65
/// such servers, so all agents have different numbers.
pub(super) fn caller_element(index: usize, source: usize) -> u32 {
    match (index, source) {
        (0, 0) => 0,
        (index, source) => (64 + index + 128 * source) as u32,
    }
}

/// Returns the timers of agents.
pub(super) fn timing(run: &RunSpec) -> Timing {
    Timing { t1: millis(run.conditions.t1_ms), ..Timing::default() }
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
