//! One shard of the proxy, as its driver sees it.

use std::sync::Arc;

use tidegate_control::{Gate, Reason, Values};
use tidegate_world::{
    Answer, Core, Crossing, Failure, Load, Pool, Purpose, Query, QueryId, Received, Shedding,
    Timestamp, Transmit, Work,
};

use crate::class::Class;
use crate::counters::Counters;
use crate::endpoint::Endpoint;
use crate::fate::{Admitted, Fate, Judged};
use crate::ingress::Ingress;
use crate::refusals::Trace;
use crate::rejection_reason::ReplyReason;
use crate::request::Served;
use crate::secret::TokenKeys;
use crate::settings::{Disposal, PoolSettings, Rule, Settings};
use crate::sources::Watchman;
use crate::thinning::Thinning;
use crate::verification::Shown;

/// The proxy: an ingress that decides what is admitted and what waits where, and an
/// endpoint that does the work of RFC 3261 §16.
pub struct Proxy {
    ingress: Ingress,
    /// If the kernel may be asked to drop.
    thinning: Option<Thinning>,
    /// What is to be kept from us.
    shedding: Shedding,
    endpoint: Endpoint,
    counters: Arc<Counters>,
    work: Work,
    /// The message in service: until the next input tells that it is done.
    in_service: Option<InService>,
    /// What was looked at since the input before the last, likewise.
    looks: Looks,
}

/// A message whose service has begun.
struct InService {
    class: Class,
    since: Timestamp,
    /// It was found not to belong to anything.
    is_stray: bool,
}

/// Messages that were looked at and judged, and since when.
#[derive(Default)]
struct Looks {
    since: Option<Timestamp>,
    looked: u32,
    refused: u32,
}

impl Proxy {
    /// A proxy with these settings, which counts in `counters` and takes its buffers
    /// from `pool`.
    ///
    /// # Panics
    /// If there is no listener or no pool, or more of something than a branch can
    /// name: configuration is checked before it comes here.
    pub fn new(settings: Settings, counters: Arc<Counters>, pool: Pool) -> Self {
        let overload = &settings.overload;
        let shard = settings.shard.into();
        let gate = Gate::new(overload.gate(), settings.seed, shard);
        let waits = settings.seed.stream(Purpose::RetryAfter, shard);
        let watchman = Watchman::new(
            overload.sources.clone(),
            overload.gate.sources.fair,
            overload.gate.sources.sources_max,
            settings.bans.clone(),
            &mut settings.seed.stream(Purpose::Floods, shard),
        );
        counters.in_force.publish(&gate);
        counters.in_force.key_version.set(settings.secret.tokens.current.version.into());
        let trace = Trace::new(settings.trace, Arc::clone(&counters));
        // The same for all shards: they share a program of the kernel.
        let key = settings.seed.stream(Purpose::Shedding, 0).next_u64() as u32;
        let thins = overload.disposal == Disposal::Kernel;
        let refusing_max = overload.refusing_max;
        let Settings { queue_max, queue_bytes_max, .. } = settings;
        let ingress =
            Ingress::new(gate, overload, queue_max, queue_bytes_max, waits, watchman, trace);
        let endpoint = Endpoint::new(settings, pool, Arc::clone(&counters));
        counters.overload.publish_tiers(&endpoint.tiering);
        counters.transaction_bytes_max.set(endpoint.transactions().bytes_max() as u64);
        Self {
            ingress,
            thinning: thins.then(|| Thinning::new(refusing_max)),
            shedding: Shedding { key: if thins { key } else { 0 }, ..Shedding::NONE },
            endpoint,
            counters,
            work: Work::default(),
            in_service: None,
            looks: Looks::default(),
        }
    }

    /// Puts `law` in force and `shadow` beside it, as [`Gate::switch`] does it: nothing that was
    /// admitted or waits is lost.
    pub fn switch(&mut self, now: Timestamp, law: Values, shadow: Option<Values>) {
        // The time it takes is that of no message.
        self.in_service = None;
        self.looks = Looks::default();
        self.ingress.switch(now, law, shadow);
        self.counters.overload.publish(now, self.ingress.gate());
        self.counters.in_force.publish(self.ingress.gate());
    }

    /// Goes on with these pools and rules: new calls by them, and calls that are held where they
    /// are. A back end that stays has to be the same one, as
    /// [`Fleet::enlist`](tidegate_balance::Fleet::enlist) gives it.
    ///
    /// `false` if calls of those that are configured no more hold so many places that there may
    /// be none for the new ones, 65,535 pools and as many back ends in each: then nothing has
    /// changed.
    ///
    /// # Panics
    /// If there is no pool, or a rule leads to one that is not there.
    pub fn reform(&mut self, now: Timestamp, pools: Vec<PoolSettings>, rules: Vec<Rule>) -> bool {
        assert!(!pools.is_empty(), "a proxy has somewhere to send to");
        self.forget_looks();
        self.endpoint.reform(now, pools, rules)
    }

