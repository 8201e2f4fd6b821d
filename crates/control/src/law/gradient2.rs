//! Gradient: a window that follows the slope of the response time.
//!
//! Signals: `current`, the response time of each new call, from its arrival to the end of its
//! service, and `long`, the average of `current` over some 600 calls. g = clamp(½,
//! tolerance·long/current, 1), and the window L ← 0.8·L + 0.2·(g·L + 4). The law trips when
//! `current` exceeds `long` by so much that the 4 additional calls do not compensate for g < 1. The
//! law recovers by these 4 calls, but only while at least half of the window is in use, because an
//! unused window does not show that the server can serve more calls. Cold start: L = 20, which is
//! also its minimum, so some calls are always admitted.
//!
//! After an overload `long` is too high for a long time. Each call whose response time is less than
//! half of `long` reduces `long` by a tenth.
//!
//! The latencies of single requests, such as REGISTER, and of calls with priority do not count. A
//! window of the same size limits the single requests that wait.
//!
//! Known bias: the law has no threshold in seconds. In a long overload, `long` follows `current`,
//! and only the variation of the response times keeps L small. With a tolerance of 1.5, as in later
//! releases of the source, the variation is too small for that: L rises to its maximum, and 200
//! calls wait at all times. Serving these calls must not take longer than a caller waits. The law
//! sees the completion of a call only if another message is served right after it. Under a load at
//! which the window limits calls, messages do follow each other in this way.
//!
//! Source: Netflix concurrency-limits, `Gradient2Limit.java`.

use tidegate_world::Timestamp;

use super::latency;
use crate::ewma::Ewma;
use crate::{Allowance, Control, Entry, Law, Param, Signals, Values};

static LIMIT_START: Param =
    Param::real("limit_start", "calls", 20.0, 1.0, 1_000_000.0).doc("Window at the start.");

static LIMIT_MIN: Param =
    Param::real("limit_min", "calls", 20.0, 1.0, 1_000_000.0).doc("Smallest window.");

static LIMIT_MAX: Param =
    Param::real("limit_max", "calls", 200.0, 1.0, 1_000_000.0).doc("Largest window.");

static QUEUE: Param = Param::real("queue", "calls", 4.0, 0.001, 10_000.0).doc(
    "While responses are not slower than the average, each call served makes the window larger by \
     `queue` times `smoothing`.",
);

static SMOOTHING: Param = Param::real("smoothing", "fraction", 0.2, 0.001, 1.0)
    .doc("Weight of the newest value in the smoothed window.");

static LONG: Param = Param::real("long", "calls", 600.0, 2.0, 1_000_000.0).doc(
    "Number of calls over which the law averages the response times. It compares the response time \
     of each call with this average.",
);

static TOLERANCE: Param = Param::real("tolerance", "1", 1.0, 1.0, 100.0).doc(
    "Factor by which a response may be slower than the average before the window shrinks. Later \
     releases of Netflix concurrency-limits use 1.5, but with 1.5 the window drifts to its \
     maximum.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "gradient2",
    summary: "limits the waiting calls by a window, which shrinks while responses are slower than \
              their average",
    source: "Netflix concurrency-limits, Gradient2Limit.java",
    doc: "For every call served, the law computes g = `tolerance`·(average response time \
          of about `long` calls)/(response time of this call), limited to ½ … 1. The window L \
          becomes g·L + `queue`, smoothed and within its limits. Calls beyond the window are \
          rejected.",
    params: &[&LIMIT_START, &LIMIT_MIN, &LIMIT_MAX, &QUEUE, &SMOOTHING, &LONG, &TOLERANCE],
    check: |values| {
        let start = values.of(&LIMIT_START);
        let ordered = values.of(&LIMIT_MIN) <= start && start <= values.of(&LIMIT_MAX);
        if ordered { Ok(()) } else { Err("limit_min <= limit_start <= limit_max") }
    },
    build: |values: &Values| {
        Box::new(Gradient2 {
            bounds: (values.of(&LIMIT_MIN), values.of(&LIMIT_MAX)),
            queue: values.of(&QUEUE),
            smoothing: values.of(&SMOOTHING),
            tolerance: values.of(&TOLERANCE),
            // This is the weight of an average over that many samples.
            long: Ewma::beginning_with(WARM_UP, 2.0 / (values.of(&LONG) + 1.0)),
            limit: values.of(&LIMIT_START),
        })
    },
};

/// Number of calls at the start that have equal weight in the average (warm-up).
const WARM_UP: u32 = 10;
/// The minimum of g, the factor by which the window changes.
const GRADIENT_MIN: f64 = 0.5;
/// Each call reduces the long average if this average exceeds this multiple of the call's
/// response time.
const DRIFT_MAX: f64 = 2.0;
/// The factor by which a call reduces the long average (see [`DRIFT_MAX`]).
const DRIFT_FACTOR: f64 = 0.9;

#[derive(Debug)]
struct Gradient2 {
    bounds: (f64, f64),
    queue: f64,
    smoothing: f64,
    tolerance: f64,
    /// The long average: the mean response time of some 600 calls, in seconds.
    long: Ewma,
    limit: f64,
}

impl Law for Gradient2 {
    fn on_arrival(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.admit_of_all(Allowance::Window(self.limit));
    }

