//! Finds a rate of calls at which the server is never idle.
//!
//! A packet costs less if more packets come at once, so the capacity can be measured only at
//! saturation. The search starts at a low load. The cost of a call in one run determines the load
//! of the next run. Under this higher load a call costs less, so the search takes several runs.

use std::io;

/// Rate that the first run of the search offers, in calls/s.
const LIGHT_CPS: f64 = 500.0;

/// Two multiples of the estimated capacity. The search ends when the offered load is at least the
/// first multiple. Otherwise the next run of the search offers the second multiple.
const OFFERED: (f64, f64) = (2.0, 3.0);

/// The maximum rate to offer, in calls/s. At a higher rate, one thread of callers would be too slow
/// to start most of the offered calls.
const MAX_CPS: f64 = 60_000.0;

/// Maximum number of runs in the search.
const ESTIMATES_MAX: usize = 6;

/// Returns a rate in calls/s that is at least twice the rate that the server can serve with `share`
/// of a core. The result is lower if the search reaches [`MAX_CPS`] or ends after [`ESTIMATES_MAX`]
/// runs. `each_us` returns the cost in µs of one call at a rate in calls/s.
pub(super) fn saturating_cps(
    share: f64,
    each_us: impl Fn(f64) -> io::Result<f64>,
) -> io::Result<f64> {
    let mut offered = LIGHT_CPS;
    for _ in 0..ESTIMATES_MAX {
        // A call that seems to cost nothing counts as a cheap one.
        let could = share * 1e6 / each_us(offered)?.max(1.0);
        if offered >= (OFFERED.0 * could).min(MAX_CPS) {
            break;
        }
        offered = (OFFERED.1 * could).min(MAX_CPS);
    }
    Ok(offered)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_rate_rises_until_it_is_twice_what_the_server_can_serve() {
        // A call costs 160 µs at a low load and 40 µs at a high load. So a fifth of a core handles
        // 5,000 calls/s.
        let each_us = |cps: f64| Ok((160.0 - cps / 50.0).max(40.0));
        let found = saturating_cps(0.2, each_us).unwrap();
        assert!((10_000.0..=15_000.0).contains(&found), "{found}");
    }

    #[test]
    fn the_rate_does_not_exceed_that_of_the_callers() {
        assert_eq!(saturating_cps(0.2, |_| Ok(0.0)).unwrap(), MAX_CPS);
    }

    #[test]
    fn the_search_ends_even_if_costs_keep_falling() {
        let asked = Cell::new(0);
        let each_us = |cps: f64| {
            asked.set(asked.get() + 1);
            Ok(360_000.0 / cps)
        };
        let found = saturating_cps(0.2, each_us).unwrap();
        assert!(found < MAX_CPS && asked.get() == ESTIMATES_MAX, "{found}, {}", asked.get());
    }
}
