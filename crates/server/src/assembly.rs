//! Builds the cores of a process from its configuration, without sockets, clocks and threads.
//!
//! `tidegate run` connects the cores to real sockets. A simulation runs them in simulated time, and
//! a replay gives them recorded inputs.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_balance as balance;
use tidegate_balance::BackendRegistry;
use tidegate_control::{BanList, PriorityCap};
use tidegate_emulate::{Costs, Host, HostSettings, Quota, Variation};
use tidegate_io::CommandSender;
use tidegate_proxy as proxy;
use tidegate_proxy::{Proxy, QueryLimits, Secret};
use tidegate_transport::{ConnectionLimits, Streams};
use tidegate_world::{Core, Pool, Seed, ShardIndex, delegate};

use crate::config::{Config, Connections, Emulate, Listen, Sharing};
pub use crate::environment::{Environment, MESSAGE_MEMORY_MAX};
use crate::metrics::collect::ShardCounters;
use crate::pools::{pool_settings, pool_specs};
use crate::prepared::Prepared;
use crate::reconfigurable::Reconfigurable;
use crate::rejections::Rejections;
use crate::runtime_control::RuntimeControl;
use crate::status::Instruments;

/// The state that all shards of a process share, from which their cores are built.
pub struct Assembly<'a> {
    /// A copy of the configuration, which the cores and the runtime control share.
    config: Arc<Config>,
    keys: &'a Secret,
    locals: Vec<SocketAddr>,
    environment: Environment,
    registry: BackendRegistry,
    pools: Vec<balance::Pool>,
    counters: Vec<ShardCounters>,
    bans: BanList,
    priority_cap: PriorityCap,
    moves: proxy::Moves,
    next_hops: proxy::NextHops,
    prepared: Prepared,
    seed: Seed,
}

impl<'a> Assembly<'a> {
    /// Creates the shared state of a process with the configuration `config`. `locals` are the
    /// addresses of the listeners, in the order of the configuration.
    pub fn new(config: &Config, keys: &'a Secret, locals: Vec<SocketAddr>, seed: Seed) -> Self {
        let counters = (0..config.server.shards).map(|_| ShardCounters::default()).collect();
        let bans = BanList::new(config.overload.sources.bans_max);
        let registry = BackendRegistry::new(&pool_specs(config));
        let pools = registry.pools();
        let moves = proxy::Moves::default();
        let next_hops = proxy::NextHops::new(config.overload.feedback.upstream.accepted, seed);
        let (environment, prepared) = (Environment::default(), Prepared::default());
        Self {
            config: Arc::new(config.clone()),
            keys,
            locals,
            environment,
            registry,
            pools,
            counters,
            bans,
            priority_cap: PriorityCap::default(),
            moves,
            next_hops,
            prepared,
            seed,
        }
    }

    /// Sets the [`Environment`] in which the cores are built. It is empty by default.
    #[must_use]
    pub fn within(self, environment: Environment) -> Self {
        Self { environment, ..self }
    }

    /// Returns the back ends of the process, which reloads change.
    pub fn registry(&self) -> &BackendRegistry {
        &self.registry
    }

    /// Returns the pools at the start of the process.
    pub fn pools(&self) -> &[balance::Pool] {
        &self.pools
    }

    /// Returns the bans of the process.
    pub fn bans(&self) -> &BanList {
        &self.bans
    }

    /// Returns the overload restrictions that the back ends have asked for (RFC 7339).
    pub fn next_hops(&self) -> &proxy::NextHops {
        &self.next_hops
    }

    /// Returns the counters of each shard.
    pub fn counters(&self) -> &[ShardCounters] {
        &self.counters
    }

    /// Returns the law, back ends, next hops and counters that `/status` reports for the process.
    pub fn instruments(&self) -> Instruments {
        let law = self.config.overload.gate.law.entry().name;
        let (registry, next_hops) = (self.registry.clone(), self.next_hops.clone());
        Instruments::new(law, registry, next_hops, self.counters.clone())
    }

    /// Returns the [`RuntimeControl`] of the process, which sends operators' commands to the shards
    /// through `commands`.
    pub fn runtime_control(&self, commands: CommandSender) -> RuntimeControl {
        RuntimeControl::new(
            Arc::clone(&self.config),
            self.registry.clone(),
            commands,
            self.counters.clone(),
            self.prepared.clone(),
        )
    }

    /// Returns the rejections that the cores have recorded.
    pub fn rejections(&self) -> Rejections {
        Rejections::new(self.counters.clone())
    }

