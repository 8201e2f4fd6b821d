//! Metrics of messages, calls and transactions, counted by the proxy.

use tidegate_proxy::{Class, Counters, DropReason, REPLIES, ReplyReason};

use crate::metrics::{Family, Number, Samples, Unit};

/// Adds the metrics of the messages, calls and transactions of one shard.
pub(super) fn add(samples: &mut Samples, shard: &str, counters: &Counters) {
    for class in Class::ALL {
        let labels = [("shard", shard), ("class", class.name())];
        samples.push(&RECEIVED, &labels, counters.received(class).get());
    }
    for why in DropReason::ALL {
        let labels = [("shard", shard), ("reason", why.name())];
        samples.push(&DROPPED, &labels, counters.dropped(why).get());
    }
    for status in REPLIES {
        let status_text = status.to_string();
        for reason in ReplyReason::ALL {
            let count = counters.replied_for(status, reason).get();
            // A rate needs two samples, so it misses the first responses of a pair that is shown
            // only when it has occurred.
            if count > 0 || reason.is_likely(status) {
                let labels =
                    [("shard", shard), ("status", &*status_text), ("reason", reason.name())];
                samples.push(&REPLIED, &labels, count);
            }
        }
    }
    let kinds =
        [("request", &counters.requests_forwarded), ("response", &counters.responses_forwarded)];
    for (kind, counter) in kinds {
        samples.push(&FORWARDED, &[("shard", shard), ("kind", kind)], counter.get());
    }
    for (table, reason, counter) in [
        ("calls", "full", &counters.calls_rejected),
        ("calls", "source_share", &counters.calls_over_share),
        ("transactions", "full", &counters.transactions_rejected),
        ("transactions", "source_share", &counters.transactions_over_share),
    ] {
        let labels = [("shard", shard), ("table", table), ("reason", reason)];
        samples.push(&NO_ROOM, &labels, counter.get());
    }
    let labels = [("shard", shard)];
    samples.push(&TRANSACTION_BYTES, &labels, counters.transaction_bytes.get());
    samples.push(&TRANSACTION_BYTES_MAX, &labels, counters.transaction_bytes_max.get());
    samples.push_each(&ALONE, &labels, counters);
}

static RECEIVED: Family = Family::counter(
    "messages_received",
    "SIP messages received, by class, before any decision about them",
);
static DROPPED: Family = Family::counter("messages_dropped", "SIP messages dropped, by reason");
static REPLIED: Family =
    Family::counter("replies", "Responses that the proxy itself generates, by status and reason");
static FORWARDED: Family = Family::counter("messages_forwarded", "SIP messages forwarded, by kind");

static NO_ROOM: Family = Family::counter(
    "table_rejections",
    "New requests rejected with 503 because a table is full, or because the source has used up its \
     share of the table",
);
static TRANSACTION_BYTES: Family =
    Family::gauge("transactions_held", "Memory used by transactions and their messages")
        .in_unit(Unit::Bytes);
static TRANSACTION_BYTES_MAX: Family = Family::gauge(
    "transactions_held_max",
    "Limit of the memory for transactions and their messages",
)
.in_unit(Unit::Bytes);

