//! Collects the counts of a world's nodes for the checkers
//! ([`Book`](tidegate_sim::check::books::Book)).

use std::sync::Arc;

use tidegate_agent::{AnswererStats, CallerStats};
use tidegate_balance::{Backend, BackendRegistry, State};
use tidegate_control::Bucket;
use tidegate_proxy::{Class, Counters, DropReason, FlowCounters, Mode, Queueing, REPLIES};
use tidegate_server::ShardCounters;
use tidegate_server::assembly::Assembly;
use tidegate_server::config::Config;
use tidegate_sim::check::books::{
    AnswererBook, CallerBook, Endings, Fill, Held, ProxyBook, Standing,
};
use tidegate_transport::ConnectionCounters;
use tidegate_world::{Timestamp, Transport};

/// Maximum number of open calls of one group of callers.
pub(super) const OPEN_MAX: usize = 100_000;

/// Number of queue classes of a proxy.
const LANES: usize = 7;

/// The counters and the back-end states of a proxy.
pub(super) struct Instruments {
    shards: Vec<(ShardCounters, Arc<ConnectionCounters>)>,
    registry: BackendRegistry,
    /// Names of the back ends in the initial configuration.
    backends: Vec<String>,
    limits: Limits,
    /// True if the proxy sends each call to only one back end. A call is then counted at no more
    /// than one back end.
    gives_each: bool,
}

struct Limits {
    calls: usize,
    transactions: usize,
    queued: usize,
    /// Maximum length of one queue in one shard.
    one_queue: usize,
    remembered: usize,
    /// True if messages can be lost at a full queue before the proxy has read them.
    loses_unread: bool,
    /// True if the proxy counts an admitted message when the message arrives.
    counts_at_once: bool,
}

/// Returns the counts of a group of callers. `outside` is the transport between callers and
/// proxies.
pub(super) fn caller_book(stats: &CallerStats, outside: Transport) -> CallerBook {
    let failed = &stats.failed;
    CallerBook {
        offered: stats.offered,
        not_begun: stats.not_begun,
        begun: stats.begun,
        is_seen: outside == Transport::Udp,
        open: stats.open,
        open_max: OPEN_MAX as u64,
        set_up: stats.set_up,
        malformed: failed.malformed,
        ended: Endings {
            left: stats.completed - stats.hung_up,
            hung_up: stats.hung_up,
            abandoned: failed.abandoned,
            unanswered: failed.timeout + failed.transport,
            rejected: failed.status.clone(),
            bye_unanswered: failed.bye_timeout,
            bye_rejected: failed.bye_status.clone(),
        },
    }
}

/// Returns the counts of an answerer, without those of its table of calls.
pub(super) fn answerer_book(stats: &AnswererStats) -> AnswererBook {
    let a = stats;
    AnswererBook {
        calls: a.calls,
        not_answered: a.overflowed
            + a.silent
            + a.unanswerable
            + a.unanswered
            + a.cancelled
            + a.rejected,
        answered: a.answered,
        acknowledged: a.acknowledged,
        ended: a.completed + a.hung_up + a.not_acknowledged + a.forgotten,
        open: a.open,
        ..AnswererBook::default()
    }
}

impl Limits {
    fn of(config: &Config) -> Self {
        let (server, overload) = (&config.server, &config.overload);
        // Each shard has an equal part of a limit, but at least 1.
        let shards = usize::from(server.shards);
        let over_all = |max: usize| (max / shards).max(1) * shards;
        let fifo = overload.queueing == Queueing::Fifo;
        Self {
            calls: over_all(server.calls_max),
            transactions: over_all(server.transactions_max),
            // With FIFO, work that a law paces waits in a second queue.
            queued: over_all(server.queue_max) * if fifo { 2 } else { LANES },
            one_queue: (server.queue_max / shards).max(1),
            remembered: 2 * over_all(overload.gate.memory_max),
            counts_at_once: overload.gate.decide == tidegate_control::Decide::Arrival,
            loses_unread: fifo && overload.gate.decide == tidegate_control::Decide::Service,
        }
    }
}

impl Instruments {
    /// Creates the instruments of the proxy that is built from `config` as `assembly`.
    /// `connections` has the counters of the connections of each shard.
    pub(super) fn new(
        config: &Config,
        assembly: &Assembly,
        connections: impl Iterator<Item = Arc<ConnectionCounters>>,
    ) -> Self {
        let backends = assembly.pools().iter().flat_map(|pool| pool.backends());
        Self {
            shards: assembly.counters().iter().cloned().zip(connections).collect(),
            registry: assembly.registry().clone(),
            backends: backends.map(|backend| backend.name().to_owned()).collect(),
            limits: Limits::of(config),
            // With transactions and several attempts, a back end that was silent may answer a call
            // that has already gone to another one. Then the call counts at both.
            gives_each: config.pool[0].mode == Mode::Stateless || config.pool[0].tries_max == 1,
        }
    }

