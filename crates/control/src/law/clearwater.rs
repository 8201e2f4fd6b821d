//! Clearwater: the smoothed latency sets the rate of a token bucket.
//!
//! Signal: the wait of new calls before their service, smoothed with the weight 1/8. Clearwater
//! itself uses the whole latency of its requests, in which a proxy's own work is only a thousandth.
//! After every 20 calls, but not before 0.2 s have passed, err = (latency − target)/target. The law
//! trips when err > 0: the rate is divided by 1.2. The law recovers when err < −0.005: the rate
//! grows by −err/2·`bucket` calls/s. It grows only while at least half of the rate is used, because
//! an hour with few calls proves no capacity. Cold start: the initial rate, which the operator
//! considers safe.
//!
//! Single requests, such as REGISTER, and calls with priority do not count. Usually they wait in
//! queues of their own. The admitted share of the single requests is the rate divided by the calls
//! offered in the last second, but at most 1. While calls are not limited, single requests are not
//! limited either.
//!
//! After a second without calls, the old rate has no meaning. Then a rate below the initial rate is
//! set to the initial rate, and the latency to its target. Clearwater itself has no such rule:
//! after a night without calls, the rate of the last overload still limits the first calls. A
//! minimum rate prevents starvation.
//!
//! Known bias: the law acts after a number of calls, not after a time. So it is slow when few calls
//! are admitted. Latency is measured when a call leaves the queue. So the law learns the latency of
//! a call that is admitted now only after all calls ahead of it. With Clearwater's own bucket of
//! 1,000 and 100 calls a second, the rate grows by 500 at once. The throttle should be a token
//! bucket with a depth of `bucket`.
//!
//! Source: Metaswitch Clearwater, cpp-common `src/load_monitor.cpp`, after Welsh and Culler,
//! "Adaptive Overload Control for Busy Internet Servers", 2003. Its first releases change the rate
//! every 20 calls. Later ones change it at most every two seconds, with a bucket of 1,000. In a
//! server of hundreds of calls a second, both make the rate overshoot by more than the capacity.
//! The defaults here are between the two.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::ewma::Ewma;
use crate::{Bucket, Control, Entry, Flow, Law, Param, Signals, Values};

static TARGET: Param = Param::real("target", "s", 0.1, 0.000_1, 10.0).doc(
    "Target of the smoothed wait of a new call in the queue. Above the target the rate falls, and \
     below it the rate grows.",
);

static BUCKET: Param = Param::real("bucket", "calls", 20.0, 0.1, 1_000_000.0).doc(
    "Depth of the token bucket that the law assumes. Set `burst` in `[overload]` to about the same \
     value. The rate grows by at most half of this number in one change, and by less if calls \
     wait. Clearwater uses 1000.",
);

static RATE_START: Param = Param::real("rate_start", "1/s", 100.0, 0.1, 1_000_000.0).doc(
    "The rate at the start. After a second without calls the rate is at least this value. \
     Clearwater uses 100.",
);

static RATE_MIN: Param = Param::real("rate_min", "1/s", 10.0, 0.1, 1_000_000.0).doc("Lowest rate.");

static CALLS: Param = Param::whole("calls", "calls", 20.0, 1, 1_000_000)
    .doc("Minimum number of calls served from one change of the rate to the next.");

static INTERVAL: Param = Param::real("interval", "s", 0.2, 0.0, 60.0).doc(
    "Shortest time from one change of the rate to the next. Clearwater uses 2. Early versions of \
     Clearwater used 0.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "clearwater",
    summary: "changes the admitted rate at intervals: divides it by 1.2 while calls wait longer \
              than a target, and otherwise lets it grow",
    source: "Metaswitch Clearwater, cpp-common load_monitor.cpp",
    doc: "The law adjusts the admitted rate after every `calls` calls served, but not before \
          `interval` has passed since the last change. If the smoothed wait exceeds `target`, the \
          law divides the rate by 1.2. If the smoothed wait is below `target`, the rate grows by \
          up to half of the `bucket`. It does not grow while the admitted calls use less than half \
          of the rate. Use this law with `throttle = \"token-bucket\"`.",
    params: &[&TARGET, &BUCKET, &RATE_START, &RATE_MIN, &CALLS, &INTERVAL],
    check: |values| {
        let ordered = values.of(&RATE_MIN) <= values.of(&RATE_START);
        if ordered { Ok(()) } else { Err("rate_min <= rate_start") }
    },
    build: |values: &Values| Box::new(Clearwater::new(values)),
};

