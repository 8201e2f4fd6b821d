//! Envoy's gradient: a window limits the waiting calls. The law sets it by comparing the latency of
//! calls with the latency of an almost empty server.
//!
//! Signal: the latency of new calls, from arrival to the end of service. Every `min_interval` the
//! law admits only `limit_min` calls at a time until `min_calls` have been served. A `percentile`
//! of their latencies, by default the median, is minRTT, the latency of an almost empty server. At
//! all other times, every `t_c`: g = clamp(½, (1 + `buffer`)·minRTT/latency, 2), and the window L ←
//! ⌊g·L + √(g·L)⌋, where latency is the same percentile of the latencies since the last change. The
//! law trips when the latency exceeds minRTT by so much that the headroom √(g·L) does not
//! compensate for it. The law recovers by the same rule, whether the window is used or not. Cold
//! start: the law begins with a measurement of minRTT.
//!
//! If the window stays at `limit_min` for five consecutive intervals, minRTT is measured again,
//! because the measured minRTT is probably too low. Envoy makes its intervals up to 15 % longer, at
//! random, so that its hosts do not measure at the same time. A single server does not need this.
//!
//! The latencies of single requests, such as REGISTER, and of calls with priority do not count. A
//! window of the same size limits the single requests that wait.
//!
//! Known bias: while minRTT is measured, a burst of more than `limit_min` calls is rejected,
//! although the processor has room. Here all latency is the server's own processor time, so the
//! window has no room for bursts: a call that waits for two others has a latency of 3 minRTT. If
//! some calls take more work than others, only the median counts.
//!
//! Source: Envoy, `adaptive_concurrency/controller/gradient_controller.cc`, and the documentation
//! of that filter, whose example has intervals of 60 s and 0.1 s and the 90th percentile. Here the
//! percentile is Envoy's default, the median.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::latency::{self, Latencies};
use crate::{Allowance, Control, Entry, Law, Param, Signals, Values};

static MIN_INTERVAL: Param = Param::real("min_interval", "s", 60.0, 0.01, 86_400.0).doc(
    "Time from one measurement of minRTT, the latency of an almost empty server, to the next.",
);

static MIN_CALLS: Param = Param::whole("min_calls", "calls", 50.0, 1, 1_000_000)
    .doc("The number of calls served in one measurement of minRTT (see `min_interval`).");

static LIMIT_MIN: Param = Param::real("limit_min", "calls", 3.0, 1.0, 1_000_000.0)
    .doc("Smallest window, and the window during a measurement of minRTT (see `min_interval`).");

static LIMIT_MAX: Param =
    Param::real("limit_max", "calls", 1000.0, 1.0, 1_000_000.0).doc("Largest window.");

static INTERVAL: Param = Param::real("t_c", "s", 0.1, 0.001, 60.0)
    .doc("Time from one change of the window to the next.");

static PERCENTILE: Param = Param::real("percentile", "percent", 50.0, 0.0, 100.0).doc(
    "The law compares this percentile of the latencies in an interval `t_c` with minRTT (see \
     `min_interval`). minRTT is the same percentile.",
);

static BUFFER: Param = Param::real("buffer", "fraction", 0.25, 0.0, 100.0).doc(
    "The excess of the latency over minRTT (see `min_interval`) that the law tolerates, as a \
     fraction of minRTT.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "envoy-gradient",
    summary: "limits the waiting calls by a window, which shrinks while their latency is well \
              above that of an almost empty server",
    source: "Envoy, adaptive concurrency filter, gradient_controller.cc",
    doc: "Every `min_interval` the law measures the latency minRTT of an almost empty server: it \
          admits `limit_min` calls at a time until `min_calls` calls were served. At other times, \
          every `t_c`, it computes g = (1 + `buffer`)·minRTT/latency, limited to ½ … 2. The window \
          L then becomes g·L + √(g·L), within its limits. Calls beyond the window are rejected.",
    params: &[&MIN_INTERVAL, &MIN_CALLS, &LIMIT_MIN, &LIMIT_MAX, &INTERVAL, &PERCENTILE, &BUFFER],
    check: |values| {
        let ordered = values.of(&LIMIT_MIN) <= values.of(&LIMIT_MAX);
        if ordered { Ok(()) } else { Err("limit_min <= limit_max") }
    },
    build: |values: &Values| {
        Box::new(Gradient {
            min_interval: Duration::from_secs_f64(values.of(&MIN_INTERVAL)),
            min_calls: values.of(&MIN_CALLS) as u64,
            bounds: (values.of(&LIMIT_MIN), values.of(&LIMIT_MAX)),
            interval: Duration::from_secs_f64(values.of(&INTERVAL)),
            quantile: values.of(&PERCENTILE) / 100.0,
            tolerance: 1.0 + values.of(&BUFFER),
            limit: values.of(&LIMIT_MIN),
            measuring: true,
            since: Timestamp::ZERO,
            least_s: 0.0,
            at_least: 0,
            latencies: Latencies::new(),
        })
    },
};

/// The minimum and the maximum of g, the factor by which the window changes.
const GRADIENT: (f64, f64) = (0.5, 2.0);
/// Consecutive intervals at the smallest window after which minRTT is measured again.
const AT_LEAST_MAX: u32 = 5;

#[derive(Debug)]
struct Gradient {
    min_interval: Duration,
    min_calls: u64,
    bounds: (f64, f64),
    interval: Duration,
    quantile: f64,
    tolerance: f64,
    /// L: the window, except while minRTT is measured.
    limit: f64,
    /// True if minRTT is being measured.
    measuring: bool,
    /// Time at which the current measurement of minRTT began, or at which the last one ended.
    since: Timestamp,
    /// minRTT, in seconds.
    least_s: f64,
    /// Number of consecutive intervals at the smallest window.
    at_least: u32,
    latencies: Latencies,
}

