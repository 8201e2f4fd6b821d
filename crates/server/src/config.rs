//! The configuration: a TOML file, read whole and refused whole.
//!
//! Nothing starts half-configured: an unknown key, a wrong type, an impossible
//! value or a contradiction is reported with its place and its remedy, as many of
//! them at once as can be told apart, and no [`Config`] comes out.

mod address;
mod by_class;
mod diagnostic;
mod knob;
mod listen;
mod overload;
mod pool;
mod reach;
mod reference;
mod route;
mod section;
mod shape;
mod summary;
mod tables;
mod word;

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_proxy::{Overload, Rule, RuleTarget, Senders};
use toml::Spanned;
use toml::de::DeTable;

pub use address::HostPort;
pub use diagnostic::Diagnostics;
pub use listen::Listen;
pub use overload::Emulate;
pub use pool::{Backend, Mode, Pool};
pub use reference::reference;

use diagnostic::Report;
use section::Section;
use tables::{
    ADMIN, ADMIN_ADDRESS, BACKEND_PAUSE_SECONDS, CALL_IDLE_SECONDS, CALLS_MAX, COALESCE_US,
    DRAIN_SECONDS, EMULATE, LISTEN, OVERLOAD, POOL, QUEUE_MAX, ROOT, ROUTE, SERVER, SHARDS,
    STATE_DIR,
};

/// Bytes of a configuration file at the most.
const FILE_MAX: usize = 1 << 20;

/// A configuration that was found right.
#[derive(Clone, Debug)]
pub struct Config {
    /// The process as a whole.
    pub server: Server,
    /// Where the admin interface listens; `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// Where SIP arrives; at least one.
    pub listen: Vec<Listen>,
    /// The servers behind; at least one pool.
    pub pool: Vec<Pool>,
    /// Where requests outside any dialog go. Never empty: without any `[[route]]`
    /// it holds the one that sends everything to the only pool.
    pub route: Vec<Rule>,
    /// Which new work is admitted.
    pub overload: Overload,
    /// How slow a server is to seem, if it is.
    pub emulate: Option<Emulate>,
}

/// The process as a whole. Limits are those of the whole process, to be divided
/// among its shards.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Threads that handle messages, at least 1.
    pub shards: u16,
    /// Directory of the key, if the configuration names one;
    /// see [`key::state_dir`](crate::key::state_dir).
    pub state_dir: Option<PathBuf>,
    /// How long a stopping process goes on for the calls it is setting up.
    pub drain: Duration,
    /// Calls known at the same time at the most.
    pub calls_max: usize,
    /// How long an answered call without any message is held.
    pub call_idle: Duration,
    /// Messages of one class that wait for service at the most.
    pub queue_max: usize,
    /// How long a back end gets no new calls after a delivery to it failed.
    pub backend_pause: Duration,
    /// How long to pause after waking, while the load makes it pay.
    pub coalesce: Duration,
}

impl Config {
    /// Reads the configuration file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or with everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let unreadable = |error: std::io::Error| {
            let help = "name a file that exists and that this user may read".to_owned();
            Diagnostics::without_text(path, format!("cannot be read: {error}"), help)
        };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::parse(path, &bytes)
    }

    /// Reads `bytes`, the content of the file at `path`, which is only named.
    ///
    /// # Errors
    /// With everything that is wrong with it.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Diagnostics> {
        if bytes.len() > FILE_MAX {
            let help = format!("write at most {} KiB", FILE_MAX / 1024);
            return Err(Diagnostics::without_text(path, "too long".to_owned(), help));
        }
        let text = String::from_utf8_lossy(bytes);
        let mut report = Report::default();
        match read(bytes, &text, &mut report) {
            Some(config) if report.is_empty() => Ok(config),
            _ => Err(report.into_diagnostics(path, &text)),
        }
    }
}

/// The configuration `text`, or `None` when something was reported.
fn read(bytes: &[u8], text: &str, report: &mut Report) -> Option<Config> {
    if let Err(error) = std::str::from_utf8(bytes) {
        // The lossy text holds a replacement character of three bytes there.
        let at = error.valid_up_to();
        report.error(at..at + 3, "not UTF-8 text", "", "save the file as UTF-8");
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        report_syntax(error, report);
    }
    // What a parser guesses after a syntax error had better not be complained about.
    if !errors.is_empty() {
        return None;
    }
    let root = Section::root(&ROOT, document.get_ref(), report);
    let server = root.read_one(&SERVER, read_server, report);
    let admin = root.read_one(&ADMIN, |admin, report| admin.value(&ADMIN_ADDRESS, report), report);
    let listeners = root.read_all(&LISTEN, listen::Draft::read, report);
    let pools = root.read_all(&POOL, pool::Draft::read, report);
    let routes = root.read_all(&ROUTE, route::Draft::read, report);
    let overload = root.read_one(&OVERLOAD, overload::read, report);
    let emulate = root.read_all(&EMULATE, overload::read_emulate, report).pop();

    listen::check_distinct(&listeners, report);
    pool::check_distinct(&pools, report);
    route::check(&routes, &pools, &listeners, report);
    reach::check(&listeners, &pools, report);
    if !report.is_empty() {
        return None;
    }

    let pool = pools.into_iter().map(pool::Draft::finish).collect::<Option<Vec<_>>>()?;
    let mut route =
        routes.into_iter().map(|draft| draft.finish(&pool)).collect::<Option<Vec<_>>>()?;
    if route.is_empty() {
        let to = RuleTarget::Pool(0);
        route.push(Rule { from: Senders::Any, methods: Vec::new(), domains: Vec::new(), to });
    }
    let listen = listeners.into_iter().map(listen::Draft::finish).collect::<Option<_>>()?;
    Some(Config {
        server: server?,
        admin: admin?.into_inner(),
        listen,
        pool,
        route,
        overload: overload?,
        // Absent, or read: what was wrong was reported above.
        emulate: emulate.flatten(),
    })
}

fn read_server(section: &Section<'_, '_>, report: &mut Report) -> Option<Server> {
    let mut whole = |knob| section.value(knob, report).map(Spanned::into_inner);
    let shards = whole(&SHARDS);
    let drain = whole(&DRAIN_SECONDS);
    let calls_max = whole(&CALLS_MAX);
    let call_idle = whole(&CALL_IDLE_SECONDS);
    let queue_max = whole(&QUEUE_MAX);
    let backend_pause = whole(&BACKEND_PAUSE_SECONDS);
    let coalesce = whole(&COALESCE_US);
    Some(Server {
        state_dir: section.given(&STATE_DIR, report).map(Spanned::into_inner),
        shards: u16::try_from(shards?).ok()?,
        drain: Duration::from_secs(drain?),
        calls_max: usize::try_from(calls_max?).ok()?,
        call_idle: Duration::from_secs(call_idle?),
        queue_max: usize::try_from(queue_max?).ok()?,
        backend_pause: Duration::from_secs(backend_pause?),
        coalesce: Duration::from_micros(coalesce?),
    })
}

fn report_syntax(error: &toml::de::Error, report: &mut Report) {
    let values = ["string", "quot", "literal", "float", "integer", "value", "number"];
    let message = error.message().trim_end_matches(", expected nothing");
    let help = if message.contains("duplicate key") {
        "remove one of the two"
    } else if values.iter().any(|noun| message.contains(noun)) {
        "write a text in double quotes: `address = \"127.0.0.1:5060\"`"
    } else {
        "write one `[table]` or one `key = value` on a line"
    };
    let title = format!("not TOML: {message}");
    report.error(error.span().unwrap_or(0..0), title, "", help);
}
