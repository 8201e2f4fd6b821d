//! Which numbers of the shards, the sockets and the back ends operators see.

mod backends;
mod in_force;
mod names;
mod tiers;

use std::sync::{Arc, LazyLock};

use tidegate_balance as balance;
use tidegate_control::{Bucket, Reason};
use tidegate_io as io;
use tidegate_proxy::{self as proxy, Class, DropReason, Gauges, REPLIES, SojournGauges};
use tidegate_world::Counter;

use crate::metrics::{Family, Metrics, Samples, Unit};
use crate::recording::Tally;

/// What one shard counts in.
#[derive(Clone, Default)]
pub struct ShardCounters {
    /// What its sockets did.
    pub io: Arc<io::Counters>,
    /// What its core did.
    pub proxy: Arc<proxy::Counters>,
    /// Datagrams dropped at full emulated receive buffers.
    pub emulated_overflow: Arc<Counter>,
    /// Datagrams dropped before the emulated receive buffers, because the core wanted it.
    pub emulated_filtered: Arc<Counter>,
}

/// Adds everything there is to see of these shards and pools.
pub(crate) fn add(
    metrics: &mut Metrics,
    shards: Vec<ShardCounters>,
    fleet: balance::Fleet,
    clock: io::Clock,
) {
    metrics.add(move |samples| {
        for (index, shard) in shards.iter().enumerate() {
            let index = index.to_string();
            messages(samples, &index, &shard.proxy);
            overload(samples, &index, &shard.proxy, clock.now().as_nanos());
            in_force::add(samples, &index, &shard.proxy);
            tiers::add(samples, &index, &shard.proxy);
            datagrams(samples, &index, &shard.io);
            let labels = [("shard", index.as_str())];
            samples.push(&EMULATED_OVERFLOW, &labels, shard.emulated_overflow.get());
            samples.push(&EMULATED_FILTERED, &labels, shard.emulated_filtered.get());
        }
    });
    metrics.add(move |samples| {
        for pool in fleet.pools() {
            backends::add(samples, &pool, clock.now());
        }
    });
}

/// Adds what becomes of a recording.
pub(crate) fn add_recording(metrics: &mut Metrics, tally: Arc<Tally>) {
    metrics.add(move |samples| {
        let Tally { written, unwritten, overrun } = &*tally;
        samples.push(&RECORDED, &[], written.get());
        samples.push(&UNRECORDED, &[], unwritten.get() + overrun.get());
    });
}

static RECORDED: Family = Family::counter("recorded_inputs", "Inputs of the core recorded");
static UNRECORDED: Family =
    Family::counter("unrecorded_inputs", "Inputs of the core that a recording has lost");

static RECEIVED: Family = Family::counter(
    "messages_received",
    "SIP messages by class, counted when they are read and before any is refused",
);
static DROPPED: Family = Family::counter("messages_dropped", "SIP messages dropped, by reason");
static REPLIED: Family =
    Family::counter("replies", "Responses made by the proxy itself, by status");
static FORWARDED: Family = Family::counter("messages_forwarded", "SIP messages forwarded, by kind");

/// A number of the proxy that stands alone.
type OfProxy = (Family, fn(&proxy::Counters) -> &Counter);

