//! Metrics of datagrams and time, counted by the driver of the sockets.

use tidegate_io::Counters;
use tidegate_world::Counter;

use super::seconds;
use crate::metrics::{Family, Number, Samples, Unit};

/// Adds the metrics of the datagrams and the time of one shard.
pub(super) fn add(samples: &mut Samples, shard: &str, counters: &Counters) {
    let mut labelled = |family, label, rows: &[(&str, &Counter)]| {
        for (value, counter) in rows {
            samples.push(family, &[("shard", shard), (label, value)], counter.get());
        }
    };
    labelled(
        &UDP_RECEIVED,
        "socket",
        &[
            ("invite", &counters.received_invite),
            ("ordinary", &counters.received_ordinary),
            ("response", &counters.received_response),
        ],
    );
    labelled(&UDP_LOST, "cause", &counters.send_failures());
    labelled(
        &LIMITED,
        "limit",
        &[
            ("ordinary", &counters.limited_ordinary),
            ("responses", &counters.limited_responses),
            ("invites", &counters.limited_invites),
            ("connections", &counters.limited_streams),
            ("handshakes", &counters.limited_handshakes),
            ("crossings", &counters.limited_handoffs),
            ("service", &counters.limited_service),
        ],
    );
    for (state, ns) in [("busy", &counters.busy_ns), ("idle", &counters.idle_ns)] {
        samples.push(&TIME, &[("shard", shard), ("state", state)], seconds(ns));
    }
    samples.push_each(&ALONE, &[("shard", shard)], counters);
}

static UDP_RECEIVED: Family = Family::counter(
    "udp_received",
    "Datagrams received, by the socket that received them. invite: the socket for INVITEs and \
     REGISTERs. response: the socket for responses. ordinary: the socket for all other messages, \
     or for all messages if the listener has only one",
);
static UDP_LOST: Family =
    Family::counter("udp_unsent", "Datagrams that could not be sent, by cause");
static LIMITED: Family = Family::counter(
    "turns_limited",
    "Turns of the shard's loop that reached \
                                                           a limit, by limit",
);
static TIME: Family = Family::counter("shard_time", "Wall time of a shard, by state: busy or idle")
    .in_unit(Unit::Seconds);

static ALONE: [Number<Counters>; 21] = [
    Number::counter("udp_sent", "Datagrams sent", |c| c.sent.get().into()),
    Number::counter(
        "udp_trains",
        "Batches of datagrams passed to the kernel as one packet (GSO)",
        |c| c.sent_gso_batches.get().into(),
    ),
    Number::counter("udp_sent_in_trains", "Datagrams sent in batches (GSO)", |c| {
        c.sent_in_gso_batches.get().into()
    }),
    Number::counter("udp_sent_padding", "Padding added to datagrams in batches", |c: &Counters| {
        c.sent_padding.get().into()
    })
    .in_unit(Unit::Bytes),
    Number::counter(
        "udp_overflow",
        "Datagrams that the kernel dropped at full receive buffers",
        |c| c.overflow.get().into(),
    ),
    Number::counter(
        "udp_filtered",
        "INVITEs and REGISTERs that the kernel dropped because Tidegate asked for it",
        |c| c.filtered.get().into(),
    ),
    Number::counter(
        "udp_shed_errors",
        "Number of times that the kernel did not accept Tidegate's rule for the datagrams to drop. \
         Raise net.core.optmem_max",
        |c| c.shed_errors.get().into(),
    ),
    Number::counter(
        "udp_leave_errors",
        "Failed attempts to stop receiving at a shared address when the process began to drain",
        |c| c.leave_errors.get().into(),
    ),
    Number::counter(
        "udp_received_large",
        "Datagrams received that are longer than 2,048 bytes",
        |c| c.received_large.get().into(),
    ),
    Number::counter(
        "udp_received_cut",
        "Datagrams dropped because they are longer than 65,535 bytes",
        |c| c.received_cut.get().into(),
    ),
    Number::counter(
        "udp_receive_errors",
        "Receive calls that failed because the system had no memory left, or because of a signal",
        |c| c.receive_errors.get().into(),
    ),
    Number::counter("icmp_reports", "Failed deliveries reported by ICMP", |c| {
        c.icmp_reports.get().into()
    }),
    Number::counter(
        "send_failures_lost",
        "Failed sends of datagrams on which Tidegate did not act, for example with a failover, \
         because too many failed at once",
        |c| c.failures_lost.get().into(),
    ),
    Number::counter(
        "crossings",
        "Messages passed to another shard because their call or connection belongs to it",
        |c| c.handoffs_out.get().into(),
    ),
    Number::counter(
        "crossings_lost",
        "Messages not passed to the shard of their call or connection, because its queue was full",
        |c| c.handoffs_lost.get().into(),
    ),
    Number::counter(
        "queries",
        "Queries from the shard to other threads, such as DNS queries",
        |c| c.queries.get().into(),
    ),
    Number::counter(
        "queries_lost",
        "Queries not sent because a queue was full, or because no thread could answer them",
        |c| c.queries_lost.get().into(),
    ),
    Number::counter("messages_served", "Messages served", |c| c.served.get().into()),
    Number::counter("turns", "Turns of the shard's loop", |c| c.turns.get().into()),
    Number::counter("wakes", "Number of times that the shard woke up from waiting", |c| {
        c.wakes.get().into()
    }),
    Number::counter("pauses", "Pauses of the shard, to wake up once for several datagrams", |c| {
        c.pauses.get().into()
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn losses_of_the_driver_are_shown() {
        let counters = Counters::default();
        counters.received_cut.add(1);
        counters.receive_errors.add(2);
        counters.failures_lost.add(3);
        let mut metrics = Metrics::new();
        metrics.add(move |samples| add(samples, "0", &counters));
        let text = metrics.render();
        for (name, n) in
            [("udp_received_cut", 1), ("udp_receive_errors", 2), ("send_failures_lost", 3)]
        {
            let line = format!("tidegate_{name}_total{{shard=\"0\"}} {n}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
