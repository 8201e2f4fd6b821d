//! A running process: one thread for each shard, and the admin interface.

mod ending;
mod hangups;
mod shard_thread;
mod stopping;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{bounded, select_biased, tick};
use serde_json::{Value, json};
use tidegate_io::{
    Clock, CommandSender, Handoffs, Limits, Resolver, Stop, Stores, egress_networks,
};
use tidegate_proxy::{EgressRoute, Secret};
use tidegate_world::{Seed, Timestamp, Transport};

pub use self::ending::{Ending, Finish, RunError};
use self::hangups::reload_at;
use self::shard_thread::{ShardThread, wait_until_started};
use self::stopping::Stopping;
use crate::admin::{Admin, Controls, Pages, Status};
use crate::assembly::{Assembly, Environment};
use crate::audit::{AuditEntry, AuditLog};
use crate::bans;
use crate::config::{Config, TlsFiles};
use crate::key::{self, Keeper};
use crate::memory;
use crate::metrics::{Metrics, collect};
use crate::phase::{Life, Phase};
use crate::predecessor;
use crate::recording::{Head, Journal, Recorder, RecordingTarget};
use crate::removed::RemovedBackends;
use crate::runtime_control::{ControlError, RuntimeControl};
use crate::signal::Signals;
use crate::status::Instruments;
use crate::tls::Tls;
use crate::watch::{LOOK_EVERY, Observation, Watch};
use crate::wiring::{self, Group};
use crate::{RAISE_LIMITS, StartError};
use crate::{descriptors, heavy, users};

