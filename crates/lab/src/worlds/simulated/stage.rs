//! Builds the simulated network of a run, and simulates the run.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use serde_json::Value;
use tidegate_agent::{Answerer, AnswererStats, Caller, CallerStats};
use tidegate_emulate::HostSettings;
use tidegate_proxy::Secret;
use tidegate_server::Instruments;
use tidegate_server::assembly::Assembly;
use tidegate_server::config::Config;
use tidegate_sim::{Fault, Link, Network, NodeId};
use tidegate_transport::{ConnectionLimits, Streams};
use tidegate_world::{Core, Pool, Seed, Timestamp, Transport};

use super::actor::Actor;
use super::agenda::{self, Action};
use super::occupancy::Occupancy;
use super::traffic::{Limits, SetUp, Traffic};
use crate::disturbance::Disturbance;
use crate::network::{self, Endpoint, Trouble};
use crate::outcome::{Generator, NodeOutcome, Outcome};
use crate::run_spec::RunSpec;
use crate::scenario::Goodput;
use crate::timeline::{CallersReading, ServerReading, Timeline};
use crate::topology::Next;
use crate::worlds::{agents, counted};

/// Maximum simulated time after which the stage checks again whether the run was cancelled.
const LOOK: Duration = Duration::from_millis(500);

/// The simulated network of a run, with all its nodes.
pub(super) struct Stage<'p> {
    run: &'p RunSpec,
    network: Network<Actor, Traffic>,
    /// The servers, in the order of the topology.
    servers: Vec<ServerNode>,
    /// The callers. Each has the index of the called server among those to which callers send.
    callers: Vec<(usize, NodeId)>,
    answerers: Vec<NodeId>,
    timeline: Timeline,
}

/// A server of the topology, with its node in the network and the counts of its processes.
struct ServerNode {
    node: NodeId,
    place: usize,
    address: SocketAddr,
    config: Config,
    pool: Pool,
    disturbance: Option<Disturbance>,
    /// True if a fault of the run stalls the server.
    stalls: bool,
    /// The counters of the current process, or `None` while the server is down.
    instruments: Option<Instruments>,
    /// The sum of the counts of all processes of this server that have ended.
    past: NodeOutcome,
    /// Number of processes that were started for this server.
    lives: u64,
}

impl<'p> Stage<'p> {
    /// Builds the network of `run`. The configurations of the servers are written into `folder`.
    pub fn new(run: &'p RunSpec, folder: &Path) -> Result<Self, String> {
        let seed = Seed(run.seed);
        let conditions = &run.conditions;
        let topology = &conditions.topology;
        let names: Vec<&str> = topology.nodes().iter().map(|node| &*node.name).collect();
        let entries: Vec<(usize, f64)> = topology.entries().collect();
        let link = Link::default();
        let mut network: Network<Actor, Traffic> = Network::new(seed, link, traffic(run));
        network.read_while(Actor::reads_streams);
        if let Some(tcp) = conditions.tcp {
            *network.streams_mut() = tcp.streams();
        }
        // All nodes run on one thread, so they can share one pool of buffers. It gives out the
        // buffer that was returned last.
        let pool = Pool::new();

        for (kind, count) in [(SERVERS, names.len()), (ANSWERERS, conditions.answerers as usize)] {
            for (index, at) in addresses(kind).take(count).enumerate() {
                network.zone_mut().set(&host(kind, index), &[at.ip()], HOLDS);
            }
        }

        let mut answerers = Vec::new();
        for (index, at) in addresses(ANSWERERS).take(conditions.answerers as usize).enumerate() {
            let element = agents::answerer_element(index);
            let config = agents::answerer(run, index, at);
            let answerer = Answerer::new(config, seed, element, pool.clone());
            let answerer = Actor::Answerer(connected(answerer, &pool));
            answerers.push(add(&mut network, at, answerer));
            network.tap_mut().name(at, names.len() + 1);
        }
        let faults = run.faults();
        let mut servers = Vec::new();
        for (place, address) in addresses(SERVERS).take(names.len()).enumerate() {
            let mut server = ServerNode {
                // The network assigns the number of the node below.
                node: NodeId::new(0),
                place,
                address,
                config: configuration(run, place, folder)?,
                pool: pool.clone(),
                disturbance: topology.nodes()[place]
                    .under_test
                    .then_some(conditions.disturbance)
                    .filter(|disturbance| *disturbance != Disturbance::NONE),
                stalls: faults.iter().any(|fault| fault.what == Trouble::Stall { node: place }),
                instruments: None,
                past: NodeOutcome::new(names[place]),
                lives: 0,
            };
            let core = server.start(seed);
            server.node = add(&mut network, address, core);
            network.tap_mut().name(address, place + 1);
            servers.push(server);
        }
        let mut callers = Vec::new();
        let entered: Vec<_> = entries.iter().map(|&(place, _)| servers[place].address).collect();
        for (index, &(_, share)) in entries.iter().enumerate() {
            for source in agents::sources(run) {
                let at = caller_address(index, source.index);
                let config = agents::caller(run, share, source, at, &entered, index);
                let element = agents::caller_element(index, source.index);
                let caller = Caller::new(config, seed, element, Timestamp::ZERO, pool.clone())
                    .map_err(|impossible| impossible.to_string())?;
                let caller = Actor::Caller(connected(caller, &pool));
                callers.push((index, add(&mut network, at, caller)));
                network.tap_mut().name(at, 0);
            }
        }
        let timeline =
            Timeline::new(names.iter().copied(), entries.iter().map(|&(place, _)| names[place]));
        let mut stage = Self { run, network, servers, callers, answerers, timeline };
        for way in conditions.links.iter() {
            for (from, to) in agenda::pairs(*way, &|endpoint| stage.nodes_of(endpoint)) {
                stage.network.connect(from, to, way.link);
            }
        }
        Ok(stage)
    }

