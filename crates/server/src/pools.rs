//! The pools of a configuration, as the balancer keeps them and as the proxy uses them.

use std::collections::BTreeMap;

use tidegate_balance::{self as balance, Muster, Post};
use tidegate_proxy as proxy;

use crate::config::{self, Config, HostPort, Location, Selection};

/// The back ends of a configuration.
pub(crate) fn musters(config: &Config) -> Vec<Muster> {
    let post = |backend: &config::Backend, learning| {
        Some(Post {
            name: backend.name.clone(),
            site: site(&backend.location)?,
            weight: backend.weight,
            priority: backend.priority,
            limits: balance::Limits {
                calls_max: backend.calls_max,
                cps_max: backend.cps_max,
                learning,
            },
        })
    };
    let muster = |pool: &config::Pool| Muster {
        name: pool.name.clone(),
        slow_start: pool.health.slow_start,
        backends: pool.backends.iter().filter_map(|b| post(b, pool.learning)).collect(),
        services: pool.domains().map(|domain| (domain.into(), config.transport(pool))).collect(),
    };
    config.pool.iter().map(muster).collect()
}

/// Returns the place of a back end; `None` of a domain, whose servers are back ends instead.
fn site(location: &Location) -> Option<balance::Site> {
    match location {
        Location::Address(address) => Some(balance::Site::Address(*address)),
        Location::Name(HostPort { host, port }) => {
            Some(balance::Site::Name(host.as_str().into(), *port))
        }
        Location::Domain(_) => None,
    }
}

/// How the pools of a configuration are used, whose back ends are these.
pub(crate) fn pool_settings(pools: &[balance::Pool], config: &Config) -> Vec<proxy::PoolSettings> {
    let places = config.pool.iter().enumerate().map(|(place, pool)| (&pool.name, place));
    let places: BTreeMap<_, _> = places.collect();
    let settings = |(pool, config): (&balance::Pool, &config::Pool)| {
        let choice = match config.policy {
            Selection::One(policy) => proxy::Choice::One(policy),
            Selection::Fork => {
                let thousandths = |backend: &config::Backend| (backend.q * 1000.0).round() as u16;
                proxy::Choice::All(config.servers().map(thousandths).collect())
            }
        };
        proxy::PoolSettings {
            pool: pool.clone(),
            choice,
            mode: config.mode,
            failover_after: config.failover_after,
            tries_max: config.tries_max,
            health: config.health.clone(),
            backup: config.backup.as_ref().and_then(|name| Some(*places.get(name)? as u16)),
            listener: config.listener,
            sources: config.servers().map(|backend| backend.sources.clone()).collect(),
        }
    };
    pools.iter().zip(&config.pool).map(settings).collect()
}
