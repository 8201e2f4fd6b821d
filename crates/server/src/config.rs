//! The configuration: a TOML file, read whole and refused whole.
//!
//! Nothing starts half-configured: an unknown key, a wrong type, an impossible
//! value or a contradiction is reported with its place and its remedy, as many of
//! them at once as can be told apart, and no [`Config`] comes out.

mod address;
mod aor;
mod backup;
mod by_class;
mod changes;
pub mod command;
mod diagnostic;
mod document;
mod domains;
mod endpoint;
mod health;
mod knob;
mod limit;
mod listen;
mod overload;
mod params;
mod pool;
mod reach;
mod reference;
mod resolved;
mod route;
pub mod schema;
mod section;
mod shape;
mod sources;
mod summary;
mod tables;
mod user;
mod word;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_proxy::{Overload, Rule, RuleTarget, Senders};
use tidegate_world::Transport;
use toml::Spanned;

pub use address::HostPort;
pub use changes::needs_restart;
pub use diagnostic::Diagnostics;
pub use domains::Found;
pub use endpoint::Endpoint;
pub use listen::Listen;
pub use overload::Emulate;
pub use pool::{Backend, Pool, Selection};
pub use reference::reference;
pub use resolved::{
    decide_word, emulate_toml, learning_toml, overload_toml, queue_word, selection_toml,
};
pub use tables::Sharing;
pub use user::User;

use crate::key::{KEYS_MAX, Rotation};
use diagnostic::Report;
use document::Document;
use section::Section;
use tables::{
    ADMIN, ADMIN_ADDRESS, ADMIN_HOSTS, AMPLIFICATION_MAX, BACKEND_PAUSE_SECONDS, CALL_IDLE_SECONDS,
    CALLS_MAX, COALESCE_US, DRAIN_SECONDS, EMULATE, GSO, GSO_PADDING, KEY_ROTATE_H, KEY_SETTLE_S,
    LISTEN, MESSAGE_MEMORY_MAX_MB, OVERLOAD, POOL, QUEUE_MAX, REFUSALS_KEPT, REFUSALS_PER_SECOND,
    REMOVED_BACKEND_SECONDS, RESOLVER, RESOLVER_SERVERS, ROOT, ROUTE, SERVER, SERVER_NAME, SHARDS,
    STATE_DIR, TIMER_SLACK_US, TRANSACTIONS_MAX, USER,
};

/// A configuration that was found right.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub path: PathBuf,
    /// The process as a whole.
    pub server: Server,
    /// The admin interface.
    pub admin: Admin,
    /// Who resolves names of back ends; those that the machine asks, if there are none.
    pub name_servers: Vec<SocketAddr>,
    /// Where SIP arrives; at least one.
    pub listen: Vec<Listen>,
    /// The servers behind; at least one pool.
    pub pool: Vec<Pool>,
    /// Where requests outside any dialog go. Never empty: without any `[[route]]`
    /// it holds the one that sends everything to the only pool.
    pub route: Vec<Rule>,
    /// Users, and where they are reached.
    pub user: Vec<User>,
    /// Which new work is admitted.
    pub overload: Overload,
    /// How slow a server is to seem, if it is.
    pub emulate: Option<Emulate>,
}

/// The interface for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens; `None`: nowhere.
    pub address: Option<SocketAddr>,
    /// Names by which it may be called, in lower case.
    pub hosts: Vec<String>,
    /// Rejections kept in each second, of each reason and by each shard.
    pub refusals_per_second: u32,
    /// The latest refusals kept, by all shards together.
    pub refusals_kept: usize,
}