    /// Simulates the run to its end, or until `cancelled` becomes true.
    pub fn play(&mut self, cancelled: &AtomicBool) -> Result<(), String> {
        let run = self.run;
        let end = agents::lasts(run);
        let actions =
            agenda::agenda(&run.faults(), run.sample(), end, |endpoint| self.nodes_of(endpoint));
        let mut at = Duration::ZERO;
        for (when, action) in actions {
            while at < when {
                if cancelled.load(SeqCst) {
                    return Err("cancelled".to_owned());
                }
                at = (at + LOOK).min(when);
                self.network.run_until(Timestamp::ZERO + at);
            }
            match action {
                Action::Sample => self.sample(when),
                Action::Fault(fault) => self.apply_fault(when, &fault),
            }
        }
        Ok(())
    }

    /// Returns the number of packets that were delivered to a node.
    pub fn deliveries(&self) -> u64 {
        self.network.summary().delivered
    }

    /// Returns the outcome of the run. Its timeline is written into `folder`.
    pub fn finish(self, folder: &Path) -> Result<Outcome, String> {
        let end = Timestamp::ZERO + agents::lasts(self.run);
        let sources = || self.callers.iter().map(|&(_, node)| self.caller(node).stats());
        let fairness = counted::fairness(sources());
        let has_trunk = self.run.conditions.trunk > 0.0;
        // The trunk is the last source of each server.
        let of_entry = agents::sources(self.run).len();
        let in_time = |is_trunk: bool| {
            let sources = sources().enumerate();
            let wanted = sources.filter(|(place, _)| ((place + 1) % of_entry == 0) == is_trunk);
            counted::in_time(wanted.map(|(_, stats)| stats)).filter(|_| has_trunk)
        };
        let (trunk_in_time, others_in_time) = (in_time(true), in_time(false));
        let mut callers =
            vec![CallerStats::default(); self.run.conditions.topology.entries().count()];
        for (&(entry, _), stats) in self.callers.iter().zip(sources()) {
            callers[entry].merge(stats);
        }
        let mut answered = AnswererStats::default();
        for &node in &self.answerers {
            if let Actor::Answerer(answerer) = self.network.core(node) {
                answered.merge(&answerer.core().stats());
            }
        }
        let outcome_of = |mut server: ServerNode| {
            server.end(end);
            server.past
        };
        let tap = self.network.tap();
        let (good, flows, occupancy) = (tap.good(), tap.flows(), tap.occupancy().to_vec());
        let nodes = self.servers.into_iter().map(outcome_of).collect();
        let outcome = counted::outcome(self.run, &callers, &answered, &self.timeline);
        let too_slow = counted::too_slow(self.run, &callers);
        let generator = Generator { too_slow, ..Generator::default() };
        let csv = self.timeline.csv().map_err(|error| error.to_string())?;
        fs::write(folder.join(counted::TIMELINE), csv).map_err(|error| error.to_string())?;
        let good = good.unwrap_or(outcome.good);
        Ok(Outcome {
            good,
            nodes,
            flows,
            occupancy,
            fairness,
            trunk_in_time,
            others_in_time,
            generator,
            ..outcome
        })
    }

