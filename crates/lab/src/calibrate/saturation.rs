//! How many calls to offer, so that the server has always something to do.
//!
//! A packet costs less the more of them come at once, so how much a server can do is known only of
//! one that cannot do more. It is sought from below: what a run costs says what could be offered,
//! and that, offered, costs less again.

use std::io;

use super::slices;

/// Calls/s by which the first estimate is made.
const LIGHT_CPS: f64 = 500.0;

/// What is offered of what the server can do, at the least and when more is tried.
const OFFERED: (f64, f64) = (2.0, 3.0);

/// Calls/s at the most: one thread of callers can offer more if hardly any of them begin.
const MAX_CPS: f64 = 60_000.0;

/// Estimates at the most.
const ESTIMATES_MAX: usize = 6;

/// Calls/s that are twice of what the server can do or more. `each_us` says what one costs, of the
/// calls/s that it is asked for.
pub(super) fn saturating_cps(each_us: impl Fn(f64) -> io::Result<f64>) -> io::Result<f64> {
    let mut offered = LIGHT_CPS;
    for _ in 0..ESTIMATES_MAX {
        // A call that seems to cost nothing is as good as a cheap one.
        let could = slices::SHARE * 1e6 / each_us(offered)?.max(1.0);
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
    fn more_is_offered_until_the_server_can_do_half_of_it() {
        // 160 µs when idle, 40 µs when busy: it can do 5,000 calls/s.
        let each_us = |cps: f64| Ok((160.0 - cps / 50.0).max(40.0));
        let found = saturating_cps(each_us).unwrap();
        assert!((10_000.0..=15_000.0).contains(&found), "{found}");
    }

    #[test]
    fn no_more_is_offered_than_callers_can() {
        assert_eq!(saturating_cps(|_| Ok(0.0)).unwrap(), MAX_CPS);
    }

    #[test]
    fn a_server_that_becomes_cheaper_for_ever_is_not_asked_for_ever() {
        let asked = Cell::new(0);
        let each_us = |cps: f64| {
            asked.set(asked.get() + 1);
            Ok(360_000.0 / cps)
        };
        let found = saturating_cps(each_us).unwrap();
        assert!(found < MAX_CPS && asked.get() == ESTIMATES_MAX, "{found}, {}", asked.get());
    }
}
