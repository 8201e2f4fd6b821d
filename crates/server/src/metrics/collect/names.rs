//! Metrics of the resolution of host names of back ends, and of domains in pools.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_balance::{Lookups, Named, Service};

use crate::metrics::{Family, Samples};

static RESOLVED: Family =
    Family::gauge("backend_resolved", "1 if the host name of the back end has an address, else 0");
static STALE: Family = Family::gauge(
    "backend_stale",
    "1 while the back end's last address stays in use because its host name could not be resolved \
     again, else 0",
);
static MOVED: Family = Family::counter(
    "backend_moved",
    "Number of times that the host name of the back end resolved to another address",
);
static LOOKUPS: Family =
    Family::counter("backend_lookups", "Resolutions of the host name of the back end, by outcome");

static DOMAIN_SERVERS: Family =
    Family::gauge("domain_servers", "Servers that the DNS lists for a domain in a pool");
static DOMAIN_STALE: Family = Family::gauge(
    "domain_stale",
    "1 while the last known servers of the domain stay in use because the domain could not be \
     resolved again, else 0",
);
static DOMAIN_CHANGED: Family =
    Family::counter("domain_changed", "Changes of the servers that the DNS lists for the domain");
static DOMAIN_LOOKUPS: Family =
    Family::counter("domain_lookups", "Resolutions of the domain, by outcome");

/// Adds the metrics of a domain in a pool.
pub(super) fn add_domain(samples: &mut Samples, service: &Service) {
    let labels = [("domain", &**service.domain()), ("transport", service.transport().name())];
    let Lookups { found, not_found, unanswered, unusable: _, moved } = &service.lookups;
    let servers = service.servers().map_or(0, |servers| servers.len());
    samples.push(&DOMAIN_SERVERS, &labels, servers as u64);
    samples.push(&DOMAIN_STALE, &labels, u64::from(service.is_stale()));
    samples.push(&DOMAIN_CHANGED, &labels, moved.load(Relaxed));
    let outcomes = [("found", found), ("not_found", not_found), ("unanswered", unanswered)];
    for (outcome, count) in outcomes {
        let [domain, transport] = labels;
        let labels = [domain, transport, ("outcome", outcome)];
        samples.push(&DOMAIN_LOOKUPS, &labels, count.load(Relaxed));
    }
}

/// Adds the metrics of the host name of a back end, with these labels.
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
