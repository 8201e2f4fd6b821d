//! The content of `/status`, except the version and the phase.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Map, Value, json};
use tidegate_balance as balance;
use tidegate_control::feedback::Algorithm;
use tidegate_control::{Bucket, Reason};
use tidegate_proxy::{
    CallEntry, Class, Counters, DropReason, Gauges, NextHopView, NextHops, REPLIES, UpstreamView,
};
use tidegate_world::{Counter, SrvRecord, Timestamp};

use crate::laws::name_at;
use crate::metrics::collect::{NewWork, ShardCounters, restriction, sojourns};

/// The members of the JSON object at `/status`, to which the admin interface adds `version` and
/// `phase`.
pub type Status = Map<String, Value>;

/// The law, back ends, next hops and counters of a process, from which its status is read.
#[derive(Clone)]
pub struct Instruments {
    /// Name of the configured law, which is shown until a shard has reported its law.
    law: &'static str,
    registry: balance::BackendRegistry,
    next_hops: NextHops,
    shards: Vec<ShardCounters>,
}

impl Instruments {
    pub(crate) fn new(
        law: &'static str,
        registry: balance::BackendRegistry,
        next_hops: NextHops,
        shards: Vec<ShardCounters>,
    ) -> Self {
        Self { law, registry, next_hops, shards }
    }

    /// Returns the status at `now`.
    pub fn read(&self, now: Timestamp) -> Status {
        let mut status = Status::new();
        status.insert("pools".to_owned(), pools(&self.registry, now));
        let in_force = self.shards.first().and_then(|s| name_at(&s.proxy.in_force.law));
        status.insert("law".to_owned(), in_force.unwrap_or(self.law).into());
        status.insert("feedback".to_owned(), feedback(&self.next_hops, &self.shards, now));
        status.insert("now_s".to_owned(), now.as_secs_f64().into());
        let shards = self.shards.iter().map(|counters| shard(counters, now));
        status.insert("shards".to_owned(), shards.collect());
        status
    }
}

/// Returns, as JSON, the overload feedback that back ends give, and the overload feedback that
/// upstream peers get.
fn feedback(next_hops: &NextHops, shards: &[ShardCounters], now: Timestamp) -> Value {
    let received = next_hops.views(now).into_iter().map(|view| {
        let NextHopView { address, status, counts } = view;
        let (algorithm, value) = restriction(status);
        json!({
            "address": address,
            "algorithm": algorithm,
            "value": value,
            "sent": counts.sent,
            "held": counts.held,
        })
    });
    let peers = shards.iter().flat_map(|shard| shard.proxy.upstream.get());
    let given = peers.map(|UpstreamView { address, peer }| {
        json!({
            "address": address,
            "standing": peer.standing.name(),
            "algorithm": peer.algorithm.map(Algorithm::name),
            "value": peer.value,
            "offered_cps": peer.original_cps,
            "claimed_cps": peer.claimed_cps,
            "doubted": peer.is_doubted,
            "granted_cps": Some(peer.granted_cps).filter(|cps| cps.is_finite()),
            "rejected": peer.rejected,
        })
    });
    json!({ "received": received.collect::<Value>(), "given": given.collect::<Value>() })
}

fn shard(shard: &ShardCounters, now: Timestamp) -> Value {
    let counters = &shard.proxy;
    let mut of_shard = overload(&counters.overload, now.as_nanos());
    of_shard["queued"] = counters.queued.get().into();
    of_shard["calls"] = counters.calls.get().into();
    of_shard["calls_over"] = counters.calls_over.get().into();
    of_shard["new_calls"] = NewWork::calls(shard).to_json();
    of_shard["new_others"] = NewWork::others(shard).to_json();
    of_shard["server_transactions"] = counters.server_transactions.get().into();
    of_shard["client_transactions"] = counters.client_transactions.get().into();
    of_shard["socket_drops"] = shard.io.overflow.get().into();
    of_shard["emulated_drops"] = shard.emulated_overflow.get().into();
    of_shard["filtered"] = shard.filtered().into();
    of_shard["messages"] = messages(counters);
    of_shard["connections"] = connections(shard);
    of_shard
}

