//! Metrics of DNS queries and of look-ups of users, and of the requests that wait for them.

use tidegate_proxy::Counters;
use tidegate_proxy::resolution::ResolutionCounters;

use tidegate_proxy::LookupCounters;

use crate::metrics::{Family, Number, Samples};

/// Adds the metrics of the DNS queries and look-ups of one shard, and of its requests that wait for
/// them.
pub(super) fn add(samples: &mut Samples, shard: &str, counters: &Counters) {
    let ResolutionCounters { found, not_found, failed, given_up, rejected, .. } =
        &*counters.resolution;
    for (outcome, counter) in [
        ("found", found),
        ("not_found", not_found),
        ("failed", failed),
        ("given_up", given_up),
        ("rejected", rejected),
    ] {
        samples.push(&QUESTIONS, &[("shard", shard), ("outcome", outcome)], counter.get());
    }
    let LookupCounters { found, not_found, failed, given_up, late, rejected, .. } =
        &*counters.lookups;
    for (outcome, counter) in [
        ("found", found),
        ("not_found", not_found),
        ("failed", failed),
        ("given_up", given_up),
        ("late", late),
        ("rejected", rejected),
    ] {
        samples.push(&LOOKUPS, &[("shard", shard), ("outcome", outcome)], counter.get());
    }
    samples.push_each(&ALONE, &[("shard", shard)], counters);
}

static QUESTIONS: Family = Family::counter(
    "resolution_questions",
    "DNS queries for names in requests, by outcome. rejected: the query was not sent, because too \
     many queries were outstanding",
);

static LOOKUPS: Family = Family::counter(
    "lookups",
    "Look-ups of users, by outcome. given_up: no answer came in time. late: the answer came \
     after the look-up was given up. rejected: the look-up was not started, because too many \
     look-ups were outstanding or too many requests were waiting",
);

static ALONE: [Number<Counters>; 6] = [
    Number::gauge(
        "parked_requests",
        "Requests that wait for the DNS or for a look-up of a user",
        |c| c.parked.get().into(),
    ),
    Number::gauge("lookups_outstanding", "Look-ups of users that are not answered yet", |c| {
        c.lookups.outstanding.get().into()
    }),
    Number::counter(
        "requests_parked",
        "Requests that had to wait for the DNS or for a look-up of a user",
        |c| c.parked_all.get().into(),
    ),
    Number::gauge("resolution_answers", "DNS answers in the cache", |c| {
        c.resolution.answers.get().into()
    }),
    Number::counter(
        "resolution_stale",
        "Number of times that a DNS answer was used after its time to live, because there was no \
         newer answer",
        |c| c.resolution.stale.get().into(),
    ),
    // RFC 3263 §7: "If such records were present, but in later queries cease to appear, it is a
    // sign of a potential attack. In this case, the client SHOULD generate some kind of alert".
    Number::counter(
        "resolution_security_withdrawn",
        "Domains whose NAPTR records offered SIP over TLS before and no longer do",
        |c| c.resolution.security_withdrawn.get().into(),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    // RFC 3263 §7: "In this case, the client SHOULD generate some kind of alert or alarm".
    #[test]
    fn domains_that_withdraw_security_are_shown() {
        let counters = Counters::default();
        counters.resolution.security_withdrawn.add(2);
        let mut metrics = Metrics::new();
        metrics.add(move |samples| add(samples, "0", &counters));
        let line = "tidegate_resolution_security_withdrawn_total{shard=\"0\"} 2\n";
        assert!(metrics.render().contains(line), "{}", metrics.render());
    }
}
