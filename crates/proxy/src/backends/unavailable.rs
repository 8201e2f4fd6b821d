//! Builds the 503 response to a request whose pools have no available back end.

use tidegate_balance::{NoBackend, State};
use tidegate_world::Timestamp;

use crate::rejection::{Hints, Rejection};
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;

/// Returns the rejection of a new request to `pool` because no back end was selected. `why` is the
/// reason.
pub(crate) fn unassigned(
    now: Timestamp,
    snapshot: &Snapshot,
    pool: u16,
    why: NoBackend,
) -> Rejection {
    match why {
        NoBackend::Down => unavailable(now, snapshot, pool, None),
        NoBackend::Full => Rejection::PoolFull,
    }
}

/// Returns the rejection of a request because `pool` and its backup pools have no available back
/// end. If a back end of these pools sent the request, it is `from`. The Warning says why the other
/// back ends are unavailable.
pub(crate) fn unavailable(
    now: Timestamp,
    snapshot: &Snapshot,
    pool: u16,
    from: Option<BackendRef>,
) -> Rejection {
    let pools = || snapshot.and_backups(pool);
    let others = pools().flat_map(|pool| {
        let backends = snapshot.pool(pool).pool.backends();
        (0..).zip(backends).map(move |(backend, b)| (BackendRef { pool, backend }, b))
    });
    let states = others
        .filter(|(backend_ref, _)| Some(*backend_ref) != from)
        .map(|(_, backend)| (backend.state(now).0, backend.address().is_some()));
    let soonest = pools().filter_map(|pool| snapshot.pool(pool).pool.returns_at()).min();
    // RFC 3261 §21.5.4: "A client (proxy or UAC) receiving a 503 (Service Unavailable) SHOULD
    // attempt to forward the request to an alternate server. It SHOULD NOT forward any other
    // requests to that server for the duration specified in the Retry-After header field, if
    // present." Retry-After is therefore sent only if other requests would be rejected as well.
    let is_any_up = snapshot.pools.iter().any(|settings| settings.pool.is_up(now));
    let is_empty = pools().all(|pool| snapshot.pool(pool).pool.backends().is_empty());
    Rejection::PoolDown(Hints {
        // Pools without back ends consist of domains, and the servers of these domains are not
        // known yet.
        warning: Some(if is_empty { NO_ADDRESS } else { warning(states) }),
        retry_after_s: soonest.filter(|_| !is_any_up).map(|at| seconds_until(now, at)),
    })
}

/// Returns the number of seconds until `at` for a Retry-After, at least 1.
///
/// RFC 3261 §20.33: "The value of this field is a positive integer number of seconds (in decimal)
/// after the time of the response."
fn seconds_until(now: Timestamp, at: Timestamp) -> u32 {
    let seconds = at.since(now).as_nanos().div_ceil(1_000_000_000);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// Returns the Warning that says why none of these back ends is available. Each back end is given
/// by its state, and by a flag that is true if its address is known.
fn warning(states: impl Iterator<Item = (State, bool)>) -> &'static str {
    let mut whys = states.map(|state| match state {
        (State::Draining | State::Maintenance | State::Removed, _) => OUT_OF_SERVICE,
        (State::Busy, _) => PAUSES,
        (State::Down, false) => NO_ADDRESS,
        (State::Down, true) => DOWN,
        // The back end has just returned, or has just been tried without success.
        (State::Up | State::Suspect | State::SlowStart | State::Spared, _) => NOBODY,
    });
    let Some(first) = whys.next() else { return NO_OTHER };
    if whys.all(|why| why == first) { first } else { NOBODY }
}

const OUT_OF_SERVICE: &str = "399 tidegate \"every back end is out of service\"";
const PAUSES: &str = "399 tidegate \"every back end has asked for a pause\"";
const NO_ADDRESS: &str = "399 tidegate \"no back end has an address yet\"";
const DOWN: &str = "399 tidegate \"every back end is down\"";
const NOBODY: &str = "399 tidegate \"no back end may get new requests\"";
const NO_OTHER: &str = "399 tidegate \"there is no back end except the sender\"";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_warning_is_true_of_all() {
        use State::{Busy, Down, Draining, Maintenance, Up};
        for (states, why) in [
            (&[(Down, true), (Down, true)][..], DOWN),
            (&[(Draining, true), (Maintenance, true)], OUT_OF_SERVICE),
            (&[(Busy, true)], PAUSES),
            (&[(Down, false)], NO_ADDRESS),
            (&[(Down, false), (Down, true)], NOBODY),
            (&[(Draining, true), (Down, true)], NOBODY),
            (&[(Up, true)], NOBODY),
            (&[], NO_OTHER),
        ] {
            assert_eq!(warning(states.iter().copied()), why, "{states:?}");
        }
    }

    #[test]
    fn seconds_are_whole_and_at_least_one() {
        let now = Timestamp::from_nanos(5_000_000_000);
        for (ms, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(seconds_until(now, now + Duration::from_millis(ms)), seconds, "{ms}");
        }
    }
}
