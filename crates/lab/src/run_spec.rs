//! The specification of a run: one variant under one set of conditions. A scenario determines a
//! list of runs.

mod times;

use std::fmt;
use std::hash::Hasher;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};
use siphasher::sip128::{Hasher128, SipHasher13};
use tidegate_agent::Process;
use tidegate_emulate::Distribution;
use tidegate_server::config::{Emulate, emulate_toml, overload_toml};
use tidegate_world::{Seed, Work};

use crate::balancing::Balancing;
use crate::cost::Capacity;
use crate::network::Fault;
use crate::scenario::{Axis, Conditions, Scenario, Variant};
use crate::topology::Node;
use crate::world_kind::Kind;

/// Version of the stored results. It must be increased when older results are no longer comparable.
pub(crate) const FORMAT: u32 = 4;

/// One variant under one set of conditions, run once.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The world in which the run takes place: simulated time or real sockets.
    pub world: Kind,
    /// The variant that is run: its overload control and its balancing.
    pub variant: Variant,
    /// Conditions of the run.
    pub conditions: Conditions,
    /// The swept conditions, each with its value in this run.
    pub swept: Vec<(Axis, f64)>,
    /// Time from the start until the measurement begins. Callers offer the load in this time too.
    pub warm_up: Duration,
    /// Duration of the measurement. All calls that begin in this time are measured. Afterwards, the
    /// load continues until the deadline of the last measured call.
    pub measured: Duration,
    /// Interval between samples of servers and callers, if the scenario sets one. `None` means the
    /// default interval of the world.
    pub sample_asked: Option<Duration>,
    /// Index of the run, from 0, among the runs that differ only in their seed.
    pub repetition: u32,
    /// Seed of the run. All variants are run with the same seeds, and thus are offered the same
    /// calls.
    pub seed: u64,
}

/// Returns every run of `scenario` in `world`. All parameter sets are run once before one is
/// repeated, so that an interrupted experiment has some results of every parameter set.
pub fn runs(scenario: &Scenario, world: Kind) -> Vec<RunSpec> {
    let schedule = &scenario.schedule;
    let mut runs = Vec::new();
    for repetition in 0..schedule.repetitions {
        for variant in &scenario.variants {
            for swept in combinations(&scenario.sweep) {
                let mut conditions = scenario.conditions.clone();
                for &(axis, value) in &swept {
                    axis.set(&mut conditions, value);
                }
                runs.push(RunSpec {
                    world,
                    variant: variant.clone(),
                    conditions,
                    swept,
                    warm_up: schedule.warm_up,
                    measured: schedule.measured,
                    sample_asked: schedule.sample,
                    repetition,
                    seed: schedule.seed.wrapping_add(u64::from(repetition)),
                });
            }
        }
    }
    runs
}

/// One part of a list of runs that several processes divide among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl Shard {
    /// Returns the runs that belong to this part of `runs`.
    pub fn of(self, runs: Vec<RunSpec>) -> Vec<RunSpec> {
        runs.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }
}

/// Parses `K/N`, such as `2/3` for the second of three parts.
impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| {
            Some(Self { number: number.parse().ok()?, of: of.parse().ok()? })
        });
        let possible = |shard: &Self| (1..=shard.of).contains(&shard.number);
        numbers.filter(possible).ok_or_else(|| "expected K/N, K from 1 to N".to_owned())
    }
}