    /// Returns the nodes to which `endpoint` refers. Returns no nodes if its index does not exist.
    fn nodes_of(&self, endpoint: Endpoint) -> Vec<NodeId> {
        match endpoint {
            Endpoint::Callers => self.callers.iter().map(|&(_, node)| node).collect(),
            Endpoint::Answerers => self.answerers.clone(),
            Endpoint::Node(place) => {
                self.servers.get(place).map(|server| server.node).into_iter().collect()
            }
        }
    }

    fn caller(&self, node: NodeId) -> &Caller {
        match self.network.core(node) {
            Actor::Caller(caller) => caller.core(),
            _ => unreachable!("callers are where they were put"),
        }
    }

    /// Adds the counts of all nodes to the timeline.
    fn sample(&mut self, at: Duration) {
        for (place, server) in self.servers.iter().enumerate() {
            if let Some(instruments) = &server.instruments {
                let status = Value::Object(instruments.read(Timestamp::ZERO + at));
                self.timeline.server(place, at, ServerReading::of(&status, server.lives));
            }
        }
        for index in 0..self.run.conditions.topology.entries().count() {
            let sources = self.callers.iter().filter(|(entry, _)| *entry == index);
            let readings =
                sources.map(|&(_, node)| CallersReading::from(self.caller(node).stats()));
            let reading = readings.fold(CallersReading::default(), CallersReading::plus);
            self.timeline.callers(index, at, reading);
        }
    }

    fn apply_fault(&mut self, at: Duration, fault: &Fault) {
        let now = Timestamp::ZERO + at;
        let seed = Seed(self.run.seed);
        let servers = &mut self.servers;
        let index_of = |node| servers.iter().position(|server: &ServerNode| server.node == node);
        let restarted = match *fault {
            Fault::Restart { node } if !self.network.is_up(node) => index_of(node),
            _ => None,
        };
        let core = restarted.map(|place| servers[place].start(seed));
        let crashed = self.network.apply(now, fault, |_| core.expect("a server starts again"));
        if let (Fault::Crash { node, .. }, Some(_)) = (fault, crashed)
            && let Some(place) = servers.iter().position(|server| server.node == *node)
        {
            servers[place].end(now);
        }
    }
}

impl ServerNode {
    /// Starts a new process of the server, without the state of previous processes.
    fn start(&mut self, seed: Seed) -> Actor {
        // Each server draws its own numbers. They differ after each restart, so that the new
        // process does not mistake the branches of the previous one for its own.
        let seed = Seed(seed.0.wrapping_add((self.place as u64) << 32 | self.lives << 48));
        self.lives += 1;
        // No attacker guesses keys in this network, so the key may be predictable.
        let keys = Secret::of([1 + self.place as u8; 32]);
        let assembly = Assembly::new(&self.config, &keys, vec![self.address], seed);
        self.instruments = Some(assembly.instruments());
        let mut part = assembly.part(0);
        if let (Some(disturbance), Some(host)) = (self.disturbance, part.host()) {
            let host = disturbance.on(host, seed, self.place as u32);
            part = part.on(host);
        }
        if self.stalls
            && let Some(host) = part.host().cloned()
        {
            // A stalled process does not catch up on the lost time.
            part = part.on(HostSettings { catches_up: false, ..host });
        }
        Actor::Server(part.connected(self.pool.clone()))
    }

    /// If a process is running, ends it and adds its counts to [`past`](ServerNode::past).
    fn end(&mut self, now: Timestamp) {
        if let Some(instruments) = self.instruments.take() {
            let added = self.past.add(&Value::Object(instruments.read(now)));
            added.expect("the status of this build has every count");
        }
    }
}

/// Third byte of the address of a server: 10.0.0.x.
const SERVERS: u8 = 0;
/// Third byte of the address of an answerer: 10.0.1.x.
const ANSWERERS: u8 = 1;
/// Third byte of the address of the first source of calls to each server: 10.0.2.x.
const CALLERS: u8 = 2;

