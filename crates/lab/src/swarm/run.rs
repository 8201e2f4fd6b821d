//! Runs a world while checkers look for violations.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_server::assembly::Server;
use tidegate_sim::check::{Checkers, Report};
use tidegate_sim::fault::Plan;
use tidegate_sim::{Fault, Network, NodeId, StreamSettings, Summary, Trace};
use tidegate_world::{Cause, Failure, Flow, Seed, Timestamp, Transport};

use super::attacker::{Attack, Wiretap};
use super::commands::commands;
use super::configuration::text;
use super::node::{Node, Wrap, balancer, front, role};
use super::world::{Names, Place, Streams, World, address, host};

/// Interval between checks of the nodes' counts while calls are offered. Afterwards,
/// `LOOK_AFTERWARDS` applies.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_AFTERWARDS: Duration = Duration::from_secs(60);

/// Longest time from the last call until all timers have ended. It includes patience, ringing and
/// talking (at most 15 minutes each), the idle time of the call table (3 hours by default), Timer
/// C, and the timers that follow Timer C.
const SETTLES_WITHIN: Duration = Duration::from_secs(4 * 3600);

/// Name of the checker in findings about a core that panicked.
pub(crate) const PANIC: &str = "panic";

/// Name of the checker in findings about two runs of the same world that differ.
pub(crate) const SAME: &str = "same";

/// Name of the checker in findings about calls lost because of noise (messages that belong to no
/// call). Noise should have no effect, because messages that cannot be verified wait behind all
/// others.
pub(crate) const GOODPUT: &str = "goodput";

/// The fraction of the calls that may be lost because of noise, and a number of calls that may be
/// lost in addition. Some loss is allowed, because a single additional packet changes many later
/// decisions of an overloaded proxy.
const LOST_MAX: (f64, u64) = (0.3, 10);

/// A violation that a checker has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the checker that found the violation.
    pub checker: String,
    /// Description of the violation, with the node and the time.
    pub what: String,
}

/// The result of running a world.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The violations that the checkers found.
    pub findings: Vec<Finding>,
    /// Number of requests, responses and calls that the checkers did not watch because their memory
    /// was full. If the world was also run without its attackers, that run is included.
    pub unwatched: u64,
    /// Counts of the packets that the nodes sent.
    pub summary: Summary,
    /// A hash of all packets and their times, for comparing runs.
    pub trace: u128,
    /// Numbers of calls offered, set up, and ended by a BYE.
    pub calls: [u64; 3],
    /// Simulated time at which the run ended.
    pub lasted: Timestamp,
}

/// Runs a world under the checkers.
///
/// # Errors
/// Returns an error if a node of the world cannot be built.
pub fn run(world: &World) -> Result<Ran, String> {
    run_with(world, &|_, server: Server| Box::new(server))
}

/// Runs a world under the checkers. `wrap` wraps the core of each shard of a proxy. A panic is
/// reported as a finding with the name [`PANIC`].
///
/// # Errors
/// Returns an error if a node of the world cannot be built.
pub fn run_with(world: &World, wrap: Wrap<'_>) -> Result<Ran, String> {
    // After a panic, nothing of the run is used.
    catch_unwind(AssertUnwindSafe(|| Run::new(world, wrap)?.go())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let what = text.unwrap_or_else(|| "a core has panicked".to_owned());
        Ok(Ran {
            findings: vec![Finding { checker: PANIC.to_owned(), what }],
            unwatched: 0,
            summary: Summary::default(),
            trace: 0,
            calls: [0; 3],
            lasted: Timestamp::ZERO,
        })
    })
}

/// Runs a world as [`run_compared`] does, and then runs it once more. A difference between the two
/// runs is a violation.
///
/// # Errors
/// Returns an error if a node of the world cannot be built.
pub(crate) fn run_twice(world: &World) -> Result<Ran, String> {
    let (mut ran, again) = (run_compared(world)?, run(world)?);
    if ran.trace != again.trace || ran.summary != again.summary {
        let what = "two runs of one world send different bytes".to_owned();
        ran.findings.push(Finding { checker: SAME.to_owned(), what });
    }
    Ok(ran)
}

/// Runs a world. If its attackers only send [noise](World::is_noisy), also runs the world without
/// attackers. The attackers must not reduce the number of completed calls by much, and the world
/// without attackers must have no violations.
///
/// # Errors
/// Returns an error if a node of the world cannot be built.
pub(crate) fn run_compared(world: &World) -> Result<Ran, String> {
    let ran = run(world)?;
    if !world.is_noisy() {
        return Ok(ran);
    }
    let calm = run(&World { strangers: Vec::new(), ..world.clone() })?;
    Ok(compared(ran, calm))
}

