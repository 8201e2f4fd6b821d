//! One shard of the proxy, as the state machine that a driver calls.
//!
//! A message enters by [`offer`](tidegate_world::Core::offer), which classifies it, decides whether
//! it is admitted and queues it. [`serve`](tidegate_world::Core::serve) takes the next message from
//! the queues: a [request](crate::request) is matched, planned, committed and rewritten. A
//! [response](crate::response) is matched and rewritten.

mod contract;
mod service;

use std::sync::Arc;

use tidegate_control::{Gate, Values};
use tidegate_world::{Pool, Purpose, RecordType, Shedding, Timestamp, Work};

use crate::admission::ingress::{Ingress, QueueLimits};
use crate::admission::kernel_shed::KernelShed;
use crate::admission::source_policy::SourcePolicy;
use crate::admission::source_policy::kernel_lists::KernelLists;
use crate::admission::upstream::UpstreamPeers;
use crate::admission::view::View;
use crate::backends::names::Names;
use crate::backends::probes::Probes;
use crate::backends::slots::have_slots;
use crate::keys::TokenKeys;
use crate::lookup::Lookups;
use crate::message::class::Class;
use crate::observe::call_entry::BackendOfCall;
use crate::observe::counters::Counters;
use crate::observe::sampler::Trace;
use crate::output::{Output, Suspect};
use crate::parked::Parked;
use crate::peers::Peers;
use crate::reload::{Reloaded, reload};
use crate::resolution::{Resolution, ResolutionSettings, Transports};
use crate::routing::tier::tier_in;
use crate::settings::{BackendRef, Listener, PoolSettings, Rule, Settings};
use crate::slack::Slack;
use crate::snapshot::Snapshot;
use crate::state::RoutingState;
use crate::stateless::lost::Lost;
use crate::transaction::Transactions;

/// One shard of the proxy: the stages that process each message, with their state.
pub struct Proxy {
    /// The queues of admitted messages, and the gate that decides which messages are admitted.
    ingress: Ingress,
    /// Chooses a 503, a padded 503 or a drop in the kernel for requests that are not admitted.
    /// `None` if the configuration makes this choice.
    kernel_shed: Option<KernelShed>,
    /// The state of the lists of sources in `shedding`.
    kernel_lists: KernelLists,
    /// Rules by which the driver or the kernel drops messages.
    shedding: Shedding,
    snapshot: Snapshot,
    transactions: Transactions,
    routing: RoutingState,
    /// Records of requests that the previous process sent, so that their CANCELs and ACKs find the
    /// same back end.
    lost: Lost,
    /// Requests that wait for an answer from the DNS or a store.
    parked: Parked,
    /// Resolves the DNS names in requests.
    resolution: Resolution,
    /// Queries to external stores, such as for the contacts of the users in requests.
    lookups: Lookups,
    probes: Probes,
    names: Names,
    peers: Peers,
    output: Output,
    counters: Arc<Counters>,
    work: Work,
    /// The message that [`serve`](tidegate_world::Core::serve) processed last. The time that the
    /// driver passes next shows how long the processing took.
    in_service: Option<InService>,
    /// Counts of the messages that were classified since the gate was last told how long
    /// classifying took.
    looks: Looks,
    /// Time of the driver's last input that can cause messages to be sent.
    now: Timestamp,
    slack: Slack,
}

/// The message that is being served, with the start of its service.
struct InService {
    class: Class,
    since: Timestamp,
    /// True if the message claims to belong to a call or transaction, and was found to belong to
    /// none.
    is_stray: bool,
}

/// Counts of the messages that were classified, and of those that were rejected, since the gate was
/// last told how long this work took. `since` is the time of the first of these messages.
#[derive(Default)]
struct Looks {
    since: Option<Timestamp>,
    looked: u32,
    rejected: u32,
}

