//! Domains in pools: the servers that the DNS lists for them become back ends.
//!
//! The first shard queries the DNS, and records the servers of a domain in its [`Service`]. When
//! the servers change, the main thread sends [the new servers](Found) to all shards as a command.
//! Each shard then reloads its pools with one back end for each server. Recordings contain all
//! commands, and therefore also the servers. A server that appears, disappears or changes its
//! weight is treated like a change of the configuration. Calls at a removed server stay there until
//! they end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_balance::Service;
use tidegate_world::{SrvRecord, Transport};

use super::pool::default_port;
use super::{Backend, Config, Endpoint, HostPort, Pool};

/// Maximum weight of a server within its domain. If an SRV record has a larger weight, all weights
/// of its priority are scaled down.
const WEIGHT_MAX: u32 = 1000;

/// The servers that the DNS lists for the domains in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    #[serde(rename = "found")]
    domains: Vec<Domain>,
}

/// The servers of one domain, in ascending order of priority.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Domain {
    domain: String,
    transport: String,
    servers: Vec<Server>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    priority: u16,
    weight: u16,
    port: u16,
    target: String,
}

impl From<&SrvRecord> for Server {
    fn from(record: &SrvRecord) -> Self {
        let &SrvRecord { priority, weight, port, ref target } = record;
        // A name with only one label keeps its final dot, because without the dot it is another
        // name, which the search list may complete. Other names lose the dot here, but queries for
        // them have it, so the resolver completes none of them.
        let bare = target.strip_suffix('.').filter(|bare| bare.contains('.'));
        Self { priority, weight, port, target: bare.unwrap_or(target).to_owned() }
    }
}

impl Server {
    /// Returns host and port of the server, as in [`Endpoint::Name`].
    fn place(&self) -> HostPort {
        HostPort { host: self.target.clone(), port: self.port }
    }

    fn label(&self) -> String {
        self.place().to_string()
    }
}

impl Found {
    /// Returns the servers of `services`. Services whose servers are not known yet are left out.
    pub fn of(services: &[Arc<Service>]) -> Self {
        let domain = |service: &Arc<Service>| {
            Some(Domain {
                domain: service.domain().to_string(),
                transport: service.transport().name().to_ascii_lowercase(),
                servers: service.servers()?.iter().map(Server::from).collect(),
            })
        };
        Self { domains: services.iter().filter_map(domain).collect() }
    }

    /// Returns the first domain of `services` whose SRV records list the server `host` with this
    /// port.
    pub(crate) fn domain_of(
        &self,
        services: &[Arc<Service>],
        host: &str,
        port: u16,
    ) -> Option<&str> {
        let is_of = |domain: &&Domain, service: &Arc<Service>| {
            *domain.domain == **service.domain()
                && domain.transport.eq_ignore_ascii_case(service.transport().name())
        };
        let host = host.trim_end_matches('.');
        let lists = |domain: &&Domain| {
            domain.servers.iter().any(|server| (&*server.target, server.port) == (host, port))
        };
        let of_services = |service| self.domains.iter().find(|domain| is_of(domain, service));
        services.iter().filter_map(of_services).find(lists).map(|domain| &*domain.domain)
    }

    /// Parses the command that [`text`](Self::text) returns. Returns `None` for any other command.
    pub(crate) fn given(text: &str) -> Option<Self> {
        toml::from_str(text).ok()
    }

    /// Returns the command that sends the servers to the shards.
    pub fn text(&self) -> String {
        toml::to_string(self).expect("names and numbers can be written")
    }

    /// Returns a line of text for each domain whose servers differ from those in `before`.
    pub(crate) fn changes_since<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = String> + 'a {
        let differs = |domain: &&Domain| !before.domains.contains(domain);
        self.domains.iter().filter(differs).map(|Domain { domain, servers, .. }| {
            let labels: Vec<_> = servers.iter().map(Server::label).collect();
            match &*labels {
                [] => format!("domain {domain}: the DNS lists no servers"),
                [one] => format!("domain {domain}: the DNS lists 1 server: {one}"),
                all => format!(
                    "domain {domain}: the DNS lists {} servers: {}",
                    all.len(),
                    all.join(", ")
                ),
            }
        })
    }

    /// Returns the configuration with additional back ends. Each server of a domain becomes a back
    /// end, which is placed before the back end with the domain.
    pub(crate) fn expand(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if self.domains.is_empty() {
            return config;
        }
        let mut names = Names::of(&config);
        let transports: Vec<_> = config.pool.iter().map(|pool| config.transport(pool)).collect();
        for (pool, transport) in config.pool.iter_mut().zip(transports) {
            self.expand_pool(pool, transport, &mut names);
        }
        config
    }

    fn expand_pool(&self, pool: &mut Pool, transport: Transport, names: &mut Names) {
        let mut taken: BTreeSet<HostPort> =
            pool.backends.iter().filter_map(|backend| place(backend).cloned()).collect();
        let mut backends = Vec::with_capacity(pool.backends.len());
        for backend in std::mem::take(&mut pool.backends) {
            if let Endpoint::Domain(domain) = &backend.endpoint
                && let Some(found) = self.find(domain, transport)
            {
                let servers = found.backends(&backend, domain, default_port(transport), names);
                let is_new =
                    |server: &Backend| place(server).is_some_and(|at| taken.insert(at.clone()));
                backends.extend(servers.into_iter().filter(is_new));
            }
            backends.push(backend);
        }
        pool.backends = backends;
    }

    fn find(&self, domain: &str, transport: Transport) -> Option<&Domain> {
        let is_it = |found: &&Domain| {
            found.domain == domain && found.transport.eq_ignore_ascii_case(transport.name())
        };
        self.domains.iter().find(is_it)
    }
}