/// Maximum number of messages that other shards have received for one shard and that wait for this
/// shard.
const HANDOFFS_MAX: usize = 4096;

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
    mut tell: impl FnMut(Event) -> bool,
) -> Result<Ending, RunError> {
    let (ring, begun) = (key::load_or_create(state_dir)?, key::unix_time());
    let keys = &ring.secret(begun, config.server.rotation.settle);
    let clock = Clock::start();
    let stop = Stop::new();
    let life = Arc::new(Life::new());
    let query_places = descriptors::reserve(config)?;
    let tls = Tls::new(tls);
    // Most errors of a start are found before a shared address is opened. If the process fails
    // until then, it has taken no traffic of a shared address and has not changed the list of
    // removed back ends.
    let failed = |what: &str, error: std::io::Error| {
        StartError::new(what, format!("cannot start: {error}"), RAISE_LIMITS)
    };
    let resolver = match Resolver::start(&config.name_servers, query_places) {
        Ok(resolver) => Some(resolver),
        // Without a resolver, a process can still serve calls, because all back ends have
        // addresses.
        Err(_) if !config.has_names() && config.name_servers.is_empty() => None,
        Err(error) => return Err(failed("resolver", error).into()),
    };
    let removed = RemovedBackends::new(state_dir, config.server.removed_backend);
    removed.check().map_err(|error| unwritable(&removed, &error))?;
    if let Some(to) = record {
        to.check(config.server.shards)?;
    }
    let bind = |address| Admin::bind(address).map(|listener| (address, listener));
    let admin = config.admin.address.map(bind).transpose()?;
    let groups = wiring::open(config, &tls)?;
    let listeners: Vec<_> = groups.iter().map(Group::local).collect();
    let seed = getrandom::u64().map(Seed).map_err(|error| {
        StartError::new(
            "random numbers",
            error.to_string(),
            "run Tidegate on a system that allows the system call getrandom(2)",
        )
    })?;
    let environment = environment(config, &listeners, &removed)?;
    let environment = Environment {
        before: predecessor::read(state_dir),
        message_memory: Some(memory::available() / 4),
        query_places: Some(query_places),
        start: begun,
        ..environment
    };
    tls.set_removed(environment.removed.clone());
    let assembly = Assembly::new(config, keys, listeners.clone(), seed).within(environment.clone());

    let mut metrics = Metrics::new();
    let counters = assembly.counters();
    let (registry, next_hops) = (assembly.registry().clone(), assembly.next_hops().clone());
    collect::add(&mut metrics, counters.to_vec(), registry, next_hops, clock);
    tls.add(&mut metrics);
    bans::add(&mut metrics, assembly.bans().clone(), clock);
    heavy::add(&mut metrics, counters.to_vec());
    let (recorder, mut journal) = record
        .map(|to| begin_recording(to, keys, &listeners, environment, seed))
        .transpose()?
        .unzip();
    if let Some(recorder) = &recorder {
        collect::add_recording(&mut metrics, Arc::clone(recorder.tally()));
    }
    let status = status(&groups, assembly.instruments(), clock);
    let commands = CommandSender::to(config.server.shards);
    let stores = Stores::default();
    users::serve(&stores, config);
    let runtime_control =
        assembly.runtime_control(commands.clone()).noting(removed).serving(stores.clone());
    let runtime_control = runtime_control.securing(tls.clone());
    let runtime_control =
        Arc::new(if record.is_some() { runtime_control.recorded() } else { runtime_control });
    let reloads = Arc::clone(&runtime_control);
    collect::add_reloads(&mut metrics, move || reloads.has_reload_failed());
    let (rotation, heard) = (config.server.rotation, commands.clone());
    let keeper = Arc::new(Keeper::new(state_dir.to_owned(), ring, rotation, begun, heard));
    collect::add_keys(&mut metrics, Arc::clone(&keeper));
    let (audit_log, told) = AuditLog::channel();
    audit_log.add(&mut metrics);
    let controls = Controls {
        runtime_control: Arc::clone(&runtime_control),
        keeper: Some(Arc::clone(&keeper)),
        rejections: assembly.rejections(),
        bans: assembly.bans().clone(),
        audit_log: audit_log.clone(),
        clock,
    };
    let pages = Pages {
        life: Arc::clone(&life),
        metrics,
        status: Box::new(status),
        controls: Some(controls),
        hosts: config.admin.hosts.clone(),
    };
    let serve = |(address, listener)| Admin::serve(address, listener, pages);
    let admin = admin.map(serve).transpose()?;

    let _watch = keeper.watch().map_err(|error| failed("keys", error))?;
    let mesh = Handoffs::mesh(config.server.shards, HANDOFFS_MAX)
        .map_err(|error| failed("shards", error))?;
    let limits = Limits {
        coalesce: config.server.coalesce,
        drain: config.server.drain,
        gso: config.server.gso,
        padding: config.server.gso_padding,
        ..Limits::default()
    };
    let (done, ended) = bounded(counters.len());
    let (starting, started) = bounded(counters.len());
    for (shard, handoffs) in (0..).zip(mesh) {
        let (datagrams, streams) = wiring::of_shard(&groups, shard);
        let thread = ShardThread {
            part: assembly.part(shard),
            clock,
            limits,
            listeners: datagrams,
            stream_listeners: streams,
            stream_limits: wiring::stream_limits(config),
            tls_peers: tls.peers(assembly.registry().clone()),
            handoffs,
            stop: stop.clone(),
            commands: commands.clone(),
            resolver: resolver.clone(),
            stores: stores.clone(),
            journal: journal.take(),
            starting: starting.clone(),
        };
        let done = done.clone();
        thread::Builder::new()
            .name(format!("shard-{shard}"))
            .spawn(move || thread.run(&done))
            .map_err(|error| failed("shards", error))?;
    }
    drop((done, starting));

    // A process that reports that it is ready takes the commands of operators.
    if let Err(what) = wait_until_started(counters.len(), &started, &ended) {
        // The second request stops the other shards without draining. They have just started, and a
        // service manager starts this process again only after its end.
        stop.request();
        stop.request();
        ended.iter().for_each(drop);
        return Err(failed("shards", std::io::Error::other(what)).into());
    }
    let hangups = signals.reloads().clone();
    let reloads = reload_at(hangups, Arc::clone(&runtime_control), audit_log.clone())
        .map_err(|error| failed("reloads", error))?;
    // From here on, nothing prevents the start any more. A process that does not start is not the
    // predecessor of the next one, because it has forwarded no INVITE for which a CANCEL may come.
    predecessor::store(state_dir, seed);
    life.advance(Phase::Admitting);
    let listeners = groups.iter().map(|group| (group.transport(), group.local())).collect();
    tell(Event::Started(Started { listeners, admin: admin.as_ref().map(Admin::address) }));
    let warnings = wiring::buffer_warnings(config, &groups).into_iter();
    for warning in warnings.chain(descriptors::query_warning(config, query_places)) {
        tell(Event::Observed(Observation::now(format!("warning: {warning}"))));
    }
    let mut finish = Finish::Drained(Duration::ZERO);
    let mut failure = None;
    let mut stopping = Stopping::new(stop);
    let looks = tick(LOOK_EVERY);
    let mut watched = counters.to_vec();
    if let Some(recorder) = &recorder {
        watched[0].recording = Arc::clone(recorder.tally());
    }
    let mut watch = Watch::new(assembly.registry().clone(), watched, assembly.bans().clone());
    loop {
        // The order of these branches matters: a stop comes first, even if there are many commands.
        select_biased! {
            recv(signals.stops()) -> asked => {
                if asked.is_ok() {
                    life.advance(Phase::Draining);
                    stopping.on_signal();
                }
            }
            recv(signals.ignored()) -> name => {
                if let Ok(name) = name {
                    tell(Event::Ignored(name));
                }
            }
            recv(told) -> act => {
                if let Ok(act) = act
                    && !tell(Event::Acted(act))
                {
                    audit_log.record_untold();
                }
            }
            recv(looks) -> _ => {
                watch.look(clock.now(), |observation| {
                    tell(Event::Observed(observation));
                });
                follow_domains(clock.now(), &runtime_control, |observation| {
                    tell(Event::Observed(observation));
                });
                for warning in runtime_control.take_warnings() {
                    tell(Event::Observed(Observation::now(format!("warning: {warning}"))));
                }
                if let Some(line) = keeper.changed_trouble() {
                    tell(Event::Observed(Observation::now(line)));
                }
            }
            recv(ended) -> summary => match summary {
                Ok(Ok(summary)) => finish = finish.and(summary),
                Ok(Err(what)) => {
                    // The other shards cannot take over the calls of the failed shard. They stop
                    // too, but they drain their own calls first.
                    failure.get_or_insert(what);
                    life.advance(Phase::Draining);
                    stopping.on_failure();
                }
                // All shards have ended.
                Err(_) => break,
            },
        }
    }
    // The shards have ended, so a running reload stops waiting for them. Its outcome still gets
    // into the log.
    runtime_control.stop_waiting();
    drop(reloads);
    for act in told.try_iter() {
        tell(Event::Acted(act));
    }
    let recorded = recorder.map(Recorder::finish);
    failure.map_or(Ok(Ending { finish, recorded }), |what| Err(RunError::Shard(what)))
}

