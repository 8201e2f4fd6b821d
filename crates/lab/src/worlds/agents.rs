//! Configures the callers and answerers of a run, in any world.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_agent::{
    AnswererConfig, CallerConfig, DevicesConfig, Load, Process, Profile, Redial, Timing,
};

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

/// Returns the duration of `run`, from the start to [`MARGIN`] after the deadline of the last call.
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
    /// The fraction of the server's calls that comes from this source, 0 to 1.
    pub part: f64,
    /// Two fractions of the server's calls: the calls from the sources before this one, and these
    /// calls plus the calls from this source.
    range: [f64; 2],
}

impl Source {
    /// The only source of the calls to a server.
    pub const WHOLE: Self = Self { index: 0, part: 1.0, range: [0.0, 1.0] };

    /// Returns this source's part of `total`, a number of calls or devices at one server. The parts
    /// of all sources add up to `total`.
    fn count(self, total: usize) -> usize {
        count(self.range, total)
    }
}

/// Returns the part of `total` that belongs to a range of fractions. If several ranges together
/// cover 0 to 1, their parts add up to `total`.
fn count(range: [f64; 2], total: usize) -> usize {
    let [before, until] = range.map(|part| (part * total as f64).round() as usize);
    until - before
}

/// Returns two fractions of all calls: the calls to the servers before the server at `index`, and
/// these calls plus the calls to this server. `index` counts only the servers to which callers
/// send.
fn range(run: &RunSpec, index: usize) -> [f64; 2] {
    let mut shares = run.conditions.topology.entries().map(|(_, share)| share);
    let before: f64 = shares.by_ref().take(index).sum();
    [before, before + shares.next().unwrap_or_default()]
}

/// Returns the sources that call each server. The trunk (a large source) is the last one.
pub(super) fn sources(run: &RunSpec) -> Vec<Source> {
    let (count, trunk) = (run.conditions.sources, run.conditions.trunk);
    let part = (1.0 - trunk) / f64::from(count);
    let until = |index: u32| f64::from(index) * part;
    let small = |index: u32| Source {
        index: index as usize,
        part,
        range: [until(index), until(index + 1)],
    };
    let large = Source { index: count as usize, part: trunk, range: [until(count), 1.0] };
    (0..count).map(small).chain((trunk > 0.0).then_some(large)).collect()
}

