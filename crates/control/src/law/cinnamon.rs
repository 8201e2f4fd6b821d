//! Cinnamon: each call has a random rank, and calls of low rank are rejected. A PID controller sets
//! the rejected share of ranks from the numbers of calls that enter and leave the queue.
//!
//! Signal: the number of new calls that entered the queue (in) and that were taken from it (out) in
//! the last `t_c`, and the number of free places for calls in flight (free). e = (in − (out +
//! free))/out, and the rejected share of ranks is K_p·e + K_i·∫e. The controller has no D part. The
//! law trips when a call has waited `timeout` and is rejected when its turn comes, or when there is
//! no room in the queue for a call. Before that nothing is rejected. The law recovers when free
//! places make e negative. Cold start: not tripped, 20 places in flight.
//!
//! L, the number of places in flight, follows the latency. After each interval of at least 50
//! calls, L ← L·max(least/p90, ½) + √L, where p90 is the 90th percentile of the latency and least
//! is the lowest p90 so far. After 50 of these intervals, the lowest p90 is forgotten. L is then
//! halved if the covariance of calls in flight and throughput is negative: more calls in flight
//! meant less throughput. Without this rule, a lowest p90 from an overload would raise L, and the
//! larger L would raise the next lowest p90.
//!
//! All these numbers count new calls. Single requests, such as REGISTER, and calls with priority
//! are not included, and the law admits all of them.
//!
//! At Uber, other servers work on the calls in flight, and calls beyond L wait in a queue by rank.
//! A Tidegate server works on one call at a time. So the first L calls of its queue count as in
//! flight.
//!
//! Known bias: the controller acts twice a second, and its error counts places in a queue. A server
//! with a low rate of calls has few places. A server with a high rate fills them slowly. Nothing is
//! rejected until a call was late. After that, the integral needs more steps the larger the
//! overload is. One step adds K_i·t_c·e, which is 0.7·e.
//!
//! Source: Uber, "PID Controller for Cinnamon" and "Cinnamon Auto-Tuner", 2023. They describe the
//! error, the gains, the timeout (a third of the caller's timeout), the p90 and the covariance. The
//! code is not public: √L, halving and the numbers of calls and intervals are our reading of the
//! figures.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::latency::{self, Latencies};
use crate::{Bucket, Control, Entry, Flow, Law, Param, Signals, Values};

static TIMEOUT: Param = Param::real("timeout", "s", 0.165, 0.001, 60.0).doc(
    "A call that has waited for this time is rejected when its turn comes. In Uber's Cinnamon this \
     is a third of the caller's timeout.",
);

static INTERVAL: Param = Param::real("t_c", "s", 0.5, 0.01, 60.0)
    .doc("Time from one step of the controller to the next.");

static K_P: Param = Param::real("k_p", "1", 0.1, 0.0, 100.0).doc("Proportional gain.");

static K_I: Param = Param::real("k_i", "1/s", 1.4, 0.001, 100.0).doc("Integral gain.");

static LIMIT_MAX: Param = Param::real("limit_max", "calls", 1000.0, 1.0, 1_000_000.0).doc(
    "The largest value of the limit for waiting calls. The law adjusts the limit to the latency, \
     but never below 1.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "cinnamon",
    summary: "rejects calls of low rank, by a PI controller of the calls that enter and leave the \
              queue",
    source: "Uber, PID Controller for Cinnamon and Cinnamon Auto-Tuner, 2023",
    doc: "A call that has waited for `timeout` is rejected when its turn comes. The law adjusts a \
          limit for waiting calls to the latency. The free places are this limit minus the waiting \
          calls, and at least 0. Each call has a rank, a random number from 0 to 1. After a call \
          has waited for `timeout` or has found the queue full, the law computes every `t_c` the \
          error e = (calls that entered the queue − calls that left it − free places)/(calls that \
          left it). It rejects calls with a rank below `k_p`·e + `k_i`·∫e, and stops when ∫e is 0 \
          again.",
    params: &[&TIMEOUT, &INTERVAL, &K_P, &K_I, &LIMIT_MAX],
    check: |_| Ok(()),
    build: |values: &Values| {
        Box::new(Cinnamon {
            timeout: Duration::from_secs_f64(values.of(&TIMEOUT)),
            interval: Duration::from_secs_f64(values.of(&INTERVAL)),
            gains: (values.of(&K_P), values.of(&K_I)),
            seen: Seen::default(),
            tripped: false,
            integral: 0.0,
            rejected: 0.0,
            tuner: Tuner::new(values.of(&LIMIT_MAX)),
        })
    },
};

#[derive(Debug)]
struct Cinnamon {
    timeout: Duration,
    interval: Duration,
    /// The proportional gain K_p and the integral gain K_i of the controller.
    gains: (f64, f64),
    seen: Seen,
    tripped: bool,
    /// The integral part of the rejected share: K_i·∫e, 0 to 1.
    integral: f64,
    /// The rejected share of the calls, 0 to 1: those with the lowest ranks.
    rejected: f64,
    tuner: Tuner,
}