/// The admitted rate is divided by this factor when it falls.
const DECREASE: f64 = 1.2;
/// The admitted rate may grow if the relative error of the latency is below this.
const INCREASE_BELOW: f64 = -0.005;
/// The part of `bucket` by which the admitted rate grows if the latency is 0.
const INCREASE: f64 = 0.5;
/// The part of the admitted rate that must be in use before this rate may grow.
const USED_MIN: f64 = 0.5;
/// Weight of the newest latency in the smoothed latency.
const WEIGHT: f64 = 1.0 / 8.0;
/// Time without calls after which the admitted rate is set to `rate_start`, if it is lower.
const SILENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Clearwater {
    target_s: f64,
    bucket: f64,
    rate_start: f64,
    rate_min: f64,
    calls_max: u64,
    interval: Duration,
    rate: f64,
    latency: Ewma,
    calls: u64,
    /// Time of the last change of the rate, and the number of calls admitted by then.
    changed: (Timestamp, u64),
    /// Number of messages that had asked for a session by the last tick.
    arrived: u64,
    /// Time of the last tick, and the number of calls that had been offered by then.
    counted: (Timestamp, u64),
    /// Calls a second that were offered between the last two ticks.
    offered_cps: f64,
}

impl Clearwater {
    fn new(values: &Values) -> Self {
        let target_s = values.of(&TARGET);
        Self {
            target_s,
            bucket: values.of(&BUCKET),
            rate_start: values.of(&RATE_START),
            rate_min: values.of(&RATE_MIN),
            calls_max: values.of(&CALLS) as u64,
            interval: Duration::from_secs_f64(values.of(&INTERVAL)),
            rate: values.of(&RATE_START),
            latency: Ewma::starting_at(target_s, WEIGHT),
            calls: 0,
            changed: (Timestamp::ZERO, 0),
            arrived: 0,
            counted: (Timestamp::ZERO, 0),
            offered_cps: 0.0,
        }
    }

    fn change(&mut self, latency_s: f64, used: f64) {
        let error = (latency_s - self.target_s) / self.target_s;
        if error > 0.0 {
            self.rate = (self.rate / DECREASE).max(self.rate_min);
        } else if error < INCREASE_BELOW && used > USED_MIN {
            self.rate += -error * INCREASE * self.bucket;
        }
    }
}

impl Law for Clearwater {
    fn on_begin(&mut self, now: Timestamp, signals: &Signals) {
        let flow = signals.flow(Bucket::Session);
        self.changed = (now, flow.admitted);
        self.arrived = flow.arrived;
        self.counted = (now, flow.offered);
    }

    fn on_arrival(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.admit_sessions_at(self.rate, self.offered_cps);
    }

    fn on_service(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        if !signals.service.is_session {
            return;
        }
        let latency_s = self.latency.update(signals.service.sojourn.as_secs_f64());
        self.calls += 1;
        let passed = now.since(self.changed.0);
        if self.calls < self.calls_max || passed < self.interval {
            return;
        }
        let admitted = signals.flow(Bucket::Session).admitted;
        let used = (admitted - self.changed.1) as f64 / (self.rate * passed.as_secs_f64());
        self.change(latency_s, used);
        (self.calls, self.changed) = (0, (now, admitted));
        control.admit_sessions_at(self.rate, self.offered_cps);
    }

    /// Makes the next tick measure the offered rate from now on. Otherwise this rate would be the
    /// average over a time without messages.
    fn on_wake(&mut self, now: Timestamp, signals: &Signals) {
        self.counted = (now, signals.flow(Bucket::Session).offered);
    }

    fn on_tick(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        let Flow { arrived, offered, .. } = *signals.flow(Bucket::Session);
        if arrived == self.arrived && self.rate < self.rate_start {
            self.rate = self.rate_start;
            self.latency = Ewma::starting_at(self.target_s, WEIGHT);
        }
        self.arrived = arrived;
        let (then, before) = std::mem::replace(&mut self.counted, (now, offered));
        self.offered_cps = (offered - before) as f64 / now.since(then).as_secs_f64();
        control.admit_sessions_at(self.rate, self.offered_cps);
    }

    fn tick(&self) -> Option<Duration> {
        Some(SILENCE)
    }

