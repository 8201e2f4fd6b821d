//! The TLS settings of a running process, which a reload replaces.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::ServerName;
use tidegate_balance::{Backend, BackendRegistry, Endpoint};
use tidegate_io::{TlsPeer, TlsPeers, TlsServer};

use crate::config::{Certificate, PoolClient, TlsFiles};
use crate::metrics::{Family, Metrics, Unit};

static VALID_TO: Family = Family::gauge(
    "tls_certificate_valid_to",
    "Time up to which a certificate of Tidegate is valid, since the Unix epoch",
)
.in_unit(Unit::Seconds);

/// The TLS settings of all listeners and pools.
#[derive(Clone)]
pub(crate) struct Tls {
    servers: Arc<[Option<TlsServer>]>,
    current: Arc<Mutex<TlsFiles>>,
}

impl Tls {
    pub(crate) fn new(files: TlsFiles) -> Self {
        let servers = files.listeners.iter().cloned();
        let servers = servers.map(|config| config.map(TlsServer::new)).collect();
        Self { servers, current: Arc::new(Mutex::new(files)) }
    }

    /// Replaces the settings, and returns the old ones. Existing connections keep the old ones. The
    /// listeners must be the same, because a change of listeners needs a restart.
    pub(crate) fn replace(&self, files: TlsFiles) -> TlsFiles {
        for (server, config) in self.servers.iter().zip(&files.listeners) {
            if let (Some(server), Some(config)) = (server, config) {
                server.replace(Arc::clone(config));
            }
        }
        std::mem::replace(&mut *self.current(), files)
    }

    /// Returns the TLS settings of the listener with this index, or `None` if the listener does not
    /// use TLS.
    pub(crate) fn server(&self, listener: usize) -> Option<TlsServer> {
        self.servers.get(listener)?.clone()
    }

    /// Returns the TLS settings toward the back ends in `registry`.
    pub(crate) fn peers(&self, registry: BackendRegistry) -> TlsPeers {
        let tls = self.clone();
        Arc::new(move |remote| tls.peer(&registry, remote))
    }

    fn peer(&self, registry: &BackendRegistry, remote: SocketAddr) -> Option<TlsPeer> {
        let current = self.current();
        registry.pools().iter().find_map(|pool| {
            let PoolClient { config, name } = current.pools.get(pool.name())?;
            let backend = pool.backends().iter().find(|backend| is_at(backend, remote))?;
            let name = name.clone().or_else(|| name_of(backend))?;
            Some(TlsPeer { config: Arc::clone(config), name })
        })
    }

    /// Adds metrics with the times up to which certificates are valid.
    pub(crate) fn add(&self, metrics: &mut Metrics) {
        let tls = self.clone();
        metrics.add(move |samples| {
            for Certificate { path, valid_to, .. } in &tls.current().certificates {
                let file = path.display().to_string();
                samples.push(&VALID_TO, &[("file", &*file)], valid_to.as_secs());
            }
        });
    }

    fn current(&self) -> MutexGuard<'_, TlsFiles> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_at(backend: &Backend, remote: SocketAddr) -> bool {
    match backend.endpoint() {
        Endpoint::Address(address) => *address == remote,
        Endpoint::Name(named) => named.addresses().contains(&remote),
    }
}

/// Returns the host in the URI of a back end.
fn name_of(backend: &Backend) -> Option<ServerName<'static>> {
    match backend.endpoint() {
        Endpoint::Address(address) => Some(address.ip().into()),
        Endpoint::Name(named) => {
            ServerName::try_from(named.host().trim_end_matches('.').to_owned()).ok()
        }
    }
}
