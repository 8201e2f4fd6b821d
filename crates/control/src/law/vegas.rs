//! Vegas: a window of L calls limits the waiting calls. The latency of calls sets L.
//!
//! Signal: the latency of each new call, from its arrival to the end of its service, and the least
//! of these latencies, which counts as the latency of an empty server. They give q = ⌈L·(1 −
//! least/latency)⌉, an estimate of how many of L calls wait. The law trips when q exceeds 6·lg L: L
//! falls by lg L. The law recovers when q is below 3·lg L: L grows by lg L, or by 6·lg L if q ≤ lg
//! L. lg is the decimal logarithm, rounded down and at least 1. While less than half of the window
//! is in use, L does not change. Cold start: L = 20.
//!
//! Every 22.5·L calls, the law makes a *probe*: the latency of the current call replaces the least
//! latency, even if it is longer. The library of Netflix draws this factor at random, from 15 to
//! 30. Here it is always the mean.
//!
//! The latencies of single requests, such as REGISTER, and of calls with priority do not count. A
//! window of the same size limits the single requests that wait.
//!
//! Known bias: if the latency of an empty server is only processor time, every wait is long
//! compared with it. So the window has no room for bursts: only a few calls may wait, and at 0.8 of
//! the capacity one call in twenty is rejected. In an overload, a probe replaces the least latency
//! by the latency of a call in a full window. Then L grows until a call has a shorter latency than
//! this one.
//!
//! Source: Netflix concurrency-limits, `VegasLimit.java`, after Brakmo and Peterson, "TCP Vegas",
//! 1995.

use tidegate_world::Timestamp;

use super::latency;
use crate::{Allowance, Control, Entry, Law, Param, Signals, Values};

static LIMIT_START: Param =
    Param::real("limit_start", "calls", 20.0, 1.0, 1_000_000.0).doc("Window at the start.");

static LIMIT_MAX: Param =
    Param::real("limit_max", "calls", 1000.0, 1.0, 1_000_000.0).doc("Largest window.");

static PROBE: Param = Param::real("probe", "windows", 30.0, 1.0, 1_000_000.0).doc(
    "The law measures the lowest latency again after 3/4 of this number of windows of calls. \
     Netflix's library draws a random factor between 1/2 and 1 for each measurement, and 3/4 is \
     its mean.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "vegas",
    summary: "limits the waiting calls by a window, which shrinks while too many calls wait",
    source: "Netflix concurrency-limits, VegasLimit.java",
    doc: "For every call served, the law estimates how many calls of a window of L calls wait: \
          L·(1 − (lowest latency)/(latency of this call)). If lg L or fewer wait, the window grows \
          by 6·lg L. If more than lg L but fewer than 3·lg L wait, it grows by lg L. If more than \
          6·lg L wait, it shrinks by lg L. Otherwise it does not change. lg L is the decimal \
          logarithm of L, rounded down, and at least 1. Calls beyond the window are rejected. The \
          law measures the lowest latency again every 3/4·`probe` windows.",
    params: &[&LIMIT_START, &LIMIT_MAX, &PROBE],
    check: |values| {
        let ordered = values.of(&LIMIT_START) <= values.of(&LIMIT_MAX);
        if ordered { Ok(()) } else { Err("limit_start <= limit_max") }
    },
    build: |values: &Values| {
        Box::new(Vegas {
            limit: values.of(&LIMIT_START),
            limit_max: values.of(&LIMIT_MAX),
            probe: PROBE_MEAN * values.of(&PROBE),
            least_s: None,
            served: 0,
        })
    },
};

/// Mean of the factor by which `probe` is multiplied. The library of Netflix draws the factor from
/// 1/2 to 1 for each probe.
const PROBE_MEAN: f64 = 0.75;

#[derive(Debug)]
struct Vegas {
    /// L: the size of the window, in calls.
    limit: f64,
    limit_max: f64,
    probe: f64,
    least_s: Option<f64>,
    /// Calls served since the last probe.
    served: u64,
}