/// Sends the servers that the DNS lists for domains to the shards, if the servers have changed.
/// Reports the changes to `tell`.
fn follow_domains(
    now: Timestamp,
    runtime_control: &RuntimeControl,
    mut tell: impl FnMut(Observation),
) {
    match runtime_control.follow_domains(now) {
        Ok(lines) => lines.into_iter().for_each(|what| tell(Observation::now(what))),
        // The command is sent at the next check.
        Err(ControlError::CommandError(_)) => {}
        Err(why) => tell(Observation::now(format!("servers of domains: {why}"))),
    }
}

/// Returns an environment with the network routes of the machine and the back ends that were
/// recently removed from the configuration. The caller sets the other fields.
fn environment(
    config: &Config,
    listeners: &[SocketAddr],
    removed: &RemovedBackends,
) -> Result<Environment, StartError> {
    let route = |(to, listener)| EgressRoute { to, listener };
    let gone = removed.update(key::unix_time().as_secs(), config.backend_addresses());
    let gone = gone.map_err(|error| unwritable(removed, &error))?;
    Ok(Environment {
        egress_routes: egress_networks(listeners).into_iter().map(route).collect(),
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

fn begin_recording(
    to: &RecordingTarget,
    keys: &Secret,
    listeners: &[SocketAddr],
    environment: Environment,
    seed: Seed,
) -> Result<(Recorder, Journal), StartError> {
    let head = Head {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        configuration: to.configuration.clone(),
        listeners: listeners.to_vec(),
        environment,
        seed,
        keys: keys.clone(),
    };
    Recorder::start(&to.path, &head, to.size).map_err(|error| to.failed(&error))
}

/// Returns a function that computes the content of `/status`, except the version and the phase.
fn status(
    groups: &[Group],
    instruments: Instruments,
    clock: Clock,
) -> impl Fn() -> Status + Send + Sync + 'static {
    let listener = |group: &Group| {
        // This is the value that the kernel granted, which may be less than requested.
        json!({
            "transport": group.transport().name().to_ascii_lowercase(),
            "address": group.local(),
            "receive_buffer": group.receive_buffer(),
        })
    };
    let listeners: Value = groups.iter().map(listener).collect();
    move || {
        let mut status = instruments.read(clock.now());
        status.insert("listeners".to_owned(), listeners.clone());
        status
    }
}