/// Returns the configuration of the callers at the address `local`, which are one source of the
/// calls to a server. The server gets the fraction `share` of all calls. `entries` are the
/// addresses of all servers that get calls from callers, and the server is the one at `index`.
pub(super) fn caller(
    run: &RunSpec,
    share: f64,
    source: Source,
    local: SocketAddr,
    entries: &[SocketAddr],
    index: usize,
) -> CallerConfig {
    let conditions = &run.conditions;
    let (before, others) = entries.split_at(index);
    let (&target, after) = others.split_first().expect("an entry of the topology");
    let alternates = after.iter().chain(before).copied();
    let hold = Duration::from_secs_f64(conditions.hold_s);
    let part = share * source.part;
    let profile = divided(&profile(run, index), |calls| source.count(calls as usize) as u32);
    // Limits of one server are divided among its sources. Each source has at least one.
    let at_least_one = |total| source.count(total).max(1);
    CallerConfig {
        uri: CALLED.to_owned(),
        callees: callees(run),
        load: Load { profile, duration: run.load_until(), ..load(run, part) },
        hold: conditions.hold.span(hold),
        patience: Duration::from_secs_f64(conditions.patience_s).into(),
        deadline: run.deadline(),
        warm_up: run.warm_up,
        measured_until: run.measured_until(),
        timing: timing(run),
        retransmissions: conditions.retransmissions,
        open_max: conditions.open_max.map_or(OPEN_MAX, at_least_one),
        open_limit: conditions.open_limit,
        redial: conditions
            .redial
            .map(|redial| Redial { waiting_max: at_least_one(redial.waiting_max), ..redial }),
        emergency: conditions.emergency,
        devices: conditions.devices.map(|devices| DevicesConfig {
            count: source.count(count(range(run, index), devices.count as usize)) as u32,
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
    own.unwrap_or_else(|| {
        let range = range(run, index);
        divided(&run.conditions.profile, |calls| count(range, calls as usize) as u32)
    })
}

/// Returns the profile of a part of the calls. In an avalanche, `part` reduces the number of
/// additional calls. All other profiles are factors on the rate, and do not change.
fn divided(profile: &Profile, part: impl Fn(u32) -> u32) -> Profile {
    match *profile {
        Profile::Avalanche { at, calls, within } => {
            Profile::Avalanche { at, calls: part(calls), within }
        }
        _ => profile.clone(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned;
    use crate::worlds::Kind;

    fn run(text: &str) -> RunSpec {
        let text = format!("[emulate]\nserve_us = 1000\n[[variant]]\n{text}");
        planned(&text, Kind::Sim).remove(0)
    }

    fn additional(caller: &CallerConfig) -> u32 {
        match caller.load.profile {
            Profile::Avalanche { calls, .. } => calls,
            _ => 0,
        }
    }

    #[test]
    fn sources_divide_the_numbers_of_their_server() {
        let run = run("[workload]\nsources = 3\ntrunk = 0.4\nopen_max = 20\n\
                       profile = \"avalanche:5,100,1\"\n[workload.redial]\nwaiting_max = 2\n");
        let at = SocketAddr::from(([127, 0, 0, 1], 5060));
        let sources = sources(&run);
        let callers = sources.iter().map(|&source| caller(&run, 1.0, source, at, &[at], 0));
        let callers: Vec<_> = callers.collect();
        assert_eq!(callers.iter().map(additional).collect::<Vec<_>>(), [20, 20, 20, 40]);
        assert_eq!(callers.iter().map(|c| c.open_max).collect::<Vec<_>>(), [4, 4, 4, 8]);
        let waiting = callers.iter().filter_map(|c| c.redial.map(|redial| redial.waiting_max));
        assert_eq!(waiting.collect::<Vec<_>>(), [1, 1, 1, 1]);
        let whole = caller(&run, 1.0, Source::WHOLE, at, &[at], 0);
        assert_eq!((additional(&whole), whole.open_max), (100, 20));
    }

    #[test]
    fn sources_together_have_a_number_that_they_cannot_divide_equally() {
        for (count, total) in [(200, 100), (50, 60), (7, 1000)] {
            let run = run(&format!("[workload]\nsources = {count}\n"));
            let parts = sources(&run).into_iter().map(|source| source.count(total));
            assert_eq!(parts.sum::<usize>(), total, "{count} sources");
        }
    }

    fn node(name: &str, keys: &str) -> String {
        format!("[[node]]\nname = \"{name}\"\nto = [\"answerers\"]\nunder_test = true\n{keys}")
    }

    #[test]
    fn servers_together_have_a_number_that_they_cannot_divide_equally() {
        for (servers, total) in [(3, 100), (2, 1), (9, 4)] {
            let nodes = (0..servers).map(|i| node(&format!("node-{i}"), "share = 1\n"));
            let run = run(&format!(
                "[workload]\nprofile = \"avalanche:5,{total},1\"\n\
                 [workload.devices]\ncount = {total}\n{}",
                nodes.collect::<String>()
            ));
            let at = SocketAddr::from(([127, 0, 0, 1], 5060));
            let (entries, share) = (vec![at; servers], 1.0 / servers as f64);
            let callers = (0..servers)
                .map(|index| caller(&run, share, Source::WHOLE, at, &entries, index))
                .collect::<Vec<_>>();
            let devices = callers.iter().filter_map(|c| c.devices.map(|devices| devices.count));
            assert_eq!(callers.iter().map(additional).sum::<u32>(), total, "{servers} servers");
            assert_eq!(devices.sum::<u32>(), total, "{servers} servers");
        }
    }

    #[test]
    fn servers_divide_the_additional_calls_of_an_avalanche() {
        let run = run(&format!(
            "[workload]\nprofile = \"avalanche:5,100,1\"\n{}{}",
            node("west", "share = 3\n"),
            node("east", "share = 1\nprofile = \"avalanche:5,50,1\"\n"),
        ));
        let of = |index| match profile(&run, index) {
            Profile::Avalanche { calls, .. } => calls,
            _ => 0,
        };
        // The additional calls of `[workload]` are those to all servers, and the additional calls
        // of a node are those to this node.
        assert_eq!([of(0), of(1)], [75, 50]);
    }
}