    fn on_completion(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        let Some(latency) = latency::of_call(signals) else { return };
        let current_s = latency.as_secs_f64();
        let long_s = self.long.update(current_s);
        if long_s > DRIFT_MAX * current_s {
            self.long.scale(DRIFT_FACTOR);
        }
        if (latency::in_use(signals) as f64) < self.limit / 2.0 {
            return;
        }
        let gradient = self.tolerance * long_s / current_s;
        let gradient = if gradient.is_nan() { 1.0 } else { gradient.clamp(GRADIENT_MIN, 1.0) };
        let wanted = gradient * self.limit + self.queue;
        let limit = (1.0 - self.smoothing) * self.limit + self.smoothing * wanted;
        self.limit = limit.clamp(self.bounds.0, self.bounds.1);
        control.admit_of_all(Allowance::Window(self.limit));
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;
    use crate::Bucket;

    fn fresh(given: &[(&str, f64)]) -> Bench {
        let mut bench = Bench::of(&ENTRY, given);
        bench.arrival();
        bench
    }

    const EXACT: (&str, f64) = ("tolerance", 1.0);

    #[test]
    fn while_nothing_slows_down_the_window_grows_to_its_maximum() {
        let mut bench = fresh(&[EXACT]);
        assert_near(bench.window(), 20.0);
        // 0.8·20 + 0.2·(20 + 4)
        assert_near(bench.served(1, 10, 60), 20.8);
        assert_near(bench.served(1, 10, 60), 21.6);
        assert_near(bench.served(1000, 10, 300), 200.0);
    }

    #[test]
    fn a_slower_response_shrinks_it_by_the_gradient() {
        let mut bench = fresh(&[EXACT, ("limit_start", 100.0)]);
        // While there are at most ten times, the average is their mean: 10 ms, then 20 ms.
        assert_near(bench.served(1, 10, 60), 100.8);
        assert_near(bench.served(1, 30, 60), 0.8 * 100.8 + 0.2 * (100.8 * 20.0 / 30.0 + 4.0));
        // The window shrinks as if g were a half, the minimum.
        let before = bench.window();
        assert_near(bench.served(1, 10_000, 60), 0.8 * before + 0.2 * (before / 2.0 + 4.0));
        assert_near(bench.served(3, 1_000_000, 60).max(20.0), bench.window());
    }

    #[test]
    fn the_tolerance_is_not_punished() {
        let mut bench = fresh(&[("tolerance", 1.5), ("limit_start", 100.0)]);
        bench.served(10, 10, 60);
        let before = bench.window();
        // One value hardly changes the average.
        let long = 10.0 + 4.9 * 2.0 / 601.0;
        assert!(1.5 * long > 14.9);
        let mut with = |ms: u64| bench.served(1, ms, 60);
        assert_near(with(14), before + 0.8);
        assert!(with(17) < before + 1.6);
    }

    #[test]
    fn it_never_falls_below_its_least() {
        let mut bench = fresh(&[EXACT]);
        bench.served(10, 10, 60);
        for ms in 1..100 {
            bench.served(1, ms * ms * 1000, 60);
        }
        assert!(bench.window() >= 20.0);
        let mut bench = fresh(&[EXACT, ("limit_min", 100.0), ("limit_start", 101.0)]);
        bench.served(1, 10, 60);
        assert_near(bench.served(1, 10_000, 60), 100.0);
    }

    #[test]
    fn a_half_unused_window_does_not_change() {
        let mut bench = fresh(&[EXACT]);
        assert_near(bench.served(5, 10, 8), 20.0);
        assert_near(bench.served(1, 10, 9), 20.8);
        // Messages of begun calls in the same queue do not use the window.
        bench.signals.queue.waiting = 100;
        assert_near(bench.served(1, 10, 0), 20.8);
        // If calls are judged at service, unread messages count as waiting.
        bench.signals.mix.record(bench.now, 0, true);
        bench.signals.backlog.unread = 100;
        assert_near(bench.served(1, 10, 0), 21.6);
    }

    #[test]
    fn an_average_far_above_the_current_value_is_reset() {
        let mut bench = fresh(&[EXACT, ("limit_start", 100.0)]);
        bench.served(10, 1000, 0);
        // By its weight alone the average would still be 745 ms. It is below 200 ms and above 150
        // ms.
        bench.served(100, 100, 0);
        assert_near(bench.window(), 100.0);
        let window = bench.served(1, 300, 60);
        let with = |gradient: f64| 80.0 + 0.2 * (100.0 * gradient + 4.0);
        assert!((with(0.5) + 0.001..with(0.67)).contains(&window), "{window}");
    }

    #[test]
    fn other_messages_do_not_count() {
        let mut bench = fresh(&[EXACT]);
        bench.signals.in_progress[Bucket::Session as usize] = 100;
        bench.completion();
        assert_near(bench.window(), 20.0);
    }

    #[test]
    fn responses_without_delay_do_no_harm() {
        let mut bench = fresh(&[]);
        bench.signals.service.is_session = true;
        bench.signals.in_progress[Bucket::Session as usize] = 100;
        bench.completion();
        assert_near(bench.window(), 20.8);
    }

    #[test]
    fn the_window_starts_within_its_bounds() {
        let values = |start| ENTRY.values(&[("limit_start", start)]);
        assert!(values(20.0).is_ok() && values(200.0).is_ok());
        assert!(values(19.0).is_err() && values(201.0).is_err());
    }
}