/// Returns every combination of the values of all axes. The value of the last axis changes fastest.
fn combinations(sweep: &[(Axis, Vec<f64>)]) -> Vec<Vec<(Axis, f64)>> {
    let mut all = vec![Vec::new()];
    for (axis, values) in sweep {
        let longer = |begun: &Vec<(Axis, f64)>| -> Vec<Vec<(Axis, f64)>> {
            let with = |value: &f64| begun.iter().copied().chain([(*axis, *value)]).collect();
            values.iter().map(with).collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

impl RunSpec {
    /// Returns the capacity of the servers under test in calls/s.
    pub fn capacity_cps(&self) -> f64 {
        Capacity::under(&self.conditions).cps
    }

    /// Returns the nominal rate in calls/s. The load profile multiplies this rate.
    pub fn rate_cps(&self) -> f64 {
        self.conditions.load * self.capacity_cps()
    }

    /// Returns the greatest possible goodput at `load`, as a fraction of the capacity.
    pub fn bound(&self, load: f64) -> f64 {
        let capacity = Capacity::under(&self.conditions);
        capacity.bound(&self.conditions.emulate, self.variant.overload.disposal, load)
    }

    /// Returns a text that distinguishes the run from the other runs of its variant, such as `load
    /// 2, run 1`.
    pub fn place(&self) -> String {
        let swept = self.swept.iter().map(|(axis, value)| format!("{} {value}, ", axis.title()));
        format!("{}run {}", swept.collect::<String>(), self.repetition + 1)
    }

    /// Returns all values that may affect the outcome of the run. `program` is the hash of the
    /// programs that make the run.
    pub fn inputs(&self, program: &str) -> Value {
        let Conditions {
            load,
            arrivals,
            profile,
            hold_s,
            hold,
            patience_s,
            deadline_ms,
            goodput,
            retransmissions,
            open_max,
            open_limit,
            failover,
            sources,
            trunk,
            redial,
            emergency,
            devices,
            t1_ms,
            answerers,
            trying,
            queue_max,
            emulate,
            disturbance,
            topology,
            farm,
            tcp,
            links,
            faults,
        } = &self.conditions;
        json!({
            "format": FORMAT,
            "program": program,
            "world": self.world,
            "overload": overload_toml(&self.variant.overload),
            "pool": self.variant.pool.as_ref().map(Balancing::inputs),
            "emulate": emulate_inputs(emulate),
            "workload": {
                "load": load,
                "arrivals": arrivals.to_string(),
                "trace": trace(arrivals),
                "profile": profile.to_string(),
                "hold_s": hold_s,
                "hold": hold,
                "patience_s": patience_s,
                "deadline_ms": deadline_ms,
                "goodput": goodput,
                "retransmissions": retransmissions,
                "open_max": open_max,
                "open_limit": open_limit,
                "failover": failover,
                "sources": sources,
                "trunk": trunk,
                "redial": redial.map(|redial| format!("{redial:?}")),
                "emergency": emergency,
                "devices": devices.map(|devices| format!("{devices:?}")),
                "t1_ms": t1_ms,
                "answerers": answerers,
                "trying": trying,
            },
            "server": { "queue_max": queue_max },
            "disturbance": disturbance,
            "farm": farm,
            "tcp": tcp,
            "nodes": topology.nodes().iter().map(node).collect::<Value>(),
            "links": **links,
            "faults": **faults,
            "warm_up_s": self.warm_up.as_secs_f64(),
            "measured_s": self.measured.as_secs_f64(),
            "sample_s": self.sample().as_secs_f64(),
            "seed": self.seed,
        })
    }

    /// Returns the name of the run: a hash of [`inputs`](Self::inputs), as 32 hexadecimal digits.
    pub fn id(&self, program: &str) -> String {
        fingerprint(self.inputs(program).to_string().as_bytes())
    }

    /// Returns the faults of the run: the faults of the scenario, and the pauses of the servers if
    /// they form a farm behind a balancer.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = self.conditions.faults.to_vec();
        if let Some(farm) = &self.conditions.farm {
            faults.extend(farm.pauses(Seed(self.seed), self.load_until()));
        }
        faults
    }

    /// Returns the seed from which the server at index `place` of the topology draws random
    /// processing costs. Each server has a different seed. It depends on the seed of the run, but
    /// not on the variant.
    fn costs_seed(&self, place: usize) -> u32 {
        self.seed.wrapping_add((place as u64) << 20) as u32
    }

    /// Returns the configuration of the server at index `place` of the topology. The server listens
    /// at `listen` and sends to `targets`.
    pub fn configuration(
        &self,
        place: usize,
        state_dir: Option<&Path>,
        listen: SocketAddr,
        targets: &[impl fmt::Display],
    ) -> String {
        let Conditions { queue_max, topology, emulate, .. } = &self.conditions;
        let node = &topology.nodes()[place];
        let (overload, emulate) = match node.under_test {
            true => (&self.variant.overload, Some(emulate)),
            false => (&node.overload, node.emulate.as_ref()),
        };
        let seed = Some(self.costs_seed(place));
        let emulate = emulate.map(|costs| Emulate { seed, ..at_speed(costs, node.speed) });
        let pool = node.balancing.as_ref().or(self.variant.pool.as_ref());
        let pool = pool.filter(|_| topology.balances(place)).cloned().unwrap_or_default();
        // `{:?}` escapes quotation marks and backslashes in the path as TOML requires.
        let state_dir = state_dir.map_or_else(String::new, |folder| {
            format!("state_dir = {:?}\n", folder.display().to_string())
        });
        let transport = self.conditions.transport().name().to_ascii_lowercase();
        let obeys = if node.obeys_feedback { "obey_feedback = \"always\"\n" } else { "" };
        let targets = targets.iter().enumerate().map(|(place, target)| {
            let limits = pool.backend_toml(place);
            format!("[[pool.backend]]\nuri = \"sip:{target}\"\n{limits}")
        });
        format!(
            "[server]\n{state_dir}queue_max = {queue_max}\ndrain_seconds = 0\n\n\
             [admin]\naddress = \"127.0.0.1:0\"\n\n\
             [[listen]]\ntransport = \"{transport}\"\naddress = \"{listen}\"\n\n\
             [[pool]]\nname = \"app\"\nmode = \"{}\"\n{obeys}{}{}\n{}\n{}",
            node.mode.name(),
            pool.pool_toml(),
            targets.collect::<String>(),
            overload_toml(overload),
            emulate.map_or_else(String::new, |costs| emulate_toml(&costs)),
        )
    }
}

/// Returns the properties of a server that may affect a run, as JSON.
fn node(node: &Node) -> Value {
    let Node {
        name,
        to,
        share,
        mode,
        under_test,
        overload,
        emulate,
        balancing,
        speed,
        profile,
        obeys_feedback,
    } = node;
    json!({
        "name": name,
        "to": to,
        "share": share,
        "mode": mode.name(),
        "under_test": under_test,
        "overload": (!under_test).then(|| overload_toml(overload)),
        "emulate": emulate.as_ref().filter(|_| !under_test).map(emulate_inputs),
        "pool": balancing.as_ref().map(Balancing::inputs),
        "speed": speed,
        "profile": profile.as_ref().map(ToString::to_string),
        "obeys_feedback": obeys_feedback,
    })
}

/// Returns the processing costs of a server with relative speed `speed`: each of `costs` is divided
/// by `speed`.
pub(crate) fn at_speed(costs: &Emulate, speed: f64) -> Emulate {
    let each = |costs: [Duration; Work::CLASSES_MAX]| costs.map(|cost| cost.div_f64(speed));
    Emulate {
        wake: costs.wake.div_f64(speed),
        receive: costs.receive.div_f64(speed),
        offer: each(costs.offer),
        serve: each(costs.serve),
        serve_stateless: costs.serve_stateless.map(each),
        reject: each(costs.reject),
        ..costs.clone()
    }
}

/// Returns the processing costs as text. For measured costs, the text depends on the content of
/// their file, not on its path.
fn emulate_inputs(emulate: &Emulate) -> String {
    let Some(sample) = emulate.distribution.sample() else { return emulate_toml(emulate) };
    let bytes: Vec<u8> = sample.factors().iter().flat_map(|factor| factor.to_le_bytes()).collect();
    let rest = Emulate { distribution: Distribution::Constant, ..emulate.clone() };
    format!("{}# measured costs: {}\n", emulate_toml(&rest), fingerprint(&bytes))
}

/// Returns a hash of the arrival times if the arrivals are a recorded trace, or else `None`.
fn trace(arrivals: &Process) -> Option<String> {
    let Process::Trace(trace) = arrivals else { return None };
    let bytes: Vec<u8> =
        trace.moments().iter().flat_map(|moment| moment.as_nanos().to_le_bytes()).collect();
    Some(fingerprint(&bytes))
}

/// Returns a hash of `bytes`, as 32 hexadecimal digits.
pub fn fingerprint(bytes: &[u8]) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    format!("{:032x}", hasher.finish128().as_u128())
}

#[cfg(test)]
mod tests {
    use tidegate_server::config::Config;

    use super::*;
    use crate::testing::planned;

    const SCENARIO: &str = "[emulate]\nserve_us = 1000\n\
        [sweep]\nload = [1, 2]\nqueue_max = [300, 400]\n\
        [[variant]]\noverload = { law = \"none\" }\n\
        [[variant]]\noverload = { law = \"pi\" }\n\
        [schedule]\nseed = 7\nrepetitions = 3\n";

    fn all() -> Vec<RunSpec> {
        planned(SCENARIO, Kind::Sim)
    }

    #[test]
    fn every_variant_runs_every_combination_as_often_as_requested() {
        let runs = all();
        assert_eq!(runs.len(), 3 * 2 * 4);
        let first: Vec<_> =
            runs[..4].iter().map(|p| (p.conditions.load, p.conditions.queue_max, p.seed)).collect();
        assert_eq!(first, [(1.0, 300, 7), (2.0, 300, 7), (1.0, 400, 7), (2.0, 400, 7)]);
        assert_eq!((runs[23].repetition, runs[23].seed), (2, 9));
        assert_eq!(runs[23].place(), "queue 400, load 2, run 3");
        // A call is six messages of 1 ms.
        assert!((runs[1].rate_cps() - 2.0 / 0.006).abs() < 1e-9);
    }

    #[test]
    fn shards_share_all_points_and_none_twice() {
        let shards = ["1/3", "2/3", "3/3"].map(|text| text.parse::<Shard>().unwrap());
        let mut shared: Vec<String> =
            shards.iter().flat_map(|shard| shard.of(all())).map(|run| run.id("p")).collect();
        let mut expected: Vec<String> = all().iter().map(|run| run.id("p")).collect();
        shared.sort_unstable();
        expected.sort_unstable();
        assert_eq!(shared, expected);
        for wrong in ["", "1", "0/3", "4/3", "1/0", "a/b"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_two_points_have_one_name() {
        let mut names: Vec<String> = all().iter().map(|run| run.id("p")).collect();
        names.push(all()[0].id("another program"));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 25);
        assert!(names.iter().all(|name| name.len() == 32));
    }

    fn with_distribution(distribution: &str) -> Vec<RunSpec> {
        let costs = format!("serve_us = 1000\ndistribution = \"{distribution}\"\n");
        let text = SCENARIO.replace("serve_us = 1000\n", &costs);
        planned(&text, Kind::Sim)
    }

    #[test]
    fn costs_that_vary_have_the_seed_of_the_run() {
        let runs = with_distribution("lognormal:1");
        let seed = |run: &RunSpec| {
            let text = run.configuration(
                0,
                None,
                "127.0.0.1:5060".parse().unwrap(),
                &["127.0.0.1:5070".parse::<SocketAddr>().unwrap()],
            );
            let config = Config::parse(Path::new("c"), text.as_bytes());
            let emulate = config.unwrap_or_else(|wrong| panic!("{wrong}")).emulate.unwrap();
            assert_eq!(emulate.distribution, Distribution::Lognormal { sigma: 1.0 });
            emulate.seed
        };
        assert_eq!([seed(&runs[0]), seed(&runs[23])], [Some(7), Some(9)]);
        assert_ne!(runs[0].costs_seed(0), runs[0].costs_seed(1), "each server draws its own");
        assert_ne!(runs[0].id("p"), all()[0].id("p"));
    }

    #[test]
    fn the_content_of_a_file_of_costs_is_an_input_and_its_path_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let id = |name: &str, costs: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, costs).unwrap();
            with_distribution(&format!("empirical:{}", file.display()))[0].id("p")
        };
        assert_eq!(id("a", "1\n3\n"), id("b", "# in ms\n10\n30\n"));
        assert_ne!(id("a", "1\n3\n"), id("c", "1\n4\n"));
    }

    #[test]
    fn the_name_of_a_variant_does_not_change_it() {
        let mut run = all().remove(0);
        let before = run.id("p");
        run.variant.label = "another".to_owned();
        assert_eq!(run.id("p"), before);
    }

    #[test]
    fn the_configuration_of_each_run_is_valid() {
        for run in all() {
            let backends =
                ["127.0.0.1:5070", "127.0.0.1:5071"].map(|at| at.parse::<SocketAddr>().unwrap());
            let text = run.configuration(
                0,
                Some(Path::new("/tmp/a \"b\"")),
                "127.0.0.1:5060".parse().unwrap(),
                &backends,
            );
            let config = Config::parse(Path::new("c"), text.as_bytes());
            let config = config.unwrap_or_else(|wrong| panic!("{wrong}"));
            assert_eq!(config.overload, run.variant.overload);
            assert_eq!(config.server.queue_max, run.conditions.queue_max as usize);
            assert_eq!(config.pool[0].backends.len(), 2);
            assert_eq!(config.server.state_dir.as_deref(), Some(Path::new("/tmp/a \"b\"")));
        }
    }
}
