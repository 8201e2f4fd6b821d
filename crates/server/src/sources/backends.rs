//! The back ends: their calls, and their health.

use tidegate_balance::{Backend, Pool, State};
use tidegate_world::Timestamp;

use super::names;
use crate::metrics::{Family, Number, Samples};

/// Adds the back ends of a pool, as they are at `now`.
pub(super) fn add(samples: &mut Samples, pool: &Pool, now: Timestamp) {
    // As for those in it, what is not limited has no number.
    if let Some(free) = pool.free_calls(now) {
        samples.push(&POOL_HEADROOM, &[("pool", pool.name())], free);
    }
    for backend in pool.backends() {
        let labels = [("pool", pool.name()), ("backend", backend.name())];
        samples.push(&UP, &labels, u64::from(backend.is_up(now)));
        let (state, _) = backend.state(now);
        for known in State::ALL {
            let labels = [labels[0], labels[1], ("state", known.name())];
            samples.push(&STATE, &labels, u64::from(known == state));
        }
        let (probes, failed) = backend.probes();
        for (outcome, count) in [("answered", probes - failed.min(probes)), ("failed", failed)] {
            let labels = [labels[0], labels[1], ("outcome", outcome)];
            samples.push(&PROBES, &labels, count);
        }
        let (falls, returns) = backend.transitions();
        for (to, count) in [("down", falls), ("up", returns)] {
            samples.push(&TRANSITIONS, &[labels[0], labels[1], ("to", to)], count);
        }
        samples.push_each(&ALONE, &labels, &**backend);
        if let Some(calls_max) = backend.calls_max() {
            samples.push(&CALLS_MAX, &labels, calls_max);
        }
        if let Some(cps) = backend.rate_max_cps() {
            samples.push(&RATE_MAX, &labels, cps);
        }
        if let Some(cps) = backend.learned_cps() {
            samples.push(&LEARNED, &labels, cps);
        }
        if let Some(named) = backend.named() {
            names::add(samples, &labels, named);
        }
    }
}

static UP: Family = Family::gauge("backend_up", "1 if the back end may be given new calls, else 0");
static STATE: Family =
    Family::gauge("backend_state", "1 for the state that the back end is in, else 0");
static PROBES: Family =
    Family::counter("backend_probes", "Probes of the back end that have come to an end");
static TRANSITIONS: Family = Family::counter(
    "backend_transitions",
    "How often the back end was taken down, and brought back by an answer",
);
static ALONE: [Number<Backend>; 5] = [
    (Family::gauge("backend_calls", "Calls on the back end"), |b| b.calls().into()),
    (
        Family::gauge(
            "backend_work",
            "Open transactions on the back end, an INVITE weighing 1.75 and any other 1",
        ),
        |b| (b.work() as f64 / 100.0).into(),
    ),
    (
        Family::counter("backend_assigned", "Calls and single requests assigned to the back end"),
        |b| b.assigned().into(),
    ),
    (
        Family::counter("backend_refusals", "Requests that the back end has answered with 503"),
        |b| b.refusals().into(),
    ),
    (Family::counter("backend_failures", "Deliveries to the back end that failed"), |b| {
        b.failures().into()
    }),
];
static CALLS_MAX: Family =
    Family::gauge("backend_calls_max", "Calls that the back end may hold, if they are limited");
static RATE_MAX: Family = Family::gauge(
    "backend_rate_max_cps",
    "Requests a second that the back end may be given, if they are limited",
);
static LEARNED: Family = Family::gauge(
    "backend_learned_cps",
    "Requests a second that the back end takes, as its refusals have taught",
);
static POOL_HEADROOM: Family = Family::gauge(
    "pool_headroom_calls",
    "Calls that the back ends of the pool that are up may hold beyond those they hold, if all \
     are limited",
);