/// The process as a whole. Limits are those of the whole process, to be divided
/// among its shards.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Threads that handle messages, at least 1.
    pub shards: u16,
    /// Directory of the keys, if the configuration names one;
    /// see [`key::state_dir`](crate::key::state_dir).
    pub state_dir: Option<PathBuf>,
    /// When the keys are rotated.
    pub rotation: Rotation,
    /// How long a stopping process goes on for the calls it is setting up.
    pub drain: Duration,
    /// Calls known at the same time at the most.
    pub calls_max: usize,
    /// Requests whose transactions are held at the same time.
    pub transactions_max: usize,
    /// Bytes that messages that are held may take; `None`: a part of the machine's memory.
    pub message_memory_max: Option<usize>,
    /// Times the bytes received that are sent to an address that has acknowledged nothing; 0: any.
    pub amplification_max: u32,
    /// How long an answered call without any message is held.
    pub call_idle: Duration,
    /// Time for which tokens with the address of a removed back end stay valid.
    pub removed_backend: Duration,
    /// Messages of one class that wait for service at the most.
    pub queue_max: usize,
    /// How long a back end gets no new calls after a delivery to it failed.
    pub backend_pause: Duration,
    /// How long to pause after waking, while the load makes it pay.
    pub coalesce: Duration,
    /// How late a timer may fire, so that several fire together.
    pub timer_slack: Duration,
    /// Whether several datagrams to one destination may leave as one (`UDP_SEGMENT`).
    pub gso: bool,
    /// Bytes that may be added to a datagram so that it leaves with others.
    pub gso_padding: usize,
    /// What stands in Server and User-Agent, if it is not the program's own name.
    pub name: Option<String>,
}

impl Config {
    /// Whether a back end is known by its name, which has to be resolved.
    pub fn has_names(&self) -> bool {
        let is_name = |backend: &Backend| backend.endpoint.address().is_none();
        self.pool.iter().flat_map(|pool| &pool.backends).any(is_name)
    }

    /// Returns the transport by which the servers of a pool are reached.
    pub(crate) fn transport(&self, pool: &Pool) -> Transport {
        let listener = self.listen.get(pool.listener.unwrap_or_default());
        listener.map_or(Transport::Udp, |listener| listener.transport)
    }

    /// The addresses of the back ends that are configured by address.
    pub fn backend_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let backends = self.pool.iter().flat_map(|pool| &pool.backends);
        backends.filter_map(|backend| backend.endpoint.address())
    }

    /// Reads the configuration file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or with everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        Self::parse(path, &Self::source(path)?)
    }

    /// The content of the file at `path`, for [`parse`](Self::parse).
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn source(path: &Path) -> Result<Vec<u8>, Diagnostics> {
        document::read(path)
    }

    /// Reads `bytes`, the content of the file at `path`, which is only named.
    ///
    /// # Errors
    /// With everything that is wrong with it.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Diagnostics> {
        let document = Document::parse(path, bytes)?;
        let mut report = Report::default();
        match read(path, &document, &mut report) {
            Some(config) if report.is_empty() => Ok(config),
            _ => Err(document.refuse(report)),
        }
    }
}

/// The configuration, or `None` when something was reported.
fn read(path: &Path, document: &Document<'_>, report: &mut Report) -> Option<Config> {
    let root = Section::root(&ROOT, document.table(), report);
    let server = root.read_one(&SERVER, read_server, report);
    let admin = root.read_one(&ADMIN, read_admin, report);
    let name_servers = root.read_one(&RESOLVER, read_resolver, report);
    let listeners = root.read_all(&LISTEN, listen::Draft::read, report);
    let pools = root.read_all(&POOL, pool::Draft::read, report);
    let routes = root.read_all(&ROUTE, route::Draft::read, report);
    let users = root.read_all(&USER, user::Draft::read, report);
    let overload = root.read_one(&OVERLOAD, overload::read, report);
    let emulate = root.read_all(&EMULATE, overload::read_emulate, report).pop();

    listen::check_distinct(&listeners, report);
    listen::check_sharing(&listeners, overload.as_ref(), report);
    pool::check_distinct(&pools, report);
    pool::check_forks(&pools, report);
    pool::check_limits(&pools, report);
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
        routes.into_iter().map(|draft| draft.finish(&pool)).collect::<Option<Vec<_>>>()?;
    if route.is_empty() {
        let to = RuleTarget::Pool(0);
        route.push(Rule { from: Senders::Any, methods: Vec::new(), domains: Vec::new(), to });
    }
    let user = users.into_iter().map(user::Draft::finish).collect::<Option<_>>()?;
    let listen = listeners.into_iter().map(listen::Draft::finish).collect::<Option<_>>()?;
    Some(Config {
        path: path.to_owned(),
        server: server?,
        admin: admin?,
        name_servers: name_servers?,
        listen,
        pool,
        route,
        user,
        overload: overload?,
        // Absent, or read: what was wrong was reported above.
        emulate: emulate.flatten(),
    })
}

