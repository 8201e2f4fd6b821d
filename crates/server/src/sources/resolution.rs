//! Requests that wait for names, and what became of the names.

use tidegate_proxy::Counters;
use tidegate_proxy::resolution::ResolutionCounters;

use crate::metrics::{Family, Number, Samples};

/// Adds what one shard says.
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
    samples.push_each(&ALONE, &[("shard", shard)], counters);
}

static QUESTIONS: Family = Family::counter(
    "resolution_questions",
    "Questions to the DNS about names in requests, by outcome; refused: not asked, because too many \
     were outstanding",
);

static ALONE: [Number<Counters>; 4] = [
    (Family::gauge("parked_requests", "Requests that wait until a name is known"), |c| {
        c.parked.get().into()
    }),
    (
        Family::counter(
            "requests_parked",
            "Times that a request was parked until a name was known",
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