const SIP_PORT: u16 = 5060;

/// Time to live of a DNS answer in the simulated network.
const HOLDS: Duration = Duration::from_secs(10);

/// Returns the host name of the server or answerer with the index `index`.
fn host(kind: u8, index: usize) -> String {
    let what = if kind == SERVERS { "server" } else { "answerer" };
    format!("{what}-{}.example", index + 1)
}

fn addresses(kind: u8) -> impl Iterator<Item = SocketAddr> {
    (1..=254).map(move |index| (Ipv4Addr::new(10, 0, kind, index), SIP_PORT).into())
}

/// Returns the address of the source number `source` of the calls to one server. `index` is the
/// index of the server in [`entries`](crate::topology::Topology::entries).
fn caller_address(index: usize, source: usize) -> SocketAddr {
    match source {
        0 => addresses(CALLERS).nth(index).expect("there are not so many entries"),
        _ => {
            // There are at most 64 entries, each with 1,001 sources.
            let [entry, high, low] = [1 + index, source / 250, 1 + source % 250];
            let [entry, high, low] = [entry, high, low].map(|part| part as u8);
            (Ipv4Addr::new(10, entry, high, low), SIP_PORT).into()
        }
    }
}

/// Adds a node with the core `core` to the network. The node also accepts TCP connections at `at`.
fn add(network: &mut Network<Actor, Traffic>, at: SocketAddr, core: Actor) -> NodeId {
    let node = network.add(&[at], core);
    network.listen(node, Transport::Tcp, at);
    node
}

/// Adds connection handling (for TCP) to the core of a caller or answerer.
fn connected<C: Core>(core: C, pool: &Pool) -> Box<Streams<C>> {
    Box::new(Streams::new(core, ConnectionLimits::default(), pool.clone()))
}

/// Returns the configuration of the server at index `place`. Its text is written into `folder` and
/// parsed in the same way as in a server process.
fn configuration(run: &RunSpec, place: usize, folder: &Path) -> Result<Config, String> {
    let topology = &run.conditions.topology;
    let at = |kind, index| addresses(kind).nth(index).expect("there are not so many");
    let is_resolver = |fault: &network::Fault| matches!(fault.what, Trouble::Resolver(_));
    let by_name = run.conditions.faults.iter().any(is_resolver);
    let known_as = |kind, index| match by_name {
        true => format!("{}:{SIP_PORT}", host(kind, index)),
        false => at(kind, index).to_string(),
    };
    let answerers = 0..run.conditions.answerers as usize;
    let targets = topology.nodes()[place].to.iter().flat_map(|next| match *next {
        Next::Node(next) => vec![known_as(SERVERS, next)],
        Next::Answerers => answerers.clone().map(|index| known_as(ANSWERERS, index)).collect(),
    });
    let targets: Vec<String> = targets.collect();
    let text = run.configuration(place, None, at(SERVERS, place), &targets);
    let file = counted::configuration_name(topology, place);
    fs::write(folder.join(&file), &text).map_err(|error| error.to_string())?;
    Config::parse(Path::new(&file), text.as_bytes()).map_err(|wrong| wrong.to_string())
}

/// Creates the message counter for `run`. The order of the parties is callers, servers, answerers.
fn traffic(run: &RunSpec) -> Traffic {
    let topology = &run.conditions.topology;
    let servers = topology.nodes().iter().map(|node| node.name.clone());
    let endpoints: Vec<String> =
        ["callers".to_owned()].into_iter().chain(servers).chain(["answerers".to_owned()]).collect();
    let answerers = endpoints.len() - 1;
    let limits = Limits {
        from: Timestamp::ZERO + run.warm_up,
        to: Timestamp::ZERO + run.measured_until(),
        deadline: run.deadline(),
        repeats: agents::timing(run).patience(),
    };
    let asked = run.conditions.goodput == Goodput::Acknowledged;
    let chosen = |place| {
        let choosers = (0..topology.nodes().len()).filter(|&place| topology.balances(place));
        choosers.flat_map(|place| &topology.nodes()[place].to).any(|to| *to == Next::Node(place))
    };
    let servers = (0..topology.nodes().len()).map(chosen);
    let occupancy = Occupancy::new([false].into_iter().chain(servers), limits.from..limits.to);
    Traffic::new(endpoints, asked.then(|| SetUp::new(0, answerers, limits)), occupancy)
}