/// Returns, as JSON, the number of open connections, and the counts of all connections since the
/// start by outcome.
fn connections(shard: &ShardCounters) -> Value {
    let (driver, table) = (&shard.io, &shard.connections);
    json!({
        "open": driver.stream_connections.get(),
        "accepted": table.accepted.get(),
        "opened": table.opened.get(),
        "failed": table.failed.get(),
        "excess": table.excess.get(),
        "idle": table.idle.get(),
        "stalled": table.stalled.get(),
        "garbled": driver.stream_garbled.get(),
        "slow": driver.stream_slow.get(),
        "tls_handshakes": driver.tls_handshakes.get(),
        "tls_failed": counts(driver.tls_failures()),
        "websocket_handshakes": driver.websocket_handshakes.get(),
        "websocket_failed": counts(driver.websocket_failures()),
        "unsent": table.unsent.get(),
        "waiting_bytes": table.waiting_bytes.get(),
    })
}

/// Returns, as JSON, the counts of messages since the start by outcome. Counts by class, reason or
/// status appear only if they are not zero.
fn messages(counters: &Counters) -> Value {
    let received = Class::ALL.map(|class| (class.name(), counters.received(class)));
    let dropped = DropReason::ALL.map(|why| (why.name(), counters.dropped(why)));
    let rejected = Reason::ALL.map(|why| (why.name(), counters.rejected(why)));
    let shed = Class::ALL.map(|class| (class.name(), counters.shed(class)));
    let replied = REPLIES.map(|status| (status.to_string(), counters.replied(status)));
    json!({
        "received": some(received),
        "dropped": some(dropped),
        "rejected": some(rejected),
        "shed": some(shed),
        "replied": some(replied),
        "requests_forwarded": counters.requests_forwarded.get(),
        "responses_forwarded": counters.responses_forwarded.get(),
        "requests_resent": counters.requests_resent.get(),
        "responses_resent": counters.responses_resent.get(),
        "retransmissions": counters.retransmissions.get(),
        "timeouts": counters.timeouts.get(),
    })
}

fn some<'a, N: ToString>(counters: impl IntoIterator<Item = (N, &'a Counter)>) -> Value {
    counts(counters.into_iter().filter(|(_, counter)| counter.get() > 0))
}

fn counts<'a, N: ToString>(counters: impl IntoIterator<Item = (N, &'a Counter)>) -> Value {
    let counters = counters.into_iter();
    counters.map(|(name, counter)| (name.to_string(), Value::from(counter.get()))).collect()
}

/// Returns the back ends of a process, pool by pool, as JSON.
pub(crate) fn pools(registry: &balance::BackendRegistry, now: Timestamp) -> Value {
    registry.pools().iter().map(|p| pool(p, now)).collect()
}

fn pool(pool: &balance::Pool, now: Timestamp) -> Value {
    let backend = |b: &Arc<balance::Backend>| {
        let (state, since) = b.state(now);
        let ((probes, probe_failures), (falls, returns)) = (b.probes(), b.transitions());
        let mut backend = json!({
            "name": b.name(),
            "address": b.address(),
            "up": b.is_up(now),
            "state": state.name(),
            "state_s": now.since(since).as_secs_f64(),
            "priority": b.priority(),
            "weight": b.weight(),
            "effective_weight": b.effective_weight(now) as f64 / 1000.0,
            "calls": b.calls(),
            "calls_max": b.calls_max(),
            "cps_max": b.cps_max(),
            "learned_cps": b.learned_cps(),
            "learned_window": b.learned_window(),
            "cps_in_force": b.rate_max_cps(),
            "transactions": b.transactions(),
            "invite_ms": b.start_response_time().as_secs_f64() * 1e3,
            "bye_ms": b.end_response_time().as_secs_f64() * 1e3,
            "assigned": b.assigned(),
            "failures": b.failures(),
            "rejections": b.rejections(),
            "probes": probes,
            "probe_failures": probe_failures,
            "failed_probe_status": b.failed_probe_status(),
            "falls": falls,
            "returns": returns,
        });
        if let Some(named) = b.named() {
            backend["resolution"] = resolution(named);
        }
        backend
    };
    let backends: Value = pool.backends().iter().map(backend).collect();
    let mut of_pool =
        json!({ "name": pool.name(), "free_calls": pool.free_calls(now), "backends": backends });
    if !pool.services().is_empty() {
        of_pool["domains"] = pool.services().iter().map(|service| domain(service)).collect();
    }
    of_pool
}

