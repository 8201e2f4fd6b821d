//! Metrics of the back ends: their calls and their health.

use tidegate_balance::{Backend, Pool, State};
use tidegate_world::Timestamp;

use super::names;
use crate::metrics::{Family, Number, Samples, Unit, Value};

/// Adds the metrics of the back ends of a pool, as they are at `now`.
pub(super) fn add(samples: &mut Samples, pool: &Pool, now: Timestamp) {
    // The pool returns no number if there is no limit.
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
        for (outcome, count) in [("answered", probes - failed), ("failed", failed)] {
            let labels = [labels[0], labels[1], ("outcome", outcome)];
            samples.push(&PROBES, &labels, count);
        }
        let (falls, returns) = backend.transitions();
        for (to, count) in [("down", falls), ("up", returns)] {
            samples.push(&TRANSITIONS, &[labels[0], labels[1], ("to", to)], count);
        }
        for (method, status, count) in backend.finals().filter(|(.., count)| *count > 0) {
            let labels = [labels[0], labels[1], ("method", method), ("status", status)];
            samples.push(&FINALS, &labels, count);
        }
        samples.push(&RESPONSE_TIME, &labels, Value::of(backend.start_response_times()));
        samples.push_each(&ALONE, &labels, &**backend);
        if let Some(calls_max) = backend.calls_max() {
            samples.push(&CALLS_MAX, &labels, calls_max);
        }
        for (family, rate) in [
            (&CPS_MAX, backend.cps_max()),
            (&LEARNED, backend.learned_cps()),
            (&IN_FORCE, backend.rate_max_cps()),
        ] {
            if let Some(cps) = rate {
                samples.push(family, &labels, cps);
            }
        }
        if let Some(window) = backend.learned_window() {
            samples.push(&WINDOW, &labels, window);
        }
        if let Some(named) = backend.named() {
            names::add(samples, &labels, named);
        }
    }
}

static UP: Family = Family::gauge("backend_up", "1 if the back end can get new calls, else 0");
static STATE: Family = Family::gauge(
    "backend_state",
    "1 for the current state of the back end, 0 for the other states",
);
static PROBES: Family =
    Family::counter("backend_probes", "Finished probes of the back end, by outcome");
static TRANSITIONS: Family = Family::counter(
    "backend_transitions",
    "Number of times that the back end went down (`to` is `down`), or came up again because it \
     responded (`to` is `up`)",
);
static FINALS: Family = Family::counter(
    "backend_responses",
    "Final responses of the back end, one for each request, except those to probes. The label \
     `status` is the status code, or only its class if RFC 6076 does not distinguish the code",
);
static RESPONSE_TIME: Family = Family::histogram(
    "backend_response_time",
    "Time from an INVITE that begins a call to the first response other than 100. If that response \
     is a 5xx, the INVITE does not count",
)
.in_unit(Unit::Seconds);
static ALONE: [Number<Backend>; 6] = [
    Number::gauge("backend_calls", "Calls on the back end", |b| b.calls().into()),
    Number::gauge(
        "backend_work",
        "Open transactions on the back end, each with the weight of its method in policy `tlwl` \
         (default: 1.75 for an INVITE, 1 for any other request)",
        |b| (b.work() as f64 / 100.0).into(),
    ),
    Number::counter("backend_assigned", "Calls and single requests sent to the back end", |b| {
        b.assigned().into()
    }),
    Number::counter(
        "backend_rejections",
        "Requests that the back end has answered with 503",
        |b| b.rejections().into(),
    ),
    Number::counter(
        "backend_spared",
        "Requests sent to the back end while it was busy or down after 503s, missing responses, \
         ICMP errors or refused connections, because too many back ends of its pool were busy or \
         down",
        |b| b.spared().into(),
    ),
    Number::counter(
        "backend_failures",
        "Failed deliveries to the back end: ICMP errors, refused connections, and new requests \
         without a response",
        |b| b.failures().into(),
    ),
];
static CALLS_MAX: Family =
    Family::gauge("backend_calls_max", "Configured limit of calls on the back end");
static CPS_MAX: Family = Family::gauge(
    "backend_cps_max",
    "Configured limit of new calls and single requests a second to the back end (`cps_max`)",
);
static LEARNED: Family = Family::gauge(
    "backend_learned_cps",
    "Limit of new calls and single requests a second to the back end, learned from its 503s and \
     from requests without a response",
);
static WINDOW: Family = Family::gauge(
    "backend_learned_window",
    "Limit of the INVITEs and REGISTERs that may wait for a first response of the back end at the \
     same time, learned from its delay",
);
static IN_FORCE: Family = Family::gauge(
    "backend_cps_in_force",
    "Limit in force of new calls and single requests a second to the back end: the lower of the \
     configured and the learned limit",
);
static POOL_HEADROOM: Family = Family::gauge(
    "pool_headroom_calls",
    "Further calls that the available back ends of the pool can take. Missing if a back end of the \
     pool has no `calls_max`",
);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_balance::{Demand, Learning, Limits, Picker, Policy, RateLearning};
    use tidegate_world::{Purpose, Seed};

    use super::*;
    use crate::metrics::Metrics;

    const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

    fn shown(pool: &Pool) -> String {
        let (mut metrics, pool) = (Metrics::new(), pool.clone());
        metrics.add(move |samples| add(samples, &pool, NOW));
        metrics.render()
    }

    #[test]
    fn rates_are_shown_as_configured_as_learned_and_as_in_force() {
        let pool = Pool::new("app", &[("a", ([127, 0, 0, 1], 5070).into(), 1)]);
        let rates = |text: &str| {
            let names = ["cps_max", "learned_cps", "cps_in_force"];
            names.map(|name| {
                let start = format!("tidegate_backend_{name}{{pool=\"app\",backend=\"a\"}} ");
                let value = text.lines().find_map(|line| line.strip_prefix(&*start))?;
                value.parse::<f64>().ok()
            })
        };
        assert_eq!(rates(&shown(&pool)), [None; 3]);
        let learning = Learning { rate: Some(RateLearning::default()), window: None };
        pool.backends()[0].set_limits(&Limits {
            cps_max: Some(300.0),
            learning,
            ..Limits::default()
        });
        assert_eq!(rates(&shown(&pool)), [Some(300.0), None, Some(300.0)]);

        let draws = Seed(1).stream(Purpose::Balance, 0);
        let mut picker = Picker::new(pool.clone(), Policy::Rr, draws);
        for ms in (0..1000).step_by(10) {
            let now = NOW + Duration::from_millis(ms);
            let _ = picker.assign(now, 0, Demand::Single, |_, _| true);
            pool.backends()[0].on_not_taken(now, true);
        }
        let [configured, learned, in_force] = rates(&shown(&pool));
        assert_eq!((configured, in_force), (Some(300.0), learned));
        assert!(learned.is_some_and(|learned| learned < 100.0), "{learned:?}");
    }
}