/// Counts of new calls at one step of the controller.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Calls that wait. Other messages take no places, even if they wait in the same queue.
    waiting: u64,
    /// Calls taken from the queue to be served, since the start.
    taken: u64,
    /// Calls that waited too long, or for which there was no room in the queue, since the start.
    lost: u64,
}

impl Seen {
    fn of(signals: &Signals) -> Self {
        let Flow { taken, lost, .. } = *signals.flow(Bucket::Session);
        Self { waiting: signals.in_window(Bucket::Session), taken, lost }
    }
}

/// The state from which the number of places for calls in flight is computed.
#[derive(Debug)]
struct Tuner {
    limit: f64,
    limit_max: f64,
    latencies: Latencies,
    least_s: f64,
    /// Calls taken from the queue since the last interval ended.
    taken: f64,
    /// Calls in flight and calls taken from the queue, for each interval since `least_s` was last
    /// reset.
    intervals: Vec<(f64, f64)>,
}

const LIMIT_START: f64 = 20.0;
const LIMIT_MIN: f64 = 1.0;
const CALLS_MIN: u64 = 50;
const INTERVALS: usize = 50;
/// The smallest factor by which the gradient multiplies the limit at the end of an interval.
const GRADIENT_MIN: f64 = 0.5;

impl Tuner {
    fn new(limit_max: f64) -> Self {
        Self {
            limit: LIMIT_START.min(limit_max),
            limit_max,
            latencies: Latencies::new(),
            least_s: f64::INFINITY,
            taken: 0.0,
            intervals: Vec::with_capacity(INTERVALS),
        }
    }

    /// Ends an interval if it has enough calls. `taken` calls were taken from the queue since the
    /// last step, and `waiting` calls wait now.
    fn step(&mut self, waiting: f64, taken: f64) {
        self.taken += taken;
        if self.latencies.count() < CALLS_MIN {
            return;
        }
        let Some(p90_s) = self.latencies.take(0.9) else { return };
        self.least_s = self.least_s.min(p90_s);
        let gradient = (self.least_s / p90_s).max(GRADIENT_MIN);
        let mut limit = gradient * self.limit + self.limit.sqrt();
        self.intervals.push((waiting, std::mem::take(&mut self.taken)));
        if self.intervals.len() == INTERVALS {
            if covariance(&self.intervals) < 0.0 {
                limit /= 2.0;
            }
            self.intervals.clear();
            self.least_s = f64::INFINITY;
        }
        self.limit = limit.clamp(LIMIT_MIN, self.limit_max);
    }
}

fn covariance(pairs: &[(f64, f64)]) -> f64 {
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    mean(|(x, y)| x * y) - mean(|(x, _)| *x) * mean(|(_, y)| *y)
}

impl Law for Cinnamon {
    fn on_begin(&mut self, _: Timestamp, signals: &Signals) {
        self.seen = Seen::of(signals);
    }

    fn on_arrival(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.queue.wait_max = Some(self.timeout);
    }

    fn on_completion(&mut self, _: Timestamp, signals: &Signals, _: &mut Control) {
        if let Some(latency) = latency::of_call(signals) {
            self.tuner.latencies.record(latency);
        }
    }

