//! The TLS settings of a running process, which a reload replaces.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tidegate_balance::{Backend, BackendRegistry, Endpoint, Pool};
use tidegate_io::{TlsPeer, TlsPeers, TlsServer};

use crate::config::{Certificate, Found, PoolClient, TlsFiles};
use crate::metrics::{Family, Metrics, Unit};

static VALID_TO: Family = Family::gauge(
    "tls_certificate_valid_to",
    "Time up to which a certificate of Tidegate is valid, since the Unix epoch",
)
.in_unit(Unit::Seconds);

/// Maximum number of addresses of back ends whose TLS settings are remembered. The oldest ones are
/// forgotten first.
const FORMER_MAX: usize = 65_536;

/// The TLS settings of all listeners and pools.
#[derive(Clone)]
pub(crate) struct Tls {
    servers: Arc<[Option<TlsServer>]>,
    current: Arc<Mutex<TlsFiles>>,
    /// The last settings toward the addresses of back ends. In-dialog requests of existing calls
    /// still go to an address that was removed after the calls began.
    former: Arc<Mutex<BTreeMap<SocketAddr, Former>>>,
    /// Addresses of back ends that were removed from the configuration, perhaps before the process
    /// started. In-dialog requests of existing calls still go to these addresses.
    removed: Arc<Mutex<Vec<SocketAddr>>>,
}

/// The last TLS settings toward an address of a back end.
struct Former {
    /// The name of the pool of the back end.
    pool: String,
    peer: TlsPeer,
    /// The time up to which the settings are remembered, since the Unix epoch.
    until: Duration,
}

impl Tls {
    pub(crate) fn new(files: TlsFiles) -> Self {
        let servers = files.listeners.iter().cloned();
        let servers = servers.map(|config| config.map(TlsServer::new)).collect();
        let current = Arc::new(Mutex::new(files));
        Self { servers, current, former: Arc::default(), removed: Arc::default() }
    }

    /// Replaces the TLS settings for new connections, and returns the old settings. `files` must
    /// have the same listeners as before, because a change of listeners needs a restart.
    pub(crate) fn replace(&self, files: TlsFiles) -> TlsFiles {
        for (server, config) in self.servers.iter().zip(&files.listeners) {
            if let (Some(server), Some(config)) = (server, config) {
                server.replace(Arc::clone(config));
            }
        }
        let mut current = self.current();
        let before = std::mem::replace(&mut *current, files);
        // The client certificate of a pool may be new. A removed back end of the pool needs it too.
        for known in self.former().values_mut() {
            if let Some(PoolClient { config, .. }) = current.pools.get(&known.pool) {
                known.peer.config = Arc::clone(config);
            }
        }
        before
    }

    /// Remembers the TLS settings toward the back ends in `registry` for the time `keep`. Called
    /// before a change that may remove some of these back ends. `found` are the servers of the
    /// domains before the change. `now` is the time since the Unix epoch.
    pub(crate) fn remember(
        &self,
        registry: &BackendRegistry,
        found: &Found,
        now: Duration,
        keep: Duration,
    ) {
        let clients = self.current().pools.clone();
        // The settings toward back ends that still have calls are kept until the next change.
        let until = now + keep.max(Duration::from_secs(1));
        let mut former = self.former();
        // The first back end with an address has precedence, as in `peer`. So it comes last.
        for pool in registry.pools().iter().rev() {
            let client = clients.get(pool.name());
            for backend in pool.backends().iter().rev() {
                let domain = domain_of(pool, backend, found);
                let is_unlisted = domain.is_none()
                    && client.is_some_and(|client| has_domains(client, pool, backend));
                let peer = client.and_then(|client| settings(client, backend, domain));
                for address in addresses_of(backend) {
                    let known = former.get_mut(&address).filter(|known| known.pool == pool.name());
                    if let Some(known) = known.filter(|_| is_unlisted) {
                        known.until = until;
                    } else if let Some(peer) = &peer {
                        let (pool, peer) = (pool.name().to_owned(), peer.clone());
                        former.insert(address, Former { pool, peer, until });
                    } else if let Some(known) = former.get_mut(&address) {
                        // The pool is removed, and this back end still has calls.
                        known.until = until;
                    }
                }
            }
        }
        former.retain(|_, known| now < known.until);
        let excess = former.len().saturating_sub(FORMER_MAX);
        if excess > 0 {
            let mut oldest: Vec<_> = former.iter().map(|(at, known)| (known.until, *at)).collect();
            oldest.sort_unstable();
            for (_, address) in &oldest[..excess] {
                former.remove(address);
            }
        }
    }