impl Vegas {
    /// Returns the change of the window, in calls, after a call with the latency `latency_s`.
    /// `least_s` is the least latency so far. Both are in seconds.
    fn change(&self, least_s: f64, latency_s: f64) -> f64 {
        let waiting = (self.limit * (1.0 - least_s / latency_s)).ceil();
        let step = self.limit.log10().floor().max(1.0);
        if waiting <= step {
            6.0 * step
        } else if waiting < 3.0 * step {
            step
        } else if waiting > 6.0 * step {
            -step
        } else {
            0.0
        }
    }
}

impl Law for Vegas {
    fn on_arrival(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.admit_of_all(Allowance::Window(self.limit));
    }

    fn on_completion(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        let Some(latency_s) = latency::of_call(signals).map(|latency| latency.as_secs_f64()) else {
            return;
        };
        self.served += 1;
        if self.served as f64 >= self.probe * self.limit {
            (self.served, self.least_s) = (0, None);
        }
        match self.least_s {
            Some(least_s) if latency_s >= least_s => {
                if latency::in_use(signals) as f64 >= self.limit / 2.0 && latency_s > 0.0 {
                    let limit = self.limit + self.change(least_s, latency_s);
                    self.limit = limit.clamp(1.0, self.limit_max);
                    control.admit_of_all(Allowance::Window(self.limit));
                }
            }
            _ => self.least_s = Some(latency_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;

    fn fresh() -> Bench {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.arrival();
        assert_near(bench.window(), 20.0);
        bench
    }

    #[test]
    fn the_window_follows_the_calls_that_wait() {
        let mut bench = fresh();
        bench.served(1, 100, 100);
        assert_near(bench.window(), 20.0);
        // Of 20, 26 and 32 calls, one waits by the law's estimate. Of 38 calls, two do.
        assert_near(bench.served(3, 103, 100), 38.0);
        assert_near(bench.served(1, 103, 100), 39.0);
        // With 4 and 6 waiting calls the window stays. With 8 it shrinks.
        assert_near(bench.served(1, 110, 100), 39.0);
        assert_near(bench.served(1, 117, 100), 39.0);
        assert_near(bench.served(1, 125, 100), 38.0);
    }

    #[test]
    fn steps_are_larger_in_a_large_window_and_end_at_the_maximum() {
        let mut bench = fresh();
        bench.served(1, 100, 10_000);
        // 14 steps of 6. From 100 on the steps are 12.
        assert_near(bench.served(14, 100, 10_000), 104.0);
        assert_near(bench.served(1, 100, 10_000), 116.0);
        assert_near(bench.served(100, 100, 10_000), 1000.0);
        assert_near(bench.served(300, 1000, 10_000), 1000.0 - 3.0 - 299.0 * 2.0);
    }

    #[test]
    fn a_half_unused_window_does_not_change() {
        let mut bench = fresh();
        assert_near(bench.served(100, 100, 8), 20.0);
        assert_near(bench.served(1, 100, 9), 26.0);
    }

    // The known bias.
    #[test]
    fn a_probe_in_an_overload_takes_the_wait_for_an_empty_server() {
        let mut bench = fresh();
        bench.served(1, 10, 0);
        // All but one of the calls wait. The window does not change while it is unused. The probe
        // is due after 450 calls.
        assert_near(bench.served(448, 100, 0), 20.0);
        assert_near(bench.served(1, 100, 100), 20.0);
        assert_near(bench.served(1, 100, 100), 26.0);
    }

    #[test]
    fn other_messages_do_not_count() {
        let mut bench = fresh();
        bench.completion();
        bench.served(1, 100, 100);
        assert_near(bench.window(), 20.0);
        assert!(ENTRY.values(&[("limit_max", 19.0)]).is_err());
    }
}