impl Proxy {
    /// Creates a shard. It counts its work in `counters` and takes its buffers from `pool`.
    ///
    /// # Panics
    /// Panics if there is no listener or no pool, if there are more than
    /// [`LISTENERS_MAX`](crate::LISTENERS_MAX) listeners or [`SHARDS_MAX`](crate::SHARDS_MAX)
    /// shards, or if `settings.shard` is not below the number of shards. The validation of the
    /// configuration excludes these errors.
    pub fn new(settings: Settings, counters: Arc<Counters>, pool: Pool) -> Self {
        let overload = &settings.overload;
        let shard = settings.shard.into();
        let gate = Gate::new(overload.gate(), settings.seed, shard)
            .sharing_priority(settings.priority_cap.clone());
        let waits = settings.seed.stream(Purpose::RetryAfter, shard);
        let sources = SourcePolicy::new(
            overload.sources.clone(),
            overload.feedback.peers.clone(),
            overload.gate.sources.fair,
            overload.gate.sources.sources_max,
            settings.bans.clone(),
            &mut settings.seed.stream(Purpose::Floods, shard),
        );
        counters.in_force.publish(&gate);
        counters.in_force.key_version.set(settings.secret.tokens.current.version.into());
        let trace = Trace::new(settings.trace, Arc::clone(&counters));
        // The key is the same for all shards, because they share a kernel program.
        let key = settings.seed.stream(Purpose::Shedding, 0).next_u64() as u32;
        let can_drop = settings.listeners.iter().all(|listener| !listener.shared);
        let kernel_shed = KernelShed::new(overload, can_drop);
        let sheds = kernel_shed.is_some();
        let limits = QueueLimits {
            messages_max: settings.queue_max,
            bytes_max: settings.queue_bytes_max,
            t1: settings.timing.t1,
        };
        let upstream = UpstreamPeers::new(&overload.feedback, settings.start, settings.seed, shard);
        let ingress = Ingress::new(gate, upstream, overload, limits, waits, sources, trace);
        // A back end in several pools keeps the value that is set last: that of its first pool.
        for PoolSettings { pool, health, .. } in settings.pools.iter().rev() {
            pool.backends().iter().for_each(|b| b.set_slow_start(health.slow_start));
        }
        let slack = Slack::new(settings.timer_slack);
        let resolution = resolution_of(&settings.listeners, settings.queries.requests);
        let snapshot = Snapshot::new(&settings, pool);
        let routing = RoutingState::new(&settings);
        let transactions = Transactions::new(
            settings.transactions_max,
            settings.transaction_bytes_max,
            settings.timing,
        );
        counters.overload.publish_tiers(routing.tiering.tiers());
        counters.transaction_bytes_max.set(transactions.bytes_max() as u64);
        let mut probes = Probes::new(settings.seed.stream(Purpose::Probes, shard));
        probes.enlist_backends(Timestamp::ZERO, &snapshot);
        Self {
            ingress,
            kernel_shed,
            kernel_lists: KernelLists::new(),
            shedding: Shedding { key: if sheds { key } else { 0 }, ..Shedding::NONE },
            names: Names::new(&settings),
            output: Output::new(settings.trace, Arc::clone(&counters)),
            snapshot,
            transactions,
            routing,
            lost: Lost::default(),
            parked: Parked::default(),
            resolution: Resolution::new(resolution, Arc::clone(&counters.resolution)),
            lookups: Lookups::new(Arc::clone(&counters.lookups)),
            probes,
            peers: Peers::default(),
            counters,
            work: Work::default(),
            in_service: None,
            looks: Looks::default(),
            now: Timestamp::ZERO,
            slack,
        }
    }

    /// Replaces the control law of the gate by `law`, and its shadow law by `shadow`, as
    /// [`Gate::switch`] does. Admitted messages stay in the queues.
    pub fn switch(&mut self, now: Timestamp, law: Values, shadow: Option<Values>) {
        self.discard_measurements();
        self.ingress.switch(now, law, shadow);
        let unanswered_max = self.ingress.unanswered_max();
        self.counters.overload.publish(now, self.ingress.gate(), unanswered_max);
        self.counters.in_force.publish(self.ingress.gate());
    }

