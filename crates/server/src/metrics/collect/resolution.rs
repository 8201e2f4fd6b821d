//! Metrics of requests that wait for names and users.

use tidegate_proxy::Counters;
use tidegate_proxy::resolution::ResolutionCounters;

use tidegate_proxy::LookupCounters;

use crate::metrics::{Family, Number, Samples};

/// Adds the metrics of one shard.
pub(super) fn add(samples: &mut Samples, shard: &str, counters: &Counters) {
    let ResolutionCounters { found, not_found, failed, given_up, refused, .. } =
        &*counters.resolution;
    for (outcome, counter) in [
        ("found", found),
        ("not_found", not_found),
        ("failed", failed),
        ("given_up", given_up),
        ("refused", refused),
    ] {
        samples.push(&QUESTIONS, &[("shard", shard), ("outcome", outcome)], counter.get());
    }
    let LookupCounters { found, not_found, failed, given_up, late, refused, .. } =
        &*counters.lookups;
    for (outcome, counter) in [
        ("found", found),
        ("not_found", not_found),
        ("failed", failed),
        ("given_up", given_up),
        ("late", late),
        ("refused", refused),
    ] {
        samples.push(&LOOKUPS, &[("shard", shard), ("outcome", outcome)], counter.get());
    }
    samples.push_each(&ALONE, &[("shard", shard)], counters);
}

static QUESTIONS: Family = Family::counter(
    "resolution_questions",
    "Questions to the DNS about names in requests, by outcome; refused: not asked, because too many \
     were outstanding",
);

static LOOKUPS: Family = Family::counter(
    "lookups",
    "Look-ups of users, by outcome; given_up: no answer came in time; late: one came after that; \
     refused: not asked, because too many were outstanding",
);

static ALONE: [Number<Counters>; 5] = [
    (Family::gauge("parked_requests", "Requests that wait until a name or a user is known"), |c| {
        c.parked.get().into()
    }),
    (Family::gauge("lookups_outstanding", "Users that are asked for and not answered yet"), |c| {
        c.lookups.outstanding.get().into()
    }),
    (
        Family::counter(
            "requests_parked",
            "Times that a request was parked until a name or a user was known",
        ),
        |c| c.parked_all.get().into(),
    ),
    (Family::gauge("resolution_answers", "Answers of the DNS that are remembered"), |c| {
        c.resolution.answers.get().into()
    }),
    (
        Family::counter(
            "resolution_stale",
            "Times that an answer of the DNS was used after its end, because there was no newer one",
        ),
        |c| c.resolution.stale.get().into(),
    ),
];
