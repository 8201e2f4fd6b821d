//! Configures the callers and answerers of a run, in any world.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_agent::{AnswererConfig, CallerConfig, DevicesConfig, Load, Process, Profile, Timing};

use crate::run_spec::RunSpec;

/// The called URI. The host is a name, because a server might treat an IP address as an outside
/// address.
const CALLED: &str = "sip:service@example.com";

/// Maximum number of open calls to one server if the scenario does not set one.
const OPEN_MAX: usize = 100_000;

/// Number of called users if a server learns its limits from rejections. Such a server needs
/// rejections for several users.
const CALLEES: u32 = 100;

/// Time after the deadline of the last call in which messages still in flight are counted.
const MARGIN: Duration = Duration::from_millis(100);

/// Returns the duration of `run`, from the start to the deadline of the last call.
pub(crate) fn lasts(run: &RunSpec) -> Duration {
    run.load_until() + run.deadline() + MARGIN
}

/// Returns the load from the start of the warm-up to the end of the measured time. `share` is the
/// fraction of the calls that the load contains.
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

/// Returns the mean of the offered load over the measured time, as a multiple of the capacity. It
/// differs from the load in the scenario if the load has a profile over time. For a trace, the load
/// in the scenario is the mean over the whole trace.
pub(crate) fn mean_load(run: &RunSpec) -> f64 {
    let entries = || run.conditions.topology.entries().enumerate();
    let is_trace = matches!(run.conditions.arrivals, Process::Trace(_));
    if !is_trace && entries().all(|(index, _)| profile(run, index) == Profile::Constant) {
        return run.conditions.load;
    }
    let (from, to) = (run.warm_up, run.measured_until());
    let calls = entries().map(|(index, (_, share))| {
        let load = Load { profile: profile(run, index), ..load(run, share) };
        load.calls_until(to) - load.calls_until(from)
    });
    calls.sum::<f64>() / run.measured.as_secs_f64() / run.capacity_cps()
}

/// A group of callers that share one address and call one server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Source {
    /// Index of the source among the sources of the same server.
    pub index: usize,
    /// The fraction of the server's calls that comes from this source.
    pub part: f64,
}

/// Returns the sources that call each server. The trunk (a large source) is the last one.
pub(super) fn sources(run: &RunSpec) -> Vec<Source> {
    let (count, trunk) = (run.conditions.sources, run.conditions.trunk);
    let part = (1.0 - trunk) / f64::from(count);
    let mut parts = vec![part; count as usize];
    parts.extend((trunk > 0.0).then_some(trunk));
    parts.into_iter().enumerate().map(|(index, part)| Source { index, part }).collect()
}

/// Returns the configuration of the callers at the address `local`, which make the fraction `share`
/// of all calls. `entries` are the addresses of all servers that get calls from callers. These
/// callers call the one at `index`.
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

/// Returns the load profile of the calls to one server. `index` is the index of the server among
/// those to which callers send.
fn profile(run: &RunSpec, index: usize) -> Profile {
    let topology = &run.conditions.topology;
    let entry = topology.entries().nth(index).map(|(place, _)| &topology.nodes()[place]);
    let own = entry.and_then(|node| node.profile.clone());
    own.unwrap_or_else(|| run.conditions.profile.clone())
}

/// Returns the number of called users. There are several if a server learns its limits from
/// rejections, because rejections for only one user do not count.
fn callees(run: &RunSpec) -> u32 {
    let of_nodes =
        run.conditions.topology.nodes().iter().filter_map(|node| node.balancing.as_ref());
    let mut pools = of_nodes.chain(&run.variant.pool);
    let learns = pools.any(|pool| pool.learning.rate.is_some());
    if learns { CALLEES } else { 1 }
}

/// Returns the configuration of the answerer `index`, which answers at once at the address `local`.
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

/// Returns the number of the answerer at `index` among all agents (callers and answerers). Each
/// agent draws random numbers from the streams of its number.
pub(super) fn answerer_element(index: usize) -> u32 {
    1 + index as u32
}

/// Returns the number of a source of calls among all agents (callers and answerers). `index` is the
/// index of the called server among those to which callers send. Numbers do not clash, because
/// there are at most 64 answerers and 64 servers.
pub(super) fn caller_element(index: usize, source: usize) -> u32 {
    match (index, source) {
        (0, 0) => 0,
        (index, source) => (64 + index + 128 * source) as u32,
    }
}

/// Returns the SIP timers of callers and answerers.
pub(super) fn timing(run: &RunSpec) -> Timing {
    Timing { t1: millis(run.conditions.t1_ms), ..Timing::default() }
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
