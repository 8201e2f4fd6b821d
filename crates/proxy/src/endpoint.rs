//! The endpoint: what a shard knows, and what it sends.
//!
//! The work of a message stands beside it: `recognition` of one that was only scanned, `request`,
//! `routing` and `forward` for requests, `response` for responses.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_balance::{Backend, Lease, Picker};
use tidegate_control::Tier;
use tidegate_sip::{Malformed, Message, Outline};
use tidegate_world::{
    Answer, Crossing, Pool, Purpose, QueryId, Received, Seed, Timestamp, Transmit,
};

use crate::amplification::Verified;
use crate::branch::{LISTENERS_MAX, SHARDS_MAX};
use crate::calls::{BackendOfCall, CallEntry, CallRef, Calls, Evidence, Member, Transaction};
use crate::counters::{Counters, DropReason};
use crate::headroom::Door;
use crate::instead::status_of;
use crate::lost::Lost;
use crate::names::Names;
use crate::origin::Addresses;
use crate::picking::pickers;
use crate::probes::Probes;
use crate::refusals::{Rejected, Sampler};
use crate::rejection_reason::ReplyReason;
use crate::reply::{Hints, refusal, refusal_of, reply};
use crate::secret::{Keys, TokenKeys};
use crate::settings::{Mode, PoolSettings, Rule, Settings};
use crate::stateful::Transactions;
use crate::tiering::Tiering;
use crate::token::Minutes;
use crate::unreachable::Unreachable;
use crate::verification::Shown;

/// A shard's routing, calls and outputs.
pub(crate) struct Endpoint {
    shard: u16,
    shards: u16,
    seed: Seed,
    name: Box<str>,
    keys: Keys,
    addresses: Addresses,
    pools: Vec<PoolSettings>,
    pickers: Vec<Picker>,
    probes: Probes,
    rules: Vec<Rule>,
    door: Door,
    names: Names,
    calls: Calls,
    transactions: Transactions,
    failure_pause: Duration,
    /// Unix time at [`Timestamp::ZERO`].
    start: Duration,
    pub(crate) tiering: Tiering,
    /// Evidence about the sender from the last message served.
    pub(crate) shown: Shown,
    /// The pool to which the request in service was routed.
    pub(crate) routed_to: Option<u16>,
    rejections: Sampler,
    amplification_max: u32,
    verified: Verified,
    /// Addresses of back ends where nobody listened a moment ago.
    unreachable: Unreachable,
    lost: Lost,
    pool: Pool,
    transmits: VecDeque<Transmit>,
    crossings: VecDeque<Crossing>,
    pub(crate) counters: Arc<Counters>,
}

impl Endpoint {
    pub(crate) fn new(settings: Settings, pool: Pool, counters: Arc<Counters>) -> Self {
        assert!((1..=LISTENERS_MAX).contains(&settings.listeners.len()), "1 to 16 listeners");
        assert!(settings.shard < settings.shards && settings.shards <= SHARDS_MAX);
        assert!(!settings.pools.is_empty(), "a proxy has somewhere to send to");
        for PoolSettings { pool, health, .. } in &settings.pools {
            pool.backends().iter().for_each(|b| b.set_slow_start(health.slow_start));
        }
        let draws = settings.seed.stream(Purpose::Probes, settings.shard.into());
        let mut endpoint = Self {
            shard: settings.shard,
            shards: settings.shards,
            seed: settings.seed,
            name: settings.name.as_str().into(),
            // What tells this process from one that was before it.
            keys: Keys::new(&settings.secret, settings.seed.0)
                .after(&settings.secret, settings.before.map(|seed| seed.0)),
            addresses: Addresses::new(&settings),
            names: Names::new(&settings),
            calls: Calls::new(settings.calls_max, settings.idle_max),
            failure_pause: settings.failure_pause,
            start: settings.start,
            transactions: Transactions::new(
                settings.transactions_max,
                settings.transaction_bytes_max,
                settings.timing,
            ),
            amplification_max: settings.amplification_max,
            verified: Verified::default(),
            tiering: Tiering::new(&settings),
            shown: Shown::default(),
            routed_to: None,
            rejections: Sampler::new(settings.trace, Arc::clone(&counters)),
            unreachable: Unreachable::default(),
            lost: Lost::default(),
            pickers: pickers(settings.seed, settings.shard, &settings.pools),
            door: Door::of(&settings.pools, &settings.rules),
            pools: settings.pools,
            rules: settings.rules,
            pool,
            transmits: VecDeque::new(),
            crossings: VecDeque::new(),
            counters,
            probes: Probes::new(draws),
        };
        endpoint.enlist_probed(Timestamp::ZERO);
        endpoint
    }

    pub(crate) fn shard(&self) -> u16 {
        self.shard
    }

    pub(crate) fn shards(&self) -> u16 {
        self.shards
    }

