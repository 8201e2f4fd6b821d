//! Creates the nodes of a world, and reads the counts that they report to the checkers ([`Book`]).

use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, Load, Routing, Span};
use tidegate_emulate::HostSettings;
use tidegate_proxy::{Disposal, Mode, Secret};
use tidegate_server::assembly::{Assembly, Server};
use tidegate_server::config::Selection;
use tidegate_sim::Process;
use tidegate_sim::check::Role;
use tidegate_sim::check::books::{AnswererBook, Book};
use tidegate_sim::check::front::Front;
use tidegate_sim::check::leases::Balancer;
use tidegate_transport::{ConnectionLimits, Streams};
use tidegate_world::{Core, Pool, Purpose, Seed, ShardIndex, Timestamp, Transport, delegate};

use super::attacker::{Hostile, Source, Wiretap};
use super::book::{Instruments, OPEN_MAX, answerer_book, caller_book};
use super::configuration;
use super::exchange::Exchange;
use super::out_of_service::{Means, OutOfService};
use super::world::{Place, Proxy, World, address};

/// A number of transactions or calls that no world reaches. A table of this size is never full.
const ROOMY: usize = 10_000;

/// Maximum number of calls of an answerer, if the world sets no maximum.
const HELD_MAX: usize = 100_000;

/// A time longer than a call of any world takes from its first ringing to its end.
const TALK_MAX: Duration = Duration::from_secs(900);

/// The core of a node, with the values from which the node's [`Book`] is read.
pub(super) enum Node {
    Caller(Box<Streams<Caller>>, Transport),
    Answerer(Box<Streams<Exchange>>, usize),
    Attacker(Box<Hostile>),
    Proxy(Box<dyn Core>, Box<Instruments>),
}

/// A function that wraps the core of each shard of the proxy with the given index before the run.
pub type Wrap<'a> = &'a dyn Fn(usize, Server) -> Box<dyn Core>;

