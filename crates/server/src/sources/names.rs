//! Where the host names of back ends lead.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_balance::{Lookups, Named};

use crate::metrics::{Family, Samples};

static RESOLVED: Family =
    Family::gauge("backend_resolved", "1 if the host name of the back end has an address, else 0");
static STALE: Family = Family::gauge(
    "backend_stale",
    "1 while the address of the back end is used on because its host name could not be resolved \
     again, else 0",
);
static MOVED: Family =
    Family::counter("backend_moved", "Times that the host name came to lead elsewhere");
static LOOKUPS: Family =
    Family::counter("backend_lookups", "Resolutions of the host name, by outcome");

/// Adds what is known of the name of the back end that bears these labels.
pub(super) fn add(samples: &mut Samples, labels: &[(&'static str, &str); 2], named: &Named) {
    let Lookups { found, not_found, unanswered, unusable, moved } = &named.lookups;
    samples.push(&RESOLVED, labels, u64::from(named.is_known()));
    samples.push(&STALE, labels, u64::from(named.is_stale()));
    samples.push(&MOVED, labels, moved.load(Relaxed));
    let outcomes = [
        ("found", found),
        ("not_found", not_found),
        ("unanswered", unanswered),
        ("unusable", unusable),
    ];
    for (outcome, count) in outcomes {
        let [pool, backend] = *labels;
        samples.push(&LOOKUPS, &[pool, backend, ("outcome", outcome)], count.load(Relaxed));
    }
}
