//! rate-abs: the admitted rate is the rate at which calls are served, corrected by the delay in the
//! queue.
//!
//! Signal: N, the calls that wait, and μ, the rate at which calls are served. The delay of the
//! queue is d_q = N/μ. Every T_c the admitted rate is set to λ = μ·(1 − (d_q − D_B)/C), where D_B
//! is the delay budget. The law trips when more calls arrive than λ. The law recovers as the queue
//! empties: without a queue λ is μ·(1 + D_B/C). Cold start: everything is admitted until the first
//! tick.
//!
//! Single requests, such as REGISTER, do not change λ. The admitted share of them is λ divided by
//! the calls offered a second in the last T_c, but at most 1. While calls are not limited, single
//! requests are not limited either.
//!
//! The paper does not say what C is. With C = T_c, the default, the queue reaches the delay budget
//! within one interval.
//!
//! Known bias: μ is the rate of admitted calls. So below the capacity, λ is a multiple of the load,
//! and calls are rejected if the load grows by more than this factor in an interval. λ can fall to
//! 0 while a long queue waits.
//!
//! Source: paper 002 §3.6, after Hosein, US patent 6,442,139.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::window::{BUDGET, INTERVAL};
use crate::{Bucket, Control, Entry, Law, Param, Signals, Values};

static CORRECTION: Param = Param::real("c", "s", 0.0, 0.0, 600.0).doc(
    "Time C in which the admitted rate brings the delay in the queue to `d_b`. 0: the law uses \
     `t_c`.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "rate-abs",
    summary: "admits the rate of calls served, corrected by the delay of the queue",
    source: "paper 002 §3.6, after Hosein 2002",
    doc: "Every `t_c` the admitted rate becomes μ·(1 − (N/μ − `d_b`)/`c`). μ is the measured rate \
          of calls served, and N is the number of calls that wait.",
    params: &[&INTERVAL, &BUDGET, &CORRECTION],
    check: |_| Ok(()),
    build: |values: &Values| {
        let correction_s = match values.of(&CORRECTION) {
            0.0 => values.of(&INTERVAL),
            given => given,
        };
        Box::new(RateAbs {
            interval: Duration::from_secs_f64(values.of(&INTERVAL)),
            budget_s: values.of(&BUDGET),
            correction_s,
            waiting: 0.0,
            counted: (Timestamp::ZERO, 0),
        })
    },
};

#[derive(Debug)]
struct RateAbs {
    interval: Duration,
    budget_s: f64,
    correction_s: f64,
    /// N: the number of calls that waited at the last tick.
    waiting: f64,
    /// Time of the last tick, and the number of calls that had been offered by then.
    counted: (Timestamp, u64),
}

impl Law for RateAbs {
    fn on_begin(&mut self, now: Timestamp, signals: &Signals) {
        self.counted = (now, signals.flow(Bucket::Session).offered);
    }

    /// Makes the next tick measure the offered rate from now on. Otherwise this rate would be the
    /// average over a time without messages.
    fn on_wake(&mut self, now: Timestamp, signals: &Signals) {
        self.counted = (now, signals.flow(Bucket::Session).offered);
    }

    fn on_tick(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        self.waiting = signals.sessions_waiting();
        let served_cps = signals.sessions.rate_cps();
        let delay_s = self.waiting / served_cps;
        let rate = served_cps * (1.0 - (delay_s - self.budget_s) / self.correction_s);
        let offered = signals.flow(Bucket::Session).offered;
        let (then, before) = std::mem::replace(&mut self.counted, (now, offered));
        let offered_cps = (offered - before) as f64 / now.since(then).as_secs_f64();
        control.admit_sessions_at(rate.max(0.0), offered_cps);
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn is_at_rest(&self) -> bool {
        self.waiting < 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;
    use crate::{Allowance, Backlog};

    fn rate(bench: &mut Bench, sessions: usize) -> f64 {
        bench.signals.backlog = Backlog { sessions, ..Backlog::default() };
        bench.tick();
        match bench.allowance() {
            Allowance::Rate(rate) => rate,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_queue_is_brought_to_its_budget_in_one_interval() {
        let mut bench = Bench::of(&ENTRY, &[]);
        // Before anything is measured, 100 calls/s are assumed to be served.
        assert_near(rate(&mut bench, 20), 100.0);
        assert_near(rate(&mut bench, 0), 200.0);
        assert!(bench.law.is_at_rest());
        assert_near(rate(&mut bench, 30), 50.0);
        assert_near(rate(&mut bench, 60), 0.0);
        assert!(!bench.law.is_at_rest());
    }

    #[test]
    fn the_correction_may_take_longer() {
        let mut bench = Bench::of(&ENTRY, &[("c", 1.0)]);
        assert_near(rate(&mut bench, 0), 120.0);
        assert_near(rate(&mut bench, 70), 50.0);
    }

    // A registrar has many single requests and few calls. The rate of calls must not limit the single
    // requests of an idle server.
    #[test]
    fn a_server_without_calls_does_not_limit_single_requests() {
        let mut bench = Bench::of(&ENTRY, &[]);
        for _ in 0..10 {
            bench.pass(Duration::from_millis(200), 0.1);
            bench.signals.flow_mut(Bucket::Single).offered += 200;
            bench.tick();
        }
        assert_eq!(bench.control.admit(Bucket::Single).fraction(1000.0), 1.0);
        // While calls are rejected, the same share of the single requests is rejected: λ is 200, and
        // 400 calls/s are offered.
        bench.pass(Duration::from_millis(200), 1.0);
        bench.signals.flow_mut(Bucket::Session).offered += 80;
        bench.tick();
        assert_near(bench.control.admit(Bucket::Single).fraction(1000.0), 0.5);
    }

    // After a quiet hour 400 calls/s arrive. Half of them are rejected, and so is half of the single
    // requests.
    #[test]
    fn a_rest_does_not_count_as_a_time_of_few_calls() {
        let mut bench = Bench::of(&ENTRY, &[]);
        bench.pass(Duration::from_secs(3600), 0.0);
        bench.law.on_wake(bench.now, &bench.signals);
        bench.pass(Duration::from_millis(200), 1.0);
        bench.signals.flow_mut(Bucket::Session).offered += 80;
        bench.tick();
        assert_near(bench.control.admit(Bucket::Single).fraction(1000.0), 0.5);
    }
}
