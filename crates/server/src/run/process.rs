//! The second phase of a start: connects the parts of the process, except its shards.

use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use serde_json::{Value, json};
use tidegate_io::{Clock, CommandSender, Resolver, Stores};
use tidegate_proxy::Secret;
use tidegate_world::Seed;

use super::preparation::Preparation;
use super::{StartInput, failed};
use crate::StartError;
use crate::admin::{Admin, Controls, Pages, Status};
use crate::assembly::{Assembly, Environment};
use crate::audit::{AuditEntry, AuditLog};
use crate::key::{self, Keeper, KeyRing};
use crate::metrics::{Metrics, collect};
use crate::phase::Life;
use crate::predecessor::SeedDraft;
use crate::recording::{Head, Journal, Recorder, RecordingTarget};
use crate::runtime_control::RuntimeControl;
use crate::status::Instruments;
use crate::tls::Tls;
use crate::wiring::Group;
use crate::{bans, heavy, users};

/// The parts of a process, except its shards.
///
/// The order of the fields matters, because they are dropped in this order. The threads that use
/// other parts end first: the thread that reads the key file, and then the admin interface, which
/// reports to the audit log until its last request has ended. The sockets, the resolver and the
/// certificates are dropped after everything that may use them.
pub(super) struct Process<'a> {
    /// The thread that reads the key file.
    _key_watch: key::Watch,
    pub(super) admin: Option<Admin>,
    /// The entries of the audit log that are not in the log of the process yet.
    pub(super) told: Receiver<AuditEntry>,
    pub(super) audit_log: AuditLog,
    pub(super) keeper: Arc<Keeper>,
    pub(super) runtime_control: Arc<RuntimeControl>,
    pub(super) stores: Stores,
    pub(super) commands: CommandSender,
    /// The end of the recording that the only shard writes to, until its thread has it.
    pub(super) journal: Option<Journal>,
    pub(super) recorder: Option<Recorder>,
    pub(super) assembly: Assembly<'a>,
    pub(super) seed_draft: SeedDraft,
    pub(super) groups: Vec<Group>,
    pub(super) resolver: Option<Resolver>,
    pub(super) tls: Tls,
    pub(super) query_places: usize,
    pub(super) life: Arc<Life>,
}

impl<'a> Process<'a> {
    /// Connects the parts, and starts the recording and the admin interface. `ring` has the keys of
    /// the process.
    pub(super) fn connect(
        input: StartInput<'a>,
        prepared: Preparation,
        ring: KeyRing,
    ) -> Result<Self, StartError> {
        let StartInput { config, state_dir, record, keys, clock, begun } = input;
        let Preparation { query_places, tls, resolver, removed, admin, groups, seed, environment } =
            prepared;
        let seed_draft = SeedDraft::write(state_dir, seed);
        let life = Arc::new(Life::new());
        let listeners: Vec<_> = groups.iter().map(Group::local).collect();
        let assembly = Assembly::new(config, keys, listeners.clone(), seed);
        let assembly = assembly.within(environment.clone());

        let mut metrics = Metrics::new();
        let counters = assembly.counters();
        let (registry, next_hops) = (assembly.registry().clone(), assembly.next_hops().clone());
        collect::add(&mut metrics, counters.to_vec(), registry, next_hops, clock);
        tls.add(&mut metrics);
        bans::add(&mut metrics, assembly.bans().clone(), clock);
        heavy::add(&mut metrics, counters.to_vec());
        let (recorder, journal) = record
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
        let key_watch = keeper.watch().map_err(|error| failed("keys", error))?;
        Ok(Self {
            _key_watch: key_watch,
            admin,
            told,
            audit_log,
            keeper,
            runtime_control,
            stores,
            commands,
            journal,
            recorder,
            assembly,
            seed_draft,
            groups,
            resolver,
            tls,
            query_places,
            life,
        })
    }
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