    /// Returns the current counts of the proxy.
    pub(super) fn book(&self, now: Timestamp) -> ProxyBook {
        let Self { shards, registry, backends, limits, gives_each } = self;
        let fill = |used: u64, max: usize| Fill { used, max: max as u64 };
        let sum = |count: &dyn Fn(&Counters) -> u64| -> u64 {
            shards.iter().map(|(shard, _)| count(&shard.proxy)).sum()
        };
        let longest = shards.iter().map(|(shard, _)| shard.proxy.queue_peak.get());
        let banned = sum(&|proxy| proxy.dropped(DropReason::Banned).get());
        let lost_unread = sum(&|proxy| proxy.dropped(DropReason::QueueFull).get());
        let overflowed = shards.iter().map(|(shard, _)| shard.emulated_overflow.get()).sum();
        // A message that is lost at a full queue after a handoff was already read by another shard.
        let (overflowed, perhaps) =
            if shards.len() == 1 { (overflowed, 0) } else { (0, overflowed) };
        let pools = registry.pools();
        let held = |name: &String| {
            // A back end that is no longer configured and has no calls is ignored.
            let there = pools.iter().flat_map(|pool| pool.backends()).find(|b| b.name() == name);
            let (calls, work) = there.map_or((0, 0), |backend| (backend.calls(), backend.work()));
            let calls_max = there.and_then(|backend| backend.calls_max()).filter(|_| *gives_each);
            let standing = there.map_or(Standing::OutOfService, |backend| standing(backend, now));
            let learned_cps = there.and_then(|backend| backend.learned_cps());
            Held { name: name.clone(), calls, calls_max, work, standing, learned_cps }
        };
        ProxyBook {
            received: sum(&|proxy| {
                Class::ALL.iter().map(|&class| proxy.received(class).get()).sum()
            }),
            overflowed,
            filtered: shards.iter().map(|(shard, _)| shard.emulated_filtered.get()).sum(),
            perhaps_dropped: perhaps + banned + if limits.loses_unread { lost_unread } else { 0 },
            sent: sum(&|proxy| {
                let replied = REPLIES.iter().map(|&status| proxy.replied(status).get());
                let other = [
                    &proxy.requests_forwarded,
                    &proxy.requests_resent,
                    &proxy.probes,
                    &proxy.responses_forwarded,
                    &proxy.responses_resent,
                ];
                replied.chain(other.map(|count| count.get())).sum()
            }),
            cancels: sum(&|proxy| proxy.cancels.get()),
            unsent: shards.iter().map(|(_, connections)| connections.unsent.get()).sum(),
            calls: fill(sum(&|proxy| proxy.calls.get()), limits.calls),
            evicted: sum(&|proxy| proxy.calls_evicted.get()),
            server_transactions: fill(
                sum(&|proxy| proxy.server_transactions.get()),
                limits.transactions,
            ),
            client_transactions: sum(&|proxy| proxy.client_transactions.get()),
            open: sum(&|proxy| proxy.transactions_open.get()),
            queued: fill(sum(&|proxy| proxy.queued.get()), limits.queued),
            longest_queue: fill(longest.max().unwrap_or(0), limits.one_queue),
            // If work is decided at service, the proxy publishes its count a little later.
            admitted: limits.counts_at_once.then(|| {
                // A re-INVITE may count as a session, other requests do not. Work that is handed off
                // is admitted at one shard and may become stale at another.
                let sessions = [Bucket::Session, Bucket::Priority].map(|bucket| bucket as usize);
                let of = |count: fn(&FlowCounters) -> u64| {
                    sum(&|proxy| {
                        sessions.iter().map(|&bucket| count(&proxy.overload.flows[bucket])).sum()
                    })
                };
                of(|flow| flow.admitted.get()).saturating_sub(of(|flow| flow.stale.get()))
            }),
            remembered: fill(sum(&|proxy| proxy.overload.remembered.get()), limits.remembered),
            backends: backends.iter().map(held).collect(),
        }
    }
}

/// Returns the availability of `backend` for new calls at `now`.
fn standing(backend: &Backend, now: Timestamp) -> Standing {
    match backend.state(now).0 {
        _ if backend.address().is_none() => Standing::OutOfService,
        State::Up | State::Suspect | State::SlowStart | State::Spared => Standing::Available,
        State::Down | State::Busy => Standing::Excluded,
        State::Draining | State::Maintenance | State::Removed => Standing::OutOfService,
    }
}