    /// Makes and verifies route tokens with these keys from now on.
    pub fn rekey(&mut self, keys: &TokenKeys) {
        self.forget_looks();
        self.endpoint.rekey(keys);
        self.counters.in_force.key_version.set(keys.current.version.into());
    }

    /// Answers an operator who asks for a call, by [`Counters::call`].
    pub fn look_up(&mut self, now: Timestamp, call_id: &[u8]) {
        self.forget_looks();
        self.counters.call.put(call_id, self.endpoint.entries_of_call(now, call_id));
    }

    /// The time that an order takes is that of no message.
    fn forget_looks(&mut self) {
        self.in_service = None;
        self.looks = Looks::default();
    }

    /// Something else is done before the message in service is known to be: how long that took is
    /// not seen.
    fn interrupt(&mut self, now: Timestamp) {
        if self.in_service.take().is_some_and(|message| message.is_stray) {
            self.ingress.on_stray_served(now, None);
        }
    }

    /// A driver may look at several messages at one time: what that took is known when time has
    /// passed.
    fn tell_looks(&mut self, now: Timestamp) {
        if let Some(since) = self.looks.since.filter(|&since| since < now) {
            let Looks { looked, refused, .. } = std::mem::take(&mut self.looks);
            self.ingress.on_looked(looked, refused, now.since(since));
        }
    }

    fn note_look(&mut self, now: Timestamp) {
        self.looks.since.get_or_insert(now);
        self.looks.looked += 1;
        self.looks.refused += u32::from(self.work.refused.is_some());
    }

    /// Does what is to be done with a message that was looked at, at the door or when its
    /// turn had come.
    fn carry_out(&mut self, now: Timestamp, judged: Judged) {
        let Judged { class, read, fate } = judged;
        // What has no class was looked at all the same.
        let number = Some(class.unwrap_or(Class::Other) as u8);
        self.work = Work { offered: number.filter(|_| read), ..Work::default() };
        if let Some(class) = class.filter(|_| read) {
            self.counters.received(class).add(1);
        }
        match fate {
            Fate::Queued => {}
            Fate::Drop(why) => self.counters.dropped(why).add(1),
            Fate::Refuse(reason, reply) => {
                self.work.refused = number;
                self.endpoint.tiering.on_refused(reason);
                if let Some(thinning) = &mut self.thinning {
                    thinning.on_refused(class);
                }
                self.send_refusal(reason, reply);
            }
            Fate::Shed(reply) => {
                self.work.refused = number;
                self.counters.shed(class.unwrap_or(Class::Other)).add(1);
                if let Some(reply) = reply {
                    self.counters.count_reply(503, ReplyReason::Shed);
                    self.endpoint.transmit(reply);
                }
            }
            Fate::NotUnderstood(received) => {
                self.work.refused = number;
                self.endpoint.refuse(&received, 417);
            }
            Fate::Malformed(received, malformed) => {
                self.work.refused = number;
                self.endpoint.refuse_malformed(&received, malformed);
            }
            Fate::Serve(received, admitted) => {
                self.work.served = number;
                let class = class.unwrap_or(Class::Other);
                let (flow, is_unverified) = (received.flow, admitted.is_unverified);
                self.endpoint.shown = Shown::Nothing;
                let sojourn = now.since(received.arrived);
                self.counters.sojourns(class.is_new_work()).observe(sojourn);
                match class {
                    Class::Final | Class::Provisional => {
                        self.endpoint.serve_response(now, received);
                    }
                    _ => {
                        self.serve_request(now, received, class, admitted);
                    }
                }
                self.work.stateless = self.endpoint.tiering.on_served(class);
                let Self { ingress, endpoint, .. } = self;
                if endpoint.shown != Shown::Nothing {
                    if let Some(in_service) = &mut self.in_service {
                        in_service.is_stray |= endpoint.shown == Shown::Stray;
                    }
                    ingress.on_shown(now, &flow, endpoint.shown, is_unverified, endpoint);
                }
            }
        }
    }

    fn serve_request(
        &mut self,
        now: Timestamp,
        received: Received,
        class: Class,
        admitted: Admitted,
    ) {
        let Admitted { fingerprint, has_priority, .. } = admitted;
        match self.endpoint.serve_request(now, &received, has_priority) {
            Served::Here => {}
            Served::Refused => {
                if let Some(fingerprint) = fingerprint {
                    self.ingress.on_refused(now, fingerprint);
                }
            }
            Served::PoolDown => {
                if let Some(fingerprint) = fingerprint {
                    self.ingress.on_refused(now, fingerprint);
                }
                self.counters.refused(Reason::PoolDown).add(1);
            }
            Served::PoolFull => {
                // A refusal tells nothing of what serving costs, and is none.
                self.in_service = None;
                self.work = Work { served: None, refused: self.work.served, ..self.work };
                let Self { ingress, endpoint, .. } = self;
                let reply = ingress.refuse_served(now, &received, class, fingerprint, endpoint);
                self.send_refusal(Reason::PoolFull, reply);
            }
            Served::Elsewhere(shard) => self.endpoint.cross(shard, received),
        }
    }

