//! The first phase of a start: opens what the process needs from the system.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tidegate_io::{Resolver, egress_networks};
use tidegate_proxy::EgressRoute;
use tidegate_world::Seed;

use super::{StartInput, failed};
use crate::StartError;
use crate::admin::Admin;
use crate::assembly::Environment;
use crate::config::{Config, TlsFiles};
use crate::removed::RemovedBackends;
use crate::tls::Tls;
use crate::wiring::{self, Group};
use crate::{descriptors, key, memory, predecessor};

/// The resources that a starting process has opened.
pub(super) struct Preparation {
    /// Maximum number of DNS queries at the same time.
    pub(super) query_places: usize,
    pub(super) tls: Tls,
    pub(super) resolver: Option<Resolver>,
    pub(super) removed: RemovedBackends,
    /// The address of the admin interface, and the socket that listens there.
    pub(super) admin: Option<(SocketAddr, TcpListener)>,
    pub(super) groups: Vec<Group>,
    pub(super) seed: Seed,
    pub(super) environment: Environment,
}

impl Preparation {
    /// Opens the resources. `tls` has the certificates and keys that the configuration names.
    ///
    /// Most errors of a start are found before a shared address is opened. If the process fails
    /// until then, it has taken no traffic of a shared address and has not changed the list of
    /// removed back ends.
    pub(super) fn new(input: StartInput<'_>, tls: TlsFiles) -> Result<Self, StartError> {
        let StartInput { config, state_dir, record, begun, .. } = input;
        let query_places = descriptors::reserve(config)?;
        let tls = Tls::new(tls);
        let resolver = match Resolver::start(&config.name_servers, query_places) {
            Ok(resolver) => Some(resolver),
            // Without a resolver, a process can still serve calls, because all back ends have
            // addresses.
            Err(_) if !config.has_names() && config.name_servers.is_empty() => None,
            Err(error) => return Err(failed("resolver", error)),
        };
        let removed = RemovedBackends::new(state_dir, config.server.removed_backend);
        removed.check().map_err(|error| unwritable(&removed, &error))?;
        if let Some(to) = record {
            to.check(config.server.shards)?;
        }
        let bind = |address| Admin::bind(address).map(|listener| (address, listener));
        let admin = config.admin.address.map(bind).transpose()?;
        let groups = wiring::open(config, &tls)?;
        let seed = getrandom::u64().map(Seed).map_err(|error| {
            StartError::new(
                "random numbers",
                error.to_string(),
                "run Tidegate on a system that allows the system call getrandom(2)",
            )
        })?;
        let environment = Environment {
            before: predecessor::read(state_dir),
            message_memory: Some(memory::available() / 4),
            query_places: Some(query_places),
            start: begun,
            ..environment(config, &groups, &removed)?
        };
        tls.set_removed(environment.removed.clone());
        Ok(Self { query_places, tls, resolver, removed, admin, groups, seed, environment })
    }
}

/// Returns an environment with the network routes of the machine and the back ends that were
/// recently removed from the configuration. The caller sets the other fields.
fn environment(
    config: &Config,
    groups: &[Group],
    removed: &RemovedBackends,
) -> Result<Environment, StartError> {
    let listeners: Vec<_> = groups.iter().map(Group::local).collect();
    let route = |(to, listener)| EgressRoute { to, listener };
    let gone = removed.update(key::unix_time().as_secs(), config.backend_addresses());
    let gone = gone.map_err(|error| unwritable(removed, &error))?;
    Ok(Environment {
        egress_routes: egress_networks(&listeners).into_iter().map(route).collect(),
        removed: gone,
        before: None,
        message_memory: None,
        query_places: None,
        start: Duration::ZERO,
    })
}

fn unwritable(removed: &RemovedBackends, error: &std::io::Error) -> StartError {
    let remedy = "allow the user that runs Tidegate to read and replace this file, or set another \
                  directory: `[server] state_dir`";
    StartError::new(removed.path().display(), error.to_string(), remedy)
}