    fn is_at_rest(&self) -> bool {
        self.rate >= self.rate_start
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use crate::Allowance;

    fn fresh(given: &[(&str, f64)]) -> Bench {
        let mut bench = Bench::of(&ENTRY, &[&[("interval", 0.0)], given].concat());
        bench.arrival();
        bench
    }

    /// Admits and serves `count` calls at the rate `cps`. Each waits for `ms`.
    fn serve(bench: &mut Bench, count: u32, ms: u64, cps: f64) -> f64 {
        for _ in 0..count {
            bench.pass(Duration::from_secs_f64(1.0 / cps), 0.0);
            let flow = bench.signals.flow_mut(Bucket::Session);
            flow.arrived += 1;
            flow.admitted += 1;
            bench.taken(Duration::from_millis(ms));
        }
        rate(bench)
    }

    fn tick(bench: &mut Bench) -> f64 {
        bench.tick();
        rate(bench)
    }

    fn rate(bench: &Bench) -> f64 {
        match bench.allowance() {
            Allowance::Rate(rate) => rate,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-4, "{value}, not {expected}");
    }

    #[test]
    fn a_long_wait_divides_the_rate_after_every_20_calls() {
        let mut bench = fresh(&[]);
        assert_near(serve(&mut bench, 19, 200, 100.0), 100.0);
        assert_near(serve(&mut bench, 1, 200, 100.0), 100.0 / 1.2);
        assert_near(serve(&mut bench, 20, 200, 100.0), 100.0 / 1.44);
        assert_near(serve(&mut bench, 2000, 200, 100.0), 10.0);
    }

    #[test]
    fn without_any_wait_it_grows_by_half_of_the_bucket() {
        let mut bench = fresh(&[]);
        // err = −(1 − (7/8)^20)
        assert_near(serve(&mut bench, 20, 0, 100.0), 100.0 + 10.0 * (1.0 - 0.875_f64.powi(20)));
        let before = serve(&mut bench, 200, 0, 200.0);
        assert_near(serve(&mut bench, 20, 0, 200.0), before + 10.0);
    }

    #[test]
    fn next_to_the_target_it_stays() {
        let mut bench = fresh(&[]);
        assert_near(serve(&mut bench, 200, 100, 100.0), 100.0);
        let mut bench = fresh(&[("target", 0.1004)]);
        assert_near(serve(&mut bench, 200, 100, 100.0), 100.0);
        let mut bench = fresh(&[("target", 0.1006)]);
        assert!(serve(&mut bench, 200, 100, 100.0) > 100.0);
    }

    #[test]
    fn a_rate_that_is_half_unused_does_not_grow() {
        let mut bench = fresh(&[]);
        assert_near(serve(&mut bench, 200, 0, 49.9), 100.0);
        assert!(serve(&mut bench, 20, 0, 50.1) > 100.0);
    }

    #[test]
    fn changes_may_have_a_minimum_interval() {
        let mut bench = fresh(&[("interval", 2.0)]);
        assert_near(serve(&mut bench, 199, 200, 100.0), 100.0);
        assert_near(serve(&mut bench, 1, 200, 100.0), 100.0 / 1.2);
        assert_near(serve(&mut bench, 199, 200, 100.0), 100.0 / 1.2);
    }

    #[test]
    fn a_second_without_calls_restores_the_initial_rate() {
        let mut bench = fresh(&[]);
        serve(&mut bench, 100, 200, 100.0);
        assert_eq!(bench.law.tick(), Some(SILENCE));
        let low = tick(&mut bench);
        assert!(low < 45.0 && !bench.law.is_at_rest());
        serve(&mut bench, 1, 200, 100.0);
        assert_near(tick(&mut bench), low);
        assert_near(tick(&mut bench), 100.0);
        assert!(bench.law.is_at_rest());
        // The latency measured before the pause is forgotten too.
        assert!(serve(&mut bench, 20, 90, 100.0) >= 100.0);
        // A rate above the initial rate is kept.
        let high = serve(&mut bench, 100, 0, 100.0);
        tick(&mut bench);
        assert_near(tick(&mut bench), high);
    }

    #[test]
    fn only_new_calls_count() {
        let mut bench = fresh(&[]);
        bench.signals.service.sojourn = Duration::from_secs(9);
        for _ in 0..100 {
            bench.service();
        }
        assert_near(rate(&bench), 100.0);
        assert!(ENTRY.values(&[("rate_min", 101.0)]).is_err());
        assert!(ENTRY.values(&[("rate_min", 100.0)]).is_ok());
    }

    // A registrar has many single requests and few calls. The unused rate of calls must not limit
    // the single requests of an idle server.
    #[test]
    fn a_server_without_calls_does_not_limit_single_requests() {
        let mut bench = fresh(&[]);
        for _ in 0..10 {
            bench.pass(SILENCE, 0.1);
            bench.arrival();
            bench.signals.flow_mut(Bucket::Single).offered += 1000;
            bench.tick();
        }
        assert_eq!(bench.control.admit(Bucket::Single).fraction(1000.0), 1.0);
        // While calls are rejected, the same share of the single requests is rejected: the rate is
        // 100, and 200 calls/s are offered.
        bench.pass(SILENCE, 1.0);
        bench.signals.flow_mut(Bucket::Session).offered += 200;
        bench.tick();
        assert_eq!(bench.control.admit(Bucket::Single).fraction(1000.0), 0.5);
    }

    // After a quiet hour 200 calls/s arrive. Half of them are rejected, and so is half of the single
    // requests.
    #[test]
    fn a_rest_does_not_count_as_a_time_of_few_calls() {
        let mut bench = fresh(&[]);
        bench.pass(Duration::from_secs(3600), 0.0);
        bench.law.on_wake(bench.now, &bench.signals);
        bench.pass(SILENCE, 1.0);
        bench.arrival();
        let flow = bench.signals.flow_mut(Bucket::Session);
        flow.offered += 200;
        flow.arrived += 200;
        bench.tick();
        assert_eq!(bench.control.admit(Bucket::Single).fraction(1000.0), 0.5);
    }
}