fn read_resolver(section: &Section<'_, '_>, report: &mut Report) -> Option<Vec<SocketAddr>> {
    if !section.has(&RESOLVER_SERVERS) {
        return Some(Vec::new());
    }
    let servers = section.given(&RESOLVER_SERVERS, report)?.into_inner();
    Some(servers.into_iter().map(Spanned::into_inner).collect())
}

fn read_admin(section: &Section<'_, '_>, report: &mut Report) -> Option<Admin> {
    let address = section.value(&ADMIN_ADDRESS, report).map(Spanned::into_inner);
    let hosts = section.value(&ADMIN_HOSTS, report).map(Spanned::into_inner);
    let per_second = section.value(&REFUSALS_PER_SECOND, report).map(Spanned::into_inner);
    let kept = section.value(&REFUSALS_KEPT, report).map(Spanned::into_inner);
    Some(Admin {
        address: address?,
        hosts: hosts?.into_iter().map(Spanned::into_inner).collect(),
        refusals_per_second: u32::try_from(per_second?).ok()?,
        refusals_kept: usize::try_from(kept?).ok()?,
    })
}

fn read_server(section: &Section<'_, '_>, report: &mut Report) -> Option<Server> {
    let rotation = read_rotation(section, report);
    let gso = section.value(&GSO, report).map(Spanned::into_inner);
    let name = section.given(&SERVER_NAME, report).map(Spanned::into_inner);
    let mut whole = |knob| section.value(knob, report).map(Spanned::into_inner);
    let shards = whole(&SHARDS);
    let drain = whole(&DRAIN_SECONDS);
    let calls_max = whole(&CALLS_MAX);
    let transactions_max = whole(&TRANSACTIONS_MAX);
    let amplification_max = whole(&AMPLIFICATION_MAX);
    let call_idle = whole(&CALL_IDLE_SECONDS);
    let removed_backend = whole(&REMOVED_BACKEND_SECONDS);
    let queue_max = whole(&QUEUE_MAX);
    let backend_pause = whole(&BACKEND_PAUSE_SECONDS);
    let coalesce = whole(&COALESCE_US);
    let timer_slack = whole(&TIMER_SLACK_US);
    let gso_padding = whole(&GSO_PADDING);
    Some(Server {
        state_dir: section.given(&STATE_DIR, report).map(Spanned::into_inner),
        message_memory_max: section
            .given(&MESSAGE_MEMORY_MAX_MB, report)
            .and_then(|mb| usize::try_from(mb.into_inner() << 20).ok()),
        rotation: rotation?,
        shards: u16::try_from(shards?).ok()?,
        drain: Duration::from_secs(drain?),
        calls_max: usize::try_from(calls_max?).ok()?,
        transactions_max: usize::try_from(transactions_max?).ok()?,
        amplification_max: u32::try_from(amplification_max?).ok()?,
        call_idle: Duration::from_secs(call_idle?),
        removed_backend: Duration::from_secs(removed_backend?),
        queue_max: usize::try_from(queue_max?).ok()?,
        backend_pause: Duration::from_secs(backend_pause?),
        coalesce: Duration::from_micros(coalesce?),
        timer_slack: Duration::from_micros(timer_slack?),
        gso: gso?,
        gso_padding: usize::try_from(gso_padding?).ok()?,
        name,
    })
}

/// When keys are rotated; `None` when something was reported.
fn read_rotation(section: &Section<'_, '_>, report: &mut Report) -> Option<Rotation> {
    let (rotate_h, settle_s) =
        (section.value(&KEY_ROTATE_H, report), section.value(&KEY_SETTLE_S, report));
    let rotate_h = rotate_h?;
    let settle = Duration::from_secs(settle_s?.into_inner());
    let every = Duration::from_secs(rotate_h.get_ref() * 3600);
    let every_min = Rotation::every_min(settle);
    if !every.is_zero() && every < every_min {
        let title = format!("keys cannot be rotated every {} h", rotate_h.get_ref());
        let label = format!(
            "at most {KEYS_MAX} keys are kept, each for a day after its last use, and a key \
             settles for {} s",
            settle.as_secs()
        );
        let help = format!("write at least {}, or 0", every_min.as_secs().div_ceil(3600));
        report.error(rotate_h.span(), title, label, help);
        return None;
    }
    Some(Rotation { every: Some(every).filter(|every| !every.is_zero()), settle })
}