impl Gradient {
    fn window(&self) -> Allowance {
        Allowance::Window(if self.measuring { self.bounds.0 } else { self.limit })
    }

    fn measure(&mut self, now: Timestamp) {
        (self.measuring, self.since, self.at_least) = (true, now, 0);
        // Calls that arrived earlier may have waited in a long queue.
        self.latencies = Latencies::new();
    }

    fn change(&mut self, latency_s: f64) {
        let gradient = (self.tolerance * self.least_s / latency_s).clamp(GRADIENT.0, GRADIENT.1);
        let wanted = gradient * self.limit;
        let limit = (wanted + wanted.sqrt()).floor().clamp(self.bounds.0, self.bounds.1);
        let stays = self.limit <= self.bounds.0 && limit <= self.bounds.0;
        self.at_least = if stays { self.at_least + 1 } else { 0 };
        self.limit = limit;
    }
}

impl Law for Gradient {
    fn on_begin(&mut self, now: Timestamp, _: &Signals) {
        self.since = now;
    }

    fn on_arrival(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.admit_of_all(self.window());
    }

    fn on_completion(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        let Some(latency) = latency::of_call(signals) else { return };
        if self.measuring && now.since(self.since) < latency {
            return;
        }
        self.latencies.record(latency);
        if self.measuring && self.latencies.count() >= self.min_calls {
            self.least_s = self.latencies.take(self.quantile).expect("there is at least one");
            (self.measuring, self.since) = (false, now);
            control.admit_of_all(self.window());
        }
    }

    fn on_tick(&mut self, now: Timestamp, _: &Signals, control: &mut Control) {
        if self.measuring {
            return;
        }
        if let Some(latency_s) = self.latencies.take(self.quantile) {
            self.change(latency_s);
        }
        if self.at_least >= AT_LEAST_MAX || now.since(self.since) >= self.min_interval {
            self.measure(now);
        }
        control.admit_of_all(self.window());
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn is_at_rest(&self) -> bool {
        // A measurement ends with a completion, not with a tick.
        self.measuring || self.latencies.count() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;

    /// Returns the law after its first measurement of minRTT, 10 ms.
    fn measured(given: &[(&str, f64)]) -> Bench {
        let mut bench = Bench::of(&ENTRY, given);
        bench.arrival();
        assert_near(bench.window(), 3.0);
        bench.pass(Duration::from_secs(1), 0.0);
        bench.served(50, 10, 0);
        bench
    }

    /// Runs `count` intervals with calls of this latency. Returns the window.
    fn intervals(bench: &mut Bench, count: u32, ms: u64) -> f64 {
        for _ in 0..count {
            bench.pass(Duration::from_millis(100), 0.0);
            bench.served(20, ms, 0);
            bench.tick();
        }
        bench.window()
    }

    #[test]
    fn the_window_grows_while_calls_take_as_long_as_in_an_empty_server() {
        let mut bench = measured(&[("buffer", 0.0)]);
        // 3 + √3, then 4 + √4, 6 + √6.
        assert_near(intervals(&mut bench, 1, 10), 4.0);
        assert_near(intervals(&mut bench, 1, 10), 6.0);
        assert_near(intervals(&mut bench, 1, 10), 8.0);
        assert_near(intervals(&mut bench, 100, 10), 1000.0);
        assert!(bench.law.is_at_rest());
    }

    #[test]
    fn a_measurement_that_waits_for_more_calls_needs_no_tick() {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.arrival();
        bench.pass(Duration::from_secs(1), 0.0);
        bench.served(3, 10, 0);
        bench.tick();
        assert!(bench.law.is_at_rest());
    }

    #[test]
    fn longer_latencies_at_most_halve_it() {
        let mut bench = measured(&[]);
        intervals(&mut bench, 100, 10);
        // 1.25·10/20 of 1000, plus the root of this. A latency is measured to 1 %.
        let window = intervals(&mut bench, 1, 20);
        assert!((window - 650.0).abs() < 7.0, "{window}");
        assert_near(intervals(&mut bench, 1, 1000), (window / 2.0 + (window / 2.0).sqrt()).floor());
    }

    #[test]
    fn at_the_smallest_window_and_once_a_minute_min_rtt_is_measured_again() {
        let mut bench = measured(&[]);
        intervals(&mut bench, 4, 1000);
        assert_near(intervals(&mut bench, 1, 1000), 3.0);
        // Calls from before the measurement do not count. Then 50 calls with 30 ms do.
        bench.served(100, 1000, 0);
        assert_near(intervals(&mut bench, 2, 30), 3.0);
        intervals(&mut bench, 1, 30);
        assert!(intervals(&mut bench, 1, 30) > 3.0);
        let before = intervals(&mut bench, 590, 30);
        assert_near(before, 1000.0);
        assert_near(intervals(&mut bench, 10, 30), 3.0);
        bench.served(50, 30, 0);
        assert_near(bench.window(), 1000.0);
    }

    #[test]
    fn an_interval_without_calls_changes_nothing() {
        let mut bench = measured(&[]);
        intervals(&mut bench, 3, 10);
        let before = bench.window();
        bench.signals.service = crate::Service::default();
        bench.completion();
        bench.tick();
        assert_near(bench.window(), before);
        assert!(ENTRY.values(&[("limit_max", 2.0)]).is_err());
    }
}
