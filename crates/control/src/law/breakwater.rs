//! Breakwater: a number of credits limits the calls in the server. The delay in the queue
//! determines this number.
//!
//! Signal: d, the wait of the last new call taken from the queue, or 0 if the queue is empty. Every
//! `t_c` the number of credits C changes: if d is below its target d_t, C ← C + 1, else C ← C·max(1
//! − β·(d − d_t)/d_t, ½). The law trips when d reaches d_t. A step down is larger the further d
//! exceeds d_t. A call that has waited 2·d_t is rejected when its turn comes. The law recovers by
//! one credit a step while d is below its target, from the minimum of one credit up to the maximum.
//! Cold start: the maximum.
//!
//! In Breakwater itself, the clients hold the credits, and send nothing without a credit. So its
//! servers reject almost nothing. Here the server keeps the credits, and rejects a call for which
//! there is none. As in Breakwater, the credits limit the calls that are in the server at the same
//! time. So they are a window, not a rate. A window needs no estimate of the capacity, and admits a
//! call as soon as another has left.
//!
//! Single requests, such as REGISTER, and calls with priority do not change d, because usually they
//! wait in queues of their own. A window of the same size limits the single requests that wait.
//!
//! Known bias: steps up are constant, and steps down are proportional. So a small window, in which
//! few calls fit into d_t, oscillates relatively more than a large one. Without load the number of
//! credits grows to its maximum. When an overload begins, all arrivals are admitted and wait until
//! the first steps down. Until then, only the limit of 2·d_t keeps the wait short.
//!
//! Source: Cho et al., "Overload Control for µs-Scale RPCs with Breakwater", OSDI 2020, and
//! caladan, `breakwater/src/bw_server.c`: β is 0.02. A step down keeps at least half of the
//! credits, and a step up adds at least one. Calls are rejected after twice the target. d_t is 40 %
//! of the delay that is promised to clients.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Allowance, Control, Entry, Law, Param, Signals, Values};

static TARGET: Param = Param::real("d_t", "s", 0.04, 0.000_1, 10.0).doc(
    "Target d_t of the delay in the queue. Breakwater uses 40 % of the response time that it \
     promises to clients. A call that has waited twice this target is rejected.",
);

static INTERVAL: Param = Param::real("t_c", "s", 0.01, 0.001, 10.0).doc(
    "Time from one change of the window to the next. Breakwater uses the round-trip time of its \
     network.",
);

static INCREASE: Param = Param::real("increase", "calls", 1.0, 0.1, 10_000.0).doc(
    "The number of calls by which the window grows in one `t_c`. Breakwater uses 0.1 % of the \
     number of its clients, and at least 1.",
);

static DECREASE: Param = Param::real("beta", "fraction", 0.02, 0.001, 1.0).doc(
    "Share by which the window shrinks in one `t_c` if the delay in the queue is twice `d_t`.",
);

static CREDITS_MAX: Param = Param::real("credits_max", "calls", 500.0, 1.0, 1_000_000.0)
    .doc("Largest window. Breakwater calls this the number of credits.");

pub(crate) static ENTRY: Entry = Entry {
    name: "breakwater",
    summary: "limits the waiting calls by a window, which shrinks when the delay in the queue \
              reaches a target, and otherwise grows",
    source: "Cho et al., OSDI 2020; caladan, bw_server.c",
    doc: "Every `t_c` the law reads the delay d in the queue. If d reaches `d_t`, the law \
          multiplies the window by 1 − `beta`·(d − `d_t`)/`d_t`, but by at least ½. Otherwise the \
          window grows by `increase`. Calls beyond the window are rejected. Calls that have waited \
          twice `d_t` are rejected too.",
    params: &[&TARGET, &INTERVAL, &INCREASE, &DECREASE, &CREDITS_MAX],
    check: |_| Ok(()),
    build: |values: &Values| {
        Box::new(Breakwater {
            target: Duration::from_secs_f64(values.of(&TARGET)),
            interval: Duration::from_secs_f64(values.of(&INTERVAL)),
            increase: values.of(&INCREASE),
            decrease: values.of(&DECREASE),
            credits_max: values.of(&CREDITS_MAX),
            delay: Duration::ZERO,
            credits: values.of(&CREDITS_MAX),
        })
    },
};