    fn on_tick(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        let seen = Seen::of(signals);
        let earlier = std::mem::replace(&mut self.seen, seen);
        let waiting = seen.waiting as f64;
        let out = seen.taken.saturating_sub(earlier.taken).max(1) as f64;
        self.tuner.step(waiting, out);

        self.tripped |= seen.lost > earlier.lost;
        if self.tripped {
            let free = (self.tuner.limit - waiting).max(0.0);
            // The difference between calls that entered and calls that left is the growth of the
            // queue.
            let error = (waiting - earlier.waiting as f64 - free) / out;
            let step = self.gains.1 * error * self.interval.as_secs_f64();
            self.integral = (self.integral + step).clamp(0.0, 1.0);
            self.rejected = (self.gains.0 * error + self.integral).clamp(0.0, 1.0);
            self.tripped = self.integral > 0.0;
        }
        control.rank_floor = self.rejected;
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn is_at_rest(&self) -> bool {
        !self.tripped
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;

    /// Runs an interval in which `entered` calls enter, `taken` are taken and `stale` have waited
    /// too long. Returns the rejected share.
    fn interval(bench: &mut Bench, entered: u64, taken: u64, stale: u64) -> f64 {
        let flow = bench.signals.flow_mut(Bucket::Session);
        flow.offered += entered;
        flow.entered += entered;
        flow.taken += taken;
        flow.stale += stale;
        flow.lost += stale;
        let waiting = bench.signals.in_progress(Bucket::Session) + entered - taken;
        wait(bench, waiting);
        bench.tick();
        bench.control.rank_floor
    }

    /// Sets the number of calls that wait.
    fn wait(bench: &mut Bench, calls: u64) {
        bench.signals.queue.waiting = calls as usize;
        bench.signals.in_progress[Bucket::Session as usize] = calls;
    }

    fn fresh() -> Bench {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.arrival();
        assert_eq!(bench.control.queue.wait_max, Some(Duration::from_millis(165)));
        bench
    }

    #[test]
    fn nothing_is_rejected_before_a_call_was_late() {
        let mut bench = fresh();
        assert_near(interval(&mut bench, 1000, 100, 0), 0.0);
        assert!(bench.law.is_at_rest());
        // e = (200 − 100)/100 = 1, so the share is 0.1·e + 1.4·0.5·e.
        assert_near(interval(&mut bench, 200, 100, 1), 0.8);
        assert!(!bench.law.is_at_rest());
    }

    #[test]
    fn it_recovers_by_free_places_and_stays_between_none_and_all() {
        let mut bench = fresh();
        interval(&mut bench, 150, 100, 1);
        // 150 calls enter, 200 leave, and all 20 places are free: e = −0.35. The integral before
        // was 0.7·0.5.
        assert_near(interval(&mut bench, 150, 200, 0), 0.35 - 0.245 - 0.035);
        assert_near(interval(&mut bench, 100, 100, 0), 0.0);
        assert!(bench.law.is_at_rest());
        assert_near(interval(&mut bench, 10_000, 100, 1), 1.0);
        interval(&mut bench, 0, 5_000, 0);
        // The integral stopped at 1. With e = −1 it loses 0.7, and the proportional part takes
        // another 0.1.
        assert_near(bench.control.rank_floor, 0.2);
    }

    #[test]
    fn events_before_the_start_do_not_count() {
        let mut bench = fresh();
        let flow = bench.signals.flow_mut(Bucket::Session);
        (flow.stale, flow.lost) = (9, 9);
        bench.law.on_begin(bench.now, &bench.signals);
        assert_near(interval(&mut bench, 200, 100, 0), 0.0);
    }

    // If calls are judged at their service, the gate does not count rejected calls as taken.
    #[test]
    fn calls_rejected_at_their_turn_are_not_among_those_taken() {
        let mut bench = fresh();
        wait(&mut bench, 100);
        let flow = bench.signals.flow_mut(Bucket::Session);
        (flow.offered, flow.entered) = (100, 100);
        bench.law.on_begin(bench.now, &bench.signals);
        // 40 are served and 60 rejected, one of them as stale. The queue grows by 10: e = 10/40.
        let flow = bench.signals.flow_mut(Bucket::Session);
        (flow.offered, flow.entered, flow.taken, flow.rejected) = (210, 210, 40, 60);
        flow.lost = 1;
        wait(&mut bench, 110);
        bench.tick();
        assert_near(bench.control.rank_floor, 0.1 * 0.25 + 0.7 * 0.25);
    }

    #[test]
    fn a_source_beyond_its_limit_does_not_trip_it() {
        let mut bench = fresh();
        let flow = bench.signals.flow_mut(Bucket::Session);
        (flow.offered, flow.entered, flow.taken, flow.rejected) = (410, 310, 250, 100);
        wait(&mut bench, 60);
        bench.tick();
        assert_near(bench.control.rank_floor, 0.0);
    }

    // In one queue of all messages, the places are for calls too.
    #[test]
    fn other_messages_take_no_places() {
        let mut bench = fresh();
        let first = interval(&mut bench, 150, 100, 1);
        for _ in 0..2 {
            bench.signals.flow_mut(Bucket::Session).taken += 100;
            wait(&mut bench, 10);
            bench.signals.queue.waiting = 70;
            bench.tick();
        }
        assert!(bench.control.rank_floor < first, "{} {first}", bench.control.rank_floor);
    }

    fn steps(tuner: &mut Tuner, count: usize, ms: u64, waiting: f64, taken: f64) -> f64 {
        for _ in 0..count {
            for _ in 0..CALLS_MIN {
                tuner.latencies.record(Duration::from_millis(ms));
            }
            tuner.step(waiting, taken);
        }
        tuner.limit
    }

    #[test]
    fn places_grow_by_a_root_and_shrink_by_the_gradient() {
        let mut tuner = Tuner::new(1000.0);
        assert_near(steps(&mut tuner, 1, 10, 20.0, 100.0), 20.0 + 20_f64.sqrt());
        let before = steps(&mut tuner, 2, 10, 20.0, 100.0);
        assert_near(steps(&mut tuner, 1, 1000, 20.0, 100.0), before / 2.0 + before.sqrt());
        tuner.latencies.record(Duration::ZERO);
        let before = tuner.limit;
        tuner.step(0.0, 0.0);
        assert_near(tuner.limit, before);
    }

    #[test]
    fn an_interval_has_the_calls_of_all_its_steps() {
        let mut tuner = Tuner::new(1000.0);
        for _ in 0..2 {
            (0..30).for_each(|_| tuner.latencies.record(Duration::from_millis(10)));
            tuner.step(0.0, 30.0);
        }
        assert_eq!(tuner.intervals, [(0.0, 60.0)]);
    }

    #[test]
    fn more_in_flight_with_less_throughput_halves_it() {
        let limit = |slope: f64| {
            let mut tuner = Tuner::new(1000.0);
            for i in 0..INTERVALS {
                steps(&mut tuner, 1, 10, i as f64, 1000.0 + slope * i as f64);
            }
            tuner.limit
        };
        assert_near(limit(-1.0), limit(1.0) / 2.0);
    }
}
