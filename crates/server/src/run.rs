//! A running process: one thread for each shard, and the admin interface.

mod ending;
mod hangups;
mod preparation;
mod process;
mod shard_thread;
mod shards;
mod stopping;
mod supervision;

use std::net::SocketAddr;
use std::path::Path;

use tidegate_io::Clock;
use tidegate_proxy::Secret;
use tidegate_world::Transport;

pub use self::ending::{Ending, Finish, RunError};
use self::preparation::Preparation;
use self::process::Process;
use self::shards::Shards;
use crate::audit::AuditEntry;
use crate::config::{Config, TlsFiles};
use crate::key::{self, UnixTime};
use crate::recording::RecordingTarget;
use crate::signal::Signals;
use crate::watch::Observation;
use crate::{RAISE_LIMITS, StartError};

/// The addresses of a process that has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The transport and address of each listener. If port 0 was configured, the address has the
    /// port that the kernel chose.
    pub listeners: Vec<(Transport, SocketAddr)>,
    /// The address of the admin interface, if there is one.
    pub admin: Option<SocketAddr>,
}

/// An event of a running process.
#[derive(Debug)]
pub enum Event {
    /// The process accepts calls.
    Started(Started),
    /// An operator has made a request. The entry has the request and its outcome.
    Acted(AuditEntry),
    /// A signal with this name has arrived for the first time. Tidegate ignores it.
    Ignored(&'static str),
    /// A state has changed, or rejections have started or ended.
    Observed(Observation),
}

/// The arguments of a start, and the time at which it began.
#[derive(Clone, Copy)]
struct StartInput<'a> {
    config: &'a Config,
    state_dir: &'a Path,
    record: Option<&'a RecordingTarget>,
    keys: &'a Secret,
    clock: Clock,
    /// The time of day at which `clock` was started.
    begun: UnixTime,
}

/// Runs a proxy with the configuration `config` and the keys in `state_dir`, until a signal stops
/// the process. Records the inputs of the proxy if `record` is set. `tls` has the certificates and
/// keys that the configuration names.
///
/// Calls `tell` with each event while the process runs. `tell` must not wait, because the same
/// thread takes the signals. It returns whether the event gets into the log.
///
/// # Errors
/// Returns an error if something outside the configuration prevents the start, or if a shard fails.
pub fn run(
    config: &Config,
    tls: TlsFiles,
    state_dir: &Path,
    record: Option<&RecordingTarget>,
    signals: &Signals,
    tell: impl FnMut(Event) -> bool,
) -> Result<Ending, RunError> {
    let (ring, begun) = (key::load_or_create(state_dir)?, key::unix_time());
    let keys = &ring.secret(begun, config.server.rotation.settle);
    let input = StartInput { config, state_dir, record, keys, clock: Clock::start(), begun };
    let prepared = Preparation::new(input, tls)?;
    let mut process = Process::connect(input, prepared, ring)?;
    let shards = Shards::start(input, &mut process)?;
    process.supervise(input, shards, signals, tell)
}

/// Returns the error of a start that fails because of a limit of the process.
fn failed(place: &str, error: std::io::Error) -> StartError {
    StartError::new(place, format!("cannot start: {error}"), RAISE_LIMITS)
}