    /// Returns the parts from which the core of a shard is built.
    pub fn part(&self, shard: u16) -> Part {
        Part {
            settings: self.settings(shard),
            config: Arc::clone(&self.config),
            registry: self.registry.clone(),
            prepared: self.prepared.clone(),
            host: host(&self.config, self.seed, shard),
            counters: self.counters[usize::from(shard)].clone(),
        }
    }

    /// Returns the settings of one shard. Limits in the configuration apply to the whole process.
    /// So each shard gets a part of a limit, or shares the limit with the other shards.
    fn settings(&self, shard: u16) -> proxy::Settings {
        let Self { config, keys, pools, .. } = self;
        let shards = usize::from(config.server.shards);
        let listener = |(listen, local): (&Listen, &SocketAddr)| proxy::Listener {
            transport: listen.transport,
            local: *local,
            advertised: listen
                .advertise
                .as_ref()
                .map_or_else(|| proxy::Listener::new(*local).advertised, ToString::to_string),
            names: listen.names.clone(),
            trust: listen.trust.clone(),
            trust_identity: listen.trust_identity.clone(),
            shared: listen.shared != Sharing::No,
        };
        let message_memory = config.server.message_memory_max;
        let message_memory = message_memory.or(self.environment.message_memory);
        let message_memory = message_memory.unwrap_or(MESSAGE_MEMORY_MAX);
        let query_places = self.environment.query_places.unwrap_or(usize::MAX);
        let name = config.server.name.clone();
        let usual = proxy::Settings::new(
            config.listen.iter().zip(&self.locals).map(listener).collect(),
            pool_settings(pools, config),
            (*keys).clone(),
        );
        proxy::Settings {
            shard,
            name: name.unwrap_or_else(|| usual.name.clone()),
            shards: config.server.shards,
            queries: QueryLimits::within(query_places, config.server.shards),
            transactions_max: (config.server.transactions_max / shards).max(1),
            transaction_bytes_max: (message_memory / 4 * 3 / shards).max(1),
            amplification_max: config.server.amplification_max,
            queue_bytes_max: (message_memory / 4 / shards).max(1),
            calls_max: (config.server.calls_max / shards).max(1),
            queue_max: (config.server.queue_max / shards).max(1),
            idle_max: config.server.call_idle,
            timer_slack: config.server.timer_slack,
            failure_pause: config.server.backend_pause,
            rules: config.route.clone(),
            overload: overload(config, shards),
            bans: self.bans.clone(),
            priority_cap: self.priority_cap.clone(),
            moves: self.moves.clone(),
            next_hops: self.next_hops.clone(),
            trace: proxy::TraceSettings {
                per_second: config.admin.rejections_per_second,
                kept: (config.admin.rejections_kept / shards).max(1),
            },
            seed: self.seed,
            egress_routes: self.environment.egress_routes.clone(),
            removed: self.environment.removed.clone(),
            removed_backend: config.server.removed_backend,
            before: self.environment.before,
            start: self.environment.start,
            ..usual
        }
    }
}

/// The parts from which the core of a shard is built. The thread of the shard gets them and builds
/// the core.
pub struct Part {
    settings: proxy::Settings,
    config: Arc<Config>,
    registry: BackendRegistry,
    prepared: Prepared,
    host: Option<HostSettings>,
    counters: ShardCounters,
}

impl Part {
    /// Returns the counters of the shard.
    pub fn counters(&self) -> &ShardCounters {
        &self.counters
    }

    /// Returns the parts with `host` as the emulated processor, instead of the configured one.
    #[must_use]
    pub fn on(self, host: HostSettings) -> Self {
        Self { host: Some(host), ..self }
    }

    /// Returns the emulated processor of the shard, if any.
    pub fn host(&self) -> Option<&HostSettings> {
        self.host.as_ref()
    }

    /// Builds the core. Adds the handling of connections if the configuration has listeners for
    /// connections. Packets use buffers from `pool`.
    pub fn connected(self, pool: Pool) -> Connected {
        if !self.config.has_streams() {
            return Connected::Datagrams(self.core(pool));
        }
        let limits = connection_limits(&self.config);
        let counters = Arc::clone(&self.counters.connections);
        let shard = ShardIndex::new(self.settings.shard, self.settings.shards);
        let core = self.core(pool.clone());
        let streams = Streams::counting(core, limits, pool, counters).in_shard(shard);
        Connected::Streams(Box::new(streams))
    }

    /// Builds the core without the handling of connections. Packets use buffers from `pool`.
    pub fn core(self, pool: Pool) -> Server {
        let counters = Arc::clone(&self.counters.proxy);
        let bans = self.settings.bans.clone();
        let proxy = Proxy::new(self.settings, self.counters.proxy, pool);
        let Self { config, registry, prepared, .. } = self;
        let proxy = Reconfigurable::new(proxy, config, registry, bans, counters, prepared);
        match self.host {
            None => Server::Plain(Box::new(proxy)),
            Some(host) => {
                let host = Host::new(proxy, &host);
                let ShardCounters { emulated_overflow, emulated_filtered, .. } = self.counters;
                let host = host.counting_overflow(emulated_overflow);
                Server::Emulated(Box::new(host.counting_filtered(emulated_filtered)))
            }
        }
    }
}