/// Minimum number of credits. Without credits, no call would pass and no delay would be measured.
const CREDITS_MIN: f64 = 1.0;
/// The smallest factor by which a step reduces the number of credits.
const KEPT_MIN: f64 = 0.5;

#[derive(Debug)]
struct Breakwater {
    target: Duration,
    interval: Duration,
    increase: f64,
    decrease: f64,
    credits_max: f64,
    /// d: the wait of the new call that was taken from the queue last.
    delay: Duration,
    /// C: the number of credits.
    credits: f64,
}

impl Law for Breakwater {
    fn on_service(&mut self, _: Timestamp, signals: &Signals, _: &mut Control) {
        if signals.service.is_session {
            self.delay = signals.service.sojourn;
        }
    }

    fn on_tick(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        if signals.queue.waiting == 0 {
            self.delay = Duration::ZERO;
        }
        self.credits = if self.delay >= self.target {
            let beyond = (self.delay - self.target).as_secs_f64() / self.target.as_secs_f64();
            self.credits * (1.0 - self.decrease * beyond).max(KEPT_MIN)
        } else {
            self.credits + self.increase
        };
        self.credits = self.credits.clamp(CREDITS_MIN, self.credits_max);
        control.admit_of_all(Allowance::Window(self.credits));
        control.queue.wait_max = Some(2 * self.target);
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn is_at_rest(&self) -> bool {
        self.credits >= self.credits_max
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;

    /// Takes a call from the queue that waited for `ms`. Other calls stay in the queue.
    fn taken(bench: &mut Bench, ms: u64) {
        bench.signals.queue.waiting = 9;
        bench.taken(Duration::from_millis(ms));
    }

    fn steps(bench: &mut Bench, count: u32) -> f64 {
        for _ in 0..count {
            bench.tick();
        }
        match bench.allowance() {
            Allowance::Window(window) => window,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_further_beyond_the_target_the_larger_the_step_down() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert_eq!(bench.law.tick(), Some(Duration::from_millis(10)));
        assert_near(steps(&mut bench, 1), 500.0);
        taken(&mut bench, 40);
        assert_near(steps(&mut bench, 1), 500.0);
        taken(&mut bench, 80);
        assert_near(steps(&mut bench, 1), 490.0);
        taken(&mut bench, 120);
        assert_near(steps(&mut bench, 1), 490.0 * 0.96);
        // By a half at most.
        taken(&mut bench, 10_000);
        assert_near(steps(&mut bench, 1), 490.0 * 0.48);
    }

    #[test]
    fn below_the_target_it_grows_by_one_a_step_from_the_minimum_to_the_maximum() {
        let mut bench = Bench::of(&ENTRY, &[]);
        taken(&mut bench, 10_000);
        assert_near(steps(&mut bench, 100), 1.0);
        taken(&mut bench, 39);
        assert_near(steps(&mut bench, 1), 2.0);
        assert_near(steps(&mut bench, 497), 499.0);
        assert!(!bench.law.is_at_rest());
        assert_near(steps(&mut bench, 2), 500.0);
        assert!(bench.law.is_at_rest());
    }

    #[test]
    fn an_empty_queue_has_no_delay_whatever_the_last_call_waited() {
        let mut bench = Bench::of(&ENTRY, &[]);
        taken(&mut bench, 10_000);
        assert_near(steps(&mut bench, 2), 125.0);
        bench.signals.queue.waiting = 0;
        assert_near(steps(&mut bench, 1), 126.0);
    }

    #[test]
    fn only_new_calls_count_and_a_wait_of_twice_the_target_is_rejected() {
        let mut bench = Bench::of(&ENTRY, &[]);
        taken(&mut bench, 10);
        bench.signals.service =
            crate::Service { sojourn: Duration::from_secs(9), ..crate::Service::default() };
        bench.service();
        assert_near(steps(&mut bench, 1), 500.0);
        assert_eq!(bench.control.queue.wait_max, Some(Duration::from_millis(80)));
    }
}
