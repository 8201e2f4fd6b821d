//! Metrics of overload control: its signals, its decisions, and the sources of work.

use std::sync::LazyLock;

use tidegate_control::{Bucket, Reason};
use tidegate_proxy::{Class, Counters, Gauges, SojournGauges};

use super::{millionths, seconds, thousandths};
use crate::metrics::{Family, Number, Samples, Unit, Value};

/// Adds the overload control metrics of one shard at `now_ns`.
pub(super) fn add(samples: &mut Samples, shard: &str, counters: &Counters, now_ns: u64) {
    let gauges = &counters.overload;
    for bucket in Bucket::ALL {
        let labels = [("shard", shard), ("bucket", bucket.name())];
        let flow = &gauges.flows[bucket as usize];
        samples.push(&OFFERED, &labels, flow.offered.get());
        samples.push(&ADMITTED, &labels, flow.admitted.get());
        samples.push(&REPEATED, &labels, flow.repeated.get());
        samples.push(&EARLY, &labels, flow.early.get());
        for (when, counter) in [
            ("before", counters.rejected_before(bucket).get()),
            ("after", flow.stale.get() + counters.rejected_after(bucket).get()),
        ] {
            let labels = [("shard", shard), ("bucket", bucket.name()), ("when", when)];
            samples.push(&REJECTED_BESIDE, &labels, counter);
        }
        samples.push(&FRACTION, &labels, 1.0 - millionths(&gauges.rejecting[bucket as usize]));
        samples.push(&SOURCES, &labels, gauges.sources[bucket as usize].get());
        let level = thousandths(&gauges.source_level[bucket as usize]);
        samples.push(&SOURCE_LEVEL, &labels, level);
    }
    for why in Reason::ALL {
        let labels = [("shard", shard), ("reason", why.name())];
        samples.push(&REJECTED, &labels, counters.rejected(why).get());
    }
    for class in Class::ALL {
        let labels = [("shard", shard), ("class", class.name())];
        samples.push(&SERVICE, &labels, seconds(&gauges.costs[class as usize]));
        let rejecting = millionths(&gauges.rejecting_of_class[class as usize]);
        samples.push(&CLASS_FRACTION, &labels, 1.0 - rejecting);
        samples.push(&SHED, &labels, counters.shed(class).get());
    }
    for (kind, [_, min, mean, p99]) in sojourns(gauges, now_ns) {
        for (statistic, ns) in [("min", min), ("mean", mean), ("p99", p99)] {
            let labels = [("shard", shard), ("kind", kind), ("statistic", statistic)];
            samples.push(&SOJOURN, &labels, ns as f64 / 1e9);
        }
    }
    for (kind, is_new) in [("new", true), ("ongoing", false)] {
        let labels = [("shard", shard), ("kind", kind)];
        samples.push(&WAITED, &labels, Value::of(counters.sojourns(is_new)));
    }
    samples.push_each(&ALONE, &[("shard", shard)], gauges);
}

