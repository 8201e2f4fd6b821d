//! One shard of the proxy, as the state machine that a driver calls.
//!
//! A message enters by [`offer`](tidegate_world::Core::offer), which classifies it, decides whether
//! it is admitted and queues it. [`serve`](tidegate_world::Core::serve) takes the next message from
//! the queues: a [request](crate::request) is matched, planned, committed and rewritten. A
//! [response](crate::response) is matched and rewritten.

mod contract;

use std::sync::Arc;

use tidegate_control::{Gate, Reason, Values};
use tidegate_world::{
    HandoffInput, Pool, Purpose, Received, RecordType, Shedding, Timestamp, Transmit, Work,
};

use crate::admission::decision::{Admitted, Decided, Decision, Read};
use crate::admission::ingress::{Ingress, QueueLimits};
use crate::admission::kernel_shed::{KernelShed, is_droppable};
use crate::admission::reject::RejectedRequest;
use crate::admission::source_policy::SourcePolicy;
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
use crate::parked::{Parked, RequestSource, Waiting};
use crate::peers::Peers;
use crate::rejection::reply_reason::ReplyReason;
use crate::reload::{Reloaded, reload};
use crate::request::{Served, Stages, serve_request};
use crate::resolution::{Resolution, ResolutionSettings, Transports};
use crate::response::{Awaiting, serve_response};
use crate::settings::{Listener, PoolSettings, Rule, Settings};
use crate::slack::Slack;
use crate::snapshot::Snapshot;
use crate::state::RoutingState;
use crate::stateless::lost::Lost;
use crate::step::{SourceEvidence, Step};
use crate::transaction::Transactions;