    /// What we call ourselves; empty if we do not.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn rekey(&mut self, tokens: &TokenKeys) {
        self.keys.rekey(tokens);
    }

    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub(crate) fn door(&self) -> &Door {
        &self.door
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    pub(crate) fn calls_mut(&mut self) -> &mut Calls {
        &mut self.calls
    }

    pub(crate) fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    pub(crate) fn transactions_mut(&mut self) -> &mut Transactions {
        &mut self.transactions
    }

    pub(crate) fn lost(&self) -> &Lost {
        &self.lost
    }

    pub(crate) fn lost_mut(&mut self) -> &mut Lost {
        &mut self.lost
    }

    pub(crate) fn amplification_max(&self) -> u32 {
        self.amplification_max
    }

    pub(crate) fn verified(&self) -> &Verified {
        &self.verified
    }

    pub(crate) fn verified_mut(&mut self) -> &mut Verified {
        &mut self.verified
    }

    pub(crate) fn pool_settings(&self, pool: u16) -> &PoolSettings {
        &self.pools[usize::from(pool)]
    }

    pub(crate) fn mode(&self, pool: u16) -> Mode {
        self.pool_settings(pool).mode
    }

    /// The tier of requests that concern no pool: without transactions only if no pool has them.
    pub(crate) fn tier_elsewhere(&self) -> Tier {
        let is_stateless = |pool: &PoolSettings| pool.mode == Mode::Stateless;
        if self.pools.iter().all(is_stateless) { Tier::Stateless } else { Tier::Stateful }
    }

    /// Returns the present time in the unit of route tokens.
    pub(crate) fn minutes(&self, now: Timestamp) -> Minutes {
        Minutes::at(self.start, now)
    }

    pub(crate) fn failure_pause(&self) -> Duration {
        self.failure_pause
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn backend(&self, member: Member) -> &Backend {
        self.pickers[usize::from(member.pool)].backend(member.backend.into())
    }

    /// Returns the entries of the call table that have a Call-ID.
    pub(crate) fn entries_of_call(&self, now: Timestamp, call_id: &[u8]) -> Vec<CallEntry> {
        let fingerprint = self.keys.call.fingerprint(call_id);
        self.calls.entries(now, fingerprint, |member, place| BackendOfCall {
            pool: self.pool_settings(member.pool).pool.name().into(),
            name: self.backend(member).name().into(),
            address: self.backend(member).address_at(place),
        })
    }

    /// Every back end of every pool.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Member, &Arc<Backend>)> {
        (0..).zip(&self.pickers).flat_map(|(pool, picker)| {
            let backends = (0..).zip(picker.pool().backends());
            backends.map(move |(backend, b)| (Member { pool, backend }, b))
        })
    }

    pub(crate) fn pools(&self) -> &[PoolSettings] {
        &self.pools
    }

    /// Gives away the pools, to have them [put back](Self::put_pools) before anything else.
    pub(crate) fn take_pools(&mut self) -> (Vec<PoolSettings>, Vec<Picker>) {
        (std::mem::take(&mut self.pools), std::mem::take(&mut self.pickers))
    }

    /// Goes on with these pools, those who choose in them, and these rules.
    pub(crate) fn put_pools(
        &mut self,
        now: Timestamp,
        pools: Vec<PoolSettings>,
        pickers: Vec<Picker>,
        rules: Vec<Rule>,
    ) {
        debug_assert_eq!(pools.len(), pickers.len(), "one chooser for each pool");
        self.addresses.locate(&pools);
        self.names.enlist(now, &pools);
        self.tiering.enlist(&pools);
        self.door = Door::of(&pools, &rules);
        (self.pools, self.pickers, self.rules) = (pools, pickers, rules);
        // Of other pools other shares may be excluded.
        self.spare(now);
    }

    pub(crate) fn seed(&self) -> Seed {
        self.seed
    }

    pub(crate) fn probes(&self) -> &Probes {
        &self.probes
    }

    pub(crate) fn probes_mut(&mut self) -> &mut Probes {
        &mut self.probes
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Looks again who is where, if a name has come to lead elsewhere.
    pub(crate) fn follow_names(&mut self) {
        if self.names.have_moved() {
            self.addresses.locate(&self.pools);
        }
    }

    pub(crate) fn on_answer(&mut self, now: Timestamp, id: QueryId, answer: &Answer) {
        let Self { names, addresses, .. } = self;
        names.on_answer(now, id, answer, |address| addresses.may_be_backend(address));
        self.follow_names();
    }

    pub(crate) fn waiting_transmits(&self) -> usize {
        self.transmits.len()
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    pub(crate) fn poll_crossing(&mut self) -> Option<Crossing> {
        self.crossings.pop_front()
    }

    pub(crate) fn transmit(&mut self, transmit: Transmit) {
        self.transmits.push_back(transmit);
    }

    pub(crate) fn cross(&mut self, shard: u16, received: Received) {
        self.counters.crossings.add(1);
        self.crossings.push_back(Crossing { shard, received });
    }

    pub(crate) fn drop_counted(&self, why: DropReason) {
        self.counters.dropped(why).add(1);
    }

    /// The 503 to a request that is not admitted; `None` if it cannot be answered.
    pub(crate) fn refusal(&self, received: &Received, hints: &Hints) -> Option<Transmit> {
        refusal(&self.keys, &self.name, &self.pool, received, 503, hints)
    }

    /// As [`refusal`](Self::refusal), of a request whose outline is known.
    pub(crate) fn refusal_of(
        &self,
        received: &Received,
        outline: &Outline<'_>,
        hints: &Hints,
    ) -> Option<Transmit> {
        refusal_of(&self.keys, &self.name, &self.pool, received, outline, 503, hints)
    }

    /// Sends a response of our own to `message`, which came as `received`; `cause` says why in
    /// words.
    pub(crate) fn answer(
        &mut self,
        received: &Received,
        message: &Message<'_>,
        status: u16,
        (reason, cause): (ReplyReason, &'static str),
        headers: &[(&str, &[u8])],
    ) {
        match reply(&self.keys, &self.name, &self.pool, received, message, status, headers) {
            Some(transmit) => {
                self.counters.count_reply(status, reason);
                self.transmit(transmit);
                self.note_rejected(received, status, reason, cause);
            }
            None => self.drop_counted(DropReason::Malformed),
        }
    }

    /// Returns the name of the pool to which the request in service was routed.
    pub(crate) fn routed_to(&self) -> Option<&str> {
        self.routed_to.and_then(|pool| Some(self.pools.get(usize::from(pool))?.pool.name()))
    }

    fn note_rejected(
        &mut self,
        received: &Received,
        status: u16,
        reason: ReplyReason,
        cause: &'static str,
    ) {
        let (at, source) = (received.arrived, received.flow.remote);
        self.note_rejection(at, source, &received.bytes, status, reason, cause);
    }

    /// Keeps a rejection for operators, if it is selected.
    pub(crate) fn note_rejection(
        &mut self,
        at: Timestamp,
        source: SocketAddr,
        bytes: &[u8],
        status: u16,
        reason: ReplyReason,
        cause: &'static str,
    ) {
        if reason == ReplyReason::None {
            return;
        }
        let pool = self.routed_to.and_then(|pool| self.pools.get(usize::from(pool)));
        let pool = pool.map(|settings| settings.pool.name());
        let status = Some(status);
        let rejected = Rejected { at, source, bytes, status, reason, cause, pool };
        self.rejections.note(&rejected, || None);
    }

    /// Answers a request that breaks the grammar, as far as it can be read.
    pub(crate) fn refuse_malformed(&mut self, received: &Received, malformed: Malformed) {
        self.refuse(received, status_of(malformed));
    }

    /// Answers a request that is not looked into further, as far as it can be read.
    pub(crate) fn refuse(&mut self, received: &Received, status: u16) {
        match refusal(&self.keys, &self.name, &self.pool, received, status, &Hints::default()) {
            Some(transmit) => {
                let reason = ReplyReason::usual(status);
                self.counters.count_reply(status, reason);
                self.transmit(transmit);
                self.routed_to = None;
                self.note_rejected(received, status, reason, reason.doc());
            }
            None => self.drop_counted(DropReason::Malformed),
        }
    }

    pub(crate) fn picker(&self, pool: u16) -> &Picker {
        &self.pickers[usize::from(pool)]
    }

    pub(crate) fn picker_mut(&mut self, pool: u16) -> &mut Picker {
        &mut self.pickers[usize::from(pool)]
    }

    #[allow(clippy::too_many_arguments, reason = "a request and where it goes")]
    /// Counts a request on the back end that it goes to, and a call that it begins as what is
    /// `held` there.
    pub(crate) fn count_request(
        &mut self,
        now: Timestamp,
        call: CallRef,
        member: Member,
        transaction: Transaction,
        evidence: Evidence,
        held: Option<Lease>,
    ) {
        let picker = &self.pickers[usize::from(member.pool)];
        self.calls.on_request(now, call, transaction, evidence, member, picker, held);
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        // What is due of a transaction may keep its call: at Timer B another back end has its turn.
        self.handle_due(now);
        self.calls.handle_timeout(now);
        self.names.handle_timeout(now);
        self.probes_due(now);
    }

    /// Whether the transport has said, of what was sent at `since`, that nobody listens at
    /// `target`.
    pub(crate) fn is_unreachable(&self, target: SocketAddr, since: Timestamp) -> bool {
        self.unreachable.holds(target, since)
    }

    /// The transport has said that nobody listens at `target`, the address of a back end.
    pub(crate) fn note_unreachable(&mut self, now: Timestamp, target: SocketAddr) {
        self.unreachable.note(now, target);
    }
}