/// The core of a shard, without the handling of connections.
pub enum Server {
    /// A core that runs at the speed of the machine.
    Plain(Box<Reconfigurable>),
    /// A core that runs on an emulated processor.
    Emulated(Box<Host<Reconfigurable>>),
}

impl Server {
    /// Returns the proxy in this core.
    pub fn proxy(&self) -> &Proxy {
        match self {
            Self::Plain(reconfigurable) => reconfigurable.proxy(),
            Self::Emulated(host) => host.core().proxy(),
        }
    }

    /// Returns whether the core reads from streams now. For a core on an emulated processor,
    /// [`Host::reads_streams`] decides. Any other core always reads from streams.
    pub fn reads_streams(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Emulated(host) => host.reads_streams(),
        }
    }
}

impl Core for Server {
    delegate!(match self {
        Self::Plain(core) => core,
        Self::Emulated(core) => core,
    });
}

/// The core of a shard, with the handling of connections if the configuration needs it.
pub enum Connected {
    /// A core without the handling of connections.
    Datagrams(Server),
    /// A core with the handling of connections.
    Streams(Box<Streams<Server>>),
}

impl Connected {
    /// Returns whether the core reads from streams now ([`Server::reads_streams`]).
    pub fn reads_streams(&self) -> bool {
        match self {
            Self::Datagrams(server) => server.reads_streams(),
            Self::Streams(streams) => streams.core().reads_streams(),
        }
    }
}

impl Core for Connected {
    delegate!(match self {
        Self::Datagrams(core) => core,
        Self::Streams(core) => core,
    });
}

/// Returns the limits that the core of one shard applies to its connections.
fn connection_limits(config: &Config) -> ConnectionLimits {
    let Connections { accepted_max, opened_max, memory_max, .. } = config.connections;
    let Connections { connect, first, idle, stall, waiting_max, .. } = config.connections;
    let shards = usize::from(config.server.shards);
    ConnectionLimits {
        opened_max: opened_max / shards,
        accepted_max: accepted_max / shards,
        per_remote_max: (config.connections.per_source_max() / shards).max(1),
        waiting_bytes_max: waiting_max,
        total_bytes_max: memory_max / shards,
        connect,
        first,
        idle,
        stall,
        ..ConnectionLimits::default()
    }
}

fn overload(config: &Config, shards: usize) -> proxy::Overload {
    let mut overload = config.overload.clone();
    overload.gate.memory_max = (overload.gate.memory_max / shards).max(1);
    overload
}

/// Returns the emulated processor of `shard`, if the configuration has one. If the costs of work
/// are random and the configuration has no seed for them, they are drawn with `seed`, the seed of
/// the process.
fn host(config: &Config, seed: Seed, shard: u16) -> Option<HostSettings> {
    let Emulate {
        receive,
        offer,
        serve,
        serve_stateless,
        reject,
        distribution,
        seed: configured,
        socket_max,
        socket_bytes,
        wake,
        batch,
        batch_fifo,
        quota,
        period,
        tick,
    } = config.emulate.clone()?;
    let quota = quota.map(|share| Quota { period, runtime: period.mul_f64(share), tick });
    // As with real sockets, INVITEs and REGISTERs have a receive buffer of their own, unless all
    // messages wait in one queue.
    let split = config.overload.queueing == proxy::Queueing::Class;
    let seed = configured.map_or(seed, |seed| Seed(u64::from(seed)));
    let variation = Variation { distribution, seed, element: u32::from(shard) };
    Some(HostSettings {
        split,
        buffer_max: socket_max,
        buffer_bytes: socket_bytes,
        batch: batch_fifo.filter(|_| !split).or(batch),
        quota,
        variation,
        ..HostSettings::new(Costs { wake, receive, offer, serve, serve_stateless, reject })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SMALL, assemble, load};

    #[test]
    fn the_shards_divide_the_places_for_queries() {
        let dir = tempfile::tempdir().unwrap();
        let config = load(dir.path(), &format!("[server]\nshards = 2\n{SMALL}"));
        let limits = |environment| assemble(&config).within(environment).settings(1).queries;
        assert_eq!(limits(Environment::default()), QueryLimits::MAX);
        let few = Environment { query_places: Some(40), ..Environment::default() };
        assert_eq!(limits(few), QueryLimits { backends: 20, requests: 5 });
    }
}