impl Domain {
    /// Returns one back end for each server. Each is a copy of `backend`, the entry of the domain,
    /// with the name, address, weight and priority of the server. `port` is the default port of the
    /// transport. A domain without SRV records is its own server at this port.
    fn backends(
        &self,
        backend: &Backend,
        domain: &str,
        port: u16,
        names: &mut Names,
    ) -> Vec<Backend> {
        let mut all = Vec::with_capacity(self.servers.len());
        // RFC 2782: "A client MUST attempt to contact the target host with the lowest-numbered
        // priority it can reach; target hosts with the same priority SHOULD be tried in an order
        // defined by the weight field." The first group gets the priority of the back end in the
        // configuration, and each further group gets the next higher number.
        let groups = self.servers.chunk_by(|a, b| a.priority == b.priority);
        for (rank, group) in (0..).zip(groups) {
            let heaviest = group.iter().map(|server| u32::from(server.weight)).max().unwrap_or(0);
            for server in group {
                // RFC 2782: "In the presence of records containing weights greater than 0, records
                // with weight 0 should have a very small chance of being selected."
                let weight = u32::from(server.weight) * WEIGHT_MAX.min(heaviest);
                let weight = weight.checked_div(heaviest).unwrap_or(1).max(1);
                all.push(Backend {
                    name: names.of_server(server, backend, (domain, port)),
                    endpoint: Endpoint::Name(server.place()),
                    weight: backend.weight * weight,
                    priority: backend.priority + rank,
                    ..backend.clone()
                });
            }
        }
        all
    }
}

/// The names of the servers of domains. A server has the same name in all pools.
struct Names {
    known: BTreeMap<HostPort, String>,
    /// Names of back ends in the configuration. No other server gets one of these names.
    taken: BTreeSet<String>,
}

impl Names {
    /// Collects the names of the servers in a configuration.
    fn of(config: &Config) -> Self {
        let backends = || config.pool.iter().flat_map(|pool| &pool.backends);
        Self {
            known: backends().filter_map(|b| Some((place(b)?.clone(), b.name.clone()))).collect(),
            taken: backends().map(|b| b.name.clone()).collect(),
        }
    }

    /// Returns the name of a server of `domain`. `backend` is the entry of the domain in the
    /// configuration. If the entry has a name of its own, the server whose host is the domain and
    /// whose port is `port` gets this name. Any other server gets this name followed by its host
    /// and port. If the entry has no name of its own, a server is named by host and port. If the
    /// configuration already contains the new name, the name of the entry is added in front.
    /// Therefore a name does not depend on the other servers of the domain, and no two back ends
    /// have the same name.
    fn of_server(
        &mut self,
        server: &Server,
        backend: &Backend,
        (domain, port): (&str, u16),
    ) -> String {
        let has_name = backend.name != domain;
        let is_domain = server.target == domain && server.port == port;
        let taken = &self.taken;
        let new = || {
            let mut name = match (has_name, is_domain) {
                (true, true) => return backend.name.clone(),
                (true, false) => format!("{}:{}", backend.name, server.label()),
                (false, _) => server.label(),
            };
            while taken.contains(&name) {
                name = format!("{}:{name}", backend.name);
            }
            name
        };
        self.known.entry(server.place()).or_insert_with(new).clone()
    }
}

/// Returns host and port of a back end that is configured by host name, or `None` for any other.
fn place(backend: &Backend) -> Option<&HostPort> {
    match &backend.endpoint {
        Endpoint::Name(name) => Some(name),
        Endpoint::Address(_) | Endpoint::Domain(_) => None,
    }
}

#[cfg(test)]
#[path = "domains_tests.rs"]
mod tests;