/// Returns, for each kind of work, the number of sojourns in the last second, and their minimum,
/// mean and p99 in ns. Returns zeros if the gauges are older than two seconds, because nothing has
/// waited since then.
pub(crate) fn sojourns(gauges: &Gauges, now_ns: u64) -> [(&'static str, [u64; 4]); 2] {
    const OLD_NS: u64 = 2_000_000_000;
    let fresh = now_ns.saturating_sub(gauges.published.get()) < OLD_NS;
    let of = |sojourn: &SojournGauges| {
        let all = [&sojourn.count, &sojourn.min, &sojourn.mean, &sojourn.p99];
        all.map(|gauge| if fresh { gauge.get() } else { 0 })
    };
    [("new", of(&gauges.sojourn_of_new)), ("ongoing", of(&gauges.sojourn_of_ongoing))]
}

static OFFERED: Family = Family::counter(
    "work_offered",
    "New work without retransmissions, by bucket. session: new calls. priority: new calls with \
     priority. single: other new requests",
);
static ADMITTED: Family = Family::counter("work_admitted", "New work admitted, by bucket");
static REJECTED: LazyLock<Family> = LazyLock::new(|| {
    let reason =
        |reason: Reason| format!("; {}: {}", reason.name(), reason.doc().trim_end_matches('.'));
    let help = Reason::ALL.map(reason).concat();
    Family::counter(
        "work_rejected",
        format!("New work rejected or dropped, by reason{help}").leak(),
    )
});
static EARLY: Family = Family::counter(
    "work_rejected_early",
    "New work rejected by overload control although the processor had idle time in the last 0.1 s, by bucket",
);
static REJECTED_BESIDE: Family = Family::counter(
    "work_rejected_beside",
    "New work that was rejected `before` overload control decided on it, or `after` it was admitted, \
     by bucket",
);
static REPEATED: Family = Family::counter(
    "work_repeated",
    "Retransmissions of new work that waits in the queue or for which the decision is known, by \
     bucket",
);
static FRACTION: Family = Family::gauge(
    "allowance",
    "Share of new work that the law admits, by bucket. If the limit of the law is a window, 1 \
     while there is room in the window",
)
.in_unit(Unit::Ratio);
static CLASS_FRACTION: Family = Family::gauge(
    "class_allowance",
    "Share of the messages of a class that overload control admits",
)
.in_unit(Unit::Ratio);
static SHED: Family = Family::counter(
    "messages_shed",
    "Messages shed that belong to existing calls and transactions, by class",
);
static SOJOURN: Family = Family::gauge(
    "sojourn",
    "Time from the arrival of a message to the start of its service, by kind of work: minimum, \
     mean and 99th percentile of the last second",
)
.in_unit(Unit::Seconds);
static WAITED: Family = Family::histogram(
    "waited",
    "Time from the arrival of a message to the start of its service, by kind of work",
)
.in_unit(Unit::Seconds);
static SERVICE: Family =
    Family::gauge("service", "Mean service time of a message, by class").in_unit(Unit::Seconds);
static SOURCES: Family =
    Family::gauge("sources", "Sources among which admitted new work is shared, by bucket");
static SOURCE_LEVEL: Family = Family::gauge(
    "source_level_cps",
    "Maximum rate of new work that Tidegate admits from one source, per second, by bucket. The \
     value is 0 if the law sets neither a share nor a rate, if there is no limit now, or if the \
     law admits nothing now",
);

static ALONE: [Number<Gauges>; 21] = [
    Number::gauge(
        "release_per_second",
        "Rate at which new calls leave their queue. 0 if the law does not pace the queue",
        |g| thousandths(&g.release).into(),
    ),
    Number::gauge(
        "calls_unanswered",
        "Calls of the last half second that back ends have not answered. A response 100 is no \
         answer",
        |g| g.unanswered.get().into(),
    ),
    Number::gauge(
        "calls_unanswered_max",
        "Number of unanswered calls at which new calls begin to wait. 0 if there is no limit",
        |g| thousandths(&g.unanswered_max).into(),
    ),
    Number::gauge(
        "newest_first",
        "1 while the newest new call in the queue is served first, else 0",
        |g| g.newest_first.get().into(),
    ),
    Number::gauge(
        "wait_max",
        "Wait in the queue after which a call is rejected when its turn comes. 0 if there is no \
         limit",
        |g: &Gauges| seconds(&g.wait_max).into(),
    )
    .in_unit(Unit::Seconds),
    Number::gauge("rank_floor", "Rank, 0 to 1, below which new calls are rejected", |g| {
        millionths(&g.rank_floor).into()
    }),
    Number::counter(
        "processor_occupied",
        "Time for which the processor was busy, as overload control measures it",
        |g: &Gauges| seconds(&g.occupied).into(),
    )
    .in_unit(Unit::Seconds),
    Number::gauge(
        "socket_fill",
        "Used part of the fullest receive buffer, from 0 to 1",
        |g: &Gauges| millionths(&g.socket_fill).into(),
    )
    .in_unit(Unit::Ratio),
    Number::gauge(
        "sessions_per_second",
        "Estimated number of calls a second that Tidegate begins to serve. If `check` in \
         `[overload.sessions]` is `full`, the number of calls that end",
        |g| thousandths(&g.session_rate).into(),
    ),
    Number::gauge("messages_per_session", "Estimated number of messages in a call", |g| {
        thousandths(&g.session_length).into()
    }),
    Number::gauge(
        "sessions_waiting",
        "Estimated number of calls (new or begun) with messages in the queues",
        |g| thousandths(&g.sessions_waiting).into(),
    ),
    Number::gauge(
        "call_cost",
        "Time to serve all messages of a call, without the time in the kernel. 0 while the time is \
         not known",
        |g: &Gauges| seconds(&g.call_cost).into(),
    )
    .in_unit(Unit::Seconds),
    Number::gauge(
        "rejection_cost",
        "Time to reject or drop a call and its retransmissions, without the time in the kernel. 0 \
         while the time is not known",
        |g: &Gauges| seconds(&g.rejection_cost).into(),
    )
    .in_unit(Unit::Seconds),
    Number::gauge(
        "bound",
        "The highest possible goodput at the offered load, as a fraction of the capacity. 0 while \
         it is not known",
        |g: &Gauges| millionths(&g.bound).into(),
    )
    .in_unit(Unit::Ratio),
    Number::gauge(
        "kernel_drop",
        "Share of INVITEs that overload control tells the kernel to drop before Tidegate reads \
         them. While there are heavy sources, the share of their requests",
        |g: &Gauges| millionths(&g.drop_share).into(),
    )
    .in_unit(Unit::Ratio),
    Number::gauge(
        "kernel_drop_registers",
        "Share of REGISTERs that overload control tells the kernel to drop, in the same way as \
         INVITEs. The two shares are independent",
        |g: &Gauges| millionths(&g.drop_share_of_registers).into(),
    )
    .in_unit(Unit::Ratio),
    Number::gauge(
        "rejecting",
        "Share of the processor used for rejecting. 0 if `disposal` is `reject` or `drop`",
        |g: &Gauges| millionths(&g.rejecting_load).into(),
    )
    .in_unit(Unit::Ratio),
    Number::gauge("decisions_remembered", "Decisions remembered for retransmissions", |g| {
        g.remembered.get().into()
    }),
    Number::counter(
        "decisions_forgotten",
        "Decisions not remembered because the table of decisions was full",
        |g| g.forgotten.get().into(),
    ),
    Number::counter(
        "challenges_forgotten",
        "Challenges of back ends (401, 407) not remembered because the table of challenges was \
         full",
        |g| g.challenges_forgotten.get().into(),
    ),
    Number::counter(
        "sources_overflowed",
        "Number of times that a source was counted together with others because the table of \
         sources was full",
        |g| g.sources_overflowed.get().into(),
    ),
];
