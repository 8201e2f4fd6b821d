//! Conversion of configured pools to the types of the balancer and of the proxy.

use std::collections::BTreeMap;

use tidegate_balance::{self as balance, BackendSpec, PoolSpec};
use tidegate_proxy as proxy;

use crate::config::{self, Config, Endpoint, HostPort, Selection};

/// Converts the pools of a configuration, with their back ends, to the type of the balancer.
pub(crate) fn pool_specs(config: &Config) -> Vec<PoolSpec> {
    let backend_spec = |backend: &config::Backend, learning| {
        Some(BackendSpec {
            name: backend.name.clone(),
            endpoint_address: endpoint_address(&backend.endpoint)?,
            weight: backend.weight,
            priority: backend.priority,
            limits: balance::Limits {
                calls_max: backend.calls_max,
                cps_max: backend.cps_max,
                learning,
            },
        })
    };
    let pool_spec = |pool: &config::Pool| PoolSpec {
        name: pool.name.clone(),
        slow_start: pool.health.slow_start,
        backends: pool.backends.iter().filter_map(|b| backend_spec(b, pool.learning)).collect(),
        services: pool.domains().map(|domain| (domain.into(), config.transport(pool))).collect(),
    };
    config.pool.iter().map(pool_spec).collect()
}

/// Converts the address of a back end. Returns `None` for a domain, because the servers of the
/// domain become back ends instead.
fn endpoint_address(endpoint: &Endpoint) -> Option<balance::EndpointAddress> {
    match endpoint {
        Endpoint::Address(address) => Some(balance::EndpointAddress::Address(*address)),
        Endpoint::Name(HostPort { host, port }) => {
            Some(balance::EndpointAddress::Name(host.as_str().into(), *port))
        }
        Endpoint::Domain(_) => None,
    }
}

/// Converts the settings of the pools in `all` to the type of the proxy. `pools` are the same pools
/// in the balancer, in the same order.
pub(crate) fn pool_settings(pools: &[balance::Pool], all: &Config) -> Vec<proxy::PoolSettings> {
    let places = all.pool.iter().enumerate().map(|(place, pool)| (&pool.name, place));
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
            transport: Some(all.transport(config)),
            sources: config.servers().map(|backend| backend.sources.clone()).collect(),
            obedience: config.obedience,
            large_over_tcp: config.large_over_tcp,
            path: config.path,
        }
    };
    pools.iter().zip(&all.pool).map(settings).collect()
}