    /// Replaces the addresses of removed back ends.
    pub(crate) fn set_removed(&self, removed: Vec<SocketAddr>) {
        *self.removed.lock().unwrap_or_else(PoisonError::into_inner) = removed;
    }

    /// Returns the TLS settings of the listener with this index, or `None` if the listener does not
    /// use TLS.
    pub(crate) fn server(&self, listener: usize) -> Option<TlsServer> {
        self.servers.get(listener)?.clone()
    }

    /// Returns whether the pool with this name is reached over TLS.
    pub(crate) fn has_pool(&self, name: &str) -> bool {
        self.current().pools.contains_key(name)
    }

    /// Returns a function that finds the TLS settings for a connection to a back end in `registry`,
    /// or to a removed back end. If the back end was removed before the process started, the
    /// settings of the only pool that uses TLS apply.
    pub(crate) fn peers(&self, registry: BackendRegistry) -> TlsPeers {
        let tls = self.clone();
        Arc::new(move |remote| tls.peer(&registry, remote))
    }

    fn peer(&self, registry: &BackendRegistry, remote: SocketAddr) -> Option<TlsPeer> {
        let current = self.current();
        let configured = registry.pools().iter().find_map(|pool| {
            let client = current.pools.get(pool.name())?;
            let backend = pool.backends().iter().find(|backend| is_at(backend, remote))?;
            let domain = domain_of(pool, backend, &Found::of(pool.services()));
            let is_unlisted = domain.is_none() && has_domains(client, pool, backend);
            let peer = settings(client, backend, domain)?;
            Some((pool.name().to_owned(), peer, is_unlisted))
        });
        let former =
            self.former().get(&remote).map(|known| (known.pool.clone(), known.peer.clone()));
        let known = match (configured, former) {
            (Some((pool, _, true)), Some((of, peer))) if of == pool => Some(peer),
            (Some((_, peer, _)), _) | (None, Some((_, peer))) => Some(peer),
            (None, None) => None,
        };
        known.or_else(|| {
            let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
            let mut pools = current.pools.values();
            let (PoolClient { config, name }, other) = (pools.next()?, pools.next());
            let name = name.clone().unwrap_or_else(|| remote.ip().into());
            let is_known = other.is_none() && removed.contains(&remote);
            is_known.then(|| TlsPeer { config: Arc::clone(config), name })
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

    fn former(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Former>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the TLS settings toward a back end of a pool with the settings `client`. `domain` is the
/// domain whose SRV records list the back end, or `None` if no domain does. Returns `None` if the
/// back end has no name that its certificate could have.
fn settings(
    client: &PoolClient,
    backend: &Backend,
    domain: Option<ServerName<'static>>,
) -> Option<TlsPeer> {
    let PoolClient { config, name } = client;
    let name = name.clone().or(domain).or_else(|| name_of(backend))?;
    Some(TlsPeer { config: Arc::clone(config), name })
}

/// Returns whether a back end is, or may have been, a server of a domain of its pool. Then its
/// certificate must have the name of this domain, even if the DNS no longer lists the back end.
fn has_domains(client: &PoolClient, pool: &Pool, backend: &Backend) -> bool {
    client.name.is_none() && !pool.services().is_empty() && backend.named().is_some()
}

/// Returns the present and the former addresses of a back end.
fn addresses_of(backend: &Backend) -> Vec<SocketAddr> {
    match backend.endpoint() {
        Endpoint::Address(address) => vec![*address],
        Endpoint::Name(named) => named.addresses().to_vec(),
    }
}

fn is_at(backend: &Backend, remote: SocketAddr) -> bool {
    match backend.endpoint() {
        Endpoint::Address(address) => *address == remote,
        Endpoint::Name(named) => named.addresses().contains(&remote),
    }
}

/// Returns the domain of `pool` that lists a back end in `found`, or `None` if no domain does.
fn domain_of(pool: &Pool, backend: &Backend, found: &Found) -> Option<ServerName<'static>> {
    let named = backend.named()?;
    let domain = found.domain_of(pool.services(), named.host(), named.port())?;
    ServerName::try_from(domain.trim_end_matches('.').to_owned()).ok()
}

/// Returns the host in the URI of a back end, as the name that the certificate of the back end must
/// have.
fn name_of(backend: &Backend) -> Option<ServerName<'static>> {
    match backend.endpoint() {
        Endpoint::Address(address) => Some(address.ip().into()),
        Endpoint::Name(named) => {
            ServerName::try_from(named.host().trim_end_matches('.').to_owned()).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tidegate_balance::EndpointAddress;
    use tidegate_world::{SrvRecord, Timestamp};

    use super::*;
    use crate::config::Config;
    use crate::pools::pool_specs;

    /// Returns a configuration with these pools, and its TLS settings. Each pool has one entry for
    /// each URI. Two listeners have the same certificate.
    fn configured(pools: &[(&str, &[&str])]) -> (Config, Tls) {
        let dir = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["example.com".to_owned()]).unwrap();
        let pem = dir.path().join("all.pem");
        fs::write(&pem, cert.pem() + &signing_key.serialize_pem()).unwrap();
        let pem = pem.display();
        let mut text = String::new();
        for (transport, port) in [("tls", 5061), ("wss", 5062)] {
            text += &format!(
                "[[listen]]\ntransport = \"{transport}\"\naddress = \"127.0.0.1:{port}\"\n\
                 certificate = \"{pem}\"\nprivate_key = \"{pem}\"\n"
            );
        }
        for (name, uris) in pools {
            text += &format!("[[pool]]\nname = \"{name}\"\ntransport = \"tls\"\n");
            for uri in *uris {
                text += &format!("[[pool.backend]]\nuri = \"{uri}\"\n");
            }
            text += &format!("[pool.tls]\nca = \"{pem}\"\n");
        }
        if pools.len() > 1 {
            text += "[[route]]\nto = \"a\"\nmethod = [\"INVITE\"]\n[[route]]\nto = \"b\"\n";
        }
        let read = Config::parse_with_files(Path::new("f"), text.as_bytes());
        let (config, files) = read.unwrap_or_else(|wrong| panic!("{wrong}"));
        (config, Tls::new(files))
    }

    // RFC 5922 §4: the identity of a server is its domain, even if the pool has a second domain.
    #[test]
    fn the_servers_of_each_domain_are_verified_against_their_domain() {
        let (config, tls) = configured(&[("app", &["sip:a.example", "sip:b.example"])]);
        let registry = |config: &Config| {
            let registry = BackendRegistry::new(&pool_specs(config));
            for service in registry.services() {
                let target = format!("sip.{}.", service.domain()).into();
                let server = SrvRecord { priority: 0, weight: 0, port: 5061, target };
                service.set_servers([server].into());
            }
            registry
        };
        let found = Found::of(&registry(&config).services());
        let registry = registry(&found.expand(&config));
        for (n, backend) in (1_u8..).zip(registry.pools()[0].backends()) {
            assert!(backend.move_to([127, 0, 0, n].into()), "{}", backend.name());
        }
        let peers = tls.peers(registry);
        let name = |n: u8| peers(([127, 0, 0, n], 5061).into()).unwrap().name;
        let named = |text: &'static str| ServerName::try_from(text).unwrap();
        assert_eq!([name(1), name(2)], [named("a.example"), named("b.example")]);
    }

    /// A regression: a BYE could not reach a back end that was removed before a restart.
    #[test]
    fn a_removed_back_end_is_reached_with_the_settings_of_the_only_pool() {
        let removed: SocketAddr = "127.0.0.2:9".parse().unwrap();
        let only: &[(&str, &[&str])] = &[("a", &["sip:127.0.0.1:9"])];
        let two: &[(&str, &[&str])] = &[only[0], ("b", &["sip:127.0.0.3:9"])];
        for (pools, name) in [(only, Some(ServerName::from(removed.ip()))), (two, None)] {
            let (config, tls) = configured(pools);
            let peers = tls.peers(BackendRegistry::new(&pool_specs(&config)));
            assert!(peers(removed).is_none(), "any other address");
            tls.set_removed(vec![removed]);
            assert_eq!(peers(removed).map(|peer| peer.name), name);
        }
    }

    /// Returns the TLS settings of a configuration without TLS.
    fn no_files() -> TlsFiles {
        TlsFiles { listeners: Vec::new(), pools: BTreeMap::new(), certificates: Vec::new() }
    }

    /// A regression: a BYE could not reach a back end that a reload had removed.
    #[test]
    fn a_back_end_that_a_reload_removes_is_reached_with_its_last_settings() {
        let (config, tls) = configured(&[("a", &["sip:127.0.0.1:9"]), ("b", &["sip:b.example:9"])]);
        let mut pool_specs = pool_specs(&config);
        let registry = BackendRegistry::new(&pool_specs);
        assert!(registry.pools()[1].backends()[0].move_to([127, 0, 0, 2].into()));
        let peers = tls.peers(registry.clone());
        let name = |n: u8| peers(([127, 0, 0, n], 9).into()).map(|peer| peer.name);
        let host = Some(ServerName::try_from("b.example").unwrap());
        let third: SocketAddr = ([127, 0, 0, 3], 9).into();
        let ip = Some(ServerName::from(third.ip()));
        let (now, keep) = (Duration::from_secs(1000), Duration::from_secs(100));

        // The back end keeps its name and gets another address.
        tls.remember(&registry, &Found::default(), now, keep);
        pool_specs[1].backends[0].endpoint_address = EndpointAddress::Address(third);
        registry.enlist(Timestamp::ZERO, 1, &pool_specs);
        assert_eq!([name(2), name(3)], [host.clone(), ip.clone()]);

        // No pool uses TLS any more.
        tls.remember(&registry, &Found::default(), now + keep / 2, keep);
        registry.enlist(Timestamp::ZERO, 2, &[]);
        tls.replace(no_files());
        assert_eq!([name(2), name(3)], [host, ip.clone()]);

        tls.remember(&registry, &Found::default(), now + keep, keep);
        assert_eq!([name(2), name(3)], [None, ip], "the time for the first address is over");
    }

    #[test]
    fn a_removed_back_end_is_reached_with_the_new_certificate_of_its_pool() {
        let pools: &[(&str, &[&str])] = &[("a", &["sip:127.0.0.1:9"])];
        let (config, tls) = configured(pools);
        let registry = BackendRegistry::new(&pool_specs(&config));
        let none = Found::default();
        tls.remember(&registry, &none, Duration::ZERO, Duration::from_secs(100));
        registry.enlist(Timestamp::ZERO, 1, &[]);
        let files = configured(pools).1.replace(no_files());
        let renewed = Arc::clone(&files.pools["a"].config);
        tls.replace(files);
        let peer = tls.peers(registry)("127.0.0.1:9".parse().unwrap()).unwrap();
        assert!(Arc::ptr_eq(&peer.config, &renewed));
    }

    /// Prometheus rejects a page with two values of the same labels.
    #[test]
    fn a_certificate_of_two_listeners_is_one_value() {
        let (_, tls) = configured(&[("app", &["sip:127.0.0.1:9"])]);
        let mut metrics = Metrics::new();
        tls.add(&mut metrics);
        let page = metrics.render();
        let values = page.matches("\ntidegate_tls_certificate_valid_to_seconds{");
        assert_eq!(values.count(), 1, "{page}");
    }
}
