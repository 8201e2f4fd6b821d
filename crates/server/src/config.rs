//! The configuration: a TOML file, accepted or rejected as a whole.
//!
//! Unknown keys, wrong types, impossible values and contradictions are errors. The reader reports
//! as many errors at once as possible, each with its place in the file and a remedy. These include
//! the errors in certificate and key files. A file with an error yields no [`Config`], and no
//! process starts with it.

mod accept_any;
mod address;
mod aor;
mod backup;
mod bounds;
mod by_class;
mod changes;
pub mod command;
mod diagnostic;
mod document;
mod domains;
mod endpoint;
mod health;
mod json_schema;
pub mod keys;
mod knob;
mod limit;
mod listen;
mod overload;
mod params;
mod pool;
mod reach;
mod reference;
mod route;
pub mod schema;
mod section;
mod shape;
mod sources;
mod spared;
mod summary;
mod tables;
mod tls;
mod user;
mod warnings;
mod word;
mod written;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_proxy::{Overload, Rule, RuleTarget, Senders};
use tidegate_world::Transport;

pub use accept_any::AcceptAny;
pub use address::HostPort;
pub use changes::needs_restart;
pub use diagnostic::Diagnostics;
pub(crate) use document::FILE_MAX;
pub use domains::Found;
pub use endpoint::Endpoint;
pub use json_schema::json_schema;
pub use reference::reference;
pub use tables::connections::Connections;
pub use tables::emulate::Emulate;
pub use tables::listen::{Listen, Sharing};
pub use tables::pool::{Backend, Pool, Selection};
pub use tables::server::{Admin, Server};
pub use tls::{Certificate, PoolClient, SYSTEM_AUTHORITIES, TlsFiles};
pub use user::User;
pub use written::{
    decide_word, emulate_toml, learning_toml, overload_toml, queue_word, selection_toml,
};

use crate::key::{KEYS_MAX, Rotation};
use diagnostic::Report;
use document::Document;
use section::Section;
use tables::ROOT;
use tables::connections::{CONNECTIONS, ConnectionsDraft};
use tables::emulate::{EMULATE, EmulateDraft};
use tables::listen::{LISTEN, ListenDraft};
use tables::overload::OVERLOAD;
use tables::pool::POOL;
use tables::resolver::{RESOLVER, ResolverDraft};
use tables::route::{ROUTE, RouteDraft};
use tables::server::{ADMIN, AdminDraft, SERVER, ServerDraft};
use tables::user::{USER, UserDraft};

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file from which the configuration was read.
    pub path: PathBuf,
    /// Settings of the whole process.
    pub server: Server,
    /// The settings of the admin interface.
    pub admin: Admin,
    /// The DNS servers that Tidegate asks. If the list is empty, Tidegate asks the DNS servers of
    /// `/etc/resolv.conf`.
    pub name_servers: Vec<SocketAddr>,
    /// The addresses at which Tidegate receives SIP messages. There is at least one.
    pub listen: Vec<Listen>,
    /// The limits and timeouts of TCP, TLS and WebSocket connections.
    pub connections: Connections,
    /// The pools of back ends, at least one.
    pub pool: Vec<Pool>,
    /// The routes of requests outside any dialog. There is always at least one: if the file has no
    /// `[[route]]`, one route sends all requests to the only pool.
    pub route: Vec<Rule>,
    /// The users that Tidegate knows, each with the contacts at which the user is reached.
    pub user: Vec<User>,
    /// The settings of overload control.
    pub overload: Overload,
    /// The slower server that Tidegate emulates in experiments, if configured.
    pub emulate: Option<Emulate>,
}

impl Config {
    /// Returns whether any back end is configured by a host name or domain, which the DNS must
    /// resolve.
    pub fn has_names(&self) -> bool {
        let is_name = |backend: &Backend| backend.endpoint.address().is_none();
        self.pool.iter().flat_map(|pool| &pool.backends).any(is_name)
    }

    /// Returns the transport over which Tidegate reaches the servers of `pool`.
    pub(crate) fn transport(&self, pool: &Pool) -> Transport {
        let of_listener = || Some(self.listen.get(pool.listener?)?.transport);
        let given = pool.transport.or_else(of_listener);
        given.unwrap_or_else(|| usual_transport(self.listen.iter().map(|l| l.transport)))
    }

    /// Returns whether any listener uses a transport with connections, such as TCP.
    pub fn has_streams(&self) -> bool {
        self.listen.iter().any(|listen| listen.transport.is_reliable())
    }

    /// Returns the addresses of the back ends that are configured by IP address, not by name.
    pub(crate) fn backend_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let backends = self.pool.iter().flat_map(|pool| &pool.backends);
        backends.filter_map(|backend| backend.endpoint.address())
    }

    /// Reads the configuration file at `path`, and the certificate and key files named in it. Also
    /// returns the bytes of the configuration file.
    ///
    /// # Errors
    /// Returns the errors in these files, or the error of reading the configuration file.
    pub fn load(path: &Path) -> Result<(Self, TlsFiles, Vec<u8>), Diagnostics> {
        let source = Self::source(path)?;
        let (config, tls) = Self::parse_with_files(path, &source)?;
        Ok((config, tls, source))
    }

    /// Returns the content of the file at `path`, for [`parse`](Self::parse).
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn source(path: &Path) -> Result<Vec<u8>, Diagnostics> {
        document::read(path)
    }

    /// Parses `bytes`, the content of the configuration file `path`, without opening the file. The
    /// path appears in error messages and becomes [`Config::path`].
    ///
    /// # Errors
    /// Returns the errors in the file. After an error in the TOML syntax, there are no others.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Diagnostics> {
        let document = Document::parse(path, bytes)?;
        let mut report = Report::default();
        match read(path, &document, &mut report) {
            Some(config) if report.is_empty() => Ok(config),
            _ => Err(document.reject(report)),
        }
    }

    /// Does the same as [`parse`](Self::parse), and reads the certificate and key files that the
    /// configuration names.
    ///
    /// # Errors
    /// Returns the errors in all these files.
    pub fn parse_with_files(path: &Path, bytes: &[u8]) -> Result<(Self, TlsFiles), Diagnostics> {
        let document = Document::parse(path, bytes)?;
        let mut report = Report::default();
        let config = read(path, &document, &mut report);
        // Further errors would only be counted. Tables that were not read may decide which files
        // are used.
        if report.is_full() || report.is_incomplete() {
            return Err(document.reject(report));
        }
        let tls = TlsFiles::read(&document, &mut report);
        match config {
            Some(config) if report.is_empty() => Ok((config, tls)),
            _ => Err(document.reject(report)),
        }
    }
}

