//! Which numbers of the shards, the sockets and the back ends operators see.

use std::sync::Arc;

use tidegate_balance as balance;
use tidegate_io as io;
use tidegate_proxy::{self as proxy, Class, DropReason, REPLIES};
use tidegate_world::Counter;

use crate::metrics::{Family, Metrics, Samples, Unit};

/// What one shard counts in.
#[derive(Clone, Default)]
pub(crate) struct ShardCounters {
    pub(crate) io: Arc<io::Counters>,
    pub(crate) proxy: Arc<proxy::Counters>,
}

/// Adds everything there is to see of these shards and pools.
pub(crate) fn add(
    metrics: &mut Metrics,
    shards: Vec<ShardCounters>,
    pools: Vec<balance::Pool>,
    clock: io::Clock,
) {
    metrics.add(move |samples| {
        for (index, shard) in shards.iter().enumerate() {
            let index = index.to_string();
            messages(samples, &index, &shard.proxy);
            datagrams(samples, &index, &shard.io);
        }
    });
    metrics.add(move |samples| {
        for pool in &pools {
            backends(samples, pool, &clock);
        }
    });
}

static RECEIVED: Family =
    Family::counter("messages_received", "SIP messages by class, counted before any is refused");
static DROPPED: Family = Family::counter("messages_dropped", "SIP messages dropped, by reason");
static REPLIED: Family =
    Family::counter("replies", "Responses made by the proxy itself, by status");
static FORWARDED: Family = Family::counter("messages_forwarded", "SIP messages forwarded, by kind");

/// A number of the proxy that stands alone.
type OfProxy = (Family, fn(&proxy::Counters) -> &Counter);

static PROXY: [OfProxy; 7] = [
    (Family::counter("retransmissions", "Requests that repeat an earlier one"), |c| {
        &c.retransmissions
    }),
    (Family::counter("crossings", "Messages that belonged to another shard"), |c| &c.crossings),
    (Family::counter("calls_moved", "Calls moved because their back end was down"), |c| &c.moved),
    (Family::counter("calls_evicted", "Finished calls forgotten early to make room"), |c| {
        &c.calls_evicted
    }),
    (Family::gauge("calls", "Entries in the call table"), |c| &c.calls),
    (Family::gauge("transactions_open", "Transactions without a final response yet"), |c| {
        &c.transactions_open
    }),
    (Family::gauge("messages_queued", "Messages that wait for service"), |c| &c.queued),
];

fn messages(samples: &mut Samples, shard: &str, counters: &proxy::Counters) {
    for class in Class::ALL {
        let labels = [("shard", shard), ("class", class.name())];
        samples.push(&RECEIVED, &labels, counters.received(class).get());
    }
    for why in DropReason::ALL {
        let labels = [("shard", shard), ("reason", why.name())];
        samples.push(&DROPPED, &labels, counters.dropped(why).get());
    }
    for status in REPLIES {
        let labels = [("shard", shard), ("status", &status.to_string())];
        samples.push(&REPLIED, &labels, counters.replied(status).get());
    }
    let kinds =
        [("request", &counters.requests_forwarded), ("response", &counters.responses_forwarded)];
    for (kind, counter) in kinds {
        samples.push(&FORWARDED, &[("shard", shard), ("kind", kind)], counter.get());
    }
    for (family, counter) in &PROXY {
        samples.push(family, &[("shard", shard)], counter(counters).get());
    }
}

static UDP_RECEIVED: Family = Family::counter("udp_received", "Datagrams received, by socket");
static UDP_LOST: Family =
    Family::counter("udp_unsent", "Datagrams that could not be sent, by cause");
static LIMITED: Family =
    Family::counter("turns_limited", "Turns that reached a limit, by what was limited");
static TIME: Family =
    Family::counter("shard_time", "Wall time of a shard, by whether it worked or waited")
        .in_unit(Unit::Seconds);

/// A number of the sockets that stands alone.
type OfIo = (Family, fn(&io::Counters) -> &Counter);

static IO: [OfIo; 9] = [
    (Family::counter("udp_sent", "Datagrams sent"), |c| &c.sent),
    (Family::counter("udp_overflow", "Datagrams the kernel dropped at full sockets"), |c| {
        &c.overflow
    }),
    (Family::counter("udp_received_large", "Datagrams longer than an ordinary buffer"), |c| {
        &c.received_large
    }),
    (Family::counter("icmp_reports", "Deliveries that the network reported as failed"), |c| {
        &c.icmp_reports
    }),
    (Family::counter("crossings_lost", "Messages to another shard whose queue was full"), |c| {
        &c.crossings_lost
    }),
    (Family::counter("messages_served", "Messages served"), |c| &c.served),
    (Family::counter("turns", "Turns taken"), |c| &c.turns),
    (Family::counter("wakes", "Wakes from waiting"), |c| &c.wakes),
    (Family::counter("pauses", "Pauses taken to coalesce wakes"), |c| &c.pauses),
];

fn datagrams(samples: &mut Samples, shard: &str, counters: &io::Counters) {
    let mut labelled = |family, label, rows: &[(&str, &Counter)]| {
        for (value, counter) in rows {
            samples.push(family, &[("shard", shard), (label, value)], counter.get());
        }
    };
    labelled(
        &UDP_RECEIVED,
        "socket",
        &[("invite", &counters.received_invite), ("ordinary", &counters.received_ordinary)],
    );
    labelled(
        &UDP_LOST,
        "cause",
        &[
            ("full", &counters.send_full),
            ("too_large", &counters.send_too_large),
            ("unreachable", &counters.send_unreachable),
            ("refused", &counters.send_refused),
            ("no_listener", &counters.send_homeless),
        ],
    );
    labelled(
        &LIMITED,
        "limit",
        &[
            ("ordinary", &counters.limited_ordinary),
            ("invites", &counters.limited_invites),
            ("crossings", &counters.limited_crossings),
            ("service", &counters.limited_service),
        ],
    );
    for (state, ns) in [("busy", &counters.busy_ns), ("idle", &counters.idle_ns)] {
        let seconds = ns.get() as f64 / 1e9;
        samples.push(&TIME, &[("shard", shard), ("state", state)], seconds);
    }
    for (family, counter) in &IO {
        samples.push(family, &[("shard", shard)], counter(counters).get());
    }
}

static BACKEND_UP: Family =
    Family::gauge("backend_up", "1 if the back end may be given new calls, else 0");
static BACKEND_CALLS: Family = Family::gauge("backend_calls", "Calls on the back end");
static BACKEND_WORK: Family = Family::gauge(
    "backend_work",
    "Open transactions on the back end, an INVITE weighing 1.75 and any other 1",
);
static BACKEND_ASSIGNED: Family =
    Family::counter("backend_assigned", "Calls and single requests assigned to the back end");
static BACKEND_FAILURES: Family =
    Family::counter("backend_failures", "Deliveries to the back end that failed");

fn backends(samples: &mut Samples, pool: &balance::Pool, clock: &io::Clock) {
    for backend in pool.backends() {
        let labels = [("pool", pool.name()), ("backend", backend.name())];
        samples.push(&BACKEND_UP, &labels, u64::from(backend.is_up(clock.now())));
        samples.push(&BACKEND_CALLS, &labels, backend.calls());
        samples.push(&BACKEND_WORK, &labels, backend.work() as f64 / 100.0);
        samples.push(&BACKEND_ASSIGNED, &labels, backend.assigned());
        samples.push(&BACKEND_FAILURES, &labels, backend.failures());
    }
}