/// Adds the violations and the unwatched messages of `calm` to `ran`, and compares the numbers of
/// completed calls. `calm` is the result of the same world without attackers.
fn compared(mut ran: Ran, calm: Ran) -> Ran {
    let ([.., completed], [.., usual]) = (ran.calls, calm.calls);
    let (part, few) = LOST_MAX;
    if completed + few < (usual as f64 * (1.0 - part)) as u64 {
        let what = format!("{completed} calls are completed, and {usual} without the noise");
        ran.findings.push(Finding { checker: GOODPUT.to_owned(), what });
    }
    // Without noise the world may panic and complete no calls. Then the comparison of the calls
    // alone would find nothing.
    ran.findings.extend(calm.findings.into_iter().map(|Finding { checker, what }| {
        let what = format!("without the noise: {what}");
        Finding { checker, what }
    }));
    ran.unwatched += calm.unwatched;
    ran
}

struct Run<'a> {
    world: &'a World,
    wrap: Wrap<'a>,
    wiretap: Wiretap,
    network: Network<Node, ((Trace, Wiretap), Checkers)>,
    lives: Vec<u32>,
}

enum Told {
    /// A command of an operator to the proxy.
    Command(String),
    /// A forged ICMP error about a packet of the proxy.
    Failure(Failure),
}

impl<'a> Run<'a> {
    fn new(world: &'a World, wrap: Wrap<'a>) -> Result<Self, String> {
        let mut checkers = Checkers::new();
        let mut nodes = Vec::new();
        let listens = world.strangers.iter().any(|stranger| stranger.sees > 0.0);
        let wiretap = Wiretap::new(world.parties(), listens);
        for index in 0..world.nodes() {
            let place = world.place(index).ok_or("a node that is nowhere")?;
            if let Some(role) = role(world, place)? {
                checkers.watch(NodeId::new(index), role);
                checkers.knows(address(place));
            }
            if let Some(front) = front(world, place)? {
                checkers.guards(NodeId::new(index), front);
            }
            if let Some(balancer) = balancer(world, place)? {
                checkers.balances(NodeId::new(index), balancer);
            }
            let around = (wrap, &wiretap);
            nodes.push((place, Node::new(world, place, 0, Timestamp::ZERO, around)?));
        }
        let tap = ((Trace::new(), wiretap.clone()), checkers);
        let mut network = Network::new(Seed(world.seed), world.link, tap);
        if let Some(Names { ttl_s, resolution }) = world.names {
            let zone = network.zone_mut();
            zone.resolve_by(resolution);
            for (place, _) in &nodes {
                let ttl = Duration::from_secs(ttl_s);
                zone.set(&host(*place), &[address(*place).ip()], ttl);
            }
        }
        for (place, node) in nodes {
            let node = network.add(&[address(place)], node);
            if let Some(Streams { setup_ms, buffer, window, .. }) = world.streams {
                let setup = Duration::from_millis(setup_ms);
                let usual = StreamSettings::default();
                *network.streams_mut() = StreamSettings { setup, buffer, window, ..usual };
                network.listen(node, Transport::Tcp, address(place));
            }
        }
        Ok(Self { world, wrap, wiretap, network, lives: vec![0; world.nodes()] })
    }

    fn go(mut self) -> Result<Ran, String> {
        let plan = Plan { episodes: self.world.faults.clone() };
        let mut told = told(self.world).into_iter().peekable();
        for (at, fault) in plan.steps() {
            while let Some((at, proxy, told)) = told.next_if(|(told, ..)| *told <= at) {
                self.tell(at, proxy, told);
            }
            self.watch_until(at);
            self.apply(at, &fault)?;
        }
        for (at, proxy, told) in told {
            self.tell(at, proxy, told);
        }
        let strangers = self.world.strangers.iter().map(|stranger| stranger.due(stranger.count));
        let offered = Timestamp::ZERO + self.world.offered_for().mul_f64(1.5);
        let offered = strangers.fold(offered, Timestamp::max);
        let end = self.network.now().max(offered) + SETTLES_WITHIN;
        self.watch_until(offered);
        self.end_probes();
        while !self.network.is_over() && self.network.now() < end {
            self.network.run_until((self.network.now() + LOOK_AFTERWARDS).min(end));
            self.look();
        }
        self.end_questions();
        Ok(self.finish())
    }

    fn tell(&mut self, at: Timestamp, proxy: usize, told: Told) {
        self.watch_until(at);
        match told {
            Told::Command(text) => self.command(proxy, &text),
            Told::Failure(failure) => {
                self.network.fail(self.world.node(Place::Proxy(proxy)), failure);
            }
        }
    }

    fn command(&mut self, proxy: usize, text: &str) {
        self.network.command(self.world.node(Place::Proxy(proxy)), text.as_bytes());
    }