    fn send_refusal(&mut self, reason: Reason, reply: Option<Transmit>) {
        self.counters.refused(reason).add(1);
        if let Some(reply) = reply {
            self.counters.count_reply(503, reason.into());
            self.endpoint.transmit(reply);
        }
    }

    fn publish(&self) {
        let calls = self.endpoint.calls();
        self.counters.calls.set(calls.len() as u64);
        self.counters.transactions_open.set(calls.open() as u64);
        self.counters.calls_evicted.set(calls.evicted());
        self.counters.calls_abandoned.set(calls.abandoned());
        let transactions = self.endpoint.transactions();
        self.counters.server_transactions.set(transactions.servers() as u64);
        self.counters.client_transactions.set(transactions.clients() as u64);
        self.counters.transaction_bytes.set(transactions.bytes() as u64);
        self.counters.queued.set(self.ingress.waiting() as u64);
    }
}

impl Core for Proxy {
    fn offer(&mut self, now: Timestamp, received: Received) {
        self.interrupt(now);
        self.tell_looks(now);
        self.endpoint.follow_names();
        let judged = self.ingress.offer(now, received, &self.endpoint);
        self.carry_out(now, judged);
        self.note_look(now);
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        if let Some(InService { class, since, is_stray }) = self.in_service.take() {
            let cost = now.since(since);
            if is_stray {
                self.ingress.on_stray_served(now, Some(cost));
            } else {
                self.ingress.on_completion(now, class, cost);
                self.endpoint.tiering.on_completion(class, cost);
                if let Some(thinning) = &mut self.thinning {
                    thinning.on_completion(cost);
                }
            }
        }
        self.tell_looks(now);
        let Some(judged) = self.ingress.next(now, &self.endpoint) else {
            self.work = Work::default();
            self.counters.overload.publish_flows(self.ingress.gate());
            return false;
        };
        if let (Fate::Serve(_, admitted), Some(class)) = (&judged.fate, judged.class) {
            let is_stray = admitted.is_unverified;
            self.in_service = Some(InService { class, since: now, is_stray });
        }
        self.carry_out(now, judged);
        if self.work.refused.is_some() {
            self.note_look(now);
        }
        self.publish();
        true
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.interrupt(now);
        self.looks = Looks::default();
        self.ingress.handle_timeout(now);
        if let Some(thinning) = &mut self.thinning {
            thinning.handle_timeout(now);
            self.shedding.share = thinning.ladder().share();
        }
        self.endpoint.handle_timeout(now);
        self.publish();
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.endpoint.on_failed(now, &failure);
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        self.ingress.on_load(now, &load);
        let Self { ingress, thinning, shedding, counters, .. } = self;
        self.endpoint.tiering.on_reading(ingress.gate());
        counters.overload.publish(now, ingress.gate());
        counters.overload.publish_tiers(&self.endpoint.tiering);
        counters.overload.sources_overflowed.set(ingress.sources_overflowed());
        counters.in_force.publish(ingress.gate());
        if let Some(thinning) = thinning {
            thinning.on_load(now, &load, ingress.gate(), counters);
            counters.overload.publish_ladder(thinning.ladder());
            shedding.share = thinning.ladder().share();
        }
        ingress.banned(now, &mut shedding.banned);
    }

    fn on_answer(&mut self, now: Timestamp, id: QueryId, answer: Answer) {
        self.endpoint.on_answer(now, id, &answer);
    }

    fn on_drain(&mut self, _now: Timestamp) {
        self.ingress.close();
        self.endpoint.names_mut().on_drain();
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.endpoint.poll_transmit()
    }

    fn poll_crossing(&mut self) -> Option<Crossing> {
        self.endpoint.poll_crossing()
    }

    fn poll_query(&mut self) -> Option<Query> {
        self.endpoint.names_mut().poll_query()
    }

    fn poll_shedding(&self) -> &Shedding {
        &self.shedding
    }

    fn last_work(&self) -> Work {
        self.work
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        let calls = self.endpoint.calls().poll_timeout();
        let transactions = self.endpoint.transactions().poll_timeout();
        let tick = self.ingress.gate().poll_timeout();
        let thinning = self.thinning.as_ref().and_then(|t| t.ladder().poll_timeout());
        let names = self.endpoint.names().poll_timeout();
        let probes = self.endpoint.probes().poll_timeout();
        [calls, transactions, tick, thinning, names, probes].into_iter().flatten().min()
    }

    fn is_drained(&self) -> bool {
        let calls = self.endpoint.calls();
        self.ingress.waiting() == 0
            && calls.open() == 0
            && calls.unacknowledged() == 0
            && self.endpoint.transactions().unfinished() == 0
    }
}