impl Node {
    /// Creates the node `place`. `life` is the number of times that the node was started before.
    ///
    /// # Errors
    /// Returns an error if the node cannot be built.
    pub(super) fn new(
        world: &World,
        place: Place,
        life: u32,
        now: Timestamp,
        (wrap, wiretap): (Wrap<'_>, &Wiretap),
    ) -> Result<Self, String> {
        let element = world.node(place).index() as u32;
        // The number of earlier starts changes the seed, so a restarted node makes other tags,
        // branches and choices than before.
        let seed = Seed(Seed(world.seed).stream(Purpose::Fault, element << 16 | life).next_u64());
        match place {
            Place::Caller(index) => {
                let config = caller(world, index);
                let caller = Caller::new(config, seed, element, now, Pool::new());
                let caller = caller.map_err(|impossible| impossible.to_string())?;
                Ok(Self::Caller(Box::new(connected(caller)), world.outside()))
            }
            Place::Answerer(index) => {
                let config = answerer(world, index)?;
                let held_max = config.calls_max;
                let answerer = Answerer::new(config, seed, element, Pool::new());
                let exchange = Exchange::new(answerer, Pool::new());
                Ok(Self::Answerer(Box::new(connected(exchange)), held_max))
            }
            Place::Attacker(index) => {
                let stranger = world.strangers[index].clone();
                let target = address(Place::Proxy(world.layer(0)[stranger.to]));
                let innocent = match stranger.source {
                    Source::Crowd(index) => Some(address(Place::Caller(index))),
                    Source::Own | Source::Nobody => None,
                };
                let ends = [address(place), target];
                // An attacker draws by its index among the attackers. So a change of callers or
                // servers does not change its draws.
                let draws = (Seed(world.seed), index as u32);
                let hostile = Hostile::new(stranger, ends, innocent, wiretap.clone(), draws);
                Ok(Self::Attacker(Box::new(hostile)))
            }
            Place::Proxy(index) => {
                let config = configuration::config(world, index)?;
                // The key is the same after each restart.
                let mut key = [0; 32];
                key[..8].copy_from_slice(&world.seed.to_le_bytes());
                key[8] = index as u8;
                let keys = Secret::of(key);
                let locals = vec![address(place); config.listen.len()];
                let assembly = Assembly::new(&config, &keys, locals, seed);
                let count = config.server.shards;
                let shards = (0..count).map(|shard| {
                    let mut part = assembly.part(shard);
                    if let Some(host) = part.host().cloned() {
                        // A stalled process does not catch up on the lost time.
                        part = part.on(HostSettings { catches_up: false, ..host });
                    }
                    let core = wrap(index, part.core(Pool::new()));
                    connected(core).in_shard(ShardIndex::new(shard, count))
                });
                let mut shards: Vec<_> = shards.collect();
                let connections = shards.iter().map(|it| Arc::clone(it.connections().counters()));
                let filtered = Arc::clone(&assembly.counters()[0].emulated_filtered);
                let instruments = Instruments::new(&config, &assembly, connections);
                let core: Box<dyn Core> = match shards.len() {
                    1 => Box::new(shards.remove(0)),
                    _ => {
                        let handoff_us = world.proxies[index].handoff_us as u64;
                        let handoff_time = Duration::from_micros(handoff_us);
                        Box::new(Process::new(shards, handoff_time, filtered))
                    }
                };
                Ok(Self::Proxy(core, Box::new(instruments)))
            }
        }
    }

    /// Returns the counts that the node reports to the checkers, or `None` for an attacker.
    pub(super) fn book(&self, now: Timestamp) -> Option<Book> {
        Some(match self {
            Self::Caller(caller, outside) => {
                Book::Caller(caller_book(caller.core().stats(), *outside))
            }
            Self::Answerer(exchange, held_max) => {
                let answerer = &exchange.core().answerer;
                let held = answerer.held() as u64;
                let book = answerer_book(&answerer.stats());
                Book::Answerer(AnswererBook { held, held_max: *held_max as u64, ..book })
            }
            Self::Proxy(_, instruments) => Book::Proxy(instruments.book(now)),
            Self::Attacker(_) => return None,
        })
    }
}

/// Returns the role that the checkers expect of a node, or `None` for an attacker.
pub(super) fn role(world: &World, place: Place) -> Result<Option<Role>, String> {
    Ok(Some(match place {
        Place::Caller(_) => Role::Caller,
        Place::Attacker(_) => return Ok(None),
        Place::Answerer(index) => {
            Role::Answerer { roomy: world.answerers[index].calls_max.is_none() }
        }
        Place::Proxy(index) => {
            let config = configuration::config(world, index)?;
            let [ahead, behind] = world.transports(index);
            Role::Proxy {
                stateful: config.pool[0].mode == Mode::Transaction,
                bridges: ahead != behind,
                sticky: config.overload.gate.sticky,
                roomy: config.server.transactions_max >= ROOMY,
            }
        }
    }))
}

/// Returns the settings from which the checkers compute the counts that a proxy must have. Returns
/// `None` if the node is not a proxy, or if the proxy does not handle each packet immediately,
/// drops what it rejects, or has a transaction table that can become full. With a full table, a
/// proxy forwards in-dialog requests without a transaction, and does not retransmit them. The
/// checkers' model of a proxy does not cover this.
pub(super) fn balancer(world: &World, place: Place) -> Result<Option<Balancer>, String> {
    let Place::Proxy(index) = place else { return Ok(None) };
    let config = configuration::config(world, index)?;
    let is_roomy = config.server.transactions_max >= ROOMY;
    // A message that waits for its connection is counted before a tap sees it, and a tap may never
    // see it.
    let at_once = world.transports(index) == [Transport::Udp; 2];
    // A proxy that drops what it rejects ends a call without a packet if the call finds no room at
    // another back end.
    let answers = config.overload.disposal != Disposal::Drop;
    let this = &world.proxies[index];
    let balances =
        this.emulate.is_empty() && is_roomy && at_once && answers && hands_off_at_once(this);
    Ok(balances.then(|| Balancer {
        backends: world.behind(index).into_iter().map(address).collect(),
        forks: config.pool[0].policy == Selection::Fork,
        idle_max: config.server.call_idle,
        timer_slack: config.server.timer_slack,
    }))
}

/// Returns the limits that, according to the checkers, a proxy must keep under attack. Returns
/// `None` if the node is not a proxy.
pub(super) fn front(world: &World, place: Place) -> Result<Option<Front>, String> {
    let Place::Proxy(index) = place else { return Ok(None) };
    let config = configuration::config(world, index)?;
    let (this, pool) = (&world.proxies[index], &config.pool[0]);
    let limit = |key: &str| this.limits.get(key).copied();
    let gives_each = pool.mode == Mode::Stateless || pool.tries_max == 1;
    let is_removed = |absence: &OutOfService| absence.proxy == index && absence.by == Means::Remove;
    let keeps_all = !world.absences.iter().any(is_removed);
    // A message that waits for its connection, or for another shard, is sent after it is counted.
    let at_once = world.transports(index) == [Transport::Udp; 2] && hands_off_at_once(this);
    let silent = [Some(pool.failover_after), pool.health.probe.as_ref().map(|probe| probe.timeout)];
    Ok(Some(Front {
        address: address(place),
        backends: world.behind(index).into_iter().map(address).collect(),
        calls_max: limit("calls_max").filter(|_| gives_each && keeps_all && at_once),
        cps_max: limit("cps_max").map(|rate| rate as f64).filter(|_| keeps_all && at_once),
        idle_max: config.server.call_idle,
        at_once: at_once && this.emulate.is_empty() && world.names.is_none(),
        sees_evidence: world.transports(index)[1] == Transport::Udp,
        // A proxy cannot notice within this time that a back end is silent, so a shorter silence is
        // no evidence.
        silent_after: silent.into_iter().flatten().min().unwrap_or_default().mul_f64(0.8),
        keeps_accounts: pool.mode == Mode::Transaction || config.server.calls_max >= ROOMY,
        transactions_max: config.server.transactions_max as u64,
    }))
}

/// Returns whether messages pass from one shard of the proxy to another in no time.
fn hands_off_at_once(proxy: &Proxy) -> bool {
    proxy.handoff_us == 0
}

/// Adds connection handling (for TCP) to a core.
fn connected<C: Core>(core: C) -> Streams<C> {
    Streams::new(core, ConnectionLimits::default(), Pool::new())
}

fn caller(world: &World, index: usize) -> CallerConfig {
    let crowd = &world.callers[index];
    let target = address(Place::Proxy(world.layer(0)[crowd.to]));
    CallerConfig {
        // The host is a name that every proxy considers its own. An address might belong to another
        // node.
        uri: "sip:service@swarm.example".to_owned(),
        load: Load { rate_cps: crowd.rate_cps, calls: crowd.calls, ..Load::default() },
        callers: 10,
        // For the checker `calls`, a BYE at the time of the 2xx means that the caller had lost
        // patience. So no call may have a holding time of 0.
        hold: span(crowd.hold_ms.max(1)),
        patience: span(crowd.patience_ms),
        routing: if crowd.follow_routes { Routing::Follow } else { Routing::Ignore },
        open_max: OPEN_MAX,
        transport: world.outside(),
        ..CallerConfig::new(address(Place::Caller(index)), target)
    }
}

fn answerer(world: &World, index: usize) -> Result<AnswererConfig, String> {
    let server = &world.answerers[index];
    let mix = server.mix.parse().map_err(|wrong| format!("mix {:?}: {wrong}", server.mix))?;
    Ok(AnswererConfig {
        name: format!("answerer-{index}"),
        mix,
        ring: span(server.ring_ms),
        hangs_up: server.hangs_up,
        hold: span(server.hold_ms),
        calls_max: server.calls_max.unwrap_or(HELD_MAX),
        talk_max: TALK_MAX,
        transport: world.inside(),
        ..AnswererConfig::new(address(Place::Answerer(index)))
    })
}

fn span(mean_ms: u64) -> Span {
    match mean_ms {
        0 => Span::ZERO,
        ms => Span::Exponential(Duration::from_millis(ms)),
    }
}

impl Core for Node {
    delegate!(match self {
        Self::Caller(core, _) => core,
        Self::Answerer(core, _) => core,
        Self::Attacker(core) => core,
        Self::Proxy(core, _) => core,
    });
}