/// One shard of the proxy: the stages that process each message, with their state.
pub struct Proxy {
    /// The queues of admitted messages, and the gate that decides which messages are admitted.
    ingress: Ingress,
    /// Chooses a 503, a padded 503 or a drop in the kernel for requests that are not admitted.
    /// `None` if the configuration makes this choice.
    kernel_shed: Option<KernelShed>,
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
        let limits =
            QueueLimits { messages_max: settings.queue_max, bytes_max: settings.queue_bytes_max };
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
        self.forget_looks();
        self.ingress.switch(now, law, shadow);
        self.counters.overload.publish(now, self.ingress.gate());
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
        self.forget_looks();
        self.lookups.forget();
        let Self { snapshot, routing, transactions, probes, names, .. } = self;
        let shard = Reloaded { snapshot, routing, transactions, probes, names };
        let is_reloaded = reload(now, shard, pools, rules);
        self.ingress.upstream.follow(&self.snapshot);
        is_reloaded
    }

    /// Replaces the keys that create and verify route and flow tokens.
    pub fn rekey(&mut self, keys: &TokenKeys) {
        self.forget_looks();
        self.snapshot.keys.rekey(keys);
        self.counters.in_force.key_version.set(keys.current.version.into());
    }

    /// Publishes the call-table entries with this Call-ID in [`Counters::call`]. An operator's
    /// command asks for them.
    pub fn look_up(&mut self, now: Timestamp, call_id: &[u8]) {
        self.forget_looks();
        let Self { snapshot, routing, .. } = self;
        let fingerprint = snapshot.keys.call.fingerprint(call_id);
        let entries = routing.calls.entries(now, fingerprint, |backend_ref, place| BackendOfCall {
            pool: snapshot.pool(backend_ref.pool).pool.name().into(),
            name: snapshot.backend(backend_ref).name().into(),
            address: snapshot.backend(backend_ref).address_at(place),
        });
        self.counters.call.put(call_id, entries);
    }

    /// Discards all pending time measurements, so that the time for a command of an operator does
    /// not count as time for a message.
    fn forget_looks(&mut self) {
        self.in_service = None;
        self.looks = Looks::default();
    }

    /// Discards the measurement of the service time of the message in service. To be called for an
    /// input that does not show when the service ended.
    fn interrupt(&mut self, now: Timestamp) {
        if self.in_service.take().is_some_and(|message| message.is_stray) {
            self.ingress.on_stray_served(now, None);
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

    /// Carries out the decision on a message. The decision is made when the message arrives, or
    /// when it leaves its queue.
    fn carry_out(&mut self, now: Timestamp, decided: Decided) {
        self.output.begin();
        let Decided { class, read, decision } = decided;
        // A message that could not be classified took time too.
        let number = Some(class.unwrap_or(Class::Other) as u8);
        self.work = Work { offered: number.filter(|_| read != Read::NotNow), ..Work::default() };
        if let Some(class) = class.filter(|_| read == Read::Now) {
            self.counters.received(class).add(1);
        }
        match decision {
            Decision::Queued => {}
            Decision::Drop(why) => self.counters.dropped(why).add(1),
            Decision::Reject(reason, reply) => {
                self.work.rejected = number;
                self.routing.tiering.on_rejected(reason);
                self.record_rejected(class);
                // Overload feedback has rejected the request, so the gate has not counted it.
                if reason == Reason::PeerShare {
                    self.count_rejected_before(class);
                }
                self.send_rejection(reason, reply);
            }
            Decision::Shed(reply) => {
                self.work.rejected = number;
                self.counters.shed(class.unwrap_or(Class::Other)).add(1);
                if let Some(reply) = reply {
                    self.counters.count_reply(503, ReplyReason::Shed);
                    self.output.send(*reply);
                }
            }
            Decision::NotUnderstood(received) => {
                self.work.rejected = number;
                self.record_rejected(class);
                self.count_rejected_before(class);
                self.output.reject_unread(&self.snapshot, &received, 417);
            }
            Decision::Stun(received) => self.output.answer_stun(&self.snapshot, &received),
            Decision::Malformed(received, malformed) => {
                self.work.rejected = number;
                // The kernel can drop a malformed INVITE or REGISTER, if rejecting costs too much.
                if Shedding::may_be_dropped(&received.bytes) {
                    self.record_rejected(Some(Class::Invite));
                }
                self.output.reject_malformed(&self.snapshot, &received, malformed);
            }
            Decision::Serve(received, admitted) => {
                self.work.served = number;
                let class = class.unwrap_or(Class::Other);
                let (flow, is_unverified) = (received.flow, admitted.is_unverified);
                let shown = match class {
                    Class::Final | Class::Provisional => {
                        let arrived = received.arrived;
                        let shown = self.serve_response(now, received);
                        self.record_served(now, class, arrived);
                        shown
                    }
                    _ => self.serve_request(now, received, class, admitted),
                };
                if shown != SourceEvidence::Nothing {
                    if let Some(in_service) = &mut self.in_service {
                        in_service.is_stray |= shown == SourceEvidence::Stray;
                    }
                    let (ingress, view) = self.view();
                    ingress.on_shown(now, &flow, shown, is_unverified, view);
                }
            }
        }
    }

    /// Serves a request: matches, plans, commits and forwards it. Returns the evidence about its
    /// sender.
    fn serve_request(
        &mut self,
        now: Timestamp,
        received: Box<Received>,
        class: Class,
        admitted: Admitted,
    ) -> SourceEvidence {
        let Admitted { fingerprint, is_again, has_priority, .. } = admitted;
        let Self { snapshot, routing, peers, output, transactions, lost, .. } = self;
        let mut step = Step::new(now, snapshot, routing, peers, output);
        let Self { resolution, lookups, parked, .. } = self;
        let mut stages = Stages { transactions, lost, resolution, lookups, parked };
        let served = serve_request(&mut step, &mut stages, &received, &admitted);
        let Step { shown, pool, .. } = step;
        if let Some(bucket) = class.bucket()
            && !is_again
            && !matches!(served, Served::Here | Served::Elsewhere(_) | Served::Parked(..))
        {
            self.counters.rejected_after(bucket).add(1);
        }
        // A request that was parked or handed off is served later, and counts then.
        let is_later = matches!(served, Served::Elsewhere(_) | Served::Parked(..));
        if !is_later && !matches!(served, Served::Unserved(_)) {
            self.record_served(now, class, received.arrived);
            if let Some(kernel_shed) = &mut self.kernel_shed
                && is_droppable(&received)
            {
                kernel_shed.on_served();
            }
        }
        match served {
            Served::Here | Served::Rejected => {}
            Served::RejectedForNow | Served::PoolDown => {
                if let Some(fingerprint) = fingerprint {
                    self.ingress.on_rejected(now, fingerprint);
                }
                if matches!(served, Served::PoolDown) {
                    self.counters.rejected(Reason::PoolDown).add(1);
                }
            }
            Served::Unserved(reason) => {
                // A rejection is not service, so its time must not be measured as service time.
                self.in_service = None;
                self.work = Work { served: None, rejected: self.work.served, ..self.work };
                self.record_rejected(Some(class));
                let Self { ingress, snapshot, .. } = self;
                let pool = snapshot.pool_name(pool);
                let rejected = RejectedRequest {
                    received: &received,
                    class,
                    fingerprint,
                    reason: Some(reason),
                };
                let reply = ingress.reject_served(now, &rejected, reason, snapshot, pool);
                self.send_rejection(reason, reply);
            }
            Served::Elsewhere(shard) => {
                self.output.hand_off(shard, HandoffInput::Received(*received))
            }
            Served::Parked(ticket, key) => {
                // The message is not served yet, so this time must not be measured as service time.
                self.in_service = None;
                self.counters.parked_all.add(1);
                let source = RequestSource::of(&self.snapshot, &received.flow);
                let waiting = Waiting::new(received, class, fingerprint, has_priority, key, source);
                self.parked.park(ticket, waiting);
            }
        }
        shown
    }

    /// Records a rejection, whether the message was rejected on arrival or when it was to be
    /// served. If only one kind of rejection were recorded, the cost of rejections would seem lower
    /// than it is, and the kernel would drop too little.
    fn record_rejected(&mut self, class: Option<Class>) {
        if let Some(kernel_shed) = &mut self.kernel_shed {
            kernel_shed.on_rejected(class);
        }
    }

    /// Counts a served message, and its waiting time since it arrived at `arrived`.
    fn record_served(&mut self, now: Timestamp, class: Class, arrived: Timestamp) {
        self.counters.sojourns(class.is_new_work()).observe(now.since(arrived));
        self.work.stateless = self.routing.tiering.on_served(class);
    }

    /// Serves a response: matches and forwards it. Returns the evidence about its sender.
    fn serve_response(&mut self, now: Timestamp, received: Box<Received>) -> SourceEvidence {
        let Self { snapshot, routing, peers, output, transactions, probes, lost, .. } = self;
        let mut step = Step::new(now, snapshot, routing, peers, output);
        serve_response(&mut step, Awaiting { transactions, probes, lost }, received);
        let Step { shown, challenged, .. } = step;
        if let Some(challenge) = challenged {
            self.ingress.challenges.on_challenge(now, challenge);
        }
        shown
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

    /// Counts a request for new work that was rejected before the gate decided on it.
    fn count_rejected_before(&self, class: Option<Class>) {
        if let Some(bucket) = class.and_then(Class::bucket) {
            self.counters.rejected_before(bucket).add(1);
        }
    }

    fn send_rejection(&mut self, reason: Reason, reply: Option<Box<Transmit>>) {
        self.counters.rejected(reason).add(1);
        if let Some(reply) = reply {
            self.counters.count_reply(503, reason.into());
            self.output.send(*reply);
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