static ALONE: [Number<Counters>; 27] = [
    Number::counter(
        "large_requests_over_tcp",
        "Requests sent over TCP because they are too long for a datagram",
        |c| c.large_over_tcp.get().into(),
    ),
    Number::counter(
        "large_requests_by_udp",
        "Large requests sent again by UDP because Tidegate could not send them over TCP, for \
         example because the back end refused the connection",
        |c| c.large_by_udp.get().into(),
    ),
    Number::counter("paths_added", "REGISTER requests to which Tidegate added a Path", |c| {
        c.paths_added.get().into()
    }),
    Number::counter(
        "registered_flow_requests",
        "Requests sent to a phone on the connection or address from which the phone registered",
        |c| c.registered_flows.get().into(),
    ),
    Number::counter("stun_bindings", "STUN binding requests answered on UDP listeners", |c| {
        c.bindings_answered.get().into()
    }),
    Number::counter(
        "retransmissions",
        "Received retransmissions of requests that Tidegate has served",
        |c| c.retransmissions.get().into(),
    ),
    Number::counter(
        "messages_unverified",
        "Messages that claim to belong to a call or a transaction that does not exist",
        |c| c.strays.get().into(),
    ),
    Number::counter(
        "calls_moved",
        "Calls that Tidegate moved to another back end, by a failover or because their own back \
         end took no new work (down, draining, full or restricted)",
        |c| c.moved.get().into(),
    ),
    Number::counter(
        "calls_evicted",
        "Entries of ended calls that Tidegate removed early to make room in the call table",
        |c| c.calls_evicted.get().into(),
    ),
    Number::counter(
        "calls_abandoned",
        "Answered calls without a BYE, removed when their session expired or after \
         `call_idle_seconds`",
        |c| c.calls_abandoned.get().into(),
    ),
    Number::counter("calls_rejected", "Calls rejected because the call table was full", |c| {
        c.calls_rejected.get().into()
    }),
    Number::gauge("calls", "Entries in the call table", |c| c.calls.get().into()),
    Number::gauge(
        "calls_ended",
        "Entries of ended calls in the call table, which are kept for retransmissions",
        |c| c.calls_over.get().into(),
    ),
    Number::gauge("transactions_open", "Transactions without a final response yet", |c| {
        c.transactions_open.get().into()
    }),
    Number::counter(
        "requests_resent",
        "Retransmissions of requests that Tidegate sent because it had received no response",
        |c| c.requests_resent.get().into(),
    ),
    Number::counter("probes", "Probes sent to back ends", |c| c.probes.get().into()),
    Number::counter(
        "probes_out_of_turn",
        "Extra probes sent at once to a back end that may be down, after an ICMP error, a failed \
         connection, or requests without a response",
        |c| c.questions.get().into(),
    ),
    Number::counter(
        "responses_resent",
        "Retransmissions of responses that Tidegate sent because a request was retransmitted or no \
         ACK arrived",
        |c| c.responses_resent.get().into(),
    ),
    Number::counter(
        "failovers_denied",
        "Requests not sent to another back end after a 503, because the failover budget was used \
         up",
        |c| c.failovers_denied.get().into(),
    ),
    Number::counter(
        "responses_withheld",
        "Responses not sent because of `amplification_max`: the address that sent the request has \
         never acknowledged a response, and would get more than `amplification_max` times the \
         bytes of its request",
        |c| c.responses_withheld.get().into(),
    ),
    Number::counter(
        "requests_withheld",
        "Retransmissions of requests from back ends and users, such as BYEs, not sent because \
         their target has never shown that it receives messages",
        |c| c.requests_withheld.get().into(),
    ),
    Number::counter("cancels", "Branches of INVITEs to which the proxy has sent a CANCEL", |c| {
        c.cancels.get().into()
    }),
    Number::counter(
        "lost_requests_overflowed",
        "Number of times that there was no room to remember an INVITE that the previous process \
         had sent, or a CANCEL of such an INVITE",
        |c| c.lost_overflowed.get().into(),
    ),
    Number::counter(
        "timeouts",
        "Client transactions that timed out without a final response",
        |c| c.timeouts.get().into(),
    ),
    Number::gauge("server_transactions", "Server transactions in the table", |c| {
        c.server_transactions.get().into()
    }),
    Number::gauge("client_transactions", "Client transactions in the table", |c| {
        c.client_transactions.get().into()
    }),
    Number::gauge("messages_queued", "Messages waiting for service", |c| c.queued.get().into()),
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metrics::Metrics;

    /// A regression: the first 503s of each reason were missing in all rates.
    #[test]
    fn every_reason_of_a_503_is_counted_from_the_start() {
        let (mut metrics, counters) = (Metrics::new(), Arc::new(Counters::default()));
        metrics.add(move |samples| add(samples, "0", &counters));
        let text = metrics.render();
        let has = |status: &str, reason: &str| {
            let labels = format!("shard=\"0\",status=\"{status}\",reason=\"{reason}\"");
            text.contains(&format!("tidegate_replies_total{{{labels}}} 0\n"))
        };
        for reason in ["pool_down", "law", "queue_full", "pool_full", "call_table", "shed", "other"]
        {
            assert!(has("503", reason), "{reason}");
        }
        assert!(has("404", "no_route") && has("200", "none"));
        assert!(!has("503", "no_user") && !has("404", "law"));
    }
}
