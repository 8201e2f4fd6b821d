//! From a configuration to what the cores are given.

use tidegate_balance as balance;
use tidegate_io as io;
use tidegate_proxy as proxy;
use tidegate_sim as sim;
use tidegate_world::Seed;

use crate::StartError;
use crate::config::{self, Config, Emulate, Listen, Selection};
use crate::key::Keys;

/// Opens the sockets of every listener.
pub(crate) fn open(config: &Config) -> Result<Vec<io::Group>, StartError> {
    let open = |listen: &Listen| {
        let group = io::Listen {
            shards: config.server.shards,
            receive_buffer: listen.receive_buffer,
            // One queue of all has one order: that of arrival.
            split: config.overload.queueing == proxy::Queueing::Class,
            ..io::Listen::new(listen.address)
        };
        io::open(&group).map_err(|error| {
            let remedy = "stop whoever has that address, or change `[[listen]] address`";
            StartError::new(format!("listener {}", listen.address), error.to_string(), remedy)
        })
    };
    config.listen.iter().map(open).collect()
}

/// The pools, shared by all shards.
pub(crate) fn pools(config: &Config) -> Vec<balance::Pool> {
    let pool = |pool: &config::Pool| {
        let backends: Vec<_> =
            pool.backends.iter().map(|b| (b.name.as_str(), b.address, b.weight)).collect();
        balance::Pool::new(&pool.name, &backends)
    };
    config.pool.iter().map(pool).collect()
}

/// The settings of one shard. Limits of the configuration are those of the process.
pub(crate) fn settings(
    config: &Config,
    keys: &Keys,
    groups: &[io::Group],
    pools: &[balance::Pool],
    shard: u16,
    seed: Seed,
) -> proxy::Settings {
    let shards = usize::from(config.server.shards);
    let listener = |(listen, group): (&Listen, &io::Group)| proxy::Listener {
        local: group.local(),
        advertised: listen
            .advertise
            .as_ref()
            .map_or_else(|| group.local().to_string(), ToString::to_string),
        trust: listen.trust.clone(),
    };
    let secret = proxy::Secret { current: keys.current, previous: keys.previous.clone() };
    proxy::Settings {
        shard,
        shards: config.server.shards,
        transactions_max: (config.server.transactions_max / shards).max(1),
        calls_max: (config.server.calls_max / shards).max(1),
        queue_max: (config.server.queue_max / shards).max(1),
        idle_max: config.server.call_idle,
        failure_pause: config.server.backend_pause,
        rules: config.route.clone(),
        overload: overload(config, shards),
        seed,
        ..proxy::Settings::new(
            config.listen.iter().zip(groups).map(listener).collect(),
            pools.iter().zip(&config.pool).map(pool_settings).collect(),
            secret,
        )
    }
}

fn pool_settings((pool, config): (&balance::Pool, &config::Pool)) -> proxy::PoolSettings {
    let choice = match config.policy {
        Selection::One(policy) => proxy::Choice::One(policy),
        Selection::Fork => {
            let thousandths = |backend: &config::Backend| (backend.q * 1000.0).round() as u16;
            proxy::Choice::All(config.backends.iter().map(thousandths).collect())
        }
    };
    proxy::PoolSettings {
        pool: pool.clone(),
        choice,
        mode: config.mode,
        failover_after: config.failover_after,
        tries_max: config.tries_max,
    }
}

fn overload(config: &Config, shards: usize) -> proxy::Overload {
    let mut overload = config.overload.clone();
    overload.gate.memory_max = (overload.gate.memory_max / shards).max(1);
    overload
}

/// The emulated processor of each shard, if the configuration has one.
pub(crate) fn host(config: &Config) -> Option<sim::HostSettings> {
    let Emulate { offer, serve, refuse, socket_max } = config.emulate.clone()?;
    Some(sim::HostSettings {
        // As the real sockets are: INVITEs apart, unless everything waits in one queue.
        split: config.overload.queueing == proxy::Queueing::Class,
        buffer_max: socket_max,
        ..sim::HostSettings::new(sim::Costs { offer, serve, refuse })
    })
}