static PROXY: [OfProxy; 16] = [
    (Family::counter("retransmissions", "Requests that repeat an earlier one"), |c| {
        &c.retransmissions
    }),
    (Family::counter("crossings", "Messages that belonged to another shard"), |c| &c.crossings),
    (Family::counter("calls_moved", "Calls moved because their back end was down"), |c| &c.moved),
    (Family::counter("calls_evicted", "Finished calls forgotten early to make room"), |c| {
        &c.calls_evicted
    }),
    (
        Family::counter(
            "calls_abandoned",
            "Answered calls that nobody ended: given up when their session expired, or idle",
        ),
        |c| &c.calls_abandoned,
    ),
    (Family::counter("calls_refused", "Calls refused because the call table was full"), |c| {
        &c.calls_refused
    }),
    (Family::gauge("calls", "Entries in the call table"), |c| &c.calls),
    (Family::gauge("transactions_open", "Transactions without a final response yet"), |c| {
        &c.transactions_open
    }),
    (Family::counter("requests_resent", "Requests sent again because no answer came"), |c| {
        &c.requests_resent
    }),
    (Family::counter("probes", "Probes of back ends sent"), |c| &c.probes),
    (
        Family::counter(
            "responses_resent",
            "Responses sent again: for a repeated request, or no ACK",
        ),
        |c| &c.responses_resent,
    ),
    (Family::counter("cancels", "Branches of a request cancelled by the proxy"), |c| &c.cancels),
    (Family::counter("timeouts", "Transactions that ended in vain"), |c| &c.timeouts),
    (Family::gauge("server_transactions", "Server transactions that live"), |c| {
        &c.server_transactions
    }),
    (Family::gauge("client_transactions", "Client transactions that live"), |c| {
        &c.client_transactions
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

static OFFERED: Family =
    Family::counter("work_offered", "New work, each piece counted once, by bucket");
static ADMITTED: Family = Family::counter("work_admitted", "New work admitted, by bucket");
static REFUSED: LazyLock<Family> = LazyLock::new(|| {
    let reason =
        |reason: Reason| format!("; {}: {}", reason.name(), reason.doc().trim_end_matches('.'));
    let help = Reason::ALL.map(reason).concat();
    Family::counter("work_refused", format!("Refusals of new work by reason{help}").leak())
});
static REPEATED: Family = Family::counter(
    "work_repeated",
    "Repetitions of new work that was decided or waits, by bucket",
);
static FRACTION: Family =
    Family::gauge("allowance", "Share of new work that is admitted, by bucket")
        .in_unit(Unit::Ratio);
static CLASS_FRACTION: Family =
    Family::gauge("class_allowance", "Share of messages that is admitted, by class")
        .in_unit(Unit::Ratio);
static SHED: Family = Family::counter(
    "messages_shed",
    "Messages of work that was begun and that were not admitted all the same, by class",
);
static RELEASE: Family = Family::gauge(
    "release_per_second",
    "Rate at which new calls are released from their queue; 0 if it is not paced",
);
static NEWEST_FIRST: Family = Family::gauge(
    "newest_first",
    "1 while the newest of the new calls in the queue is taken first, else 0",
);
static WAIT_MAX: Family = Family::gauge(
    "wait_max",
    "What has waited longer is refused when its turn comes; 0 if nothing is",
)
.in_unit(Unit::Seconds);
static RANK_FLOOR: Family =
    Family::gauge("rank_floor", "Rank, 0 to 1, below which new calls are refused");
static OCCUPIED: Family = Family::counter(
    "processor_occupied",
    "Occupied time of the processor, as overload control sees it",
)
.in_unit(Unit::Seconds);
static SOCKET_FILL: Family =
    Family::gauge("socket_fill", "Fill of the fullest receive buffer").in_unit(Unit::Ratio);
static SOJOURN: Family = Family::gauge(
    "sojourn",
    "Time from arrival to the start of service in the last second, by kind of work",
)
.in_unit(Unit::Seconds);
static SERVICE: Family =
    Family::gauge("service", "Mean time that a message takes to serve, by class")
        .in_unit(Unit::Seconds);
static SESSION_RATE: Family = Family::gauge(
    "sessions_per_second",
    "Calls whose service begins, or that end, in a second, as estimated",
);
static SESSION_LENGTH: Family =
    Family::gauge("messages_per_session", "Messages of a call, as estimated");
static SESSIONS_WAITING: Family = Family::gauge(
    "sessions_waiting",
    "Calls in what waits, those that are begun too, as estimated",
);
static CALL_COST: Family = Family::gauge(
    "call_cost",
    "What all messages of a call take to serve, without the kernel; 0 while not known",
)
.in_unit(Unit::Seconds);
static REFUSAL_COST: Family = Family::gauge(
    "refusal_cost",
    "What disposing of a call takes with its repetitions, without the kernel; 0 while not known",
)
.in_unit(Unit::Seconds);
static BOUND: Family = Family::gauge(
    "bound",
    "The most goodput at the load that is offered, as a part of the capacity; 0 while not known",
)
.in_unit(Unit::Ratio);
static THINNED: Family =
    Family::gauge("thinned", "Share of new INVITEs that the kernel is to drop unread")
        .in_unit(Unit::Ratio);
static REFUSING: Family = Family::gauge(
    "refusing",
    "Part of the processor that refusing takes; 0 unless `disposal` bounds it",
)
.in_unit(Unit::Ratio);
static REMEMBERED: Family =
    Family::gauge("decisions_remembered", "Decisions remembered for repetitions");
static FORGOTTEN: Family =
    Family::counter("decisions_forgotten", "Decisions for which there was no room");
static SOURCES: Family =
    Family::gauge("sources", "Sources of new work among which it is shared, by bucket");
static SOURCE_LEVEL: Family = Family::gauge(
    "source_level_cps",
    "The most new work a second that a source may have admitted, by bucket; 0 while each may \
     have all",
);
static SOURCES_OVERFLOWED: Family = Family::counter(
    "sources_overflowed",
    "Times that a source was not told apart from others, for want of room",
);

fn overload(samples: &mut Samples, shard: &str, counters: &proxy::Counters, now_ns: u64) {
    let gauges = &counters.overload;
    for bucket in Bucket::ALL {
        let labels = [("shard", shard), ("bucket", bucket.name())];
        let flow = &gauges.flows[bucket as usize];
        samples.push(&OFFERED, &labels, flow.offered.get());
        samples.push(&ADMITTED, &labels, flow.admitted.get());
        samples.push(&REPEATED, &labels, flow.repeated.get());
        let refusing = gauges.refusing[bucket as usize].get() as f64 / 1e6;
        samples.push(&FRACTION, &labels, 1.0 - refusing);
        samples.push(&SOURCES, &labels, gauges.sources[bucket as usize].get());
        let level = gauges.source_level[bucket as usize].get() as f64 / 1e3;
        samples.push(&SOURCE_LEVEL, &labels, level);
    }
    for why in Reason::ALL {
        let labels = [("shard", shard), ("reason", why.name())];
        samples.push(&REFUSED, &labels, counters.refused(why).get());
    }
    for class in Class::ALL {
        let labels = [("shard", shard), ("class", class.name())];
        samples.push(&SERVICE, &labels, seconds(&gauges.costs[class as usize]));
        let refusing = gauges.refusing_of_class[class as usize].get() as f64 / 1e6;
        samples.push(&CLASS_FRACTION, &labels, 1.0 - refusing);
        samples.push(&SHED, &labels, counters.shed(class).get());
    }
    for (kind, [_, min, mean, p99]) in sojourns(gauges, now_ns) {
        for (statistic, ns) in [("min", min), ("mean", mean), ("p99", p99)] {
            let labels = [("shard", shard), ("kind", kind), ("statistic", statistic)];
            samples.push(&SOJOURN, &labels, ns as f64 / 1e9);
        }
    }
    let labels = [("shard", shard)];
    samples.push(&RELEASE, &labels, gauges.release.get() as f64 / 1e3);
    samples.push(&NEWEST_FIRST, &labels, gauges.newest_first.get());
    samples.push(&WAIT_MAX, &labels, seconds(&gauges.wait_max));
    samples.push(&RANK_FLOOR, &labels, gauges.rank_floor.get() as f64 / 1e6);
    samples.push(&OCCUPIED, &labels, seconds(&gauges.occupied));
    samples.push(&SOCKET_FILL, &labels, gauges.socket_fill.get() as f64 / 1e6);
    for (family, thousandths) in [
        (&SESSION_RATE, &gauges.session_rate),
        (&SESSION_LENGTH, &gauges.session_length),
        (&SESSIONS_WAITING, &gauges.sessions_waiting),
    ] {
        samples.push(family, &labels, thousandths.get() as f64 / 1e3);
    }
    samples.push(&CALL_COST, &labels, seconds(&gauges.call_cost));
    samples.push(&REFUSAL_COST, &labels, seconds(&gauges.refusal_cost));
    samples.push(&BOUND, &labels, gauges.bound.get() as f64 / 1e6);
    samples.push(&THINNED, &labels, gauges.thinned.get() as f64 / 1e6);
    samples.push(&REFUSING, &labels, gauges.refusing_load.get() as f64 / 1e6);
    samples.push(&REMEMBERED, &labels, gauges.remembered.get());
    samples.push(&FORGOTTEN, &labels, gauges.forgotten.get());
    samples.push(&SOURCES_OVERFLOWED, &labels, gauges.sources_overflowed.get());
}

fn seconds(ns: &Counter) -> f64 {
    ns.get() as f64 / 1e9
}

/// Sojourn in the last second by kind of work: count, least, mean and p99, in ns. When nothing
/// has been published for longer, nothing has waited.
pub(crate) fn sojourns(gauges: &Gauges, now_ns: u64) -> [(&'static str, [u64; 4]); 2] {
    const OLD_NS: u64 = 2_000_000_000;
    let fresh = now_ns.saturating_sub(gauges.published.get()) < OLD_NS;
    let of = |sojourn: &SojournGauges| {
        let all = [&sojourn.count, &sojourn.min, &sojourn.mean, &sojourn.p99];
        all.map(|gauge| if fresh { gauge.get() } else { 0 })
    };
    [("new", of(&gauges.sojourn_of_new)), ("ongoing", of(&gauges.sojourn_of_ongoing))]
}

static EMULATED_OVERFLOW: Family = Family::counter(
    "emulated_overflow",
    "Datagrams dropped at full receive buffers of the emulated processor",
);

static EMULATED_FILTERED: Family = Family::counter(
    "emulated_filtered",
    "Datagrams dropped before the receive buffers of the emulated processor, on purpose",
);

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

static IO: [OfIo; 16] = [
    (Family::counter("udp_sent", "Datagrams sent"), |c| &c.sent),
    (Family::counter("udp_trains", "Trains: datagrams handed to the kernel as one"), |c| {
        &c.sent_trains
    }),
    (Family::counter("udp_sent_in_trains", "Datagrams sent in trains"), |c| &c.sent_in_trains),
    (Family::counter("udp_overflow", "Datagrams the kernel dropped at full sockets"), |c| {
        &c.overflow
    }),
    (Family::counter("udp_filtered", "Datagrams the kernel dropped on purpose"), |c| &c.filtered),
    (Family::counter("udp_shed_errors", "Times the kernel would not be told what to drop"), |c| {
        &c.shed_errors
    }),
    (Family::counter("udp_leave_errors", "Shared addresses that could not be left"), |c| {
        &c.leave_errors
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
    (Family::counter("queries", "Questions asked beside the shard, such as for names"), |c| {
        &c.queries
    }),
    (Family::counter("queries_lost", "Questions for which there was no room"), |c| &c.queries_lost),
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