/// Returns the default transport to back ends. `listeners` are the transports of all listeners. The
/// default is UDP if a listener uses UDP. Otherwise it is the transport of the first listener that
/// does not use WebSockets. If all listeners use WebSockets, it is UDP.
fn usual_transport(listeners: impl Iterator<Item = Transport>) -> Transport {
    let mut listeners = listeners.filter(|transport| !transport.is_websocket());
    let first = listeners.next().unwrap_or(Transport::Udp);
    if listeners.any(|other| other == Transport::Udp) { Transport::Udp } else { first }
}

/// Reads the configuration from `document`. Returns `None` if an error was reported.
fn read(path: &Path, document: &Document<'_>, report: &mut Report) -> Option<Config> {
    let root = Section::root(&ROOT, document.table(), report);
    let server = root.read_one(&SERVER, read_server, report);
    let admin = root.read_one(&ADMIN, AdminDraft::read, report).finish();
    let resolver = root.read_one(&RESOLVER, ResolverDraft::read, report).finish();
    let listeners = root.read_all(&LISTEN, ListenDraft::read, report);
    let connections = root.read_one(&CONNECTIONS, ConnectionsDraft::read, report);
    let mut pools = root.read_all(&POOL, pool::Draft::read, report);
    let routes = root.read_all(&ROUTE, RouteDraft::read, report);
    let users = root.read_all(&USER, UserDraft::read, report);
    let overload = root.read_one(&OVERLOAD, overload::read, report);
    let emulate = root.read_all(&EMULATE, EmulateDraft::read, report).pop();
    if report.is_incomplete() {
        return None;
    }

    pools.iter_mut().for_each(|pool| pool.complete(&listeners));
    connections.check(report);
    listeners.iter().for_each(|listener| listener.check_wildcard(report));
    listen::check_distinct(&listeners, report);
    tls::check_listeners(&listeners, report);
    listen::check_sharing(&listeners, overload.as_ref(), report);
    pool::check_distinct(&pools, report);
    pool::check_forks(&pools, report);
    pool::check_limits(&pools, report);
    pool::check_learning(&pools, report);
    backup::check(&pools, report);
    route::check(&routes, &pools, &listeners, report);
    reach::check(&listeners, &pools, report);
    user::check(&users, &routes, &listeners, report);
    if !report.is_empty() {
        return None;
    }

    let names: Vec<_> = (listeners.iter())
        .map(|listener| listener.name.as_ref().map(|name| name.get_ref().clone()))
        .collect();
    let pool = pools.into_iter().map(|pool| pool.finish(&names)).collect::<Option<Vec<_>>>()?;
    let mut route =
        routes.into_iter().map(|draft| draft.rule(&pool)).collect::<Option<Vec<_>>>()?;
    if route.is_empty() {
        route.push(Rule::new(Senders::Any, RuleTarget::Pool(0)));
    }
    let user = users.into_iter().map(user::finish).collect::<Option<_>>()?;
    let listen = listeners.into_iter().map(ListenDraft::finish).collect::<Option<_>>()?;
    Some(Config {
        path: path.to_owned(),
        server: server?,
        admin: admin?,
        name_servers: resolver?.servers.unwrap_or_default(),
        listen,
        connections: connections.finish()?,
        pool,
        route,
        user,
        overload: overload?,
        // The value is absent or valid here, because an error in it was reported above.
        emulate: emulate.and_then(EmulateDraft::finish),
    })
}

fn read_server(section: &Section<'_, '_>, report: &mut Report) -> Option<Server> {
    let mut draft = ServerDraft::read(section, report);
    draft.rotation = rotation(&draft, report);
    draft.finish()
}

/// Returns the settings of key rotation in `[server]`, or `None` if an error was reported.
fn rotation(draft: &ServerDraft, report: &mut Report) -> Option<Rotation> {
    let rotate_h = draft.key_rotate_h.as_ref()?;
    let settle = *draft.key_settle_s.as_ref()?.get_ref();
    let every = Duration::from_secs(rotate_h.get_ref() * 3600);
    let every_min = Rotation::every_min(settle);
    if !every.is_zero() && every < every_min {
        let title = format!("keys cannot be rotated every {} h", rotate_h.get_ref());
        let label = format!(
            "Tidegate keeps at most {KEYS_MAX} keys, each for a day after its last use, and \
             `key_settle_s` is {}",
            settle.as_secs()
        );
        let help = format!(
            "write at least {} h, or 0 for no automatic rotation",
            every_min.as_secs().div_ceil(3600)
        );
        report.error(rotate_h.span(), title, label, help);
        return None;
    }
    Some(Rotation { every: Some(every).filter(|every| !every.is_zero()), settle })
}