    /// Returns whether a [reload](Self::reload) is possible. Each item of `pools` is the name of a
    /// new pool and its number of back ends.
    pub fn has_slots<'a>(&self, pools: impl ExactSizeIterator<Item = (&'a str, usize)>) -> bool {
        have_slots(&self.snapshot.pools, pools)
    }

    /// Switches to these pools and rules. New calls use them, and existing calls stay at their back
    /// ends. Answers of stores that are still held are discarded. A back end that stays in the
    /// configuration must be the same object, as
    /// [`BackendRegistry::enlist`](tidegate_balance::BackendRegistry::enlist) returns it.
    ///
    /// Returns `false`, and keeps the old pools and rules, if the new ones may exceed the limit of
    /// 65,535 pools, or of 65,535 back ends in a pool. Removed pools and back ends count until
    /// their calls have ended.
    ///
    /// # Panics
    /// Panics if there is no pool, or a rule refers to a missing pool.
    pub fn reload(&mut self, now: Timestamp, pools: Vec<PoolSettings>, rules: Vec<Rule>) -> bool {
        assert!(!pools.is_empty(), "there is no pool");
        self.discard_measurements();
        self.lookups.forget();
        let Self { snapshot, routing, transactions, probes, names, .. } = self;
        let shard = Reloaded { snapshot, routing, transactions, probes, names };
        let is_reloaded = reload(now, shard, pools, rules);
        self.ingress.upstream.follow(&self.snapshot);
        is_reloaded
    }

    /// Replaces the keys that create and verify route and flow tokens.
    pub fn rekey(&mut self, keys: &TokenKeys) {
        self.discard_measurements();
        self.snapshot.keys.rekey(keys);
        self.counters.in_force.key_version.set(keys.current.version.into());
    }

    /// Publishes the call-table entries with this Call-ID in [`Counters::call`]. An operator's
    /// command asks for them.
    pub fn look_up(&mut self, now: Timestamp, call_id: &[u8]) {
        self.discard_measurements();
        let Self { snapshot, routing, .. } = self;
        let fingerprint = snapshot.keys.call.fingerprint(call_id);
        let backend_of = |backend_ref: BackendRef, place| BackendOfCall {
            pool: snapshot.pool(backend_ref.pool).pool.name().into(),
            name: snapshot.backend(backend_ref).name().into(),
            address: snapshot.backend(backend_ref).address_at(place),
        };
        let tier_of = |backend_ref: BackendRef, chosen| {
            tier_in(snapshot.pool(backend_ref.pool).mode, || chosen)
        };
        let entries = routing.calls.entries(now, fingerprint, backend_of, tier_of);
        self.counters.call.put(call_id, entries);
    }

    /// Discards all pending time measurements, so that the time for a command of an operator does
    /// not count as time for a message. Call this function before any other work for a command.
    pub fn discard_measurements(&mut self) {
        self.in_service = None;
        self.looks = Looks::default();
    }

    /// Discards all pending time measurements at an input that is not a message. The time until
    /// this input, and the time for it, are not known.
    fn interrupt_all(&mut self, now: Timestamp) {
        self.interrupt(now, now);
        self.looks = Looks::default();
    }

    /// Discards the measurement of the service time of the message in service. Call this function
    /// for an input that does not show when the service ended. `arrived` is the time of this input.
    ///
    /// The service of a stray counts as measured if the input has waited for at least half of the
    /// time since this service began: a driver that is not busy takes an input at once. In a flood,
    /// the driver may read a message after each service. If no service were measured then, the time
    /// for the strays would count as load.
    fn interrupt(&mut self, now: Timestamp, arrived: Timestamp) {
        if let Some(InService { since, is_stray: true, .. }) = self.in_service.take() {
            let passed = now.since(since);
            let was_busy = now.since(arrived) >= passed / 2;
            self.ingress.on_stray_served(now, was_busy.then_some(passed));
        }
    }

    /// Records the duration of the service that ended at `now`, if there was one.
    fn complete_service(&mut self, now: Timestamp) {
        let Some(InService { class, since, is_stray }) = self.in_service.take() else { return };
        let cost = now.since(since);
        if is_stray {
            self.ingress.on_stray_served(now, Some(cost));
            return;
        }
        self.ingress.on_completion(now, class, cost);
        self.routing.tiering.on_completion(class, cost);
        if let Some(kernel_shed) = &mut self.kernel_shed {
            kernel_shed.on_completion(cost);
        }
    }

    /// Reports to the gate how long it took to classify messages. A driver may offer several
    /// messages at the same moment, so the time is known only when a later input comes.
    fn tell_looks(&mut self, now: Timestamp) {
        if let Some(since) = self.looks.since.filter(|&since| since < now) {
            let Looks { looked, rejected, .. } = std::mem::take(&mut self.looks);
            self.ingress.on_looked(looked, rejected, now.since(since));
        }
    }

    fn record_look(&mut self, now: Timestamp) {
        self.looks.since.get_or_insert(now);
        self.looks.looked += 1;
        self.looks.rejected += u32::from(self.work.rejected.is_some());
    }

    /// Returns the ingress, and the parts of this shard that the ingress reads for its decisions.
    fn view(&mut self) -> (&mut Ingress, View<'_>) {
        let Self { ingress, snapshot, routing, transactions, parked, counters, .. } = self;
        let view = View {
            snapshot,
            calls: &routing.calls,
            transactions,
            parked,
            counters,
            kernel_shed: self.kernel_shed.as_ref(),
            shedding: &self.shedding,
        };
        (ingress, view)
    }

    /// Requests an immediate probe of each back end that may have failed.
    fn probe_suspects(&mut self, now: Timestamp) {
        while let Some(Suspect { backend_ref, since }) = self.output.next_suspect() {
            self.probes.suspect(now, &self.snapshot, backend_ref, since);
        }
    }

    /// Rereads the addresses of the back ends, if the name of a back end has resolved to a new
    /// address.
    fn follow_names(&mut self, now: Timestamp) {
        if self.names.have_moved() {
            self.snapshot.locate(now);
            self.ingress.upstream.follow(&self.snapshot);
        }
    }

    fn publish(&self) {
        let calls = &self.routing.calls;
        self.counters.calls.set(calls.len() as u64);
        self.counters.calls_over.set(calls.over() as u64);
        self.counters.transactions_open.set(calls.open() as u64);
        self.counters.calls_evicted.set(calls.evicted());
        self.counters.calls_abandoned.set(calls.abandoned());
        let transactions = &self.transactions;
        self.counters.server_transactions.set(transactions.servers() as u64);
        self.counters.client_transactions.set(transactions.clients() as u64);
        self.counters.transaction_bytes.set(transactions.bytes() as u64);
        self.counters.queued.set(self.ingress.waiting() as u64);
        self.counters.queue_peak.set(self.ingress.queue_peak() as u64);
        self.counters.parked.set(self.parked.len() as u64);
        self.counters.lost_overflowed.set(self.lost.overflowed());
    }
}

/// Maximum number of DNS answers that a shard remembers.
const ANSWERS_MAX: usize = 4096;

/// Returns the settings for the resolution of names: the address families and transports of the
/// listeners, and the maximum number of unanswered queries. If the DNS does not determine the
/// transport of a name, the transport of the first listener is used. WebSocket listeners do not
/// count, because the proxy opens no WebSockets.
fn resolution_of(listeners: &[Listener], questions_max: usize) -> ResolutionSettings {
    let has = |is_v6: bool| listeners.iter().any(|listener| listener.local.is_ipv6() == is_v6);
    let address_records: &[RecordType] = match (has(false), has(true)) {
        (_, false) => &[RecordType::A],
        (false, true) => &[RecordType::Aaaa],
        (true, true) => &[RecordType::A, RecordType::Aaaa],
    };
    let transports = listeners.iter().map(|listener| listener.transport);
    ResolutionSettings {
        transports: Transports::new(transports.filter(|transport| !transport.is_websocket())),
        address_records,
        answers_max: ANSWERS_MAX,
        questions_max,
    }
}