/// Returns, as JSON, the servers that the DNS lists for a domain, and the outcomes of the DNS
/// queries for the domain.
fn domain(service: &balance::Service) -> Value {
    let server = |server: &SrvRecord| {
        let SrvRecord { priority, weight, port, target } = server;
        json!({ "priority": priority, "weight": weight, "port": port, "target": &**target })
    };
    let servers = service.servers();
    json!({
        "domain": &**service.domain(),
        "transport": service.transport().name(),
        "stale": service.is_stale(),
        "servers": servers.map(|servers| servers.iter().map(server).collect::<Value>()),
        "lookups": lookups(&service.lookups),
    })
}

/// Returns the entry for a call in the call table of a shard, as JSON.
pub(crate) fn call(shard: usize, entry: &CallEntry) -> Value {
    json!({
        "shard": shard,
        "state": entry.state.name(),
        "pool": entry.backend.pool,
        "backend": entry.backend.name,
        "address": entry.backend.address,
        "age_s": entry.age.as_secs_f64(),
        "left_s": entry.left.as_secs_f64(),
        "source": entry.source.map(|source| source.to_string()),
        "tier": entry.tier.name(),
        "counted": entry.is_counted,
    })
}

/// Returns, as JSON, the outcomes of the DNS queries for a host name, and the earlier addresses of
/// the host if it has an address now.
fn resolution(named: &balance::Named) -> Value {
    let [_, before @ ..] = &*named.addresses() else {
        return json!({ "host": &**named.host(), "lookups": lookups(&named.lookups) });
    };
    json!({
        "host": &**named.host(),
        "stale": named.is_stale(),
        "addresses_before": before,
        "lookups": lookups(&named.lookups),
    })
}

fn lookups(lookups: &balance::Lookups) -> Value {
    let balance::Lookups { found, not_found, unanswered, unusable, moved } = lookups;
    let [found, not_found, unanswered, unusable, moved] =
        [found, not_found, unanswered, unusable, moved].map(|count| count.load(Relaxed));
    json!({
        "found": found,
        "not_found": not_found,
        "unanswered": unanswered,
        "unusable": unusable,
        "moved": moved,
    })
}

/// Returns, as JSON, the signals and decisions of overload control. Counts and the occupied time
/// are totals since the start. Sojourn times are those of the last second.
fn overload(gauges: &Gauges, now_ns: u64) -> Value {
    let flow = |bucket: Bucket| {
        let flow = &gauges.flows[bucket as usize];
        json!({
            "arrived": flow.arrived.get(),
            "offered": flow.offered.get(),
            "admitted": flow.admitted.get(),
            "rejected": flow.rejected.get(),
            "early": flow.early.get(),
            "repeated": flow.repeated.get(),
            "fraction": 1.0 - gauges.rejecting[bucket as usize].get() as f64 / 1e6,
        })
    };
    let ms = |ns: u64| ns as f64 / 1e6;
    let sojourn = |(kind, [_, min, mean, p99]): (&str, [u64; 4])| {
        (kind.to_owned(), json!({ "min": ms(min), "mean": ms(mean), "p99": ms(p99) }))
    };
    json!({
        "occupied_s": gauges.occupied.get() as f64 / 1e9,
        "socket_fill": gauges.socket_fill.get() as f64 / 1e6,
        "release_cps": gauges.release.get() as f64 / 1e3,
        "session": flow(Bucket::Session),
        "single": flow(Bucket::Single),
        "priority": flow(Bucket::Priority),
        "sojourn_ms": sojourns(gauges, now_ns).map(sojourn).into_iter().collect::<Value>(),
    })
}