    /// Reloads the proxies with a configuration without probes. Otherwise the proxies would send
    /// probes forever, and the run would never end.
    fn end_probes(&mut self) {
        let mut unprobed = self.world.clone();
        for index in 0..self.world.proxies.len() {
            if self.world.proxies[index].health.contains_key("probe") {
                unprobed.proxies[index].health.clear();
                self.command(index, &text(&unprobed, index));
            }
        }
    }

    /// Drains the proxies. Otherwise they would send DNS queries forever.
    fn end_questions(&mut self) {
        if self.world.names.is_none() {
            return;
        }
        for index in 0..self.world.proxies.len() {
            self.network.drain(self.world.node(Place::Proxy(index)));
        }
        // The next queries of each proxy were due within an hour, so none is left after that time.
        self.network.run_until(self.network.now() + Duration::from_secs(3660));
    }

    fn watch_until(&mut self, until: Timestamp) {
        while self.network.now() < until && !self.network.is_over() {
            self.network.run_until((self.network.now() + LOOK).min(until));
            self.look();
        }
    }

    fn look(&mut self) {
        let now = self.network.now();
        for (node, book) in self.books() {
            self.network.tap_mut().1.look(now, node, &book);
        }
    }

    fn books(&self) -> Vec<(NodeId, tidegate_sim::check::books::Book)> {
        let now = self.network.now();
        let nodes = (0..self.world.nodes()).map(NodeId::new);
        let up = nodes.filter(|&node| self.network.is_up(node));
        up.filter_map(|node| Some((node, self.network.core(node).book(now)?))).collect()
    }

    fn apply(&mut self, at: Timestamp, fault: &Fault) -> Result<(), String> {
        let next = match fault {
            Fault::Restart { node } if !self.network.is_up(*node) => {
                let place = self.world.place(node.index()).ok_or("a node that is nowhere")?;
                self.lives[node.index()] += 1;
                let life = self.lives[node.index()];
                Some(Node::new(self.world, place, life, at, (self.wrap, &self.wiretap))?)
            }
            _ => None,
        };
        if let Fault::Stall { node, .. } = fault {
            self.network.tap_mut().1.disturbed(*node);
        }
        let crashed = self.network.apply(at, fault, |_| next.expect("made for a restart"));
        if let (Some(_), Fault::Crash { node, .. }) = (crashed, fault) {
            self.network.tap_mut().1.crashed(at, *node);
        }
        Ok(())
    }

    fn finish(mut self) -> Ran {
        let (now, quiet) = (self.network.now(), self.network.is_over());
        let books = self.books();
        let calls = self.calls();
        let summary = self.network.summary();
        let (_, ((trace, _), checkers)) = self.network.into_parts();
        let Report { violations, further, unwatched } = checkers.finish(now, quiet, &books);
        let mut findings: Vec<_> = violations
            .iter()
            .map(|violation| Finding {
                checker: violation.checker.to_owned(),
                what: violation.to_string(),
            })
            .collect();
        if let (Some(last), 1..) = (findings.last_mut(), further) {
            last.what += &format!("; and {further} more");
        }
        Ran { findings, unwatched, summary, trace: trace.digest(), calls, lasted: now }
    }

    fn calls(&self) -> [u64; 3] {
        let mut calls = [0; 3];
        for index in 0..self.world.callers.len() {
            let node = self.world.node(Place::Caller(index));
            if let Node::Caller(caller, _) = self.network.core(node) {
                let stats = caller.core().stats();
                for (sum, count) in
                    calls.iter_mut().zip([stats.offered, stats.set_up, stats.completed])
                {
                    *sum += count;
                }
            }
        }
        calls
    }
}

/// Returns the commands of operators and the forged ICMP errors, in the order of time. Each has its
/// time and the index of its proxy.
fn told(world: &World) -> Vec<(Timestamp, usize, Told)> {
    let commands = commands(world).into_iter();
    let commands = commands.map(|command| (command.at, command.proxy, Told::Command(command.text)));
    let forgers = world.strangers.iter().filter(|stranger| stranger.attack == Attack::Icmp);
    let forged = forgers.flat_map(|stranger| {
        let door = world.layer(0)[stranger.to];
        let behind = world.behind(door);
        (0..stranger.count).map(move |n| {
            let [local, remote] =
                [Place::Proxy(door), behind[n as usize % behind.len()]].map(address);
            // The forged report quotes no packet, because the attacker has seen none.
            let failure = Failure::new(Flow::udp(local, remote), Cause::Refused, b"");
            (stranger.due(n), door, Told::Failure(failure))
        })
    });
    let mut told: Vec<_> = commands.chain(forged).collect();
    told.sort_by_key(|(at, ..)| *at);
    told
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
